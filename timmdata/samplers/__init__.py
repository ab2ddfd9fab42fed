"Which samples come when: an order that the seed and the epoch decide, and the plan of batches."
