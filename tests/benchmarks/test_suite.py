"""Suites say what is run; every mistake in one is reported with its line."""

import pytest

from benchmarks.recipes import read_recipe, recipe_names
from benchmarks.suites.suite import METHODS, check_options, read_suite, suite_names
from labelfield.errors import DataError, LabelfieldError

GOOD = """\
title: a test
datasets: [here, there]
defaults: {method: mlgpf, options: {max_epochs: 2, n_latent: 3}}
budgets:
  short: {time_budget: 1.0}
  full: {}
rows:
  first:
    options: {n_latent: 5}
    paper: {here: {P@1: 50.5}}
  second: {method: topics, datasets: [there], seeds: 3}
  rival: {peer: omikuji-bonsai}
"""


@pytest.fixture
def suite_of(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return read_suite(path)

    return write


def test_cells_are_the_product_of_all_parts(suite_of):
    suite = suite_of(GOOD)
    assert suite.name == "mine"
    keys = [cell.key for cell in suite.cells()]
    assert len(keys) == len(set(keys)) == 2 * 2 + 2 * 3 + 2
    by_key = {cell.key: cell for cell in suite.cells()}
    assert by_key["here", "first", "short", 0].options == {"max_epochs": 2, "n_latent": 5, "time_budget": 1.0}
    assert by_key["there", "second", "full", 2].method == "topics"
    # A peer gets neither our options nor our budgets.
    assert by_key["there", "rival", "full", 0].options == {}
    assert ("here", "rival", "short", 0) not in by_key
    assert suite.rows[0].paper == {"here": {"P@1": 50.5}}


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("title: a test", "titel: a test", 1, "titel: unknown key"),
        ("seeds: 3", "seeds: none", 11, "rows: second: seeds: 'none'; expected a whole number"),
        ("method: topics", "method: trees", 11, "method: 'trees'; expected one of auto, linear, mlgpf"),
        ("omikuji-bonsai", "bonsai", 12, "rows: rival: peer: 'bonsai'; expected one of omikuji-parabel"),
        ("here: {P@1: 50.5}", "P@1: 50.5", 10, "scores without a data set"),
        ("P@1: 50.5", "P@1: high", 10, "'high'; expected a number"),
        ("here: {P@1", "nowhere: {P@1", 10, "no row is run on this data set"),
        ("datasets: [here, there]", "datasets: here", 2, "datasets: 'here'; expected a list of words"),
        ("short: {time_budget: 1.0}", "short: 1.0", 5, "budgets: short: 1.0; expected a mapping"),
        ("rows:", "rows: [1", 7, "not YAML"),
        ("budgets:\n  short: {time_budget: 1.0}\n  full: {}", "budgets: {}", 4, "budgets: {}; expected some budgets"),
        (
            "title: a test",
            "title: a test\nreference: [first]",
            2,
            "reference: ['first']; expected a row: first, second",
        ),
        ("omikuji-bonsai", "[omikuji-bonsai]", 12, "rows: rival: peer: ['omikuji-bonsai']; expected one of"),
        ("method: topics", "method: [topics]", 11, "method: ['topics']; expected one of auto, linear, mlgpf"),
        ("max_epochs: 2", "2: max_epochs", 3, "defaults: options: 2: 2; expected the name of an option"),
        (
            "n_latent: 5}",
            "n_latent: 5}\n    options_of: {her: {}}",
            10,
            "options_of: her: no row is run on this",
        ),
        ("rows:", "notes:\nrows:", 7, "notes: None; expected a word or a sentence"),
    ],
)
def test_a_mistake_is_reported_with_its_line(suite_of, tmp_path, old, new, line, told):
    assert old in GOOD
    with pytest.raises(DataError) as raised:
        suite_of(GOOD.replace(old, new, 1))
    assert told in str(raised.value)
    assert abs(raised.value.line - line) <= (1 if told == "not YAML" else 0)
    assert str(raised.value).startswith(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("rows:\n  a: &a {method: mlgpf, options: {b: *a}}", 3, "rows: a: options: b: an alias of what contains it"),
        ("rows: &rows\n  a:\n  - *rows", 4, "rows: a: 0: an alias of what contains it"),
        ("notes: 2026-13-01\nrows: {}", 2, "notes: '2026-13-01' is not a timestamp"),
    ],
)
def test_mistakes_that_yaml_reports_without_a_line(suite_of, text, line, told):
    with pytest.raises(DataError, match=f"mine.yaml:{line}: {told}"):
        suite_of(f"title: mine\n{text}\n")


def test_an_alias_can_be_overridden(suite_of):
    suite = suite_of("title: mine\ndatasets: [a]\nrows:\n  b: &b {method: mlgpf, seeds: 2}\n  c: {<<: *b, seeds: 3}\n")
    assert [(row.method, row.seeds) for row in suite.rows] == [("mlgpf", 2), ("mlgpf", 3)]


