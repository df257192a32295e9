"""Options: every one is documented and checked, and a wrong value gives the one message that names it."""

import inspect
import re
from math import inf, nan

import numpy as np
import pytest
from method_cases import TEST, deep, gp, mlgpf, topics

from labelfield import (
    AutoClassifier,
    DeepKernelClassifier,
    EnsembleClassifier,
    GPClassifier,
    LinearClassifier,
    MLGPFClassifier,
    TopicClassifier,
)
from labelfield.constraints import Auto, Flag, Integer, OneOf, Real, Word, check_options
from labelfield.data.transform import VIEWS
from labelfield.estimators.methods import method_parameters, new_estimator
from labelfield.estimators.options import check_parameters, parameters, plain_options
from labelfield.methods import METHODS

SMALL = {
    MLGPFClassifier: mlgpf,
    GPClassifier: gp,
    DeepKernelClassifier: deep,
    TopicClassifier: topics,
    LinearClassifier: LinearClassifier,
    AutoClassifier: AutoClassifier,
}
every = pytest.mark.parametrize("cls", [*SMALL, EnsembleClassifier], ids=lambda cls: cls.__name__)
every_single = pytest.mark.parametrize("cls", SMALL, ids=lambda cls: cls.__name__)
# Options that are no scalars, or that are checked where they are read.
READ_ELSEWHERE = {
    MLGPFClassifier: {"device", "random_state"},
    GPClassifier: {"device", "random_state"},
    TopicClassifier: {"device", "random_state"},
    DeepKernelClassifier: {"device", "random_state", "network", "hidden", "channels", "image_shape", "subsets"},
    LinearClassifier: {"device", "random_state"},
    AutoClassifier: {"device", "random_state"},
    EnsembleClassifier: {"estimator"},
}
KINDS = {Integer: "int", Real: "float", OneOf: "str", Word: "str", Flag: "bool", Auto: "int"}


class TestDeclarations:
    @every
    def test_every_option_is_documented(self, cls):
        found = parameters(cls)
        assert list(found) == list(inspect.signature(cls).parameters)
        for name, parameter in found.items():
            assert parameter.kind, name
            assert parameter.meaning.endswith("."), name
            assert parameter.default == getattr(cls(), name), name
            if parameter.default is None:
                assert "None" in parameter.kind, name
            if parameter.constraint is not None:
                kinds = parameter.kind.split(" or ")
                assert KINDS[type(parameter.constraint)] in kinds, name
                assert ("None" in kinds) == (parameter.default is None), name

    @every
    def test_words_to_choose_from_are_all_named(self, cls):
        for name, parameter in parameters(cls).items():
            for word in getattr(parameter.constraint, "words", ()):
                assert word in parameter.meaning, (name, word)

    @every
    def test_row_transforms_are_all_named(self, cls):
        found = parameters(cls).get("row_transform")
        assert found is None or set(VIEWS) <= set(re.findall(r"\w+", found.meaning))

    @every
    def test_nothing_else_is_documented_or_constrained(self, cls):
        documented = [line.split(" : ")[0] for line in inspect.getdoc(cls).splitlines() if " : " in line]
        assert documented == list(inspect.signature(cls).parameters)
        assert set(cls.constraints) <= set(documented)

    @every
    def test_constraints_cover_every_scalar_option(self, cls):
        assert set(parameters(cls)) - set(cls.constraints) == READ_ELSEWHERE[cls]

    @every
    def test_defaults_are_allowed(self, cls):
        check_parameters(cls())

    @every
    def test_init_only_stores(self, cls):
        given = dict.fromkeys(inspect.signature(cls).parameters, object())
        assert cls(**given).get_params(deep=False) == given
        with pytest.raises(TypeError):
            cls(no_such_option=1)
        with pytest.raises(TypeError):
            cls(1)


def wrong_values(constraint):
    """Values that an option with this constraint may not have."""
    match constraint:
        case Integer(least, most):
            return [least - 1, *([] if most == inf else [most + 1]), 1.5, nan, "1", True, [1]]
        case Real(least, most):
            return [least - 1, *([] if most == inf else [most + 1]), nan, inf, -inf, "1", True]
        case OneOf():
            return ["no such word", "", 5, True]
        case Flag():
            return ["yes", 1, 0.0]
        case Word():
            return [5, 1.5, True]


