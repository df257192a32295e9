"""RowAdam is Adam, on the rows that a step has."""

import subprocess
import sys

import pytest
import torch

from labelfield.inference.adam import RowAdam
from labelfield.linalg.rows import take

GOOD, BAD = torch.tensor(0.0), torch.tensor(1.0)


def test_with_all_rows_it_is_adam():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(6, 3, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    adam, torchs = RowAdam([ours], lr=0.1), torch.optim.Adam([theirs], lr=0.1)
    for _ in range(20):
        order, target = torch.randperm(6, generator=generator), torch.randn(6, 3, generator=generator)
        for optimiser, parameter in ((adam, ours), (torchs, theirs)):
            optimiser.zero_grad()
            rows = take(parameter, order) if parameter is ours else parameter[order]
            (rows - target).square().sum().backward()
        assert ours.grad.is_sparse
        adam.update(GOOD)
        torchs.step()
        torch.testing.assert_close(ours, theirs)


def test_each_row_is_an_adam_of_its_own():
    """A row's path is that of Adam on the steps it was in, whatever happened to other rows in between."""
    generator = torch.Generator().manual_seed(1)
    parameter = torch.nn.Parameter(torch.zeros(4, 2))
    adam = RowAdam([parameter], lr=0.05)
    alone = [torch.nn.Parameter(torch.zeros(2)) for _ in range(4)]
    torchs = [torch.optim.Adam([row], lr=0.05) for row in alone]
    for _ in range(30):
        rows = torch.randperm(4, generator=generator)[: int(torch.randint(1, 4, (), generator=generator))]
        targets = torch.randn(len(rows), 2, generator=generator)
        adam.zero_grad()
        (take(parameter, rows) - targets).square().sum().backward()
        adam.update(GOOD)
        for row, target in zip(rows.tolist(), targets, strict=True):
            torchs[row].zero_grad()
            (alone[row] - target).square().sum().backward()
            torchs[row].step()
    torch.testing.assert_close(parameter.detach(), torch.stack([row.detach() for row in alone]))


@pytest.mark.parametrize("is_sparse", [True, False])
def test_a_bad_step_changes_nothing(is_sparse):
    parameter = torch.nn.Parameter(torch.ones(3, 2))
    adam = RowAdam([parameter], lr=0.1)
    for is_bad in (GOOD, BAD, GOOD):
        adam.zero_grad()
        before = parameter.detach().clone()
        rows = take(parameter, torch.arange(3)) if is_sparse else parameter
        (rows.square().sum() * (float("nan") if is_bad else 1)).backward()
        adam.update(is_bad)
        assert torch.equal(parameter, before) == bool(is_bad)
        assert parameter.isfinite().all()


def test_only_rows_of_the_gradient_move():
    parameter = torch.nn.Parameter(torch.ones(1000, 2))
    adam = RowAdam([parameter], lr=0.1)
    take(parameter, torch.tensor([7, 3])).sum().backward()
    adam.update(GOOD)
    assert (parameter != 1).any(1).nonzero().squeeze(1).tolist() == [3, 7]
    assert adam.state[0]["step"].nonzero().squeeze(1).tolist() == [3, 7]


@pytest.mark.parametrize("is_sparse", [True, False])
def test_torch_is_told_of_the_change(is_sparse):
    """What is kept until a parameter changes relies on it."""
    parameter = torch.nn.Parameter(torch.ones(3, 2))
    adam = RowAdam([parameter], lr=0.1)
    (take(parameter, torch.arange(3)) if is_sparse else parameter).sum().backward()
    before = parameter._version
    adam.update(GOOD)
    assert parameter._version > before


@pytest.mark.parametrize("is_sparse", [True, False])
def test_it_goes_on_from_its_tensors(is_sparse):
    def run(n_steps, parameter, adam):
        for step in range(n_steps):
            adam.zero_grad()
            rows = take(parameter, torch.tensor([0, 2])) if is_sparse else parameter
            (rows * (1 + step)).square().sum().backward()
            adam.update(GOOD)
        return parameter

    first = torch.nn.Parameter(torch.ones(3, 2))
    adam = RowAdam([first], lr=0.1)
    run(4, first, adam)
    second = torch.nn.Parameter(first.detach().clone())
    again = RowAdam([second], lr=0.1)
    again.restore({name: value.clone() for name, value in adam.tensors().items()})
    assert torch.equal(run(3, first, adam), run(3, second, again))
    with pytest.raises(ValueError, match="another shape"):
        again.restore({"0.exp_avg": torch.zeros(5)})
    with pytest.raises(ValueError, match="another shape"):
        again.restore({"0.exp_avg": torch.zeros(3, 2), "0.step": torch.zeros(3)})


@pytest.mark.slow  # tests/estimators/test_mlgpf.py asks the same of one model in a new process
def test_neither_training_nor_loading_imports_the_compiler(tmp_path):
    code = (
        "import sys, torch, labelfield as lf; d = lf.synth.make_multilabel(60, 20, 5); y = d.X.indices[:60] % 2\n"
        "lf.MLGPFClassifier(max_epochs=1, n_inducing=5).fit(d.X, d.Y).save(sys.argv[1])\n"
        "lf.GPClassifier(max_epochs=1, n_inducing=5, negative_sampling='importance').fit(d.X, y).save(sys.argv[2])\n"
        "lf.load(sys.argv[1]); lf.load(sys.argv[2]); assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "a", tmp_path / "b"], check=True)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_scales_are_parameter_groups(is_sparse):
    """RowAdam with a scale for each parameter is torch's Adam with a group for each; with all rows, sparse ones too."""
    generator, scales = torch.Generator().manual_seed(0), (1.0, 0.25, 3.0, 1.0)
    starts = [torch.randn(5, 2, generator=generator) for _ in scales]
    ours, theirs = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    adam = RowAdam(ours, 0.1, scales)
    groups = [{"params": [p], "lr": 0.1 * scale} for p, scale in zip(theirs, scales, strict=True)]
    torchs = torch.optim.Adam(groups)
    for step in range(15):
        if step == 8:  # as a schedule does
            adam.rate = 0.02
            for group, scale in zip(torchs.param_groups, scales, strict=True):
                group["lr"] = 0.02 * scale
        targets = [torch.randn(5, 2, generator=generator) for _ in scales]
        for optimiser, parameters in ((adam, ours), (torchs, theirs)):
            optimiser.zero_grad()
            is_taken = is_sparse and parameters is ours
            rows = [take(p, torch.arange(5)) if is_taken else p for p in parameters]
            sum((row - target).square().sum() for row, target in zip(rows, targets, strict=True)).backward()
        assert all(p.grad.is_sparse == is_sparse for p in ours)
        adam.update(GOOD)
        torchs.step()
    for a, b, start in zip(ours, theirs, starts, strict=True):
        torch.testing.assert_close(a, b)
        assert not torch.equal(a, start)


def test_a_scale_for_each_parameter():
    with pytest.raises(ValueError, match="1 scales for 2 parameters"):
        RowAdam([torch.nn.Parameter(torch.zeros(1)) for _ in range(2)], 0.1, [1.0])
