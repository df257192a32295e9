"""A network for images."""

from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d

from labelfield.networks.base import Dropout, Layer, Network
from labelfield.networks.mlp import MLP

KERNEL_SIZE = 5


class Convolution(Layer):
    """A 5×5 convolution that keeps the size of an image."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__(n_outputs, n_inputs, KERNEL_SIZE, KERNEL_SIZE, n_outputs=n_outputs)

    def forward(self, images: Tensor) -> Tensor:
        return conv2d(images, self.W, self.b, padding=KERNEL_SIZE // 2)


class CNN(Network):
    """LeNet: convolutions to these channels, each with ReLU and 2×2 max-pooling, then dropout and an MLP.

    Rows are flattened images (channels, height, width).
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        channels: tuple[int, ...],
        hidden: tuple[int, ...],
        n_outputs: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.image_shape, self.n_outputs = image_shape, n_outputs
        self.convolutions = nn.ModuleList(Convolution(*sizes) for sizes in pairwise((image_shape[0], *channels)))
        self.dropout = Dropout(dropout)
        self.rest = MLP(prod(pooled_shape(image_shape, channels)), hidden, n_outputs, dropout)

    def forward(self, X: Tensor) -> Tensor:
        images = X.reshape(len(X), *self.image_shape)
        for convolution in self.convolutions:
            images = max_pool2d(convolution(images).relu(), 2)
        result: Tensor = self.rest(self.dropout(images.flatten(1)))
        return result

    def start(self, generator: torch.Generator) -> None:
        for convolution in self.convolutions:
            assert isinstance(convolution, Convolution)
            convolution.start(2, generator)
        self.rest.start(generator)


def pooled_shape(image_shape: tuple[int, int, int], channels: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the shape of an image after all convolutions; each one halves its sides."""
    n_channels = (image_shape[0], *channels)[-1]
    height, width = (side >> len(channels) for side in image_shape[1:])
    if min(height, width) < 1:
        least = 1 << len(channels)
        raise ValueError(
            f"image_shape={image_shape} with {len(channels)} convolutions; expected sides of at least {least}, "
            "since each convolution halves them"
        )
    return n_channels, height, width
