"""Families of q(u): each gives the moments of h at rows and its divergence from the prior."""

from labelfield.variational.base import Family, Moments, Prior
from labelfield.variational.full import Full
from labelfield.variational.parsimonious import Parsimonious
from labelfield.variational.whitened import WhitenedDiagonal, WhitenedFull, WhitenedShared

__all__ = [
    "Family",
    "Full",
    "Moments",
    "Parsimonious",
    "Prior",
    "WhitenedDiagonal",
    "WhitenedFull",
    "WhitenedShared",
]
