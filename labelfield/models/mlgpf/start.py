"""Where a multi-label factor model starts before the first step."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import column_counts
from labelfield.inducing import Subspace, kmeans, singular_vectors
from labelfield.likelihoods.squared_hinge import ABSENT
from labelfield.linalg.rows import dot, to_tensor
from labelfield.models.mlgpf.model import MLGPF
from labelfield.models.mlgpf.spec import Spec
from labelfield.models.sparse import STARTS, fill_shared, pad_rows, starting_points

BASES = ("svd", "kmeans")
# The bias of a label that holds in no row, under a squared hinge: below all others where a row gives no evidence.
_NEVER = -3.0


def start(
    model: MLGPF,
    spec: Spec,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    seed: int,
    *,
    start_mean: float = 1.0,
    basis: str = "svd",
    at: str = "kmeans",
    n_observed: NDArray[np.int64] | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Fill a model in place: Z from the rows, Φ ~ N(0, 1/P), b at the log-odds of each label, and random means of q.

    Z starts at centres of the rows (at="kmeans") or at random ones ("rows"). The log-odds of a label are those among
    the rows in which it was observed: `n_observed` (K,), by default all. One that never was has those of all together.

    Under a squared hinge b starts at -1, the mean of its prior. A label without a positive row would stay there, with
    the variance that Φ gives it, and come first in rows that are far from every other label; so its Φ is 0 and its b,
    with the mean of its prior, is -3. Neither has a gradient there until the label holds somewhere.

    The means are drawn from N(0, start_mean²), so that Φ has a gradient from the first step on. The rows are processed
    on this device, independently of where the model is.
    """
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    for name, value, words in (("basis", basis, BASES), ("at", at, STARTS)):
        if value not in words:
            raise ValueError(f"{name}={value!r}; expected one of {', '.join(words)}")
    with torch.no_grad():
        if isinstance(model.inducing, Subspace):
            # The basis X̃ (R, D): leading right singular vectors, or centres of the rows.
            find = singular_vectors if basis == "svd" else kmeans
            vectors = pad_rows(find(X, spec.rank, rng, device), spec.rank)
            model.inducing.basis.copy_(torch.from_numpy(vectors).T)
            model.inducing.refresh()
            coordinates = dot(to_tensor(X), model.inducing.basis).numpy()
            gram = model.inducing.get_buffer("basis_gram").numpy()
            points = starting_points(coordinates, spec.n_inducing, rng, device, at)
            # Coordinates are products with the basis; the weights that give them are G⁻¹ times the coordinates.
            model.inducing.A.copy_(torch.from_numpy(np.asarray(points @ np.linalg.pinv(gram), np.float32)))
        else:
            fill_shared(model.inducing, spec, X, rng, device, at)
        frequency = column_counts(Y)
        model.Phi.normal_(0, spec.n_latent**-0.5, generator=generator)
        if model.b_mean is None:
            seen = Y.shape[0] if n_observed is None else n_observed
            odds = (frequency + 0.5) / (seen - frequency + 0.5)
            if n_observed is not None and not n_observed.all():
                # These labels were observed in no row, so nothing is learned about them: they are as likely as others.
                unseen, n_held = n_observed == 0, frequency.sum()
                odds[unseen] = (n_held + 0.5) / (n_observed.sum() - n_held + 0.5)
                model.Phi[torch.from_numpy(unseen)] = 0
            model.b.copy_(torch.from_numpy(np.log(odds)))
        else:
            model.b_mean.copy_(torch.from_numpy(np.where(frequency > 0, ABSENT, _NEVER)))
            model.b.copy_(model.b_mean)
            model.Phi[torch.from_numpy(frequency == 0)] = 0
        mean = model.family.get_parameter("mean")
        # Drawn one inducing input after another, independently of the layout.
        mean.copy_(torch.empty(mean.shape[::-1]).normal_(0, start_mean, generator=generator).T)
