"""The cost of a model, known before it is built, covers its parameters."""

import pytest

from labelfield.memory import BYTES_PER_PARAMETER
from labelfield.models.mlgpf.cost import n_parameters, training_bytes
from labelfield.models.mlgpf.spec import INDUCING, Spec, build
from labelfield.variational.families import POSTERIORS


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("inducing", INDUCING)
@pytest.mark.parametrize("kernel", ["se", "se_ard", "se_per_process", "linear_ard"])
@pytest.mark.parametrize(("label_linear", "n_label_linear"), [("off", 0), ("point", 50), ("mean_field", 50)])
def test_parameters_are_counted(posterior, inducing, kernel, label_linear, n_label_linear):
    spec = Spec(60, 40, 4, 10, kernel, posterior, inducing, 8, label_linear=label_linear, n_label_linear=n_label_linear)
    learned = sum(p.numel() for p in build(spec).parameters() if p.requires_grad)
    # Left out: a length that all share, and the scale of mean-field weights.
    assert learned - n_parameters(spec) == (kernel == "se") + (label_linear == "mean_field")
    assert training_bytes(spec, 30, 40) > BYTES_PER_PARAMETER * learned
