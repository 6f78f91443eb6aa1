"""The names of what is watched, and their means over an iteration."""

from __future__ import annotations

import math

import pytest

from crlbench.contract.dynamics import ROLLOUT_STATS, STEP_STATS, UPDATE_STATS, mean_stats


def steps(*changes: dict[str, float]) -> list[dict[str, float]]:
    return [{**dict.fromkeys(STEP_STATS, 1.0), **change} for change in changes]


def test_every_name_has_one_meaning() -> None:
    assert set(UPDATE_STATS) == set(STEP_STATS) | set(ROLLOUT_STATS)
    assert not set(STEP_STATS) & set(ROLLOUT_STATS)
    assert all(meaning and meaning[0] != " " for meaning in UPDATE_STATS.values())


def test_an_iteration_is_the_mean_of_its_steps() -> None:
    found = mean_stats(steps({"loss": 2.0, "ratio_max": 5.0}, {"loss": -1.0, "ratio_max": 7.0}))
    assert set(found) == set(STEP_STATS)
    assert found["loss"] == 0.5 and found["ratio_max"] == 7.0 and found["ess"] == 1.0


def test_a_first_step_has_no_cosine_and_leaves_the_others_theirs() -> None:
    found = mean_stats(
        steps({"update_cosine": math.nan}, {"update_cosine": 0.5}, {"update_cosine": 0.25})
    )
    assert found["update_cosine"] == pytest.approx(0.375)


def test_a_broken_figure_stays_broken() -> None:
    assert math.isnan(mean_stats(steps({"loss": math.nan}, {}))["loss"])


def test_no_update_has_no_figures() -> None:
    found = mean_stats([])
    assert set(found) == set(STEP_STATS) and all(math.isnan(v) for v in found.values())
