"""Messages of kernels, models and networks that no other test asks for."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import CannotAnswerError, DataError
from labelfield.errors import LabelfieldError
from labelfield.inducing import Free
from labelfield.kernels.base import DensePoints
from labelfield.kernels.combine import Sum
from labelfield.kernels.stationary import DotPower, matern
from labelfield.linalg.rows import Projected, squared_norms
from labelfield.models.deep.predict import DeepPredictor
from labelfield.models.mlgpf import start
from labelfield.models.mlgpf.model import _with_features
from labelfield.models.mlgpf.spec import Spec, build
from labelfield.models.multiclass.model import LinearSubset
from labelfield.models.multiclass.spec import ClassSpec
from labelfield.models.predictor import Block, Predictor
from labelfield.models.validation import check_modules
from labelfield.networks.mlp import BagMLP
from labelfield.share.hub import push_to_hub
from labelfield.synth import make_texts

PROJECTED = Projected(torch.ones(2, 3), torch.ones(2))
SIZES = {"n_features": 4, "n_labels": 3, "n_inducing": 2}
ROWS = sparse.csr_array(np.eye(4, dtype=np.float32))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: DensePoints(torch.ones(2, 3)).cross(PROJECTED, None), "points of the subspace"),
        (lambda: squared_norms(PROJECTED, torch.ones(3)), "no longer have features"),
        (lambda: _with_features(PROJECTED), "labels' linear processes need"),
        (lambda: LinearSubset(torch.ones(2, 3), 1.0).moments(PROJECTED), "linear utilities need"),
        (Sum, "at least one kernel"),
        (lambda: matern(1.0), "expected 0.5, 1.5 or 2.5"),
        (lambda: DotPower(0), "power=0"),
        (lambda: BagMLP(3, (), 2), "at least one width"),
        (lambda: Spec(**SIZES, n_latent=2, n_support=5), "n_support=5; expected at most n_features"),
        (lambda: Spec(**SIZES, n_latent=2, inducing="subspace"), "rank=0"),
        (lambda: ClassSpec(**SIZES, n_support=5), "n_support=5; expected at most n_features"),
        (lambda: ClassSpec(**SIZES, n_support=2, inducing="per_class"), "values on all features"),
        (lambda: make_texts(0), "n_documents=0"),
    ],
)
def test_values_that_do_not_fit(act, words):
    with pytest.raises(ValueError, match=words):
        act()


def test_starts_that_are_not_known():
    spec = Spec(**SIZES, n_latent=2)
    with pytest.raises(ValueError, match="basis='best'; expected one of"):
        start.start(build(spec), spec, ROWS, ROWS[:, :3], 0, basis="best")


def test_inducing_inputs_on_features_that_do_not_exist():
    inducing = Free(torch.ones(2, 3), n_features=4)
    inducing.support.copy_(torch.tensor([0, 1, 9]))
    with pytest.raises(ValueError, match="features that do not exist"):
        check_modules(inducing)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda predictor: predictor.sets(ROWS, 2, 1, 1), "factor models"),
        (lambda predictor: predictor.top_k_of_mean([], 1, None, None, None), "cannot rank means"),
    ],
)
def test_questions_that_a_model_has_no_answer_to(ask, words):
    class Silent(Predictor):
        n_labels, is_exclusive = 3, False

        def __init__(self):
            pass

        def probabilities(self, rows, calibrated=True):
            raise AssertionError

    with pytest.raises(CannotAnswerError, match=words):
        ask(Silent())


def test_probabilities_of_a_deep_kernel_that_are_no_numbers(monkeypatch):
    predictor = DeepPredictor.__new__(DeepPredictor)
    predictor.model = SimpleNamespace(is_plain=True)
    block = Block(slice(0, 2), slice(0, 3), torch.full((2, 3), torch.nan))
    monkeypatch.setattr(DeepPredictor, "features", lambda self, rows: iter(()))
    monkeypatch.setattr(DeepPredictor, "whole_rows", lambda self, *given: iter([block]))
    with pytest.raises(DataError, match="rows 0 and later are not numbers"):
        next(predictor.probabilities(ROWS))


def test_the_hub_without_its_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LabelfieldError, match="pip install huggingface_hub"):
        push_to_hub(tmp_path, "me/model")
