"""omikuji's trees: Parabel with its defaults, Bonsai with other options."""

from pathlib import Path

import omikuji
from protocol import Clock, finish, folder_bytes, pairs, task


def without_empty_rows(path):
    """Return a file of the rows that have features: omikuji reads no others, and could learn nothing from them."""
    header, *lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if ":" in line]
    if len(kept) == len(lines):
        return path
    new = Path(path).with_suffix(".filled.txt")
    new.write_text(" ".join([str(len(kept)), *header.split()[1:]]) + "\n" + "".join(kept), encoding="utf-8")
    return str(new)


asked, clock = task(), Clock()
settings = omikuji.Model.default_hyper_param()
for name, value in asked["options"].items():
    setattr(settings, name, value)
train = without_empty_rows(asked["train"])
with clock("train"):
    model = omikuji.Model.train_on_data(train, settings, n_threads=asked["threads"])
model.init_prediction_thread_pool(asked["threads"])
rows = list(pairs(asked["test"]))
with clock("predict"):
    ranked = [model.predict(row, top_k=asked["k"]) for row in rows]
model.save(asked["model"])
finish(asked, clock, ranked, folder_bytes(asked["model"]))
