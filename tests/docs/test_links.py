"""Links between pages lead somewhere, in a repository browser and on the site, and every page is listed."""

import re

import pytest
from pages import DOCS, ROOT

import labelfield
from labelfield import metrics, synth

PAGES = [*sorted(DOCS.glob("*.md")), *sorted(ROOT.glob("*.md"))]


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(path):
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", without_code(path.read_text())))


def anchor(heading):
    """Return the anchor that repository browsers and MyST make: lower case, no punctuation, dashes for blanks."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "-_ ")
    return kept.strip().replace(" ", "-")


def anchors(path):
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.MULTILINE)}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for link in links(path):
        assert not re.match(r"https?:", link), f"{path.name}: {link}: pages link to pages of ours"
        name, _, heading = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name}: {link}"
        # The site has the folder docs and CONTRIBUTING.md; a link to anything else would lead nowhere there.
        if path.parent == DOCS:
            assert DOCS in target.parents or target == ROOT / "CONTRIBUTING.md", (
                f"{path.name}: {link} is not on the site"
            )
        if heading:
            assert heading in anchors(target), f"{path.name}: {link}: {target.name} has no such heading"


def test_every_page_is_in_the_table_of_contents():
    trees = re.findall(r"^```{toctree}\n(.*?)^```$", (DOCS / "index.md").read_text(), re.DOTALL | re.MULTILINE)
    listed = set(re.findall(r"^[\w-]+$", "\n".join(trees), re.MULTILINE))
    assert listed == {path.stem for path in DOCS.glob("*.md")} - {"index"}


def test_every_public_name_is_on_the_page_of_the_interface():
    text = (DOCS / "API.md").read_text()
    modules = {"metrics", "synth"}
    for name in set(labelfield.__all__) - modules - {"__version__"}:
        assert re.search(rf":: labelfield\.{name}$", text, re.MULTILINE), name
    for module in (metrics, synth):
        assert f".. automodule:: {module.__name__}\n   :members:" in text


def test_anchors_are_those_of_browsers():
    assert anchor("What is it? `fit`, and so on") == "what-is-it-fit-and-so-on"
