"""Runs that are another seed's or task's: named by one digest, or by most of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract.records import IterationDigest
from crlbench.verdict.agreement import Peers
from crlbench.verdict.copied_seeds import contradict_seeds, own_digests
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"
ENTRY = RESULTS / "mini-a8d2d33fcaa9" / "tiny2-llama@b4fca4cc" / "ppo"


@dataclass(frozen=True)
class Digested(Run):
    """A run with other digests than those that are stored."""

    rows: tuple[IterationDigest, ...] = field(default=())

    def digests(self) -> Sequence[IterationDigest]:
        return self.rows


@pytest.fixture(scope="module")
def real() -> Run:
    runs = load_runs(ENTRY, files="used").runs
    return next(run for run in runs if (run.task, run.arm, run.seed) == ("addition", "real", 0))


def copied(run: Run, **health: list[Any]) -> Run:
    """The run under the next seed, which has no control arm."""
    seed = run.record.seed.model_copy(update={"index": 4, "value": run.record.seed.value + 1})
    figures = run.record.health | health
    return replace(run, record=run.record.model_copy(update={"seed": seed, "health": figures}))


def invented(run: Run, iterations: int, *names: str) -> Digested:
    """With digests of nothing in the first iterations."""
    rows = run.digests()
    assert rows is not None
    new = [
        row.model_copy(update={name: f"{row.iteration}e" * 32 for name in names})
        for row in rows[:iterations]
    ]
    return Digested(run.record, run.folder, (*new, *rows[iterations:]))


def said(*runs: Run) -> list[str]:
    return [str(finding) for finding in contradict_seeds(runs)]


def other_figures(run: Run, iterations: int) -> dict[str, list[Any]]:
    norms = run.record.health["grad_norm"]
    return {"grad_norm": [1.01 * norm for norm in norms[:iterations]] + norms[iterations:]}


def test_arms_and_seeds_of_a_stored_entry_agree_with_nothing_but_themselves() -> None:
    runs = load_runs(ENTRY, files="used").runs
    assert said(*runs) == []
    asked = [[*own_digests(run)] for run in runs]
    assert all(len(digests) == 6 for digests in asked)  # tokens and weights of three iterations


def test_a_seed_that_is_a_copy(real: Run) -> None:
    digest, figures = said(real, copied(real))
    assert "addition/real/seed-04/digests.jsonl: completions of iteration 1: stored" in digest
    assert "addition/real/seed-00 has the same, with another seed)" in digest
    assert "record.json: health.loss and health.grad_norm: stored 80 of 80 equal" in figures
    # Without files beside it the copy is refused all the same, and by verify.
    assert digest in [str(finding) for finding in Peers().disagreements([real, copied(real)])]


def test_a_copy_of_another_task(real: Run) -> None:
    task = real.record.task.model_copy(update={"name": "counting"})
    other = replace(real, record=real.record.model_copy(update={"task": task}))
    assert all("has the same, with another task" in line for line in said(real, other))


@pytest.mark.parametrize(
    ("iterations", "names", "expected"),
    [
        (2, ("completions", "parameters"), "completions of iteration 3"),
        (3, ("completions",), "parameters of iteration 1"),
        (3, ("parameters",), "completions of iteration 1"),
    ],
)
def test_one_digest_is_enough(
    real: Run, iterations: int, names: tuple[str, ...], expected: str
) -> None:
    other = copied(real, **other_figures(real, 80))
    (line,) = said(real, invented(other, iterations, *names))
    assert expected in line


def test_figures_of_another_seed_after_the_digested_iterations(real: Run) -> None:
    """As of a failed run that goes on as one that did not fail."""
    other = copied(real, **other_figures(real, 3))
    (line,) = said(real, invented(other, 3, "completions", "parameters"))
    assert "stored 77 of 80 equal" in line
    half = copied(real, **other_figures(real, 40))
    assert said(real, invented(half, 3, "completions", "parameters")) == []


def test_what_was_never_drawn_or_learned_may_be_the_same(real: Run) -> None:
    """A model with one answer, and weights that no step moved."""
    sure = real.record.health | {"entropy": [1e-9] * 80, "update_norm": [None] * 80}
    sure |= {"grad_norm": [0.0] * 80}
    still = replace(real, record=real.record.model_copy(update={"health": sure}))
    assert [*own_digests(still)] == [] and said(still, copied(still)) == []


def test_frozen_answers_may_be_read_alike(real: Run) -> None:
    config = real.record.algo.config | {"likelihood": {}}
    algo = real.record.algo.model_copy(update={"config": config})
    frozen = replace(real, record=real.record.model_copy(update={"algo": algo}))
    assert said(frozen, copied(frozen)) == []
