"""One step of the papers' model in GPflow, run by the interpreter of an environment that has GPflow and TensorFlow.

`python -m benchmarks.peers.gpflow_step P M rows.npz` prints seconds, tracing seconds, peak memory and versions as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import Any

from benchmarks.measuring.isolated import measured

N_POINTS, JITTER = 10, 1e-5


def _prepare(path: str) -> Any:
    import gpflow
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(os.cpu_count() or 1)  # as in the other libraries
    tf.config.threading.set_inter_op_parallelism_threads(1)
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(JITTER)
    with np.load(path) as rows:
        X, Y = tf.constant(rows["X"]), tf.constant(rows["Y"])
    return X, Y


def _work(n_latent: int, n_inducing: int, rows: Any) -> dict[str, float]:
    import gpflow
    import numpy as np
    import tensorflow as tf

    X, Y = rows
    n_labels = int(Y.shape[1])

    class Logistic(gpflow.likelihoods.ScalarLikelihood):  # type: ignore[misc]  # GPflow is not installed here
        """log p(y | f) = y f - softplus(f), as in the other libraries' steps."""

        def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
            return Y * F - tf.math.softplus(F)

        def _conditional_mean(self, X: Any, F: Any) -> Any:
            return tf.sigmoid(F)

        def _conditional_variance(self, X: Any, F: Any) -> Any:
            p = tf.sigmoid(F)
            return p - p * p

    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(X.shape[1], np.float32))
    gpflow.set_trainable(kernel.variance, False)
    W = np.random.default_rng(0).normal(0, n_latent**-0.5, (n_labels, n_latent)).astype(np.float32)
    Z = gpflow.inducing_variables.InducingPoints(X[:n_inducing].numpy())
    model = gpflow.models.SVGP(
        gpflow.kernels.LinearCoregionalization([kernel] * n_latent, W=W),
        Logistic(quadrature=gpflow.quadrature.NDiagGHQuadrature(1, N_POINTS)),
        gpflow.inducing_variables.SharedIndependentInducingVariables(Z),
        num_latent_gps=n_latent,
        num_data=X.shape[0],
    )
    optimiser = tf.keras.optimizers.Adam(0.01)
    variables = model.trainable_variables
    optimiser.build(variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow is not installed here
    def step() -> None:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = -model.elbo((X, Y)) / X.shape[0]
        optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    started = time.perf_counter()
    step()
    traced = time.perf_counter() - started
    n_steps = 3 if n_inducing < 200 else 2
    started = time.perf_counter()
    for _ in range(n_steps):
        step()
    return {"seconds": (time.perf_counter() - started) / n_steps, "tracing_seconds": traced}


def main() -> None:
    n_latent, n_inducing, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    found = measured(partial(_prepare, path), partial(_work, n_latent, n_inducing))
    import gpflow
    import tensorflow as tf

    versions = {"gpflow": gpflow.__version__, "tensorflow": tf.__version__}
    print(json.dumps({**found.value, "peak_mb": found.peak_mb, "versions": versions}))


if __name__ == "__main__":
    main()
