"""New rows beside held-out ones: whether they look alike, and whether promises are kept on rows with labels."""

import json

import numpy as np
import pytest
from test_commands import message, run

import labelfield

COLOURS = np.array(["red", "green", "blue", "white"])


def write_rows(path, colour, seed=0, is_labelled=True):
    """Write a row for each colour, whose features tell the colour nearly always."""
    rng = np.random.default_rng(seed)
    X = np.eye(len(COLOURS))[colour] + 0.3 * rng.normal(size=(colour.size, len(COLOURS)))
    lines = ["a,b,c,d,class" if is_labelled else "a,b,c,d"]
    for row, one in zip(X, colour, strict=True):
        lines.append(",".join([*(f"{value:.3f}" for value in row), *([COLOURS[one]] if is_labelled else [])]))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    write_rows(folder / "train.csv", np.arange(1200) % len(COLOURS))
    small = ("--set", "n_inducing=8", "--set", "max_epochs=100", "--device=cpu")
    run("train", folder / "train.csv", "--out", folder / "model", "--method", "softmax", *small)
    return folder


def promises(done):
    return {one["name"]: one for one in json.loads(done.stdout)["promises"]}


def test_classes_are_those_of_the_model_whichever_the_rows_have(classes, tmp_path):
    """A file of two classes numbers them otherwise than the model does."""
    write_rows(tmp_path / "new.csv", np.where(np.arange(200) % 2, 0, 3), seed=1)
    found = promises(run("check", classes / "model", tmp_path / "new.csv", "--json"))
    model, rows = labelfield.load(classes / "model"), labelfield.read(tmp_path / "new.csv")
    decision = model.decide(rows.X, precision=0.95)
    said = decision.tags.argmax(axis=1)[~decision.review]
    true = np.array([rows.label_names[one] for one in rows.Y.indices])[~decision.review]
    right = np.mean(np.array(model.label_names())[said] == true)
    assert right > 0.9
    assert found["precision"]["reached"] == pytest.approx(right)


def test_rows_without_a_class_are_no_reason_to_distrust_a_promise(classes, tmp_path):
    write_rows(tmp_path / "new.csv", np.arange(400) % len(COLOURS), seed=2)
    whole = promises(run("check", classes / "model", tmp_path / "new.csv", "--json"))
    lines = (tmp_path / "new.csv").read_text().splitlines()
    is_bare = np.arange(400) % 4 < 2  # of two of the four colours, which are no harder than the others
    bare = [line.rsplit(",", 1)[0] + "," if own else line for line, own in zip(lines[1:], is_bare, strict=True)]
    (tmp_path / "some.csv").write_text("\n".join([lines[0], *bare]) + "\n")
    done = run("check", classes / "model", tmp_path / "some.csv", "--json")
    assert "of 400 rows, 200 without labels; where promises are tested, they are left out" in message(done)
    assert not json.loads(done.stdout)["is_broken"]
    assert promises(done)["precision"]["reached"] == pytest.approx(whole["precision"]["reached"], abs=0.05)


def test_rows_need_no_labels(classes, tmp_path):
    write_rows(tmp_path / "new.csv", np.arange(200) % len(COLOURS), seed=3, is_labelled=False)
    found = json.loads(run("check", classes / "model", tmp_path / "new.csv", "--json").stdout)
    assert found["promises"] == []
    assert not found["is_new_kind"]


def test_another_season_is_told(classes, tmp_path):
    write_rows(tmp_path / "new.csv", np.zeros(200, int), seed=4, is_labelled=False)
    done = run("check", classes / "model", tmp_path / "new.csv")
    assert "warning: These rows are not like the training rows" in message(done)


def test_rows_of_numbers_do_not_come_from_stdin(classes):
    for command in ("tag", "check"):
        said = message(run(command, classes / "model", "-", check=3))
        assert "-: rows of numbers from stdin; expected a file. Write the rows to a file" in said
