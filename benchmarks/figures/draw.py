"""`python -m benchmarks.recipes NAME [--device cuda]`, or `labelfield recipe run NAME`: draw the figure of a recipe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import curves, deep_kernel_images, inducing_images, topics
from benchmarks.record import DATA, RECORDS, write_record
from labelfield.bench.recipes import Recipe, find_recipe, read_recipe
from labelfield.errors import DataError, LabelfieldError

__all__ = ["FIGURES", "draw"]

FIGURES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "curves": curves.draw_curves,
    "relevance": curves.draw_relevance,
    "inducing": inducing_images.run,
    "deep_kernels": deep_kernel_images.run,
    "topic_times": topics.draw_times,
    "topic_names": topics.write_topics,
}
# What its options must say, and whose runs it shows.
_NEEDED = {
    "curves": ("of", "picture", "runs_of"),
    "relevance": ("datasets", "model", "picture"),
    "inducing": ("inducing", "picture"),
    "deep_kernels": (),
    "topic_times": ("n_topics", "ways"),
    "topic_names": ("n_shown",),
}


def draw(recipe: Recipe, device: str) -> dict[str, Any]:
    """Draw it; what there is to say about it."""
    if recipe.figure not in FIGURES:
        raise DataError(f"figure: {recipe.figure}", path=recipe.path, expected=f"one of {', '.join(FIGURES)}")
    options = {**(recipe.options or {}), "device": device}
    if recipe.runs_of is not None:
        options["runs_of"] = recipe.runs_of
    for key in _NEEDED[recipe.figure]:
        if key not in options:
            raise DataError(f"a figure {recipe.figure} without {key}", path=recipe.path, expected=f"a line `{key}: …`")
    return FIGURES[recipe.figure](options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--records", type=Path, default=RECORDS)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"the data sets are not at {DATA}; set LABELFIELD_DATA")
    try:
        recipe = read_recipe(find_recipe(arguments.recipe))
        results = draw(recipe, arguments.device)
    except LabelfieldError as error:
        sys.exit(str(error))
    on = "" if arguments.device == "cpu" else f" --device {arguments.device}"
    command = f"labelfield recipe run {recipe.name}{on}"
    print(f"{recipe.name}: {write_record(recipe.name, results, command=command, folder=arguments.records)}", flush=True)


if __name__ == "__main__":
    main()
