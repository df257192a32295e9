"""All figures that recipes can ask for, and how to draw one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.recipes import Recipe
from labelfield.errors import DataError

__all__ = ["FIGURES", "draw"]

# The module and function of each figure, and what a recipe must say.
FIGURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "curves": ("curves", "draw_curves", ("of", "picture", "runs_of")),
    "relevance": ("curves", "draw_relevance", ("datasets", "model", "picture")),
    "inducing": ("inducing", "draw", ("inducing", "picture")),
    "rings": ("rings", "draw", ("n_rows", "picture")),
    "deep_kernels": ("deep_kernels", "draw", ()),
    "topic_times": ("topics", "draw_times", ("n_topics", "ways")),
    "topic_names": ("topics", "name_topics", ("n_shown",)),
}


def draw(recipe: Recipe, device: str) -> dict[str, Any]:
    """Draw the figure of a recipe; return what to record of it. The function gets the runs of another as `runs_of`."""
    if recipe.figure not in FIGURES:
        raise DataError(f"figure: {recipe.figure}", path=recipe.path, expected=f"one of {', '.join(FIGURES)}")
    module, name, needed = FIGURES[recipe.figure]
    options = {**(recipe.options or {}), "device": device}
    if recipe.suite is not None:
        options["runs_of"] = recipe.suite
    for key in needed:
        if key not in options:
            raise DataError(f"figure {recipe.figure} without {key}", path=recipe.path, expected=f"a line `{key}: …`")
    function: Callable[[dict[str, Any]], dict[str, Any]] = getattr(
        importlib.import_module(f"benchmarks.figures.{module}"), name
    )
    return function(options)
