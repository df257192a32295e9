"""Where the inducing inputs Z live, and where they start."""

from labelfield.inducing.free import Free
from labelfield.inducing.start import kmeans, singular_vectors
from labelfield.inducing.subspace import Subspace

__all__ = ["Free", "Subspace", "kmeans", "singular_vectors"]
