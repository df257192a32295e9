"""Labels and rivals are drawn with the probabilities that their weights assume."""

import pytest
import torch

from labelfield.models.sampling import Rivals, _draw_others


@pytest.mark.parametrize("n_drawn", [2, 5, 7])
def test_every_set_of_other_labels_is_as_likely(n_drawn):
    held, generator = torch.tensor([1, 2, 6]), torch.Generator().manual_seed(0)
    counts = torch.zeros(10)
    for _ in range(3000):
        drawn = _draw_others(held, 10, n_drawn, generator)
        assert len(set(drawn.tolist())) == n_drawn
        counts[drawn] += 1
    assert not counts[held].any()
    share = counts[counts > 0] / 3000
    spread = (n_drawn / 7 * (1 - n_drawn / 7) / 3000) ** 0.5
    assert len(share) == 7
    assert (share - n_drawn / 7).abs().max() <= 4 * spread


def test_high_scores_are_drawn_more_often():
    rivals = Rivals(1000)
    classes = torch.arange(1000)
    mean = torch.full((4, 1000), -6.0)
    mean[:, 0], mean[:, 10:20] = 0.0, 6.0
    for _ in range(200):
        rivals.learn(classes, mean, torch.zeros(4, dtype=torch.long))
    strong = torch.arange(10, 20)
    assert rivals._probability(strong).min() > 20 / 1000
    drawn = rivals.choose(torch.zeros(1, dtype=torch.long), 50, torch.Generator().manual_seed(0))
    assert torch.isin(strong, drawn.labels).sum() > 5
