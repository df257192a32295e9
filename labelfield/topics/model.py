"""A fitted topic model, to be saved: one estimate or several draws of its parameters."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from labelfield.models.calibration import Calibration, Temperature
from labelfield.topics.density import Drawn, label_probabilities
from labelfield.topics.spec import TopicSpec
from labelfield.topics.state import Topics


class TopicModel(nn.Module):
    """V (T, A, K) of the labels in `labels` (A,), `rest` (T, K) of each other one, W (T, D + 1, K), r (T, K),
    λ (D + 1,), η (1,), and the `share` (K,) of each topic in the labels of the training rows; beside them a
    `calibration`, which maps probabilities."""

    V: Tensor
    rest: Tensor
    W: Tensor
    r: Tensor
    precision: Tensor
    eta: Tensor
    labels: Tensor
    share: Tensor

    def __init__(self, spec: TopicSpec) -> None:
        super().__init__()
        self.calibration = Temperature() if spec.is_exclusive else Calibration(has_lead=True)
        self.n_labels = spec.n_labels
        T, A, K, D = spec.n_draws, spec.n_placed, spec.n_topics, spec.n_features
        shapes = {"V": (T, A, K), "rest": (T, K), "W": (T, D + 1, K), "r": (T, K), "precision": (D + 1,), "eta": (1,)}
        for name, shape in (shapes | {"share": (K,)}).items():
            self.register_buffer(name, torch.zeros(shape))
        self.register_buffer("labels", torch.zeros(A, dtype=torch.long))

    @property
    def device(self) -> torch.device:
        return self.r.device

    def hold(self, draws: Sequence[Topics]) -> None:
        """Set these draws, or the one estimate."""
        for name in ("V", "rest", "W", "r"):
            self.get_buffer(name).copy_(torch.stack([getattr(topics, name) for topics in draws]))
        self.precision.copy_(draws[-1].precision)
        self.eta.fill_(draws[-1].eta)

    def topics(self) -> Topics:
        """Return the estimate, or the last draw."""
        V, rest, W, r = (part[-1] for part in self.drawn())
        return Topics(V, rest, self.n_labels - len(V), W, r.double(), self.precision, float(self.eta))

    def topics_of_all(self) -> Topics:
        """Return the topics with a place for every label."""
        few = self.topics()
        V = few.rest.repeat(self.n_labels, 1)
        V[self.labels] = few.V
        return replace(few, V=V, n_rest=0)

    def drawn(self) -> Drawn:
        """Return all draws, or the one estimate."""
        return Drawn(self.V, self.rest, self.W, self.r)

    def predict_proba(self, X: Tensor, drawn: Drawn | None = None) -> Tensor:
        """Return the probability of each label (N, L), in closed form, for these draws or for all."""
        placed, rest = label_probabilities(X, drawn or self.drawn())
        if len(self.labels) == self.n_labels:
            return placed
        return rest.unsqueeze(1).repeat(1, self.n_labels).index_copy_(1, self.labels, placed)

    def check(self) -> None:
        """Check the arrays of a file."""
        ends = self.labels.new_tensor([-1, self.n_labels])
        if not bool((torch.cat([ends[:1], self.labels, ends[1:]]).diff() > 0).all()):
            raise ValueError("labels that do not exist, or are not in order")
        for name in ("r", "precision", "eta"):
            if not bool((self.get_buffer(name) > 0).all()):
                raise ValueError(f"{name} is not positive")
        if any(bool((part < 0).any()) for part in (self.V, self.rest, self.share)):
            raise ValueError("negative label weights or topic shares")
