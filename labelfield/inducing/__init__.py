"""Where the inducing inputs Z live, and where they start."""

from labelfield.inducing.free import Free, PerClass
from labelfield.inducing.grid import Grid
from labelfield.inducing.start import frequent_features, kmeans, random_rows, singular_vectors
from labelfield.inducing.subspace import Subspace

__all__ = ["Free", "Grid", "PerClass", "Subspace", "frequent_features", "kmeans", "random_rows", "singular_vectors"]
