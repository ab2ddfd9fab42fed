"Batches that are made ahead, kept as files, and survive restarts."
