"""A linear process for each label finds labels that have words of their own."""

import numpy as np
from scipy import sparse

from labelfield import MLGPFClassifier


def test_labels_with_words_of_their_own(tmp_path):
    """Each label has one word, and there are more labels than the shared processes can tell apart."""
    rng = np.random.default_rng(0)
    Y = sparse.csr_array(np.eye(60, dtype=np.float32)[rng.integers(60, size=900)])
    X = sparse.csr_array(sparse.hstack([Y, sparse.random_array((900, 300), density=0.03, rng=rng, dtype=np.float32)]))
    options = {"n_latent": 2, "n_inducing": 20, "max_epochs": 10, "learning_rate": 0.1, "batch_size": 60}
    scores = {}
    for label_linear in ("off", "point", "mean_field"):
        model = MLGPFClassifier(label_linear=label_linear, **options).fit(X[:600], Y[:600])
        best = model.predict_topk(X[600:], 1)
        scores[label_linear] = Y[600:].toarray()[np.arange(300), best.indices].mean()
        model.save(tmp_path / label_linear)
    assert scores["point"] > scores["off"] + 0.3
    assert scores["mean_field"] > scores["off"]
