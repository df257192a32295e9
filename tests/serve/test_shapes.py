"""All protocols give the tags of `labelfield tag`, and each refuses bad input in its own words."""

import json
from urllib.parse import parse_qsl

import numpy as np
import pytest
from application import MARKUP, serving

import labelfield
from labelfield.serve.inputs import parse_form
from labelfield.serve.refusal import RefusedError
from labelfield.serve.routing import Route, Router

TEXT = "A violin concert with the orchestra near the harbour"


@pytest.fixture(scope="module")
def tagged(folder, tmp_path_factory):
    """What the command `tag` writes for some documents, one of which is TEXT."""
    from test_commands import run

    path = tmp_path_factory.mktemp("tagged") / "new.jsonl"
    texts = [TEXT, "bread and flour", "", "\u0000 NUL bytes \u0000 and a telescope"]
    path.write_text("".join(json.dumps({"title": "", "text": text}) + "\n" for text in texts))
    lines = [json.loads(line) for line in run("tag", folder, path, "-k", 3).stdout.splitlines()]
    return texts, lines


def test_tags_are_those_of_the_command(client, tagged):
    texts, lines = tagged
    answer = client.post("/tag", json={"documents": [{"text": one, "id": i} for i, one in enumerate(texts)], "k": 3})
    assert answer.status_code == 200
    for place, (own, line) in enumerate(zip(answer.json()["results"], lines, strict=True)):
        assert own == {**line, "id": str(place)}
    one = client.post("/tag", json={"text": TEXT, "k": 3}).json()["results"]
    assert one == [{key: value for key, value in lines[0].items() if key != "id"}]
    plain = client.post("/tag?k=3", content=TEXT.encode(), headers={"Content-Type": "Text/Plain; charset=UTF-8"})
    assert plain.json()["results"] == one


def test_every_shape_says_the_same(client, tagged):
    _, lines = tagged
    expected = [(tag["label"], tag["probability"]) for tag in lines[0]["tags"]]
    form = client.post("/v1/projects/topics/suggest", data={"text": TEXT, "limit": 3}).json()["results"]
    assert [(one["label"], one["score"]) for one in form] == expected
    assert [one["uri"] for one in form] == [tag["uri"] for tag in lines[0]["tags"]]
    assert form[0]["notation"].startswith("N")
    batch = {"documents": [{"text": TEXT, "document_id": "a"}, {"text": "bread"}]}
    found = client.post("/v1/projects/topics/suggest-batch?limit=3", json=batch).json()
    assert [one["document_id"] for one in found] == ["a", None]
    assert found[0]["results"] == form
    given = {"name": "text", "shape": [2], "datatype": "BYTES", "data": [TEXT, "bread"]}
    body = {"id": "7", "parameters": {"limit": 3}, "inputs": [given]}
    answer = client.post("/v2/models/topics/infer", json=body).json()
    labels, probabilities = answer["outputs"]
    assert (answer["id"], labels["shape"], labels["datatype"], probabilities["datatype"]) == (
        "7",
        [2, 3],
        "BYTES",
        "FP32",
    )
    assert list(zip(labels["data"][:3], probabilities["data"][:3], strict=True)) == expected
    face = client.post("/", json={"inputs": TEXT, "parameters": {"top_k": 3}}).json()
    assert [(one["label"], one["score"]) for one in face] == expected
    assert client.post("/models/topics", json={"inputs": [TEXT], "parameters": {"top_k": 3}}).json() == [face]
    config = '<View><Text name="t" value="$body"/><Choices name="tags" toName="t" choice="multiple"/></View>'
    tasks = {"tasks": [{"id": 1, "data": {"body": TEXT}}], "label_config": config, "params": {}}
    predicted = client.post("/any/prefix/topics/predict", json=tasks).json()["results"][0]
    chosen = [label for label, p in expected if p >= 0.5] or [expected[0][0]]
    result = {"from_name": "tags", "to_name": "t", "type": "choices", "value": {"choices": chosen}}
    assert predicted["result"] == [result]
    assert predicted["model_version"] == client.get("/topics/health").json()["model_version"]


