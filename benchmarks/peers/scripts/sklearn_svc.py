"""scikit-learn's one-vs-rest linear support vector machines with their defaults, on rows of norm one.

Their scores are no probabilities: the sigmoid of the margin only keeps their order.
"""

import warnings

import numpy as np
from csr_rows import read_rows
from protocol import Clock, finish, task
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

asked, clock = task(), Clock()
warnings.filterwarnings("ignore", "Label not .* is present in all training examples")  # once per label
with clock("train"):
    X, Y = read_rows(asked["train"], True)
    model = OneVsRestClassifier(LinearSVC(**asked["options"]), n_jobs=asked["threads"]).fit(X, Y)
X, _ = read_rows(asked["test"], True)
with clock("predict"):
    # A label that every row has, or none, has no machine.
    machines = [(part, hasattr(part, "coef_")) for part in model.estimators_]
    parts = [part.decision_function(X) if is_machine else 2.0 * part.predict(X) - 2 for part, is_machine in machines]
    margins = np.column_stack(parts)
    best = np.argsort(-margins, axis=1, kind="stable")[:, : asked["k"]]
    scores = 1 / (1 + np.exp(-np.take_along_axis(margins, best, axis=1)))
ranked = [[(int(label), float(p)) for label, p in zip(*row, strict=True)] for row in zip(best, scores, strict=True)]
size = sum(part.coef_.nbytes + part.intercept_.nbytes for part in model.estimators_ if hasattr(part, "coef_"))
finish(asked, clock, ranked, size)
