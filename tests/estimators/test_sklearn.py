"""scikit-learn's own checks of estimators, with the reason for each that does not apply."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelfield import (
    AutoClassifier,
    DeepKernelClassifier,
    EnsembleClassifier,
    GPClassifier,
    LinearClassifier,
    MLGPFClassifier,
    TopicClassifier,
)

SPARSE = "predict answers with a sparse indicator, whatever form Y had: with very many labels a dense one is too large"
ROUNDING = "probabilities are float32: their last bit may depend on where in memory a row lies; asked for is less"
PARTS = "members that see rows differently, and machines that are solved on all rows, cannot be fitted in parts"
SEPARATE = (
    "a class has a machine of its own, and its probability is divided by the sum over classes; the difference of "
    "log-odds, which decides, may order rows a little differently"
)
MULTI_LABEL = {
    "check_classifiers_multilabel_output_format_predict": SPARSE,
    "check_classifiers_multilabel_representation_invariance": SPARSE,
}
IN_PARTS = dict.fromkeys(
    (
        "check_fit_score_takes_y",
        "check_n_features_in_after_fitting",
        "check_estimators_partial_fit_n_features",
    ),
    PARTS,
)
OF_MACHINES = {
    "check_methods_sample_order_invariance": ROUNDING,
    "check_decision_proba_consistency": SEPARATE,
}
REASONS = {
    GPClassifier: {"check_methods_sample_order_invariance": ROUNDING},
    MLGPFClassifier: {"check_methods_sample_order_invariance": ROUNDING, **MULTI_LABEL},
    DeepKernelClassifier: MULTI_LABEL,
    TopicClassifier: MULTI_LABEL,
    EnsembleClassifier: MULTI_LABEL | IN_PARTS,
    LinearClassifier: MULTI_LABEL | IN_PARTS | OF_MACHINES,
    AutoClassifier: MULTI_LABEL | IN_PARTS | OF_MACHINES,
}


def reasons(estimator):
    return REASONS[type(estimator)]


@parametrize_with_checks(
    [
        # A step takes as long for few rows as for many: a few large ones are enough to tell the checks' blobs apart.
        MLGPFClassifier(n_latent=2, n_inducing=10, max_epochs=6, batch_size=300, learning_rate=0.2),
        GPClassifier(n_inducing=6, max_epochs=2, batch_size=300, learning_rate=0.3),
        DeepKernelClassifier(
            hidden=(16,),
            dropout=0.0,
            grid_size=8,
            network_epochs=3,
            process_epochs=1,
            max_epochs=1,
            batch_size=300,
            learning_rate=0.2,
            n_samples_predict=16,
            keep_baseline=False,
        ),
        TopicClassifier(max_epochs=8),
        LinearClassifier(),
    ],
    expected_failed_checks=reasons,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [EnsembleClassifier(estimator=TopicClassifier(max_epochs=8), n_members=2), AutoClassifier(quality="fast")],
    expected_failed_checks=reasons,
)
def test_scikit_learn_checks_of_several_models(estimator, check):
    check(estimator)