CONFIG = """<View>
  <!-- {"data": {"body": "a text"}} -->
  <Text name="t" value="$body"/>
  <Choices name="mood" toName="t"><Choice value="glad"/><Choice value="sad"/></Choices>
  <Choices name="part" toName="t" perRegion="true"><Choice value="music"/></Choices>
  <Choices name="one" toName="t">
    <Choice value="sailing"/><View><Choice value="What one hears" alias="music"/></View>
  </Choices>
  <Choices name="some" toName="t" choice="multiple">
    <Choice value="music" alias="M"/><Choice value="sailing" alias="S"/>
  </Choices>
  <taxonomy name="tree" toname="t" leafsonly="true">
    <Choice value="music"><Choice value="sailing"/></Choice>
    <Choice value="Arts" alias="A"><Choice value="music"/><Choice value="sailing"/></Choice>
  </taxonomy>
  <Choices name="nested" toName="t" choice="multiple" allowNested="true" maxUsages="1">
    <Choice value="Arts"><Choice value="music"/></Choice>
  </Choices>
</View>"""


def test_label_studio_gets_a_result_for_each_control_tag_that_takes_labels_of_the_model(client):
    text = f"{TEXT}, a song of the choir, and the sail of a boat in the wind"
    tags = client.post("/tag", json={"text": text, "k": 12}).json()["results"][0]["tags"]
    best = [tag["label"] for tag in tags if tag["probability"] >= 0.5]
    assert set(best) == {"music", "sailing"}
    tasks = {"tasks": [{"id": 1, "data": {"body": text}}], "label_config": CONFIG}
    (found,) = client.post("/topics/predict", json=tasks).json()["results"]
    assert {one["from_name"]: (one["type"], one["value"]) for one in found["result"]} == {
        "one": ("choices", {"choices": best[:1]}),  # as it takes one only
        "some": ("choices", {"choices": [label[0].upper() for label in best]}),
        "tree": (
            "taxonomy",
            {"taxonomy": [{"music": ["A", "music"], "sailing": ["music", "sailing"]}[label] for label in best]},
        ),
        "nested": ("choices", {"choices": [["Arts", "music"]]}),
    }
    assert {one["to_name"] for one in found["result"]} == {"t"}
    assert found["score"] == min(tag["probability"] for tag in tags if tag["label"] in best)
    loaded = '<View><Text name="t" value="$body"/><Taxonomy name="far" toName="t" apiUrl="https://x.example"/></View>'
    (found,) = client.post("/topics/predict", json=tasks | {"label_config": loaded}).json()["results"]
    assert [one["value"] for one in found["result"]] == [{"taxonomy": [[label] for label in best]}]


def test_options_may_stand_in_the_address_and_the_body_has_the_last_word(client):
    body = {"text": TEXT, "k": 3}
    expected = client.post("/tag", json=body | {"threshold": 0.01, "explain": True}).json()
    assert client.post("/tag?k=3&threshold=0.01&explain=true", json={"text": TEXT}).json() == expected
    assert client.post("/tag?k=9&threshold=0.01&explain=true", json=body).json() == expected
    refused = client.post("/tag?treshold=0.01", json=body)
    assert (refused.status_code, "'treshold', which is not known" in refused.text) == (422, True)
    assert client.post("/tag?explain=maybe", json=body).status_code == 422


def test_thresholds_and_reviews(client):
    found = client.post("/tag", json={"text": TEXT, "k": 12, "threshold": 0.3, "review": 0}).json()["results"][0]
    everything = client.post("/tag", json={"text": TEXT, "k": 12, "review": 1}).json()["results"][0]
    assert found["tags"] == [tag for tag in everything["tags"] if tag["probability"] >= 0.3]
    assert (found["review"], everything["review"]) == (True, False)
    limited = client.post("/v1/projects/topics/suggest", data={"text": TEXT, "threshold": "0.3", "limit": "12"})
    assert len(limited.json()["results"]) == len(found["tags"])


