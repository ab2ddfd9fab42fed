"What a training loop iterates over: batches in order, checkpoints, and the way to the device."