@pytest.mark.parametrize("text", ["", "- 1", "just words"])
def test_a_file_that_is_no_mapping(suite_of, text):
    with pytest.raises(DataError, match="not a mapping"):
        suite_of(text)


def test_tags_of_python_are_refused(suite_of):
    with pytest.raises(DataError, match="not YAML"):
        suite_of("title: !!python/object/apply:os.system ['true']\nrows: {}")


@pytest.mark.parametrize("name", suite_names())
def test_our_own_suites_can_be_read(name):
    assert list(read_suite(name).cells())


def test_a_suite_that_is_not_there():
    with pytest.raises(LabelfieldError, match="no suite or study 'best'; `python -m benchmarks bench list`"):
        read_suite("best")


def test_methods_are_those_of_the_command_line():
    from labelfield.estimators.methods import METHODS as KNOWN

    assert set(METHODS) == set(KNOWN)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("rows:\n  a: {method: mlgpf}\n  a: {method: topics}", 5, "rows: a: a duplicate key"),
        ("rows:\n  a: {method: mlgpf, options: {max_epochs: 2026-01-01}}", 4, "rows: a: options: max_epochs: "),
        ("rows:\n  a: {method: mlgpf, options: {jitter: .nan}}", 4, "rows: a: options: jitter: nan"),
        ("rows:\n  a: {method: mlgpf, worse: [no]}", 4, "rows: a: worse: "),
        (
            "rows:\n  a: {method: mlgpf, peer: omikuji-bonsai}",
            4,
            "rows: a: a method and a peer; expected only one of the two",
        ),
        (
            "rows:\n  a:\n    method: mlgpf\n    options:\n      device: tpu",
            7,
            "rows: a: options: device: each run sets this option itself; expected --device",
        ),
        ("defaults: {options: {random_state: 5}}\nrows:\n  a: {}", 3, r"defaults: .*random_state: .* expected `seeds"),
        ("budgets:\n  short: {device: cpu}\nrows:\n  a: {method: mlgpf}", 4, "budgets: short: device: "),
        ("rows:\n  a: {method: mlgpf, options_of: {toy: {random_state: 1}}}", 4, "rows: a: options_of: toy: random"),
        ("scores: [AUC_micro, P@7]\nrows: {a: {method: mlgpf}}", 3, "scores: 'P@7'; expected one of .*P@5"),
        ("scores: [AUC_macro]\nrows: {a: {method: mlgpf}}", 3, "scores: 'AUC_macro'; expected one of AUC_micro"),
        ("by_epoch: often\nrows:\n  a: {method: mlgpf}", 3, "by_epoch: 'often'; expected true or false"),
        ("by_epoch: true\nrows:\n  a: {method: topics}", 5, "rows: a: 'topics' with by_epoch; expected one of mlgpf"),
    ],
)
def test_content_that_would_be_lost_or_cannot_be_recorded_is_refused(tmp_path, text, line, told):
    path = tmp_path / "mine.yaml"
    path.write_text(f"title: mine\ndatasets: [toy]\n{text}\n")
    with pytest.raises(DataError, match=f"mine.yaml:{line}: {told}"):
        read_suite(path)


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        (
            "{n_latent: 5}",
            "{n_induce: 5}",
            9,
            "first: options: n_induce: not an option of mlgpf; expected one of n_ind",
        ),
        ("{n_latent: 5}", "{likelyhood: softmax}", 9, "rows: first: options: likelyhood: not an option of mlgpf"),
        (
            "{n_latent: 5}",
            "{}\n    options_of: {here: {ranks: 5}}",
            10,
            "options_of: here: ranks: not an option of mlgpf",
        ),
        ("max_epochs: 2", "max_epoch: 2", 3, "defaults: options: max_epoch: not an option of mlgpf or topics; exp"),
        ("time_budget", "time_limit", 5, "budgets: short: time_limit: not an option of mlgpf or topics; exp"),
        ("max_epochs: 2", "jitter: 2", 11, "rows: second: topics has no option jitter, which is set for all rows"),
        (
            "method: topics",
            "method: softmax, options: {likelihood: softmax}",
            11,
            "likelihood: not an option of softmax",
        ),
    ],
)
def test_an_unknown_option_is_reported_before_a_run(suite_of, old, new, line, told):
    known = GOOD.replace(", n_latent: 3", "")
    check_options(suite_of(known))
    assert old in known
    with pytest.raises(DataError, match=f"mine.yaml:{line}: .*{told}"):
        check_options(suite_of(known.replace(old, new, 1)))


def test_the_options_of_a_peer_are_its_own(suite_of):
    check_options(suite_of("title: mine\ndatasets: [a]\nrows:\n  b: {peer: omikuji-bonsai, options: {max_depth: 2}}\n"))


def test_the_options_of_our_own_suites_and_recipes_exist():
    suites = [read_suite(name) for name in suite_names()]
    suites += [suite for name in recipe_names() if (suite := read_recipe(name).suite) is not None]
    for suite in suites:
        check_options(suite)
