"""Folders for MLflow and the hub load, and say the same as the model; cards say what there is and nothing else."""

import importlib
import json
from types import SimpleNamespace

import pytest
import yaml
from test_commands import message, run

import labelfield
from labelfield.share import hub_folder, model_card, push_to_hub, save_mlflow

TEXTS = ["bread and <b>flour</b>", "violin and song"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("share")
    labels = [["food|drink"], ["music"], ["food|drink", "music"]]
    each = enumerate(zip([*TEXTS, "bread song"] * 12, labels * 12, strict=True))
    lines = [{"id": i, "title": "", "text": text, "labels": own} for i, (text, own) in each]
    (path / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fast = ("--method", "linear", "--set", "row_transform=unit", "--set", "cost=1.0", "--device=cpu")
    run("train", path / "docs.jsonl", "--out", path / "model", *fast)
    return path / "model"


def front_of(card):
    _, front, body = card.split("---\n", 2)
    return yaml.safe_load(front), body


def test_a_hub_folder_is_a_model_with_a_card(folder, tmp_path):
    assert (folder / "documents.jsonl.gz").exists()
    found = hub_folder(folder, tmp_path / "hub", license="mit", dataset="docs", scores={"P@1": 97.5, "ECE@1": 1.25})
    assert labelfield.load(found).tags(TEXTS, 2) == labelfield.load(folder).tags(TEXTS, 2)
    assert not (found / "documents.jsonl.gz").exists()  # not for others to see
    front, body = front_of((found / "README.md").read_text())
    assert (front["library_name"], front["pipeline_tag"], front["license"]) == (
        "labelfield",
        "text-classification",
        "mit",
    )
    assert front["language"] == ["en"]
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "P@1", "value": 97.5}, {"type": "ECE@1", "value": 1.25}]
    assert "| trained on | 36 documents |" in body
    assert "`food¦drink` (24)" in body
    hub_folder(folder, tmp_path / "hub")  # replaces what it wrote
    (tmp_path / "hub" / "mine.txt").write_text("x")
    with pytest.raises(FileExistsError, match=r"mine\.txt"):
        hub_folder(folder, tmp_path / "hub")


def test_markup_in_names_does_not_become_part_of_a_card():
    X, Y = labelfield.synth.make_multilabel(60, 10, 2, seed=0).X, [["<b>|x"], ["---\nlicense: evil"]] * 30
    model = labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu").fit(X, Y)
    front, body = front_of(model_card(model, name="<script>\n---\nlicense: evil"))
    assert "license" not in front
    assert "\n---" not in body
    assert "<script>" not in body.replace("\\<script\\>", "")


def test_pushing_uploads_that_folder_and_is_private(folder):
    done = []

    def upload_folder(repo_id, folder_path, commit_message):
        done.append((repo_id, labelfield.load(folder_path).tags(TEXTS, 1)))

    def create_repo(repo_id, private, exist_ok):
        done.append((private, exist_ok))
        return f"https://hub.example/{repo_id}"

    api = SimpleNamespace(create_repo=create_repo, upload_folder=upload_folder)
    assert push_to_hub(folder, "me/tags", api=api) == "https://hub.example/me/tags"
    assert done == [(True, True), ("me/tags", labelfield.load(folder).tags(TEXTS, 1))]


def test_an_mlflow_folder_is_loaded_by_the_module_that_it_names(folder, tmp_path):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    path = save_mlflow(folder, tmp_path / "mlflow")
    described = yaml.safe_load((path / "MLmodel").read_text())
    flavour = described["flavors"]["python_function"]
    params = json.loads(described["signature"]["params"])  # MLflow passes no others on
    assert {one["name"]: one["default"] for one in params} == {"k": 5, "threshold": 0.0}
    loaded = importlib.import_module(flavour["loader_module"])._load_pyfunc(str(path / flavour["data"]))
    table = loaded.predict(pd.DataFrame({"title": ["", None], "text": TEXTS}), params={"k": 1})
    tags = labelfield.load(folder).tags(TEXTS, 1)
    assert table["labels"].tolist() == [[own[0].label] for own in tags]
    assert table["probabilities"].tolist() == [[own[0].probability] for own in tags]
    assert loaded.predict(pd.DataFrame({"anything": TEXTS})).equals(loaded.predict(TEXTS))
    assert loaded._texts(pd.DataFrame({"anything": ["a", None]}), ("text",)) == ["a", ""]
    with pytest.raises(labelfield.DataError, match=r"expected columns title, text|expected columns text"):
        loaded.predict(pd.DataFrame({"a": TEXTS, "b": TEXTS}))


def test_mlflow_itself_loads_the_folder(folder, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pd = pytest.importorskip("pandas")
    model = mlflow.pyfunc.load_model(str(save_mlflow(folder, tmp_path / "mlflow")))
    found = model.predict(pd.DataFrame({"text": TEXTS}))
    assert [own[0] for own in found["labels"]] == [own[0].label for own in labelfield.load(folder).tags(TEXTS, 1)]
    assert all(len(own) == 1 for own in model.predict(pd.DataFrame({"text": TEXTS}), params={"k": 1})["labels"])


def test_the_command_exports(folder, tmp_path):
    (tmp_path / "scores.json").write_text(json.dumps({"P@1": 90.0, "note": "text"}))
    run("export", folder, "--out", tmp_path / "hub", "--scores", tmp_path / "scores.json", "--dataset", "mine")
    assert "P@1" in (tmp_path / "hub" / "README.md").read_text()
    run("export", folder, "--out", tmp_path / "mlflow", "--format", "mlflow")
    assert (tmp_path / "mlflow" / "MLmodel").is_file()
    assert "exists" in message(run("export", folder, "--out", tmp_path / "hub", check=2))
    assert "either --out FOLDER or --push" in message(run("export", folder, check=2))
    (tmp_path / "bad.json").write_text("[1]")
    done = run("export", folder, "--out", tmp_path / "x", "--scores", tmp_path / "bad.json", check=3)
    assert "labelfield evaluate --json" in message(done)
