"""The statistics of an optimizer step against brute force."""

from __future__ import annotations

import math
import random

import pytest
import torch

from crlbench.algo.observe import Observation, step_stats
from crlbench.contract.dynamics import STEP_STATS
from tests.algo.naive_loss import quantile


def observed(ratios: list[float], **sums: float) -> Observation:
    nothing = torch.zeros(len(ratios), dtype=torch.bool)
    ids = torch.arange(len(ratios))
    return Observation(sums, ids, torch.tensor(ratios, dtype=torch.float32), nothing, nothing)


@pytest.mark.parametrize("n", [1, 2, 7, 250])
def test_quantiles_and_effective_sample_size(n: int) -> None:
    draw = random.Random(n)
    ratios = torch.tensor([math.exp(draw.gauss(0, 1)) for _ in range(n)]).tolist()
    stats = step_stats([observed(ratios)])
    ordered = sorted(ratios)
    for name, level in (("ratio_p01", 0.01), ("ratio_p50", 0.5), ("ratio_p99", 0.99)):
        assert stats[name] == pytest.approx(quantile(ordered, level), rel=1e-12)
    assert stats["ratio_max"] == max(ratios)
    ess = sum(ratios) ** 2 / (n * sum(r * r for r in ratios))
    assert stats["ess"] == pytest.approx(ess, rel=1e-12) and 1 / n - 1e-9 <= stats["ess"] <= 1


def test_micro_batches_are_one_batch() -> None:
    pieces = [observed([1.0, 4.0], loss=0.5), observed([], loss=0.0), observed([0.5], loss=-0.25)]
    assert step_stats(pieces) == step_stats([observed([1.0, 4.0, 0.5], loss=0.25)])


def test_a_ratio_that_is_no_number_is_seen() -> None:
    stats = step_stats([observed([1.0, math.nan, 2.0])])
    assert math.isnan(stats["ratio_max"]) and math.isnan(stats["ess"])


def test_equal_ratios_lose_nothing() -> None:
    assert step_stats([observed([3.0] * 5)])["ess"] == pytest.approx(1.0)


def test_no_token_is_an_unchanged_policy() -> None:
    stats = step_stats([observed([], loss=0.0)])
    assert stats.pop("loss") == 0.0 and set(stats.values()) == {1.0}
    assert set(stats) < set(STEP_STATS)
