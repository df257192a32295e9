"""omikuji's trees: Parabel with its defaults, Bonsai with other options."""

import omikuji
from protocol import Clock, finish, folder_bytes, pairs, task

asked, clock = task(), Clock()
settings = omikuji.Model.default_hyper_param()
for name, value in asked["options"].items():
    setattr(settings, name, value)
with clock("train"):
    model = omikuji.Model.train_on_data(asked["train"], settings, n_threads=asked["threads"])
model.init_prediction_thread_pool(asked["threads"])
rows = list(pairs(asked["test"]))
with clock("predict"):
    ranked = [model.predict(row, top_k=asked["k"]) for row in rows]
model.save(asked["model"])
finish(asked, clock, ranked, folder_bytes(asked["model"]))
