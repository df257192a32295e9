"""On a GPU the same code finds the same topics."""

import numpy as np
import pytest
import torch

from labelfield import TopicClassifier, synth

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@needs_cuda
@pytest.mark.parametrize("hidden", [0.0, 0.5])
@pytest.mark.parametrize("algorithm", ["em", "online_em", "gibbs"])
def test_devices_agree(algorithm, hidden):
    """To rounding for EM; a sampler draws from the same numbers, and rounding parts two chains only slowly."""
    data = synth.make_topics(300, 40, 20, 4, seed=1)
    observed = np.random.default_rng(0).random(data.Y.shape) >= hidden
    options = {"n_topics": 4, "algorithm": algorithm, "max_epochs": 4, "n_draws": 2, "batch_size": 100}
    here, there = (
        TopicClassifier(device=device, **options).fit(data.X, data.Y, observed=observed if hidden else None)
        for device in ("cpu", "cuda")
    )
    assert there.model_.V.device.type == "cuda"
    a, b = here.predict_proba(data.X), there.predict_proba(data.X)
    assert np.abs(a - b).max() < (0.01 if algorithm != "gibbs" else 0.2)
    assert there.transform(data.X).shape == (300, 4)
    assert there.sample(data.X, 0).shape == data.Y.shape
