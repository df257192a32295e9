"""`python -m benchmarks.recipes NAME [--device cuda]`, or `labelfield recipe run NAME`: draw the figure of a recipe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import curves, deep_kernel_images, inducing_images, topics
from benchmarks.record import DATA, write_record
from labelfield.bench.recipes import Recipe, find_recipe, read_recipe

__all__ = ["FIGURES", "draw"]

FIGURES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "curves": curves.draw_curves,
    "relevance": curves.draw_relevance,
    "inducing": inducing_images.run,
    "deep_kernels": deep_kernel_images.run,
    "topic_times": topics.draw_times,
    "topic_names": topics.write_topics,
}


def draw(recipe: Recipe, device: str) -> dict[str, Any]:
    """Draw it; what there is to say about it."""
    if recipe.figure not in FIGURES:
        sys.exit(f"{recipe.path}: figure: {recipe.figure}; expected one of {', '.join(FIGURES)}")
    options = {**(recipe.options or {}), "device": device}
    if recipe.runs_of is not None:
        options["runs_of"] = recipe.runs_of
    return FIGURES[recipe.figure](options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"the data sets are not at {DATA}; set LABELFIELD_DATA")
    recipe = read_recipe(find_recipe(arguments.recipe))
    on = "" if arguments.device == "cpu" else f" --device {arguments.device}"
    path = write_record(recipe.name, draw(recipe, arguments.device), command=f"labelfield recipe run {recipe.name}{on}")
    print(f"{recipe.name}: {path.relative_to(path.parents[2])}", flush=True)


if __name__ == "__main__":
    main()