def test_the_words_that_carried_a_tag_are_shown_where_they_stand(client):
    found = client.post("/tag", json={"text": TEXT, "k": 1, "explain": 2}).json()["results"][0]["explanation"][0]
    word = found["words"][0]
    assert word["effect"] > 0
    assert [found["text"][a:b].lower() for a, b in word["places"]] == [word["word"]]


def test_a_promised_precision_is_that_of_decide(client, folder):
    model = labelfield.load(folder)
    texts = [TEXT, "bread and flour", "nothing that is known"]
    answer = client.post("/tag", json={"documents": texts, "precision": 0.7})
    assert answer.status_code == 200, answer.text
    decision = model.decide(texts, precision=0.7)
    for place, own in enumerate(answer.json()["results"]):
        row = decision.tags[[place]]
        assert sorted(tag["label"] for tag in own["tags"]) == sorted(model.classes_[row.indices])
        assert own["review"] == bool(decision.review[place])
        assert own["guarantee"] == decision.policy.guarantee
    refused = client.post("/tag", json={"text": TEXT, "precision": 0.9999})
    assert refused.status_code == 422


def test_rows_in_three_forms(client, rows_folder):
    row = np.zeros(20)
    row[[2, 7]] = 1.5, -0.5
    forms = [row.tolist(), {"indices": [7, 2], "values": [-0.5, 1.5]}]
    found = client.post("/tag", json={"model": "rows", "rows": forms, "k": 2}).json()["results"]
    assert found[0] == found[1]
    expected = labelfield.load(rows_folder).predict_topk(row[None], 2)
    assert sorted(tag["probability"] for tag in found[0]["tags"]) == pytest.approx(sorted(expected.data), abs=1e-4)
    body = {"inputs": [{"name": "rows", "shape": [1, 20], "datatype": "FP32", "data": [row.tolist()]}]}
    answer = client.post("/v2/models/rows/infer", json=body | {"parameters": {"limit": 2}}).json()
    assert answer["outputs"][1]["data"] == [tag["probability"] for tag in found[0]["tags"]]
    explained = client.post("/tag", json={"model": "rows", "rows": forms[:1], "k": 1, "explain": True}).json()
    assert len(explained["results"][0]["explanation"][0]["features"]) == 2


def test_what_models_are_is_said(client):
    names = [one["name"] for one in client.get("/models").json()["models"]]
    assert names == ["topics", "rows"]
    project = client.get("/v1/projects/topics").json()
    assert (project["is_trained"], project["vocab"]["size"]) == (True, 12)
    assert [one["project_id"] for one in client.get("/v1/projects").json()["projects"]] == names
    described = client.get("/v2/models/topics").json()
    assert [one["name"] for one in described["inputs"]] == ["title", "text"]
    assert client.get("/v2").json()["name"] == "labelfield"
    assert client.get("/v2/health/ready").status_code == client.get("/v2/models/rows/ready").status_code == 200
    assert [one["state"] for one in client.post("/v2/repository/index").json()] == ["READY", "READY"]
    assert client.post("/setup", json={"project": "1", "schema": ""}).json()["model_version"] == project_version(client)
    assert client.get("/labels?q=ast").json()["labels"] == ["astronomy"]


def project_version(client):
    return client.get("/models").json()["models"][0]["version"]


