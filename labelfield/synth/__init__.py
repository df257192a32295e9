"""Synthetic data with the truth known: of the GP factor model, of the topic model, and rings.

Everything is made in blocks of rows: no dense N x D or N x K exists. A block has its own random stream, so the result
depends on the seed alone and not on the number of threads.
"""

from labelfield.synth.factors import Truth, make_multilabel
from labelfield.synth.rings import make_rings
from labelfield.synth.topics import TopicTruth, make_topics

__all__ = ["TopicTruth", "Truth", "make_multilabel", "make_rings", "make_topics"]
