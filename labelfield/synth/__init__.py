"""Synthetic data whose truth is known: drawn from the GP factor model, from the topic model, and rings.

Everything is drawn in blocks of rows, without a dense N x D or N x K array. Each block has its own random stream, so
that the result depends only on the seed and not on the number of threads.
"""

from labelfield.synth.models import TopicTruth, Truth, make_multilabel, make_rings, make_topics
from labelfield.synth.texts import make_texts

__all__ = ["TopicTruth", "Truth", "make_multilabel", "make_rings", "make_texts", "make_topics"]
