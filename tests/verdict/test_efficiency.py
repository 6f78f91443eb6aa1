"""What is printed beside Λ: other axes of x, the speed profile, profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crlbench.contract.conditions import Reference, Track, control_leaves
from crlbench.stats.thresholds import TAUS
from crlbench.verdict.axes import Estimate
from crlbench.verdict.board import Entry, summarise_board
from crlbench.verdict.efficiency import arrivals, efficiency
from crlbench.verdict.load import load_runs
from crlbench.verdict.resources import known_track
from tests.support.simulate import Plan, write_board


@pytest.fixture(scope="module")
def entry(five: Path) -> Entry:
    (found,) = summarise_board(load_runs(five), replicates=200).entries
    return found


def reference(entry: Entry, factor: float = 1.0) -> Reference:
    """Times of an entry as a track would freeze them."""
    times = {}
    for task, own in entry.efficiency.tasks.items():
        arrival = own.arrivals["completions"][0]
        times[task] = {".25": factor * arrival.restricted_mean}
    return Reference(model="ref", recipe="ppo", seeds=5, times=times)


def test_bytes_and_updates_are_proportional_here(entry: Entry):
    """The simulated runs spend 9 bytes a completion and an update every 64."""
    for task in entry.efficiency.tasks.values():
        for k in range(len(TAUS)):
            by = {axis: task.arrivals[axis][k] for axis in task.arrivals}
            mean = by["completions"].restricted_mean
            assert by["bytes"].restricted_mean == pytest.approx(9 * mean)
            assert by["updates"].restricted_mean == pytest.approx(mean / 64)
            assert by["completions"].arrived == by["bytes"].arrived
        assert task.areas["completions"] == pytest.approx(task.E)
        assert task.areas["bytes"] == pytest.approx(task.E)
        assert task.totals["bytes"] == pytest.approx(9 * task.budget)


def test_a_failure_weighs_the_same_on_every_axis(entry: Entry):
    curve = entry.efficiency.tasks["counting"].curves[3]
    assert curve.state == "failed" and curve.measured < 21
    assert curve.x["bytes"][-1] == pytest.approx(9 * 10_240)
    assert set(curve.u[curve.measured :]) == {0.0}


def test_any_axis_that_a_curve_carries(entry: Entry):
    curves = entry.efficiency.tasks["addition"].curves
    for curve in curves:
        curve.x["time"] = tuple(2.0 * x for x in curve.x["completions"])
    found = arrivals(curves, "time")
    own = arrivals(curves, "completions")
    for a, b in zip(found, own, strict=True):
        assert a.restricted_mean == pytest.approx(2 * b.restricted_mean)


def test_without_a_reference_the_speed_profile_says_so(entry: Entry):
    assert entry.efficiency.speed.score is None
    assert entry.efficiency.speed.reason == "no reference is frozen in this track"


def of(entry: Entry, frozen: Reference):
    lams = {task: Estimate(None, None, 5) for task in entry.task_names}
    return efficiency(entry.evidence.tasks, lams, frozen).speed


def test_the_speed_score_follows_the_reference(entry: Entry):
    own, slow, fast = (of(entry, reference(entry, f)) for f in (1.0, 1.5, 0.67))
    assert fast.score < own.score < slow.score
    assert own.reference == "ref/ppo" and own.thresholds == 4
    assert np.all(np.diff(own.share) >= 0) and 0 <= own.share[0] and own.share[-1] <= 1


def test_a_reference_with_tasks_that_were_not_run(entry: Entry):
    more = Reference(model="r", recipe="ppo", seeds=5, times={"maze": {".5": 10.0}})
    assert of(entry, more).reason == "no runs of maze"
    none = Reference(model="r", recipe="ppo", seeds=5, times={"addition": {}})
    assert "reaches no threshold" in of(entry, none).reason


def test_profiles_fall_and_hold_their_band(entry: Entry):
    for profile in (entry.efficiency.lam_profile, entry.efficiency.end_profile):
        assert np.all(np.diff(profile.share) <= 0)
        assert np.all(profile.low <= profile.share) and np.all(profile.share <= profile.high)


def test_the_reference_of_a_track_is_no_condition():
    """It changes no run, so that freezing one moves no fingerprint."""
    track = known_track("mini")
    table = {
        "model": "tiny-llama",
        "recipe": "ppo",
        "seeds": 10,
        "times": {"addition": {".5": 9.0}},
    }
    more = Track.model_validate(track.model_dump(mode="json") | {"reference": table})
    assert more.reference.times["addition"] == {".5": 9.0}
    assert control_leaves(track, track.conditions, {}) == control_leaves(more, more.conditions, {})


@pytest.mark.parametrize("times", [{"addition": {".4": 9.0}}, {"addition": {".5": 0.0}}])
def test_a_malformed_reference_is_refused(times: dict):
    track = known_track("mini").model_dump(mode="json")
    table = {"model": "tiny-llama", "recipe": "ppo", "seeds": 10, "times": times}
    with pytest.raises(ValueError, match=r"times"):
        Track.model_validate(track | {"reference": table})


def test_a_run_that_ends_at_once_has_a_curve(tmp_path: Path):
    """A failure in the first iteration leaves one point; nothing is divided by 0."""
    plan = Plan(tasks=("addition",), seeds=2, items=16, failed=(("addition", 0, 1),))
    (entry,) = summarise_board(load_runs(write_board(tmp_path, plan)), replicates=50).entries
    curve = entry.efficiency.tasks["addition"].curves[0]
    assert curve.measured == 1 and curve.x["bytes"][-1] > 0