class TestWrongValues:
    @every_single
    def test_the_one_message(self, cls):
        for name, constraint in cls.constraints.items():
            is_optional = parameters(cls)[name].default is None
            for value in wrong_values(constraint) + ([] if is_optional else [None]):
                with pytest.raises(ValueError) as caught:
                    cls(**{name: value}).fit(TEST.X, TEST.y)
                assert str(caught.value) == f"{name}={value!r}; expected {constraint}"

    @every_single
    def test_what_the_data_decide_may_be_none(self, cls):
        optional = [name for name, parameter in parameters(cls).items() if parameter.default is None]
        assert optional
        model = SMALL[cls](**dict.fromkeys(optional))
        model.prepare(TEST.X, TEST.y)
        assert all(getattr(model, name) is None for name in optional)  # fit decides, and leaves options as they were

    @every_single
    def test_the_ends_are_allowed(self, cls):
        for name, constraint in cls.constraints.items():
            for value in {getattr(constraint, "least", None), getattr(constraint, "most", None)} - {None, inf}:
                check_parameters(cls(**{name: value}))
            for word in getattr(constraint, "words", ()):
                check_parameters(cls(**{name: word}))

    @pytest.mark.parametrize(
        ("estimator", "message"),
        [
            (mlgpf(kernel="cubic"), "kernel"),
            (mlgpf(row_transform="cube"), "row_transform='cube'; expected one of"),
            (mlgpf(precompute=True), "precompute=True needs inducing='subspace'"),
            (mlgpf(precompute=True, inducing="subspace", kernel="se_ard"), "without a weight per feature"),
            (mlgpf(precompute=True, inducing="subspace", kernel="se", label_linear="point"), "label_linear='off'"),
            (gp(kernel="cubic"), "kernel"),
            (gp(row_transform="cube"), "row_transform='cube'; expected one of"),
            (gp(posterior="point", kernel="se"), "needs kernel='linear'"),
            (gp(posterior="point", likelihood="robustmax"), "has no gradient"),
            (topics(row_transform="cube"), "row_transform='cube'; expected one of"),
            (topics(n_topics=6), "n_topics=6; expected at most 5"),
            (deep(network="resnet"), "network='resnet'; expected one of"),
            (LinearClassifier(row_transform="cube"), "row_transform='cube'; expected one of"),
            (LinearClassifier(row_transform="unit+scaled"), r"row_transform='unit\+scaled'; expected one of"),
        ],
    )
    def test_values_that_depend_on_others(self, estimator, message):
        with pytest.raises(ValueError, match=message):
            estimator.fit(TEST.X, TEST.y)


class TestValues:
    def test_numpy_numbers_are_numbers(self):
        options = {"n_iter_no_change": np.int64(3), "kl_weight": np.float32(1), "unit_norm": np.True_}
        model = mlgpf(max_epochs=np.int64(1), jitter=np.float32(1e-4), **options).fit(TEST.X, TEST.Y)
        assert model.settings_.n_iter_no_change == 3
        assert type(model.settings_.max_epochs) is int
        assert model.spec_.unit_norm is True

    def test_plain_options_are_of_python(self):
        found = vars(plain_options(deep(hidden=np.array([4, 5]), grid_size=np.int32(9))))
        assert found["hidden"] == [4, 5]
        assert type(found["grid_size"]) is int

    def test_constraints_in_words(self):
        for constraint, words in (
            (Integer(1), "an integer of at least 1"),
            (Integer(1, 100), "an integer from 1 to 100"),
            (Real(0), "a number of at least 0"),
            (Real(1e-12, 0.5), "a number from 1e-12 to 0.5"),
            (OneOf(("a", "b")), "one of a, b"),
            (Flag(), "True or False"),
            (Word(), "text"),
        ):
            assert str(constraint) == words

    def test_the_first_wrong_option_is_named(self):
        constraints = {"a": Integer(1), "b": Flag()}
        check_options({"a": None, "b": True}, constraints, optional=["a"])
        with pytest.raises(ValueError, match="a=None; expected an integer of at least 1"):
            check_options({"a": None, "b": "no"}, constraints)
        with pytest.raises(ValueError, match="b='no'; expected True or False"):
            check_options({"a": np.int8(1), "b": "no"}, constraints)


class TestMethods:
    @pytest.mark.parametrize("method", METHODS)
    def test_estimators_by_name(self, method):
        estimator = new_estimator(method, {"time_budget": 3.0, "random_state": 4})
        assert type(estimator) is METHODS[method].load()
        assert estimator.method == method
        assert (estimator.time_budget, estimator.random_state) == (3.0, 4)
        assert all(getattr(estimator, name) == value for name, value in METHODS[method].options.items())

    @pytest.mark.parametrize("method", [method for method in METHODS if method != "auto"])
    def test_the_option_ensemble_makes_one_of_any_method_but_a_mix(self, method):
        options = {"ensemble": 3, "random_state": 2}
        estimator = new_estimator(method, options)
        assert isinstance(estimator, EnsembleClassifier)
        assert (estimator.method, estimator.n_members, estimator.estimator.random_state) == (method, 3, 2)
        assert options == {"ensemble": 3, "random_state": 2}
        assert type(new_estimator(method, {"ensemble": None})) is METHODS[method].load()
        assert "ensemble" in method_parameters(method)

    def test_a_mix_is_no_member(self):
        assert "ensemble" not in method_parameters("auto")
        with pytest.raises(ValueError, match="other than an ensemble or a mix"):
            new_estimator("auto", {"ensemble": 2}).fit(TEST.X, TEST.Y)

    def test_which_methods_take_one_class_per_row(self):
        found = {name: method.has_classes({}) for name, method in METHODS.items()}
        expected = {"one_vs_each": True, "robustmax": True, "softmax": True, "svdkl": None, "linear": None}
        assert found == {"auto": False, "mlgpf": False, "topics": False} | expected
        assert METHODS["svdkl"].has_classes({"likelihood": "softmax"}) is True
        assert METHODS["svdkl"].has_classes({"likelihood": "bernoulli"}) is False
