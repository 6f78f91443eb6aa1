"""What a replay may differ in, and between which machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crlbench.report.load import Run, load_runs
from crlbench.run.likeness import BANDS, Stored, differences, other_class
from crlbench.run.replay import Trace, whole_trace

BAND = BANDS["fp32"]


@pytest.fixture(scope="module")
def run(finished: Path) -> Run:
    return load_runs(next(finished.rglob("record.json"))).runs[0]


def stored(run: Run, **health: list[Any]) -> Stored:
    """The run as if half of its prompts taught something in every iteration."""
    columns = run.record.health | {"uniform_groups": [0.5, 0.5]} | health
    return Stored(run.record.model_copy(update={"health": columns}), run.digests(), run.items)


def replayed(run: Run, **changes: Any) -> Trace:
    trace = whole_trace(run.folder)
    columns = trace.health | {"uniform_groups": [0.5, 0.5]}
    return trace.model_copy(update={"health": columns} | changes)


def digests(run: Run, update: int, **changes: Any) -> dict[str, Any]:
    rows = list(whole_trace(run.folder).digests)
    rows[update - 1] = rows[update - 1].model_copy(update=changes)
    return {"digests": rows}


@pytest.mark.slow
def test_the_same_is_no_difference(run: Run) -> None:
    assert differences(stored(run), replayed(run), BAND) == []
    assert other_class(stored(run), replayed(run)) == {}


def apart(run: Run, by: float) -> list[str]:
    """The losses of the second update, the third of them somewhere else."""
    losses = list(run.digests()[1].losses)
    losses[2] = (float.fromhex(losses[2]) + by).hex()
    return losses


@pytest.mark.parametrize(
    ("by", "uniform", "moved", "within"),
    [
        (1e-6, 0.5, False, True),
        (0.05, 0.5, False, False),
        (0.05, 0.5, True, True),
        (0.5, 0.5, True, False),
        (0.5, 0.6, False, True),
    ],
)
def test_losses(run: Run, by: float, uniform: float, moved: bool, within: bool) -> None:
    changes = {"losses": apart(run, by)} | ({"completions": "0" * 64} if moved else {})
    health = {"uniform_groups": [uniform, 0.5]}
    trace = replayed(run, **digests(run, 2, **changes))
    trace = trace.model_copy(update={"health": trace.health | health})
    found = {d.tensor: d for d in differences(stored(run, **health), trace, BAND)}
    assert found["losses[2]"].gap == pytest.approx(by, rel=1e-6)
    assert found["losses[2]"].within is within
    assert set(found) == {"losses[2]"} | ({"sampled token ids"} if moved else set())


def test_prompts_may_never_differ(run: Run) -> None:
    trace = replayed(run, **digests(run, 1, prompts="0" * 64, parameters="1" * 64))
    found = [(d.update, d.tensor, d.within) for d in differences(stored(run), trace, BAND)]
    assert found == [(1, "prompt ids", False), (1, "parameters", True)]


@pytest.mark.parametrize(("share", "within"), [(0.2, True), (0.5, False)])
def test_scores_of_few_completions(run: Run, share: float, within: bool) -> None:
    trace = replayed(run)
    scores = [run.record.health["score"][0], run.record.health["score"][1] + share]
    trace = trace.model_copy(update={"health": trace.health | {"score": scores}})
    (found,) = differences(stored(run), trace, BAND)
    assert (found.update, found.tensor, found.within) == (2, "health.score", within)


def test_another_end_is_a_difference(run: Run) -> None:
    trace = replayed(run)
    failed = trace.status.model_copy(update={"state": "failed", "rule": "kl_cap", "at": 2})
    (found,) = differences(stored(run), replayed(run, status=failed), BAND)
    assert (found.tensor, found.within) == ("status", False)


def test_what_makes_a_class(run: Run) -> None:
    trace = replayed(run)
    other = trace.environment | {"cpu_capability": "another", "cores": 999, "os": "another"}
    assert set(other_class(stored(run), replayed(run, environment=other))) == {"cpu_capability"}
    assert set(other_class(stored(run), replayed(run, source="0" * 64))) == {"source"}
