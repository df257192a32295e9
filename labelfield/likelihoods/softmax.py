"""The softmax p(y | f) = exp(f_y) / Σ_ℓ exp(f_ℓ), whose expectations are estimated from draws."""

import torch
from torch import Tensor

from labelfield.likelihoods.monte_carlo import expected_softmax
from labelfield.likelihoods.multiclass import MultiClass
from labelfield.linalg.gaussian import LEAST_DIVISOR


def mean_log_softmax(f: Tensor, target: Tensor) -> Tensor:
    """Return the mean over draws f (T, B, K) of log softmax_y(f) (B,), for classes y (B,)."""
    own = target.expand(f.shape[0], -1).unsqueeze(2)
    return f.log_softmax(2).gather(2, own).squeeze(2).mean(0)


class Softmax(MultiClass):
    """E log softmax_y(f) from T reparametrised draws f = mean + √var ε [DKL 4]: unbiased, and so are its gradients."""

    needs_all_classes = True

    def __init__(self, n_samples: int = 8, n_samples_predict: int = 256) -> None:
        self.n_samples, self.n_samples_predict = n_samples, n_samples_predict

    def _expected_log_prob(
        self, mean: Tensor, var: Tensor, target: Tensor, rival_weight: Tensor | None, generator: torch.Generator | None
    ) -> Tensor:
        """Draw again at every call, from torch's global generator if none is given."""
        draws = torch.randn((self.n_samples, *mean.shape), dtype=mean.dtype, device=mean.device, generator=generator)
        f = torch.addcmul(mean, var.clamp_min(LEAST_DIVISOR).sqrt(), draws)
        return mean_log_softmax(f, target)

    def predict_proba(self, mean: Tensor, var: Tensor) -> Tensor:
        return expected_softmax(mean, var, self.n_samples_predict)