def test_every_route_is_described(client):
    described = client.get("/openapi.json").json()
    known = {(method.upper(), path) for path, own in described["paths"].items() for method in own}
    from labelfield.serve import annif, hugging_face, inference_protocol, label_studio, native, operations, page_routes

    shapes = (annif, hugging_face, inference_protocol, label_studio, native, operations, page_routes)
    routes = {
        (method, template.replace(":int}", "}"))
        for shape in shapes
        for method, template, _ in shape.routes()
        if "prefix" not in template and not template.startswith("/page") and (method, template) != ("GET", "/")
    }
    assert routes - known == {("GET", "/v1/")}
    assert known <= routes
    paths = described["paths"]
    assert [one["name"] for one in paths["/labels"]["get"]["parameters"]] == ["q", "n", "model"]
    assert list(paths["/metrics"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
    learned = paths["/v1/projects/{project}/learn"]["post"]["responses"]
    assert ("204" in learned, "200" in learned) == (True, False)


BAD = [
    ("/tag", "{", 400, "not JSON"),
    ("/tag", "\udcff", 400, "not UTF-8"),
    ("/tag", "[" * 100_000, 400, "nested too deeply"),
    ("/tag", '{"rows": [[NaN]]}', 400, "NaN"),
    ("/tag", "[]", 422, "expected an object"),
    ("/tag", "{}", 422, "one of text, documents, rows"),
    ("/tag", {"text": 5}, 422, "text is a number; expected text"),
    ("/tag", {"documents": "x"}, 422, "documents is text; expected a list"),
    ("/tag", {"documents": []}, 422, "empty"),
    ("/tag", {"documents": [{"other": "x"}]}, 422, "none of the fields title, text"),
    ("/tag", {"documents": [5]}, 422, "documents[0] is a number; expected text, or an object with title, text"),
    ("/tag", {"documents": [{"text": ["x"]}]}, 422, "text of documents[0] is a list"),
    ("/tag", {"documents": [{"text": "x", "id": 1.5}]}, 422, "the id of documents[0]"),
    (
        "/corrections",
        {"document": "x", "labels": [], "id": {}},
        422,
        "id is an object; expected text or a whole number",
    ),
    (
        "/v1/projects/topics/learn",
        [{"text": "x", "subjects": [], "document_id": [1]}],
        422,
        "document_id of document 0",
    ),
    (
        "/webhook",
        {"action": "ANNOTATION_CREATED", "task": {"id": {}}, "annotation": {"result": []}},
        422,
        "id of the task",
    ),
    ("/tag", {"text": "x", "k": 0}, 422, "k is 0; expected 1 to 1000"),
    ("/tag", {"text": "x", "k": 1.5}, 422, "whole number"),
    ("/tag", {"text": "x", "k": True}, 422, "k is true or false"),
    ("/tag", {"text": "x", "threshold": 2}, 422, "threshold is 2; expected 0 to 1"),
    ("/tag", {"text": "x", "precision": "high"}, 422, "expected a number"),
    ("/tag", {"text": "x", "treshold": 1}, 422, "'treshold', which is not known"),
    ("/tag", {"text": "x", "model": "../../etc/passwd"}, 404, "there is no model '../../etc/passwd'"),
    ("/tag", {"model": "rows", "text": "x"}, 422, "takes rows of numbers"),
    ("/tag", {"rows": [[1]]}, 422, "takes documents"),
    ("/tag", {"model": "rows", "rows": [[1]]}, 422, "has 1 values; expected 20"),
    ("/tag", {"model": "rows", "rows": [{"indices": [99], "values": [1]}]}, 422, "expected 0 to 19"),
    ("/tag", {"model": "rows", "rows": [{"indices": [1, 1], "values": [1, 2]}]}, 422, "a feature twice"),
    ("/tag", {"model": "rows", "rows": [["x"] * 20]}, 422, "has text among its values"),
    ("/v1/projects/no/suggest", {"text": "x"}, 404, "there is no model 'no'"),
    ("/v1/projects/topics/suggest", {}, 400, "no text"),
    ("/v1/projects/topics/suggest-batch", {"documents": [{"text": "x"}] * 33}, 400, "send 1 to 32"),
    ("/v1/projects/topics/suggest-batch", {}, 422, "documents is null"),
    ("/v1/projects/topics/learn", {"text": "x"}, 422, "expected a list"),
    ("/v1/projects/rows/learn", [], 422, "takes rows of numbers"),
    ("/v2/models/no/infer", {"inputs": []}, 404, "there is no model"),
    ("/v2/models/topics/infer", {"inputs": []}, 400, "empty"),
    (
        "/v2/models/topics/infer",
        {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["x"]}]},
        400,
        "says 2",
    ),
    (
        "/v2/models/topics/infer",
        {"inputs": [{"name": "text", "shape": [1], "datatype": "FP32", "data": [1]}]},
        400,
        "BYTES",
    ),
    (
        "/v2/models/topics/infer",
        {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [1]}]},
        422,
        "text",
    ),
    (
        "/v2/models/topics/infer",
        {"inputs": [{"name": "text", "shape": [0], "datatype": "BYTES", "data": []}]},
        400,
        "the input 'text' is empty, or its shape is; expected at least one value",
    ),
    ("/", {"inputs": None}, 422, "inputs is null"),
    ("/", {"inputs": []}, 422, "empty"),
    ("/", {"inputs": "x", "parameters": {"top_k": "many"}}, 422, "top_k"),
    ("/predict", {"tasks": [{"data": {"n": 1}}]}, 422, "no text"),
    ("/predict", {"tasks": [{"data": {"t": "x"}}], "label_config": "<View"}, 422, "not XML"),
    ("/predict", {"tasks": [{"data": {"t": "x"}}], "label_config": "<!DOCTYPE a><View/>"}, 422, "document type"),
    ("/setup", {"schema": "<Taxonomy>" + "<Choice>" * 60 + "</Choice>" * 60 + "</Taxonomy>"}, 422, "50 levels deep"),
    ("/webhook", {"action": "ANNOTATION_CREATED"}, 422, "task is null"),
    (
        "/webhook",
        {
            "action": "ANNOTATION_CREATED",
            "task": {"data": {"text": "x"}},
            "annotation": {"result": [{"value": {"choices": ["a\nb"]}}]},
        },
        422,
        "a choice is empty, too long, or has several lines",
    ),
    ("/v1/projects/topics/learn", [{"text": "x", "subjects": [{"label": "a\nb"}]}], 422, "has several lines"),
    ("/learn", {"modle": "topics"}, 422, "the body has 'modle', which is not known; known are model"),
    ("/learn/undo", {"modle": "topics"}, 422, "the body has 'modle', which is not known; known are model"),
    ("/corrections", {"document": "x", "labels": "y"}, 422, "labels is text"),
    ("/corrections", {"document": "x", "labels": [""]}, 422, "a label is empty"),
    ("/v1/projects/topics/suggest-batch", {"documents": [{"text": "x", "document_id": [1]}]}, 422, "document_id of"),
    (
        "/v2/models/topics/infer",
        {"inputs": [{"name": "text", "shape": [1], "datatype": "B" * 1000, "data": ["x"]}]},
        400,
        f"is '{'B' * 100}'; expected BYTES",
    ),
    # Lists that nobody sends are refused by their length alone.
    ("/corrections", {"document": "x", "labels": [0] * 1001}, 422, "labels has 1001 entries; expected at most 1000"),
    ("/corrections", {"document": "x", "labels": [], "predicted": [0] * 1001}, 422, "predicted has 1001 entries"),
    ("/v1/projects/topics/learn", [{"text": "x", "subjects": [0] * 1001}], 422, "subjects has 1001 entries"),
    (
        "/webhook",
        {
            "action": "ANNOTATION_CREATED",
            "task": {"data": {"text": "x"}},
            "annotation": {"result": [{"value": {"choices": [0] * 1001}}]},
        },
        422,
        "choices has 1001 entries",
    ),
    (
        "/v2/models/topics/infer",
        {"inputs": [{"name": "text", "shape": ["x"] * 9, "datatype": "BYTES", "data": ["x"]}]},
        422,
        "has 9 entries",
    ),
    (
        "/v2/models/topics/infer",
        {"inputs": [{"name": "text", "shape": [1 << 40], "datatype": "BYTES", "data": ["x"]}]},
        422,
        "is 1099511627776; expected 0 to 2147483647",
    ),
    ("/tag", {"model": "rows", "rows": [{"indices": ["x"] * 21, "values": []}]}, 422, "indices of rows[0] has 21"),
]


