import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import datasets

import labelfield
from labelfield import Batch


@given(datasets(), st.data())
def test_a_batch_is_those_rows(dataset, data):
    n = dataset.n_rows
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=9)) if n else []
    batch = Batch.gather(dataset, rows)
    assert batch.X.layout == batch.Y.layout == torch.sparse_csr
    assert batch.X.shape == (len(rows), dataset.n_features)
    assert batch.Y.shape == (len(rows), dataset.n_labels)
    assert batch.rows.tolist() == rows
    assert len(batch) == len(rows)
    np.testing.assert_array_equal(batch.X.to_dense().numpy(), dataset.X.toarray()[rows])
    np.testing.assert_array_equal(batch.Y.to_dense().numpy(), dataset.Y.toarray()[rows])


def test_mapped_and_in_memory_batches_agree(tmp_path):
    dataset = labelfield.synth.make_multilabel(300, 80, 20, seed=2)
    labelfield.write(dataset, tmp_path / "store")
    mapped = labelfield.read(tmp_path / "store")
    for rows in (
        np.random.default_rng(0).permutation(300),
        slice(10, 50),
        slice(None, None, -7),
        [5],
        np.arange(300) % 2 == 0,
    ):
        a, b = Batch.gather(dataset, rows), Batch.gather(mapped, rows)
        assert torch.equal(a.X.to_dense(), b.X.to_dense())
        assert torch.equal(a.Y.to_dense(), b.Y.to_dense())


def test_a_batch_multiplies_and_owns_its_memory():
    dataset = labelfield.synth.make_multilabel(50, 80, 20, seed=2)
    batch = Batch.gather(dataset, slice(None))
    Z = torch.randn(80, 3)
    np.testing.assert_allclose((batch.X @ Z).numpy(), dataset.X @ Z.numpy(), rtol=1e-5, atol=1e-6)
    batch.X.values().zero_()
    assert dataset.X.data.all(), "writing to a batch must not reach the data set"


def test_a_batch_cannot_be_changed():
    batch = Batch.gather(labelfield.synth.make_multilabel(50, 80, 20), [0])
    with pytest.raises(AttributeError):
        batch.X = None


def test_other_devices():
    batch = Batch.gather(labelfield.synth.make_multilabel(50, 80, 20), [0, 3], device="meta")
    assert batch.X.device.type == batch.Y.device.type == batch.rows.device.type == "meta"
    assert Batch.gather(labelfield.synth.make_multilabel(50, 80, 20), [0]).to("cpu").X.device.type == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda():
    dataset = labelfield.synth.make_multilabel(50, 80, 20)
    there, here = Batch.gather(dataset, [4, 2], device="cuda"), Batch.gather(dataset, [4, 2])
    assert torch.equal(there.X.to_dense().cpu(), here.X.to_dense())
