"""scikit-learn's one-vs-rest logistic regression with its defaults, on rows of norm one unless raw rows do better."""

import warnings

import numpy as np
from csr_rows import read_rows
from protocol import Clock, finish, task
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

asked, clock = task(), Clock()
options = dict(asked["options"])
unit = options.pop("unit_rows", True)
warnings.filterwarnings("ignore", "Label not .* is present in all training examples")  # once per label
with clock("train"):
    X, Y = read_rows(asked["train"], unit)
    model = OneVsRestClassifier(LogisticRegression(**options), n_jobs=asked["threads"]).fit(X, Y)
X, _ = read_rows(asked["test"], unit)
with clock("predict"):
    P = model.predict_proba(X)
    best = np.argpartition(-P, min(asked["k"], P.shape[1]) - 1, axis=1)[:, : asked["k"]]
    scores = np.take_along_axis(P, best, axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    best, scores = (np.take_along_axis(values, order, axis=1) for values in (best, scores))
ranked = [[(int(label), float(p)) for label, p in zip(*row, strict=True)] for row in zip(best, scores, strict=True)]
size = sum(part.coef_.nbytes + part.intercept_.nbytes for part in model.estimators_ if hasattr(part, "coef_"))
finish(asked, clock, ranked, size)
