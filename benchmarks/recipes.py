"""`python -m benchmarks.recipes RECIPE [--device cuda] [--jobs 8]`: run a published table's rows and record them."""

from __future__ import annotations

import argparse
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import deep_kernel_images, inducing_images, topics
from benchmarks.record import DATA, isolated, write_record

_FIGURES = {
    "inducing": inducing_images.run,
    "deep_kernels": deep_kernel_images.run,
    "topic_times": topics.draw_times,
    "topic_names": topics.write_topics,
}


def _prepare() -> None:
    import labelfield.estimators  # noqa: F401  # imported before the measurement


def _run_row(dataset: str, options: dict[str, Any], _: None) -> dict[str, float]:
    import labelfield
    from labelfield import MLGPFClassifier, metrics

    data = labelfield.read(DATA / dataset)
    assert data.test is not None
    model = MLGPFClassifier(**options).fit(data.X, data.Y)
    scores = metrics.evaluate(data.test.Y, model.predict_topk(data.test.X, 5), data.Y)
    return {**{name: scores[name] for name in ("P@1", "P@3", "P@5")}, "bound": model.history_[-1]["bound"]}


def run(recipe: Path, device: str, jobs: int) -> dict[str, Any]:
    """Every row of a recipe, some at once, or its figure; a row that fails says why and fails the run at the end."""
    content = tomllib.loads(recipe.read_text())
    if "figure" in content:
        draw = _FIGURES[content["figure"]]
        return {"recipe": recipe.name, "device": device, **draw({**content["options"], "device": device})}

    def one(name: str) -> dict[str, Any]:
        row = dict(content["rows"][name])
        published = row.pop("published", None)
        options = {**content["options"], **row, "device": device}
        measured = isolated(_prepare, partial(_run_row, content["dataset"], options))
        print(f"{name}: {measured.value}", flush=True)
        return {**measured.value, "published P@1": published, "seconds": measured.seconds}

    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(one, content["rows"]))
    return {"recipe": recipe.name, "device": device, "rows": dict(zip(content["rows"], rows, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"the data sets are not at {DATA}; set LABELFIELD_DATA")
    results = run(arguments.recipe, arguments.device, arguments.jobs)
    command = f"python -m benchmarks.recipes {arguments.recipe} --device {arguments.device} --jobs {arguments.jobs}"
    write_record(arguments.recipe.stem, results, command=command)


if __name__ == "__main__":
    main()
