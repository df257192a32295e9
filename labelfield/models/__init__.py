"""Models, assembled from kernels, inducing inputs, families and likelihoods; one file each."""
