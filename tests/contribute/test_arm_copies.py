"""Which arms of a cell may measure the same: a mode arm may, where agreement is what labels pay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.contract.records import SplitScore
from crlbench.contribute.results.copies import Known, _describe, marks
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run
from tests.support.simulate import Plan, write_board

RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"
PLAN = Plan(tasks=("addition",), seeds=1, mode=1, stress=1, placebo=1, wrong=1, items=16)


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    runs = load_runs(write_board(tmp_path_factory.mktemp("arms"), PLAN)).runs
    return {run.arm: run for run in runs}


def copied(run: Run, arm: str, right: float | None = None) -> Run:
    """The run under the name of another arm, whose start is right on that share of prompts."""
    splits = dict(run.record.splits)
    if right is not None:
        splits["train_greedy"] = SplitScore(
            start=right, end=None, n=2048, draws=1, start_ref="start/train_greedy", end_ref=None
        )
    return replace(run, record=run.record.model_copy(update={"arm": arm, "splits": splits}))


def like(real: Run, other: Run) -> list[str]:
    """What a run is refused for beside a stored real one."""
    known = Known.of([real.folder])
    assert known.unreadable == []
    return known.like(other)


@pytest.mark.parametrize(
    ("arm", "right", "refused"),
    [
        ("placebo", None, True),
        ("stress", None, True),
        ("wrong", None, True),
        ("mode", 0.7, True),
        ("mode", None, False),
        ("mode", 1.0, False),
    ],
)
def test_a_copied_real_run_is_refused_unless_labels_and_agreement_pay_alike(
    arms: dict[str, Run], arm: str, right: float | None, refused: bool
) -> None:
    real = arms["real"]
    assert [*marks(real)][1:]  # its curve says something
    found = like(real, copied(real, arm, right))
    assert bool(found) == refused and all("real/seed-00" in name for name in found)


def test_arms_that_were_never_paid_may_measure_the_same(arms: dict[str, Run]) -> None:
    def unpaid(run: Run) -> Run:
        health = run.record.health | {"reward": [0.0] * len(run.record.health["score"])}
        return replace(run, record=run.record.model_copy(update={"health": health}))

    known = Known.of([])
    mode, wrong = unpaid(copied(arms["real"], "mode", 0.7)), unpaid(copied(arms["real"], "wrong"))
    for mark in marks(mode):
        known._by_mark[mark].append(_describe(mode, mark))
    assert known.like(wrong) == [] and known.like(copied(arms["real"], "wrong")) != []


def test_arms_that_measured_otherwise_are_all_accepted(arms: dict[str, Run]) -> None:
    for arm in ("placebo", "mode", "stress", "wrong"):
        other = arms[arm]  # simulated runs share one file of digests
        record = other.record.model_copy(update={"digest_root": arm})
        assert like(arms["real"], replace(other, record=record)) == []


def test_chains_that_ended_before_their_last_stage_are_no_copies_of_one_another() -> None:
    """Both need pairs of one first stage, which has none: they trained nothing."""
    board = RESULTS / "preference-0847728245ed" / "tiny-llama@25666175"
    failed = [
        run
        for run in load_runs(board / "rlhf", files="used").runs
        if run.record.status.rule == "upstream"
    ]
    known = Known.of([board / "sft-dpo"])
    assert len(failed) == 10 and known.unreadable == []
    assert all([*marks(run)] == [] and known.like(run) == [] for run in failed)
