"""What a deep kernel model is made of: bad words and numbers are refused in one line, good ones survive JSON."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelfield.kernels.names import LAG_KERNELS
from labelfield.models.build_deep import (
    DEEP_LIKELIHOODS,
    DEEP_MOMENTS,
    GRID_POSTERIORS,
    DeepSpec,
    FeatureError,
    build_deep,
    require_features,
    start_deep,
)
from labelfield.networks import NetworkSpec

MLP = NetworkSpec("mlp", 5, 4, (6,))
GOOD = DeepSpec(5, 3, MLP, 4, ((0,), (1,), (2,), (3,)), 8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kernel": "cubic"}, r"kernel='cubic'; expected one of se, matern12"),
        ({"kernel": "se_ard"}, r"kernel='se_ard'; expected one of se"),
        ({"kernel": None}, r"kernel=None; expected one of se"),
        ({"kernel": ["se"]}, r"kernel=\['se'\]; expected one of se"),
        ({"posterior": "full"}, r"posterior='full'; expected one of whitened_kronecker, kronecker"),
        ({"likelihood": "robustmax"}, r"likelihood='robustmax'; expected one of softmax, bernoulli"),
        ({"moments": "some"}, r"moments='some'; expected one of exact, sampled"),
        ({"grid_size": 4}, r"grid_size=4; expected an integer of at least 5"),
        ({"grid_size": 8.0}, r"grid_size=8.0; expected an integer of at least 5"),
        ({"grid_size": True}, r"grid_size=True; expected an integer of at least 5"),
        ({"grid_size": "8"}, r"grid_size='8'; expected an integer of at least 5"),
        ({"n_features": 0}, r"n_features=0; expected an integer of at least 1"),
        ({"n_features": True}, r"n_features=True; expected an integer"),
        ({"n_labels": 0}, r"n_labels=0; expected an integer"),
        ({"n_labels": 1}, r"n_labels=1; expected at least 2 classes"),
        ({"n_outputs": True}, r"n_outputs=True; expected an integer"),
        ({"n_mixtures": 0}, r"n_mixtures=0; expected an integer"),
        ({"n_mixtures": True}, r"n_mixtures=True; expected an integer"),
        ({"n_samples": 0}, r"n_samples=0; expected an integer"),
        ({"n_samples": True}, r"n_samples=True; expected an integer"),
        ({"n_samples_predict": None}, r"n_samples_predict=None; expected an integer"),
        ({"n_points": 0}, r"n_points=0; expected an integer"),
        ({"n_points": 10_000}, r"n_points=10000; expected at most"),
        ({"jitter": -1e-9}, r"jitter=-1e-09; expected a number of at least 0"),
        ({"jitter": float("nan")}, r"jitter=nan; expected a number"),
        ({"jitter": float("inf")}, r"jitter=inf; expected a number"),
        ({"jitter": "small"}, r"jitter='small'; expected a number"),
        ({"subsets": ((0,), (1, 2))}, r"subsets of 1, 2 features; expected a list for each process of 1 to 3"),
        ({"subsets": ((0, 1, 2, 3),)}, r"subsets of 4 features; expected a list for each process of 1 to 3"),
        ({"subsets": ((),)}, r"subsets of 0 features; expected"),
        ({"subsets": ()}, r"subsets=\(\); expected a list for each process"),
        ({"subsets": (0, 1)}, r"subsets=\(0, 1\); expected a list for each process"),
        ({"subsets": "01"}, r"subsets='01'; expected a list for each process"),
        ({"subsets": None}, r"subsets=None; expected a list for each process"),
        ({"subsets": ((4,),)}, r"subsets has the feature 4; expected numbers from 0 to 3"),
        ({"subsets": ((-1,),)}, r"subsets has the feature -1; expected numbers from 0 to 3"),
        ({"subsets": ((True,),)}, r"subsets has the feature True; expected numbers"),
        ({"subsets": ((0.0,),)}, r"subsets has the feature 0.0; expected numbers"),
        ({"subsets": ((0, 1), (2, 2))}, r"subsets has \(2, 2\); expected each feature once"),
        ({"network": NetworkSpec("mlp", 5, 3, (6,))}, "the network takes or gives another number of features"),
        ({"network": NetworkSpec("mlp", 6, 4, (6,))}, "the network takes or gives another number of features"),
        ({"n_outputs": 5}, "the network takes or gives another number of features"),
        ({"grid_size": 1 << 20}, r"grid_size=1048576 for 4 processes on 1 features each; expected a smaller grid"),
        ({"grid_size": 3000, "subsets": ((0, 1, 2),)}, r"grid_size=3000 for 1 processes on 3 features each"),
    ],
)
def test_bad_input_is_one_clear_error(wrong, message):
    with pytest.raises(ValueError, match=message) as caught:
        replace(GOOD, **wrong)
    assert type(caught.value) is ValueError
    assert "\n" not in str(caught.value)


def test_one_label_may_be_bernoulli():
    assert replace(GOOD, n_labels=1, likelihood="bernoulli").n_labels == 1


@st.composite
def specs(draw):
    Q, d = draw(st.integers(3, 6)), draw(st.integers(1, 3))
    subset = st.lists(st.integers(0, Q - 1), min_size=d, max_size=d, unique=True).map(tuple)
    network = st.none() | st.sampled_from(["mlp", "bag"]).map(
        lambda name: NetworkSpec(name, 5, Q, (4, 3), dropout=0.25)
    )
    return DeepSpec(
        n_features=5,
        n_labels=draw(st.integers(2, 4)),
        network=draw(network),
        n_outputs=Q,
        subsets=tuple(draw(st.lists(subset, min_size=1, max_size=4))),
        grid_size=draw(st.integers(5, 7)),
        kernel=draw(st.sampled_from(LAG_KERNELS)),
        n_mixtures=draw(st.integers(1, 3)),
        own_kernel=draw(st.booleans()),
        posterior=draw(st.sampled_from(sorted(GRID_POSTERIORS))),
        likelihood=draw(st.sampled_from(DEEP_LIKELIHOODS)),
        moments=draw(st.sampled_from(DEEP_MOMENTS)),
        n_samples=draw(st.integers(1, 3)),
        jitter=draw(st.sampled_from([0, 1e-6, 1e-3])),
        is_plain=draw(st.booleans()),
        has_baseline=draw(st.booleans()),
        network_class=draw(st.sampled_from(["", "mine.Network"])),
    )


@given(specs())
def test_a_spec_survives_json(spec):
    again = DeepSpec(**json.loads(json.dumps(asdict(spec))))
    assert again == spec
    assert hash(again) == hash(spec)


@given(specs())
def test_a_model_has_the_shapes_of_its_spec_and_one_without_memory_can_be_filled(spec):
    own = None if spec.network is not None else torch.nn.Linear(5, spec.n_outputs)
    model = build_deep(spec, own)
    J, d, n = len(spec.subsets), len(spec.subsets[0]), spec.grid_size
    assert (spec.n_processes, spec.n_dimensions, spec.n_latent) == (J, d, J)
    assert model.A.shape == (spec.n_labels, J)
    assert model.processes.family.mean.shape == (J, n**d)
    assert model.processes.family.factor.shape == (J, d, n, n)
    assert model.processes.prior().columns.shape == (J if spec.own_kernel else 1, d, n)
    assert len(model.processes.log_variance) == (J if spec.own_kernel else 1)
    assert (model.baseline is not None) == spec.has_baseline
    assert (model.is_multilabel, model.is_sampled) == (spec.likelihood == "bernoulli", spec.moments == "sampled")
    with torch.device("meta"):
        empty = build_deep(spec, None if own is None else torch.nn.Linear(5, spec.n_outputs))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(0.1, 0.5)
        empty.load_state_dict(model.state_dict(), assign=True)
        h = torch.randn(3, spec.n_outputs)
        assert torch.equal(model.predict_proba(model.latent(h)), empty.predict_proba(empty.latent(h)))


@pytest.mark.parametrize("n_labels", [3, 4])
def test_it_starts_with_an_identity_or_a_drawn_mixing_and_the_log_odds(n_labels):
    spec = replace(GOOD, n_labels=n_labels, likelihood="bernoulli")
    counts = np.array([0, 5, 10, 2][:n_labels])
    models = [build_deep(spec) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        start_deep(model, counts, 10, seed)
    a, b, c = (model.state_dict() for model in models)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["features.network.last.W"], c["features.network.last.W"])
    if n_labels == 4:
        assert torch.equal(a["A"], torch.eye(4))
    else:
        assert not torch.equal(a["A"], c["A"])
        assert 0.2 < a["A"].norm(dim=1).mean() < 2
    odds = (counts + 0.5) / (10 - counts + 0.5)
    torch.testing.assert_close(a["b"], torch.from_numpy(np.log(odds)).float())
    classes = build_deep(replace(spec, likelihood="softmax"))
    start_deep(classes, counts, 10, 1)
    assert not classes.b.any()


def test_features_that_are_not_finite_are_named():
    h = torch.zeros(4, 3)
    require_features(h)
    h[2, 1] = float("inf")
    with pytest.raises(FeatureError, match="not finite for row 12;"):
        require_features(h, 10)
