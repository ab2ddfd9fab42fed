"Where samples lie: readers list them, and give the bytes and the target of one."
