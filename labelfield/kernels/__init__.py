"""Covariance functions of dense or sparse rows, computed from weighted inner products alone."""

from labelfield.kernels.base import Kernel
from labelfield.kernels.combine import Scaled, Sum, White
from labelfield.kernels.dot import DotPower
from labelfield.kernels.points import DensePoints, Points
from labelfield.kernels.stationary import SquaredExponentialLinear, Stationary, matern, squared_exponential

__all__ = [
    "DensePoints",
    "DotPower",
    "Kernel",
    "matern",
    "Points",
    "Scaled",
    "squared_exponential",
    "SquaredExponentialLinear",
    "Stationary",
    "Sum",
    "White",
]
