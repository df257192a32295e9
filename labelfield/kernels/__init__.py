"""Covariance functions of dense or sparse rows, computed from weighted inner products alone."""

from labelfield.kernels.base import DensePoints, Kernel, Points
from labelfield.kernels.combine import Scaled, Sum, White
from labelfield.kernels.stationary import DotPower, matern, squared_exponential

__all__ = ["DensePoints", "DotPower", "Kernel", "Points", "Scaled", "Sum", "White", "matern", "squared_exponential"]
