"""AdaGrad, AdaDelta and RMSProp are those of torch.optim, on the rows that a step has."""

import pytest
import torch

from labelfield import MLGPFClassifier, synth
from labelfield.inference.optimisers import RULES, RowRule
from labelfield.inference.run import OPTIMISERS, Settings
from labelfield.linalg.rows import take

THEIRS = {"adagrad": torch.optim.Adagrad, "adadelta": torch.optim.Adadelta, "rmsprop": torch.optim.RMSprop}
GOOD, BAD = torch.tensor(0.0), torch.tensor(1.0)


def test_all_rules_have_a_twin():
    assert set(RULES) == set(THEIRS) == set(OPTIMISERS) - {"adam"}
    with pytest.raises(ValueError, match="optimiser='sgd'; expected one of adam, "):
        Settings(optimiser="sgd")


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_it_is_that_of_torch(name, is_sparse):
    """With a scale for each parameter as a group of its own, and a rate that changes; sparse ones with all rows."""
    generator, scales = torch.Generator().manual_seed(0), (1.0, 0.25)
    starts = [torch.randn(5, 2, generator=generator) for _ in scales]
    ours, theirs = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    rule = RowRule(RULES[name], ours, 0.1, scales)
    torchs = THEIRS[name]([{"params": [p], "lr": 0.1 * scale} for p, scale in zip(theirs, scales, strict=True)])
    for step in range(15):
        if step == 8:
            rule.rate = 0.02
            for group, scale in zip(torchs.param_groups, scales, strict=True):
                group["lr"] = 0.02 * scale
        targets = [torch.randn(5, 2, generator=generator) for _ in scales]
        for optimiser, parameters in ((rule, ours), (torchs, theirs)):
            optimiser.zero_grad()
            rows = [take(p, torch.arange(5)) if is_sparse and parameters is ours else p for p in parameters]
            sum((row - target).square().sum() for row, target in zip(rows, targets, strict=True)).backward()
        assert all(p.grad.is_sparse == is_sparse for p in ours)
        rule.update(GOOD)
        torchs.step()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    assert not torch.equal(ours[0], starts[0])


@pytest.mark.parametrize("name", RULES)
def test_each_row_goes_its_own_way(name):
    """Rows move as they would alone, whatever happens to others in between."""
    generator = torch.Generator().manual_seed(1)
    parameter, alone = torch.nn.Parameter(torch.zeros(4, 2)), [torch.nn.Parameter(torch.zeros(2)) for _ in range(4)]
    rule, torchs = RowRule(RULES[name], [parameter], 0.05), [THEIRS[name]([row], lr=0.05) for row in alone]
    for _ in range(20):
        rows = torch.randperm(4, generator=generator)[: int(torch.randint(1, 4, (), generator=generator))]
        targets = torch.randn(len(rows), 2, generator=generator)
        rule.zero_grad()
        (take(parameter, rows) - targets).square().sum().backward()
        rule.update(GOOD)
        for row, target in zip(rows.tolist(), targets, strict=True):
            torchs[row].zero_grad()
            (alone[row] - target).square().sum().backward()
            torchs[row].step()
    torch.testing.assert_close(parameter.detach(), torch.stack([row.detach() for row in alone]))


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("name", RULES)
def test_a_bad_step_changes_nothing_and_a_good_one_goes_on(name, is_sparse):
    def run(parameter, rule, steps):
        for step, is_bad in steps:
            rule.zero_grad()
            rows = take(parameter, torch.tensor([0, 2])) if is_sparse else parameter
            ((rows * (1 + step)).square().sum() * (float("nan") if is_bad else 1)).backward()
            rule.update(is_bad)

    first, second = (torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2))
    rule = RowRule(RULES[name], [first], 0.1)
    run(first, rule, [(0, GOOD), (1, BAD), (1, GOOD)])
    other = RowRule(RULES[name], [second], 0.1)
    run(second, other, [(0, GOOD)])
    again = RowRule(RULES[name], [second], 0.1)
    again.restore({key: value.clone() for key, value in other.tensors().items()})
    run(second, again, [(1, GOOD)])
    assert torch.equal(first, second)
    with pytest.raises(ValueError, match="another shape"):
        again.restore({"0.exp_avg": torch.zeros(3, 2), "0.step": torch.zeros(3)})


@pytest.mark.parametrize("name", OPTIMISERS)
def test_training_names_its_optimiser(name):
    data = synth.make_multilabel(120, 40, 10, seed=1)
    rate = {"adadelta": 5.0}.get(name, 0.05)
    model = MLGPFClassifier(n_latent=3, n_inducing=10, max_epochs=15, learning_rate=rate, optimiser=name)
    history = model.fit(data.X, data.Y).history_
    assert model.settings_.optimiser == name
    assert history[-1]["bound"] > history[0]["bound"] + 0.5
