"""Rows to label next, as modAL and small-text choose them: `python active_rows.py TASK.npz OUT.npz`.

The task has rows X and labels Y of a pool, the rows that are labelled at first, the sizes to which they grow, and the
name of a package. Both train one-vs-rest logistic regression on rows of norm one. modAL chooses by its `max_loss` (the
largest loss of what is predicted beside the surest label), small-text by category vector inconsistency and ranking: the
strategies that they have for several labels per row.
"""

import sys
import warnings

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import normalize

warnings.filterwarnings("ignore")  # labels that no row has yet


class Rows(sparse.csr_matrix):
    """Sparse rows that know how many they are: modAL asks."""

    def __len__(self):
        return self.shape[0]


def by_modal(X, Y, labelled, left, n):
    """Return the places in `left` that modAL chooses."""
    from modAL.multilabel import max_loss

    # As it asks for, the machines themselves: they have `classes_`, which its ActiveLearner has not.
    machines = OneVsRestClassifier(LogisticRegression(solver="liblinear")).fit(X[labelled], Y[labelled])
    return np.asarray(max_loss(machines, X[left], n_instances=n)[0])


def by_small_text(X, Y, labelled, left, n):
    """Return the places in `left` that small-text chooses."""
    from small_text import CategoryVectorInconsistencyAndRanking, SklearnClassifier, SklearnDataset

    def labels_of(rows):
        return sparse.csr_matrix(Y[rows].astype(np.int64))

    every = np.arange(X.shape[0])
    data = SklearnDataset(sparse.csr_matrix(X), labels_of(every), target_labels=np.arange(Y.shape[1]))
    classifier = SklearnClassifier(LogisticRegression(solver="liblinear"), Y.shape[1], multi_label=True)
    classifier.fit(data[labelled])
    chosen = CategoryVectorInconsistencyAndRanking().query(classifier, data, left, labelled, labels_of(labelled), n=n)
    return np.searchsorted(left, chosen)


CHOICES = {"modAL": by_modal, "small-text": by_small_text}


def main(task, out):
    """Choose rows up to each size."""
    given = np.load(task)
    X = Rows(normalize(sparse.csr_matrix((given["X_data"], given["X_indices"], given["X_indptr"]), given["X_shape"])))
    Y = sparse.csr_matrix((given["Y_data"], given["Y_indices"], given["Y_indptr"]), given["Y_shape"])
    Y = Y.toarray().astype(np.int64)
    np.random.seed(int(given["seed"]))  # noqa: NPY002  # both packages draw from it
    labelled, choose = given["first"], CHOICES[str(given["package"])]
    for size in given["sizes"][1:].tolist():
        left = np.setdiff1d(np.arange(X.shape[0]), labelled)
        n = size - len(labelled)
        chosen = choose(X, Y, labelled, left, n) if n < len(left) else np.arange(n)
        labelled = np.concatenate([labelled, left[chosen]])
    np.savez(out, labelled=labelled)


if __name__ == "__main__":
    main(*sys.argv[1:])
