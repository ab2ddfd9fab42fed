"Who does the work: threads or processes that load the samples of batches."
