"""Networks that turn dense rows, sparse rows or images into features."""

from labelfield.networks.base import Dropout, Network, draw_dropout_from
from labelfield.networks.build import NETWORKS, NetworkSpec, build_network, count_outputs, square_image_shape
from labelfield.networks.cnn import CNN
from labelfield.networks.mlp import MLP, BagMLP

__all__ = [
    "CNN",
    "MLP",
    "NETWORKS",
    "BagMLP",
    "Dropout",
    "Network",
    "NetworkSpec",
    "build_network",
    "count_outputs",
    "draw_dropout_from",
    "square_image_shape",
]
