"Stands in for the package that Colab's kernels have loaded."
