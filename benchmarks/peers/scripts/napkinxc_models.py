"""napkinXC with its defaults: a probabilistic label tree, or one model per label."""

from napkinxc import models
from napkinxc.datasets import load_libsvm_file
from protocol import Clock, finish, folder_bytes, task

asked, clock = task(), Clock()
options = dict(asked["options"])
seeded = {"seed": asked["seed"]} if options["model"] == "PLT" else {}
model = getattr(models, options.pop("model"))(asked["model"], threads=asked["threads"], **seeded, **options)
with clock("train"):
    X, Y = load_libsvm_file(asked["train"])
    model.fit(X, Y)
X, _ = load_libsvm_file(asked["test"])
model.load()
with clock("predict"):
    ranked = model.predict_proba(X, top_k=asked["k"])
finish(asked, clock, ranked, folder_bytes(asked["model"]))
