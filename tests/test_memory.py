"""While a model trains, only new objects are searched for garbage; what the caller had set apart stays so."""

import gc

import numpy as np
import pytest

from labelfield import GPClassifier
from labelfield.memory import only_new_garbage


@pytest.fixture(autouse=True)
def nothing_apart():
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_objects_are_set_apart_for_the_training_alone():
    rng, apart = np.random.default_rng(0), []
    model = GPClassifier(n_inducing=4, max_epochs=1)
    model.fit(rng.normal(size=(12, 2)), np.arange(12) % 2, on_step=lambda *_: apart.append(gc.get_freeze_count()))
    assert min(apart) > 0
    assert gc.get_freeze_count() == 0


def test_a_failure_gives_them_back():
    with pytest.raises(KeyError), only_new_garbage():
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_what_a_caller_has_set_apart_stays_so():
    gc.freeze()
    before = gc.get_freeze_count()
    with only_new_garbage():
        pass
    assert 0 < gc.get_freeze_count() <= before
