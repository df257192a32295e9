"""Flat scikit-learn classifiers: the front door."""

from labelfield.estimators.deep import DeepKernelClassifier
from labelfield.estimators.gp import GPClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.estimators.saving import load
from labelfield.estimators.topics import TopicClassifier

__all__ = ["DeepKernelClassifier", "GPClassifier", "MLGPFClassifier", "TopicClassifier", "load"]
