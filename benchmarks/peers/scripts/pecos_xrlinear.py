"""PECOS' XR-Linear as its README trains it, on rows of norm one."""

from csr_rows import as_pairs, read_rows
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from protocol import Clock, finish, folder_bytes, task

asked, clock = task(), Clock()
with clock("train"):
    X, Y = read_rows(asked["train"])
    labels = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=asked["threads"])
    clusters = Indexer.gen(labels, indexer_type="hierarchicalkmeans", seed=asked["seed"], threads=asked["threads"])
    model = XLinearModel.train(X, Y, C=clusters, threads=asked["threads"], **asked["options"])
X, _ = read_rows(asked["test"])
with clock("predict"):
    ranked = model.predict(X, only_topk=asked["k"], threads=asked["threads"])
model.save(asked["model"])
finish(asked, clock, as_pairs(ranked), folder_bytes(asked["model"]))
