"What every step uses: keyed random numbers, the image of a sample, decoding, faults, memory, demo data."
