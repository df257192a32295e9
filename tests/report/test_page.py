"""The page: well-formed, self-contained, the same twice, and without what does not apply."""

import re
from html.parser import HTMLParser
from unittest.mock import patch

import matplotlib as mpl
import numpy as np
import pytest

from labelfield.report import make_page, save_page, write_report
from labelfield.report.markup import bar, picture, table, text
from labelfield.report.svg import drawing, to_svg

# A name must not be able to change the page.
EVIL = '<script>alert("a & b")</script>'
VOID = {"meta", "img", "br"}
ALWAYS = {"model", "scores", "trust", "decide", "frequency", "rows", "training"}
# The sections of each method beside those that all have.
SECTIONS = {
    "mlgpf": {"neighbours", "features", "inducing"},
    "ensemble": {"neighbours", "features"},
    "topics": {"topics", "neighbours", "features"},
    "svdkl labels": {"neighbours"},
    "svdkl": set(),
    "one_vs_each": {"features", "inducing"},
    "robustmax": {"features", "inducing"},
    "softmax": {"features", "inducing"},
    "point": {"features"},
    "images": {"features", "inducing"},
}


class Page(HTMLParser):
    """A page that was read, with what is in it; tags that do not match fail."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids, self.attributes, self.words = [], [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self._see(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self._see(tag, attributes)

    def _see(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        self.ids += [value for name, value in attributes if name == "id"]
        assert len({name for name, _ in attributes}) == len(attributes), (tag, attributes)

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def page_of(case, **names):
    estimator = case.estimator
    from labelfield.estimators.inputs import as_rows

    rows = as_rows(estimator, case.X, reset=False)
    return make_page(estimator, rows, estimator.encode(case.Y, rows.shape[0]), **names)


# Pages that differ little from others are among the slow tests.
ALIKE = ("ensemble", "svdkl", "robustmax", "softmax", "point")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in SECTIONS]
)
def test_every_method_has_a_page(name, fitted):
    page = page_of(fitted(name), title=f"{name} {EVIL}")
    read = Page(page)
    found = {tag_id for tag, key, tag_id in read.attributes if (tag, key) == ("section", "id")}
    # These tiny models may or may not find labels that go together.
    assert found - {"neighbours"} == (ALWAYS | SECTIONS[name]) - {"neighbours"}
    assert "neighbours" not in found or "neighbours" in SECTIONS[name]
    assert len(read.ids) == len(set(read.ids))
    assert "script" not in read.tags
    assert "http" not in page
    assert not re.search(r"#0badc", page)
    for tag, key, value in read.attributes:
        if key in ("src", "href"):
            assert value.startswith(("data:image/png;base64,", "#")), (tag, value)
        if key == "href":
            assert value[1:] in read.ids
    for used in re.findall(r"url\(#([^)]+)\)", page):
        assert used in read.ids
    assert read.tags.count("figcaption") == read.tags.count("figure")
    assert read.tags.count("svg") == sum(key == "aria-label" for tag, key, _ in read.attributes if tag == "svg")
    assert ("html", "lang", "en") in read.attributes
    assert read.tags.count("h1") == read.tags.count("title") == 1
    assert "nan" not in re.sub(r"data:[^\"]*", "", page).lower().split()


def test_names_cannot_leave_their_place(fitted):
    case = fitted("mlgpf")
    labels = [f"{EVIL}{i}" for i in range(25)]
    features = [f'" onload="x{i}' for i in range(60)]
    with patch.object(case.estimator.fitted_, "label_names", labels):
        page = page_of(case, title="$title", feature_names=features)
    read = Page(page)
    assert "script" not in read.tags
    assert not any(key == "onload" for _, key, _ in read.attributes)
    assert any(EVIL in word for word in read.words)
    assert "features" in read.ids
    assert "inducing" in read.ids
    assert any('onload="x' in word for word in read.words)


def test_an_image_is_ink():
    import io

    from PIL import Image

    values = np.linspace(0, 1, 12).reshape(3, 4)
    found = Page(picture(values, EVIL))
    source = next(value for _, key, value in found.attributes if key == "src")
    import base64

    image = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))
    assert image.mode == "LA"
    np.testing.assert_array_equal(np.asarray(image)[..., 1], np.round(255 * values))
    assert ("img", "alt", EVIL) in found.attributes


def test_small_pieces():
    assert text("<&\"'\u202e>") == "&lt;&amp;&quot;&#x27;\N{REPLACEMENT CHARACTER}&gt;"
    assert 'style="width:100.0%"' in bar(1.7)
    assert "left:0.0%;width:50.0%" in bar(0.2, (-0.1, 0.5))
    assert "left:99.0%;width:1.0%" in bar(1.0, (1.0, 1.0))
    assert text("80 % of 5 %") == "80\N{NO-BREAK SPACE}% of 5\N{NO-BREAK SPACE}%" == text(text("80 % of 5 %"))
    assert Page(table(["a"], [["b", "c"]])).tags.count("th") == 2


def test_two_figures_do_not_clash():
    from matplotlib.figure import Figure

    drawn, before = [], dict(mpl.rcParams)
    for name in ("one", "two", "one"):
        with drawing(name):
            figure = Figure(figsize=(2, 2))
            figure.subplots().plot([1, 2], marker="o", label="a < b")
            drawn.append(to_svg(figure, name, 'a "b"'))
    assert dict(mpl.rcParams) == before
    assert drawn.pop() == drawn[0]  # the same twice
    ids = [Page(svg).ids for svg in drawn]
    assert all(own.startswith(name) for own_ids, name in zip(ids, ("one", "two"), strict=True) for own in own_ids)
    assert ids[0]
    assert not set(ids[0]) & set(ids[1])
    assert "var(--c1)" in drawn[0]
    assert "<style" not in drawn[0]
    assert "font-family" not in drawn[0]


def test_writing_is_all_or_nothing(tmp_path, fitted):
    case = fitted("robustmax")
    # Names that would be markup in the page, or mathematics in a figure.
    names = ["<b>$x$</b>", "a_{b}^2 $", "a class with a very long name indeed"]
    seen = []
    out = write_report(
        case.estimator,
        case.X,
        case.Y,
        tmp_path / "new" / "page.html",
        title="Rings",
        label_names=names,
        progress=lambda done, total: seen.append((done, total)),
    )
    page = out.read_text(encoding="utf-8")
    read = Page(page)
    assert page.startswith("<!DOCTYPE html>")
    assert "<h1>Rings</h1>" in page
    assert "b" not in read.tags
    assert any(word.strip() == "<b>$x$</b>" for word in read.words)
    assert seen[-1] == (len(case.Y), len(case.Y))
    with pytest.raises(UnicodeEncodeError):
        save_page("half a page \ud800", out)
    assert out.read_text(encoding="utf-8") == page
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


def test_the_page_says_what_its_rows_are_called_by(fitted):
    case = fitted("mlgpf")
    ids = [f"d{row}" for row in range(case.Y.shape[0])]
    for given, name, said in (
        (ids, "Document d", "Documents are called by their id"),
        (None, "Row ", "Rows are counted from 0."),
    ):
        page = page_of(case, ids=given)
        assert f"<h4>{name}" in page
        assert said in page


def test_a_single_row(fitted):
    case = fitted("mlgpf")
    row = int(np.flatnonzero(np.diff(case.Y.indptr))[0])
    page = make_page(case.estimator, case.X[[row]], case.Y[[row]])
    assert "<h2>1 row</h2>" in page
    assert "Over 1 test row." in page
    assert "tenth" not in page
    Page(page)


@pytest.fixture
def undrawn(monkeypatch):
    """Leave out the figures, which take most of the time: their labels stand in for them."""
    monkeypatch.setattr("labelfield.report.plots.to_svg", lambda figure, name, label: f"<svg>{label}</svg>")


@pytest.mark.usefixtures("undrawn")
def test_features_without_names_are_numbers(fitted):
    case = fitted("mlgpf")
    hint = "a file features.txt beside the rows"
    page = page_of(case)
    assert "feature 17" in page
    assert page.count(hint) == 1
    assert hint not in page_of(case, feature_names=[f"word{i}" for i in range(60)])


@pytest.mark.usefixtures("undrawn")
def test_captions_name_labels_and_not_counts(fitted):
    """If there are few labels, each is a band and gives it its name."""
    case = fitted("few labels")
    words = " ".join(" ".join(Page(page_of(case)).words).replace("\N{NO-BREAK SPACE}", " ").split())
    assert re.search(r"\d+ % of P@\d comes from label \d\.", words)
    # The last epoch is as good as the one before, not better.
    assert "more epochs would not help" in words
    assert "might still help" not in words


@pytest.mark.usefixtures("undrawn")
def test_a_sampler_has_no_bound(fitted):
    words = " ".join(Page(page_of(fitted("gibbs"))).words)
    assert "The log-likelihood in nats per row" in words
    assert "The bound in nats per row" not in words
    assert "it has converged" not in words


def test_names_in_figures_are_plain():
    from labelfield.report.plots import _short

    assert _short("a\u202eb\x1b $") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER} \\$"
