"From a key to its row of the batch: parameters are drawn, pixels decoded, cropped, changed and collected."
