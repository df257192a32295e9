"""Covariance functions of dense or sparse rows, computed from weighted inner products alone."""

from labelfield.kernels.base import Kernel, LagKernel
from labelfield.kernels.combine import Scaled, Sum, White
from labelfield.kernels.dot import DotPower
from labelfield.kernels.points import DensePoints, Points
from labelfield.kernels.stationary import Matern, SquaredExponential, SquaredExponentialLinear

__all__ = [
    "DensePoints",
    "DotPower",
    "Kernel",
    "LagKernel",
    "Matern",
    "Points",
    "Scaled",
    "SquaredExponential",
    "SquaredExponentialLinear",
    "Sum",
    "White",
]
