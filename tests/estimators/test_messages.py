"""Messages of estimators, trainers and what they load that no other test asks for."""

import json
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import labelfield
from labelfield import CannotAnswerError, DataError, active
from labelfield.active.query import _mutual_information
from labelfield.active.tools import read_annotations, write_tasks
from labelfield.atomic import require_only_ours
from labelfield.cluster import ClusterError, _losing, joined
from labelfield.errors import no_numbers
from labelfield.estimators.auto import _spread
from labelfield.estimators.classifier import run_training
from labelfield.estimators.options import choose_device
from labelfield.estimators.persistence import _choose_network
from labelfield.estimators.validation import restore_history, restore_transform
from labelfield.inference.run import Monitor
from labelfield.inference.signals import Interrupted
from labelfield.inference.topics import EM
from labelfield.models.artifact import ModelError, load_artifact
from labelfield.report.facts import gather

EPOCH = {"epoch": 0, "bound": 0.0, "learning_rate": 0.1, "seconds": 1.0, "scores": {}, "stage": ""}


@pytest.fixture(scope="module")
def rows():
    return labelfield.synth.make_multilabel(60, 8, 3, seed=0)


@pytest.fixture(scope="module")
def machines(rows):
    return labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu").fit(rows.X, rows.Y)


@pytest.fixture(scope="module")
def ensemble(rows):
    one = labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu")
    return labelfield.EnsembleClassifier(estimator=one, n_members=2).fit(rows.X, rows.Y)


def test_what_cannot_be_fitted_in_parts(machines, ensemble, rows):
    for model, words in ((machines, "all rows at once"), (ensemble, "fit its estimator instead")):
        with pytest.raises(CannotAnswerError, match=words):
            model.blueprint.trainer(model.fitted_.options, model.fitted_).train_more(rows, None)


def test_information_of_models_without_a_posterior(machines, ensemble, rows):
    with pytest.raises(CannotAnswerError, match="no member has a posterior"):
        _mutual_information(ensemble, rows.X)
    exclusive = SimpleNamespace(members=list, predictor_=SimpleNamespace(is_exclusive=True))
    with pytest.raises(CannotAnswerError, match="exclude each other"):
        _mutual_information(exclusive, rows.X)
    assert active.query(ensemble, rows.X, 3, "information").shape == (3,)  # which counts what is known instead


def test_a_mix_is_answered_by_one_process(machines):
    both = SimpleNamespace(model=SimpleNamespace(members=[machines, machines]))
    with pytest.raises(ClusterError, match="start without torchrun"):
        _spread(both, None)


def test_a_training_is_stopped_while_ranks_wait(machines, rows):
    waiting = SimpleNamespace(size=2, while_waiting=lambda: None)

    class Waits:
        def train(self, data, monitor):
            signal.raise_signal(signal.SIGTERM)
            monitor.cluster.while_waiting()

    model = SimpleNamespace(
        trainer_=Waits(),
        fitted_=machines.fitted_,
        blueprint=SimpleNamespace(memory_hint="", predictor=lambda fitted: fitted.predictor),
    )
    with pytest.raises(Interrupted):
        run_training(model, rows, Monitor(cluster=waiting))


def test_devices_that_torch_does_not_see(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="torch sees 2 CUDA devices, numbered from 0"):
        choose_device("cuda:2")


def test_folders_from_strangers():
    with pytest.raises(ValueError, match="network is 3, not a name"):
        _choose_network({}, 3, None)
    with pytest.raises(ValueError, match="a stage that is not text"):
        restore_history([EPOCH | {"stage": 3}])
    ones = torch.ones(2)
    with pytest.raises(ValueError, match="codes of categories of shape"):
        restore_transform("coded", ones, ones, torch.zeros(3, dtype=torch.int32), n_features=2)
    with pytest.raises(ValueError, match="belong to no feature"):
        restore_transform("coded", ones, ones, torch.tensor([[5], [0]], dtype=torch.int32), n_features=2)
    assert "not numbers" in str(no_numbers())


def test_arrays_that_are_damaged_where_checksums_are_right(machines, tmp_path):
    from labelfield.models import artifact

    machines.save(tmp_path / "model")
    (tmp_path / "model" / "arrays.safetensors").write_bytes(b"\x08" + bytes(7) + b"{}{}{}{}")
    config = artifact._read_config(tmp_path / "model" / "config.json")
    config["sha256"]["arrays.safetensors"] = artifact._digest_of_file(tmp_path / "model" / "arrays.safetensors")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"arrays.safetensors: .*Copy the model again"):
        load_artifact(tmp_path / "model")


def test_topics_whose_state_belongs_to_other_rows(rows):
    em = EM.__new__(EM)
    em.data, em.chosen = SimpleNamespace(design=SimpleNamespace(X=torch.ones(1))), np.arange(4)
    with pytest.raises(ValueError, match="belongs to other rows"):
        em.restore({"r": torch.ones(2), "rows.psi": torch.ones(3, 2)})


def test_topics_that_leave_the_numbers(rows, monkeypatch):
    model = labelfield.TopicClassifier(n_topics=2, algorithm="online_em", max_epochs=1, device="cpu")
    model.partial_fit(rows.X, rows.Y, classes=np.arange(3))
    monkeypatch.setattr("labelfield.inference.topics.em_step", lambda state, *given, **named: (state, float("nan")))
    with pytest.raises(labelfield.errors.LabelfieldError, match="not finite"):
        model.partial_fit(rows.X, rows.Y)


def test_words_of_a_model_that_was_given_rows(rows):
    model = labelfield.TextClassifier(encoder="rows", model=labelfield.LinearClassifier(row_transform="unit", cost=1.0))
    model.fit(rows.X.toarray(), [["a"] if i % 2 else ["b"] for i in range(60)])
    with pytest.raises(CannotAnswerError, match="knows no words"):
        model.explain("a")


def test_a_report_of_classes_is_not_ranked_by_propensity(rows):
    y = np.arange(60) % 3
    model = labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu").fit(rows.X, y)
    with pytest.raises(ValueError, match="is for several labels per row"):
        gather(model, rows.X, rows.Y, rank_by="propensity")


def test_files_of_labelling_tools(tmp_path):
    with pytest.raises(ValueError, match="tool='paper'; expected one of"):
        write_tasks(tmp_path / "a", [], "paper")
    for content, words in ((b"\xff\xfe\xfa", "not UTF-8"), (b"[1,", "not JSON")):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(DataError, match=words):
            read_annotations(tmp_path / "a.json")


def test_a_file_in_the_place_of_a_folder(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(FileExistsError, match="is not a folder"):
        require_only_ours(tmp_path / "a", ())


def test_ranks_that_were_not_started_by_torchrun(monkeypatch):
    for name, value in (("WORLD_SIZE", "two"), ("RANK", "0"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match="WORLD_SIZE=two; expected a number"), joined():
        pass


def test_a_lost_rank_is_told_in_one_sentence():
    with pytest.raises(ClusterError, match=r"rank 1 has lost the others: .*\(gone\)"), _losing(1):
        raise RuntimeError("gone\nand more")
