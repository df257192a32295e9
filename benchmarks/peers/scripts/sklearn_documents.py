"""scikit-learn's TfidfVectorizer and one LinearSVC per label, on documents as TSV of text and `<uri> …`.

Scores are no probabilities: the sigmoid of the margin only keeps their order.
"""

import re
import warnings
from pathlib import Path

import numpy as np
from protocol import Clock, finish, task
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC


def read(path):
    """Read texts, and the numbers at the end of their URIs."""
    lines = [line.rpartition("\t") for line in Path(path).read_text(encoding="utf-8").split("\n")[:-1]]
    return [text for text, _, _ in lines], [[int(n) for n in re.findall(r"/(\d+)>", uris)] for _, _, uris in lines]


asked, clock = task(), Clock()
warnings.filterwarnings("ignore", "Label not .* is present in all training examples")  # once per label
encoder, labels = TfidfVectorizer(**asked["options"]), MultiLabelBinarizer(sparse_output=True)
model = OneVsRestClassifier(LinearSVC(), n_jobs=asked["threads"])
with clock("train"):
    texts, lists = read(asked["train"])
    model.fit(encoder.fit_transform(texts), labels.fit_transform(lists))
texts, _ = read(asked["test"])
with clock("predict"):
    margins = model.decision_function(encoder.transform(texts))
    best = np.argsort(-margins, axis=1, kind="stable")[:, : asked["k"]]
    scores = 1 / (1 + np.exp(-np.take_along_axis(margins, best, axis=1)))
names = labels.classes_[best]
ranked = [[(int(label), float(p)) for label, p in zip(*row, strict=True)] for row in zip(names, scores, strict=True)]
size = sum(part.coef_.nbytes + part.intercept_.nbytes for part in model.estimators_ if hasattr(part, "coef_"))
finish(asked, clock, ranked, size)
