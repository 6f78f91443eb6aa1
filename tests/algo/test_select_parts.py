"""Sample filters and overlong rules, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from crlbench.algo.overlong import CountTruncated, MaskTruncated, SoftPunishment, soft_overlong
from crlbench.algo.select import DropUniformGroups, DynamicSampling, KeepAll
from crlbench.algo.signal import Signal
from crlbench.errors import UsageError

NAN = math.nan


def signal_of(correctness: list[float], group: list[int], rewards: list[float]) -> Signal:
    raw = torch.tensor(correctness, dtype=torch.float64)
    rows = len(raw)
    return Signal(
        rewards=torch.tensor(rewards, dtype=torch.float64),
        token_rewards=torch.zeros(rows, 1, dtype=torch.float64),
        mask=raw.isfinite()[:, None],
        group=torch.tensor(group),
        truncated=torch.zeros(rows, dtype=torch.bool),
        valid=raw.isfinite(),
        correctness=raw,
    )


@pytest.mark.parametrize("part", [DropUniformGroups(), DynamicSampling()])
def test_only_groups_that_differ_are_kept(part) -> None:
    signal = signal_of(
        [1.0, 0.0, 0.3, 0.3, 1.0, NAN, 0.5, NAN, 0.0],
        [0, 0, 1, 1, 2, 2, 3, 3, 4],
        # Shaping would make group 1 differ and group 0 not.
        [0.5, 0.5, 0.3, 0.1, 1.0, NAN, 0.5, NAN, 0.0],
    )
    assert (part(signal) & signal.valid).tolist() == [True, True] + [False] * 7


def test_without_shaping_the_reward_decides() -> None:
    signal = signal_of([1.0, 0.0], [0, 0], [1.0, 0.0])
    bare = replace(signal, correctness=None)
    assert DropUniformGroups()(bare).tolist() == [True, True]
    assert KeepAll()(signal).tolist() == [True, True]


def test_only_dynamic_sampling_asks_for_more() -> None:
    assert DynamicSampling.resamples and not DropUniformGroups.resamples and not KeepAll.resamples


def test_soft_punishment_by_hand() -> None:
    lengths = torch.tensor([0, 80, 90, 100, 130])
    outcome = torch.tensor([1.0, 1.0, 0.0, 1.0, NAN], dtype=torch.float64)
    part = SoftPunishment(cache=0.2, factor=0.5)
    shaped = part.shaped(outcome, lengths, 100)
    assert shaped[:4].tolist() == pytest.approx([1.0, 1.0, -0.25, 0.5]) and shaped[4].isnan()
    assert part.keep(torch.tensor([True, False])).all()
    floored = soft_overlong(lengths, 100, 20.0)
    assert floored.tolist() == pytest.approx([0, 0, -0.5, -1, -1])
    assert soft_overlong(lengths, 100, 20.0, floored=False)[4].item() == pytest.approx(-2.5)


def test_cut_off_rows_count_or_are_masked() -> None:
    truncated = torch.tensor([True, False])
    rewards, lengths = torch.tensor([1.0, 0.0]), torch.tensor([5, 5])
    assert CountTruncated().keep(truncated).tolist() == [True, True]
    assert MaskTruncated().keep(truncated).tolist() == [False, True]
    for part in (CountTruncated(), MaskTruncated()):
        assert torch.equal(part.shaped(rewards, lengths, None), rewards)


@pytest.mark.parametrize("settings", [{"cache": 0.0}, {"cache": 1.5}, {"factor": 0.0}])
def test_impossible_settings_are_refused(settings: dict) -> None:
    with pytest.raises(UsageError, match=f"SoftPunishment.{next(iter(settings))}"):
        SoftPunishment(**settings)
