"""The spec of a deep kernel model refuses bad values in one line, and survives JSON."""

import json
import re
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelfield.kernels.names import LAG_KERNELS
from labelfield.models.deep.spec import CONSTRAINTS, DeepSpec, build
from labelfield.networks import NetworkSpec

MLP = NetworkSpec("mlp", 5, 4, (6,))
GOOD = DeepSpec(5, 3, MLP, 4, ((0,), (1,), (2,), (3,)), 8)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("kernel", ["cubic", "se_ard", None, ["se"]]),
        ("posterior", ["full"]),
        ("likelihood", ["robustmax"]),
        ("moments", ["some"]),
        ("grid_size", [4, 8.0, True, "8", 1 << 20]),
        ("n_features", [0, True]),
        ("n_labels", [0, 1]),
        ("n_outputs", [True]),
        ("n_samples", [0, True]),
        ("n_samples_predict", [None]),
        ("n_points", [0, 10_000]),
        ("jitter", [-1e-9, NAN, INF, "small"]),
        ("subsets", [(), (0, 1), "01", None]),
    ],
)
def test_an_option_out_of_bounds_is_one_clear_error(name, values):
    for value in values:
        with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}; expected ")) as caught:
            replace(GOOD, **{name: value})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"subsets": ((0,), (1, 2))}, "subsets of 1, 2 features"),
        ({"subsets": ((0, 1, 2, 3),)}, "subsets of 4 features"),
        ({"subsets": ((),)}, "subsets of 0 features"),
        ({"subsets": ((4,),)}, "the feature 4; expected"),
        ({"subsets": ((-1,),)}, "the feature -1; expected"),
        ({"subsets": ((True,),)}, "the feature True; expected"),
        ({"subsets": ((0.0,),)}, "the feature 0.0; expected"),
        ({"subsets": ((0, 1), (2, 2))}, r"\(2, 2\); expected"),
        ({"network": NetworkSpec("mlp", 5, 3, (6,))}, "network"),
        ({"network": NetworkSpec("mlp", 6, 4, (6,))}, "network"),
        ({"n_outputs": 5}, "network"),
        ({"grid_size": 50_000}, "grid_size=50000 for 4 processes on 1 features each"),
        ({"grid_size": 3000, "subsets": ((0, 1, 2),)}, "grid_size=3000 for 1 processes on 3 features each"),
    ],
)
def test_parts_that_do_not_fit_together_are_one_clear_error(wrong, message):
    with pytest.raises(ValueError, match=message) as caught:
        replace(GOOD, **wrong)
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
        kernel_per_process=draw(st.booleans()),
        posterior=draw(st.sampled_from(sorted(CONSTRAINTS["posterior"].words))),
        likelihood=draw(st.sampled_from(CONSTRAINTS["likelihood"].words)),
        moments=draw(st.sampled_from(CONSTRAINTS["moments"].words)),
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
    model = build(spec, own)
    J, d, n = len(spec.subsets), len(spec.subsets[0]), spec.grid_size
    assert (spec.n_processes, spec.n_dimensions, spec.n_latent) == (J, d, J)
    assert model.A.shape == (spec.n_labels, J)
    assert model.processes.family.mean.shape == (J, n**d)
    assert model.processes.family.factor.shape == (J, d, n, n)
    assert model.processes.prior().columns.shape == (J if spec.kernel_per_process else 1, d, n)
    assert len(model.processes.log_variance) == (J if spec.kernel_per_process else 1)
    assert (model.baseline is not None) == spec.has_baseline
    assert (model.is_multilabel, model.is_sampled) == (spec.likelihood == "bernoulli", spec.moments == "sampled")
    with torch.device("meta"):
        empty = build(spec, None if own is None else torch.nn.Linear(5, spec.n_outputs))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(0.1, 0.5)
        empty.load_state_dict(model.state_dict(), assign=True)
        h = torch.randn(3, spec.n_outputs)
        assert torch.equal(model.predict_proba(model.latent(h)), empty.predict_proba(empty.latent(h)))
