"""The papers' models, exactly as published, by name: options that turn a method into the model of a paper.

Our defaults depart from the papers where that predicts better or takes less time: a weighted divergence, three
quadrature points, a diagonal covariance. A preset has none of these. Where a paper leaves something open, the comment
beside it does, and our choice follows what the same authors write elsewhere. What differs by data set (P, M, R, epochs)
is in `recipes/`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

# The objective and the inputs of all factor models of the papers: the evidence lower bound over all labels and rows.
_FACTORS: dict[str, Any] = {
    "likelihood": "bernoulli",
    "kl_weight": 1.0,  # the divergence counts once: no other weight is a bound of the evidence
    "n_points": 10,  # of quadrature [MLJ 5]
    "n_points_predict": 10,
    "n_negatives": 0,  # all labels that do not hold [MLJ 5]
    "n_support": 0,  # Z has values on all features
    "unit_norm": True,  # of Z, as the rows have it [TH 4.5.2]
    "row_transform": "unit",
    "label_linear": "off",
    "calibrate": False,  # train on all rows
    "optimiser": "adam",
    "schedule": "constant",
    "learning_rate": 0.01,  # not said; on held-out rows of Bibtex 0.005 ranks alike, and 0.02 worse (docs/LAB.md)
}
# Multi-class models of the thesis [TH 3.8.3].
_CLASSES: dict[str, Any] = {
    "kernel": "se",  # one length
    "n_inducing": 100,
    "posterior": "full",
    "batch_size": 1000,
    "n_points": 10,
    "n_points_predict": 10,
    "kl_weight": 1.0,
    "calibrate": False,
    "optimiser": "adam",
    "schedule": "constant",
    "learning_rate": 0.001,  # [TH table 3.6]
}


class Preset(NamedTuple):
    """A model of a paper: a sentence about it, its method, and its options."""

    sentence: str
    method: str
    options: Mapping[str, Any]


PRESETS: dict[str, Preset] = {
    "journal": Preset(
        "MLGPF of the journal paper (2021): a sum of squared exponential and linear kernels with a weight for each "
        "feature, free inducing inputs, a full q(u).",
        "mlgpf",
        _FACTORS
        | {
            "kernel": "se_ard + linear_ard",
            "posterior": "full",
            "inducing": "free",
            "inducing_start": "kmeans",
            "n_inducing": 400,  # 600 for Wiki10 and AmazonCat [MLJ table 2], which also has P
            "batch_size": 400,  # not said; of the order of M [MLJ 4.2]
            "max_epochs": 50,  # those of its figure 2; the thesis [TH table 4.20] has 150 on Bibtex, 250 on EUR-Lex
        },
    ),
    "subspace": Preset(
        "MLGPF of the paper on subspace inducing inputs: a linear kernel, Z = A X̃ on singular vectors, and a "
        "parsimonious q(u).",
        "mlgpf",
        _FACTORS
        | {
            "kernel": "linear",
            "posterior": "parsimonious",
            "inducing": "subspace",
            "basis": "svd",
            "inducing_start": "kmeans",
            "n_latent": 30,
            "n_inducing": 500,
            "batch_size": 500,
            "max_epochs": 200,  # 400 on Bibtex, 20 on RCV1, 15 on AmazonCat
        },
    ),
    "thesis": Preset(
        "One-vs-each of the thesis (2019), OVSE-F: inducing inputs and a kernel for each class, a full q(u), and steps "
        "on one class against another.",
        "one_vs_each",
        _CLASSES
        | {
            "inducing": "per_class",
            "kernel_per_class": True,
            "classes_per_batch": 1,
            "n_negatives": 1,
            "max_epochs": 1667,  # its 10,000 are passes over the ten classes of MNIST: 100,000 steps of 1,000 rows
        },
    ),
    "thesis-robustmax": Preset(
        "Robustmax of the thesis (2019), RM-F: inducing inputs and a kernel that all classes share, a full q(u).",
        "robustmax",
        _CLASSES | {"inducing": "free", "kernel_per_class": False, "epsilon": 1e-3, "max_epochs": 100},
    ),
    "svdkl": Preset(
        "SV-DKL of its paper (2016): a network without dropout, a draw of u per step, and q(u) that is not whitened.",
        "svdkl",
        {
            "hidden": [1000, 1000, 500, 50],
            "dropout": 0.0,
            "kernel": "se",
            "posterior": "kronecker",
            "moments": "sampled",
            "n_samples": 1,
            "kl_weight": 1.0,
            "mixed_precision": False,
            "calibrate": False,
        },  # batches, rates, epochs and grids are not said; on airline data batches have 50,000 rows, of images 5,000
    ),
    "bmlpl": Preset(
        "BMLPL of its paper (2015): EM with two steps of conjugate gradients, λ by type-II maximum likelihood, flat "
        "priors.",
        "topics",
        {
            "algorithm": "em",
            "n_gradient_steps": 2,
            "max_epochs": 1000,
            "tol": 0.0,
            "precision_by": "evidence",
            "shape_strength": 1e-6,  # the prior of r is improper
            "row_transform": "none",  # not said
            "calibrate": False,
        },  # topics are 20 to 100 percent of the labels
    ),
}
