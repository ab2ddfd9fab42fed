"What a sample is: the image and the target of an index; labels changed, classes told, other data sets wrapped."
