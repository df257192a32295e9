"""Likelihoods p(y | f) and their expectations."""

from labelfield.likelihoods.bernoulli import Bernoulli
from labelfield.likelihoods.multiclass import MultiClass
from labelfield.likelihoods.multilabel import MultiLabel
from labelfield.likelihoods.one_vs_each import OneVsEach
from labelfield.likelihoods.robustmax import RobustMax
from labelfield.likelihoods.softmax import Softmax
from labelfield.likelihoods.squared_hinge import SquaredHinge

__all__ = ["Bernoulli", "MultiClass", "MultiLabel", "OneVsEach", "RobustMax", "Softmax", "SquaredHinge"]
