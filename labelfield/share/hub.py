"""The Hugging Face hub: a model folder with its card, made here and pushed if asked for."""

from __future__ import annotations

import shutil
from os import PathLike
from pathlib import Path
from typing import Any

from labelfield.atomic import replacing_folder, temporary_folder
from labelfield.errors import LabelfieldError
from labelfield.estimators.text import load
from labelfield.models.artifact import DOCUMENTS, MODEL_FILES, SAVED_FILES
from labelfield.share.card import model_card

CARD = "README.md"


def hub_folder(model: str | PathLike[str], out: str | PathLike[str], *, documents: bool = False, **card: Any) -> Path:
    """Write a folder for the hub: the files of a saved model, and README.md; `card` goes to `model_card`.

    The training documents that a model may keep are left out unless `documents`: they are often not for others to see.
    `labelfield.load` reads the folder as it is.
    """
    source, target = Path(model), Path(out)
    text = model_card(load(source, device="cpu"), **({"name": source.resolve().name} | card))
    with replacing_folder(target, (*MODEL_FILES, CARD)) as new:
        for name in SAVED_FILES:
            if (source / name).is_file() and (documents or name != DOCUMENTS):
                shutil.copyfile(source / name, new / name)
        (new / CARD).write_text(text, encoding="utf-8")
    return target


def push_to_hub(
    model: str | PathLike[str],
    repo_id: str,
    *,
    token: str | None = None,
    private: bool = True,
    documents: bool = False,
    api: Any = None,
    **card: Any,
) -> str:
    """Push a saved model with its card to a repository of the hub, private by default; return its address.

    Needs `pip install huggingface_hub`. `api` is an HfApi, or anything with its `create_repo` and `upload_folder`.
    """
    if api is None:
        try:
            from huggingface_hub import HfApi
        except ModuleNotFoundError:
            raise LabelfieldError("pushing needs huggingface_hub: pip install huggingface_hub") from None
        api = HfApi(token=token)
    with temporary_folder() as scratch:
        folder = hub_folder(model, scratch / "model", documents=documents, **card)
        found = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=str(folder), commit_message="A labelfield model")
    return str(found)
