"""Flat scikit-learn classifiers: the front door."""

from labelfield.estimators.auto import AutoClassifier
from labelfield.estimators.deep import DeepKernelClassifier
from labelfield.estimators.ensemble import EnsembleClassifier
from labelfield.estimators.gp import GPClassifier
from labelfield.estimators.linear import LinearClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.estimators.text import TextClassifier, load
from labelfield.estimators.topics import TopicClassifier

__all__ = [
    "AutoClassifier",
    "DeepKernelClassifier",
    "EnsembleClassifier",
    "GPClassifier",
    "LinearClassifier",
    "MLGPFClassifier",
    "TextClassifier",
    "TopicClassifier",
    "load",
]
