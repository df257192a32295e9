"""The public surface: names and signatures as recorded. A change needs a line in CHANGELOG.md, and a new record:
`python tests/test_public.py`.
"""

import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("public_names.txt")


def surface() -> dict[str, str]:
    """Every public name with its signature."""
    import labelfield

    found = {}
    for name in labelfield.__all__:
        thing = getattr(labelfield, name)
        if inspect.ismodule(thing):
            found |= {f"{name}.{own}": signature(getattr(thing, own)) for own in thing.__all__}
        else:
            found[name] = signature(thing)
        if inspect.isclass(thing):
            own = {key: value for key, value in inspect.getmembers(thing) if is_ours(key, value)}
            found |= {f"{name}.{key}": signature(value) for key, value in own.items()}
    return dict(sorted(found.items()))


def is_ours(name, value) -> bool:
    module = getattr(value.fget if isinstance(value, property) else value, "__module__", "") or ""
    return not name.startswith("_") and module.startswith("labelfield")


def signature(thing) -> str:
    """Names of parameters with their defaults; types may be written in another way without being other ones."""
    if isinstance(thing, property):
        return "property"
    if not callable(thing):
        return type(thing).__name__
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return "class"
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(plain)))


def recorded() -> dict[str, str]:
    return dict(line.split("\t") for line in RECORD.read_text().splitlines()) if RECORD.exists() else {}


def changed(now: dict[str, str], then: dict[str, str]) -> list[str]:
    return sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))


def unexplained(names: list[str], changelog: str) -> list[str]:
    """Changed names of which the newest section of the changelog says nothing."""
    newest = changelog.partition("\n## ")[2].partition("\n## ")[0]
    return [name for name in names if not re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", newest)]


def test_public_names_are_as_recorded():
    names = changed(surface(), recorded())
    assert not names, f"add lines to CHANGELOG.md about {', '.join(names)}, then run `python tests/test_public.py`"


def test_a_change_is_seen_and_must_be_explained():
    then = {"read": "(path)", "write": "(path)"}
    assert changed({"read": "(path, *, narrow=False)", "write": "(path)", "new": "()"}, then) == ["new", "read"]
    assert changed({"read": "(path)"}, then) == ["write"]
    assert unexplained(["new", "A.read"], "# C\n\n## Unreleased\n\n- `read` is narrow.\n\n## 0.1\n\n- `new`.\n") == [
        "new"
    ]


def test_the_record_has_the_main_names():
    assert {"MLGPFClassifier.predict_topk", "read", "metrics.precision_at_k", "Dataset.splits"} <= recorded().keys()


if __name__ == "__main__":
    now = surface()
    if RECORD.exists() and (missing := unexplained(changed(now, recorded()), (ROOT / "CHANGELOG.md").read_text())):
        sys.exit(f"CHANGELOG.md says nothing about {', '.join(missing)}")
    RECORD.write_text("".join(f"{name}\t{text}\n" for name, text in now.items()))
