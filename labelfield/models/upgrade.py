"""Model folders of earlier layouts, brought to the present one.

Layout 4 had other names for some options, kept ensembles as a first member with others beside it, and had spectral
mixtures, which are gone. The linear machines of layout 5 had their intercepts fixed at -1. None before layout 7 had
what was said of held-out rows.
"""

import re
from typing import Any

import torch

from labelfield.models.artifact import ModelError
from labelfield.models.calibration import Calibration, Temperature

_RENAMED = {
    "private": "label_linear",
    "n_private": "n_label_linear",
    "private_scale": "label_linear_scale",
    "own_kernel": "kernel_per_class",
    "rivals": "negative_sampling",
    "scale": "prior_scale",
    "patience": "n_iter_no_change",
    "tolerance": "tol",
    "calibrated": "calibrate",
}
_ENSEMBLE = "ensemble"
_NO_EVIDENCE = "the model folder has no held-out rows, because an earlier labelfield wrote it. Train the model again"


def present_names(method: str | None) -> dict[str, str]:
    """Return the present names of the options of a method, by their former ones."""
    return {**_RENAMED, "own_kernel": "kernel_per_process"} if method == "svdkl" else _RENAMED


def upgraded(config: dict[str, Any], arrays: dict[str, torch.Tensor]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return a description and arrays in the present layout."""
    if config["version"] == 7:
        # Labels were in cells before they had an index; models with cells are searched as if they had none.
        arrays = {name: value for name, value in arrays.items() if not name.startswith("cells.")}
        return {name: value for name, value in config.items() if name != "cells"}, arrays
    config = config | {"no_evidence": _NO_EVIDENCE}
    if config["version"] == 6:
        return config, arrays
    if config["version"] == 5:
        return config, arrays | _intercepts(arrays)
    described = _renamed(config, config["method"])
    others = config.get("members")
    n_members = config["options"].get(_ENSEMBLE)
    shared = {name: config[name] for name in ("version", "classes", "feature_names_sha256", "no_evidence")}
    if config["method"] == "topics" and not any(name.startswith("calibration.") for name in arrays):
        # The first ones were not calibrated, and did not say whether labels exclude each other.
        described["spec"]["is_exclusive"] = is_exclusive = config["label_kind"] == "classes"
        identity = (Temperature() if is_exclusive else Calibration(has_lead=True)).state_dict()
        arrays = arrays | {f"calibration.{name}": value for name, value in identity.items()}
    if not others:
        return described | shared, {_renamed_array(name): value for name, value in arrays.items()}
    if not isinstance(others, list):
        raise ModelError("the members are not a list")
    found = {}
    for name, value in arrays.items():
        if name.startswith("member."):
            found[f"member.{_renamed_array(name.removeprefix('member.'))}"] = value
        elif name.startswith("ensemble."):
            found[f"calibration.{name.removeprefix('ensemble.')}"] = value
        else:
            found[f"member.0.{_renamed_array(name)}"] = value
    members = [described, *(_renamed(own, config["method"]) for own in others)]
    ensemble = {"method": _ENSEMBLE, "n_members": n_members, "options": described["options"], "members": members}
    return ensemble | shared, found


def _intercepts(arrays: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return intercepts of 0 and no trees for all linear machines, which alone have pointers of their own."""
    found = {}
    for name, pointers in arrays.items():
        if re.fullmatch(r"(member\.\d+\.)?pointers", name):
            n_labels = max(pointers.numel() - 1, 0)
            found[name.replace("pointers", "intercepts")] = torch.zeros(n_labels)
            found[name.replace("pointers", "groups")] = torch.zeros(0, n_labels, dtype=torch.int64)
    return found


def _renamed(config: dict[str, Any], method: str) -> dict[str, Any]:
    """Return the description of one model with present names and without options that are gone."""
    names = present_names(method)
    result = {"held_out_scores": {}, **config, "method": method}
    for part in ("options", "spec", "settings"):
        own = {names.get(name, name): value for name, value in config[part].items()}
        if own.pop("n_mixtures", None) is not None and own.get("kernel") == "spectral_mixture":
            raise ModelError("the kernel spectral_mixture no longer exists. Train the model again with another kernel")
        own.pop(_ENSEMBLE, None)
        result[part] = own
    result.pop("members", None)
    return result


def _renamed_array(name: str) -> str:
    head, dot, rest = name.partition(".")
    if head.isdecimal():  # a member's
        return f"{head}.{_renamed_array(rest)}"
    return f"label_linear{dot}{rest}" if head == "private" else name
