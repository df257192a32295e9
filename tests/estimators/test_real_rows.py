"""Models learn from real rows, in seconds: Enron's, where text, measurements of it and rare labels meet.

The levels are far above popularity (54 P@1) and three to four points below what the models reach: a broken reader,
transform, bound or ranking fails them.
"""

import pytest

from labelfield import LinearClassifier, MLGPFClassifier, TopicClassifier, metrics, preset, read

MODELS = {
    "mlgpf": lambda: MLGPFClassifier(n_latent=20, n_inducing=60, max_epochs=8),
    "journal": lambda: preset("journal", n_latent=20, n_inducing=40, batch_size=200, max_epochs=8, learning_rate=0.02),
    "linear": LinearClassifier,
    "topics": lambda: TopicClassifier(n_topics=30, max_epochs=15),
}


@pytest.mark.parametrize(("name", "least"), [("mlgpf", 75.0), ("journal", 75.0), ("linear", 74.0), ("topics", 71.0)])
def test_it_learns_enron(name, least, real_data):
    data = read(real_data("enron"))
    model = MODELS[name]().fit(data.X, data.Y)
    scores = metrics.evaluate(data.test.Y, model.predict_topk(data.test.X, 5))
    plain = metrics.evaluate(data.test.Y, metrics.popularity(data.Y, data.test.n_rows, 5))
    assert scores["P@1"] > max(least, plain["P@1"] + 5)
    assert scores["P@5"] > plain["P@5"] + 5
