"""A specification that cannot be built is refused in one clear sentence, whoever wrote it."""

import json
from dataclasses import asdict

import pytest

from labelfield.networks import NetworkSpec, square_image_shape

GOOD = {"name": "cnn", "n_features": 64, "n_outputs": 3, "hidden": (5,), "channels": (2, 3), "image_shape": (1, 8, 8)}


def test_json_brings_it_back():
    spec = NetworkSpec(**GOOD, dropout=0.25)
    assert NetworkSpec(**json.loads(json.dumps(asdict(spec)))) == spec
    assert hash(spec) == hash(NetworkSpec(**json.loads(json.dumps(asdict(spec)))))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"name": "rnn"}, "name='rnn'; expected one of mlp, bag, cnn"),
        ({"name": ["mlp"]}, r"name=\['mlp'\]; expected one of mlp, bag, cnn"),
        ({"name": None}, "name=None; expected one of"),
        ({"n_features": 0}, "n_features=0; expected an integer from 1 to 2147483647"),
        ({"n_features": 64.0}, "n_features=64.0; expected an integer"),
        ({"n_features": 1 << 31}, "n_features=2147483648; expected an integer"),
        ({"n_outputs": True}, "n_outputs=True; expected an integer from 1 to 65536"),
        ({"n_outputs": "3"}, "n_outputs='3'; expected an integer"),
        ({"hidden": 5}, "hidden=5; expected a list of at most 64 integers"),
        ({"hidden": "55"}, "hidden='55'; expected a list of at most 64 integers"),
        ({"hidden": [1] * 65}, "expected a list of at most 64 integers"),
        ({"hidden": [5, -1]}, r"hidden\[1\]=-1; expected an integer from 1 to 65536"),
        ({"hidden": [False]}, r"hidden\[0\]=False; expected an integer"),
        ({"hidden": [[5]]}, r"hidden\[0\]=\[5\]; expected an integer"),
        ({"channels": None}, "channels=None; expected a list of at most 64 integers"),
        ({"channels": [1 << 17]}, r"channels\[0\]=131072; expected an integer"),
        ({"channels": [2, 2, 2, 2]}, r"image_shape=\(1, 8, 8\) with 4 convolutions; expected sides of at least 16"),
        ({"image_shape": None}, "image_shape=None with name='cnn'; expected channels, height and width"),
        ({"image_shape": [8, 8]}, r"image_shape=\(8, 8\); expected channels, height and width"),
        ({"image_shape": [1, 8, 9]}, r"image_shape=\(1, 8, 9\); .* whose product is n_features=64"),
        ({"image_shape": [-1, -8, 8]}, r"image_shape\[0\]=-1; expected an integer"),
        ({"dropout": 1}, "dropout=1; expected a number of at least 0 and below 1"),
        ({"dropout": -0.1}, "dropout=-0.1; expected a number"),
        ({"dropout": float("nan")}, "dropout=nan; expected a number"),
        ({"dropout": False}, "dropout=False; expected a number"),
        ({"dropout": None}, "dropout=None; expected a number"),
        ({"name": "bag", "hidden": []}, r"hidden=\(\) with name='bag'; expected at least one width"),
        ({"name": "mlp", "hidden": [65536] * 9}, "weights; expected at most 4294967296"),
    ],
)
def test_bad_specifications_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        NetworkSpec(**(GOOD | bad))


@pytest.mark.parametrize(
    ("n_features", "shape"),
    [
        (784, (1, 28, 28)),
        (3072, (3, 32, 32)),
        (12, (3, 2, 2)),
        (3, (3, 1, 1)),
        (1, (1, 1, 1)),
        (785, None),
        (2, None),
        (0, None),
    ],
)
def test_square_images_are_recognised(n_features, shape):
    assert square_image_shape(n_features) == shape