@pytest.mark.parametrize(("path", "body", "status", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_one_clear_message(client, path, body, status, said):
    content = json.dumps(body).encode() if not isinstance(body, str) else body.encode("utf-8", "surrogateescape")
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    found = answer.json()
    if path.startswith("/v1"):
        assert answer.headers["content-type"] == "application/problem+json"
        assert (found["status"], said in found["detail"]) == (status, True), found
    else:
        assert list(found) == ["error"]
        assert said in found["error"], found


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/nothing", "/v1/projects/..%2f..%2fetc%2fpasswd", "/page/..%2fapp.py"]
)
def test_unknown_paths_are_not_found(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "/work" not in answer.text
    assert "root:" not in answer.text


def test_wrong_methods_are_refused(client):
    assert client.get("/tag").status_code == 405
    assert "another method" in client.get("/tag").json()["error"]


def test_paths_with_a_slash_at_the_end_are_the_same(client):
    assert client.get("/v1").json() == client.get("/v1/").json()
    assert (
        client.post("/tag/", json={"text": "a violin"}).json() == client.post("/tag", json={"text": "a violin"}).json()
    )
    assert client.head("/healthz").status_code == 200


def test_fixed_paths_come_before_templates_and_templates_in_order():
    async def answer(service, request):
        return None

    routes = [Route("GET", "/{a}", answer), Route("GET", "/x", answer), Route("POST", "/{b:int}", answer)]
    router = Router([*routes, Route("GET", "/{prefix:path}/end", answer)])
    found = [router.find(*one) for one in (("GET", "/x"), ("HEAD", "/y"), ("POST", "/7"), ("GET", "/a/b/end"))]
    assert [route.template for route, _ in found] == ["/x", "/{a}", "/{b:int}", "/{prefix:path}/end"]
    assert [parts for _, parts in found] == [{}, {"a": "y"}, {"b": 7}, {"prefix": "a/b"}]
    with pytest.raises(RefusedError) as refused:
        router.find("DELETE", "/7")
    assert (refused.value.status, refused.value.headers) == (405, {"Allow": "GET, POST"})
    with pytest.raises(RefusedError) as refused:
        router.find("GET", "/a/b")
    assert refused.value.status == 404


@pytest.mark.parametrize("text", ["", "a=1", "a=%41+b&c=", "a=%zz%&=x&&b", "text=%F0%9F%8E%BB&a=%ff", "a=1&a=2"])
def test_forms_are_read_as_elsewhere(text):
    assert parse_form(text.encode()) == dict(parse_qsl(text, keep_blank_values=True))


def test_markup_in_documents_and_labels_stays_text(client):
    text = "<script>alert(1)</script> a compiler and a server"
    answer = client.post("/tag", json={"text": text, "explain": 3})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    found = answer.json()["results"][0]
    assert found["tags"][0]["label"] == MARKUP
    assert found["explanation"][0]["text"] == text


def test_one_bad_document_does_not_spoil_its_batch(folder):
    """Requests that happen to be computed together fail on their own."""
    with serving({"topics": folder}) as client:
        real = client.service.batcher.answer

        def answer(served, items, questions):
            if any("poison" in text for item in items for text in item):
                raise labelfield.DataError("poison")
            return real(served, items, questions)

        client.service.batcher.answer = answer
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            codes = list(
                pool.map(lambda text: client.post("/tag", json={"text": text}).status_code, ["poison", *["a"] * 7])
            )
        assert codes == [422, *[200] * 7]
