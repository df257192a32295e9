"""The table of methods and the classes that it names agree, and it is light."""

import subprocess
import sys
from typing import get_args

import pytest

import labelfield
from labelfield.cli.training import Method
from labelfield.estimators.options import parameters
from labelfield.methods import CLASSES, EITHER, METHODS, SEVERAL, methods_by_labels
from labelfield.models.multiclass.spec import LIKELIHOODS


@pytest.mark.parametrize("name", METHODS)
def test_a_class_and_its_entry_agree(name):
    method = METHODS[name]
    estimator = method.load()(**method.options)
    assert estimator.method == name
    assert method.labels in (SEVERAL, CLASSES, EITHER)
    assert estimator.blueprint.can_be_multi_label == (method.labels != CLASSES)
    assert not method.decided_by or method.labels == EITHER
    options = parameters(type(estimator))
    for option, values in method.decided_by.items():
        assert all(options[option].constraint.accepts(value) for value in values)
        assert set(values.values()) == {True, False}
    assert method.sentence.endswith(".")


def test_every_classifier_is_a_method_and_every_likelihood():
    public = {name for name in labelfield.__all__ if name.endswith("Classifier")}
    public -= {"EnsembleClassifier", "TextClassifier"}  # which are made of others
    assert {method.load().__name__ for method in METHODS.values()} == public
    assert {method.options["likelihood"] for method in METHODS.values() if method.options} == set(LIKELIHOODS)


def test_the_command_line_knows_all_of_them():
    assert get_args(Method) == tuple(METHODS)
    assert methods_by_labels().startswith("auto, mlgpf or topics for several labels per row; ")
    assert all(name in methods_by_labels() for name in METHODS)


def test_neither_the_table_nor_the_commands_import_torch():
    code = "import sys, labelfield.cli.main, labelfield.methods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
