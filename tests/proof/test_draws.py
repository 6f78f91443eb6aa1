"""Draws of one model on the same items: what chance explains passes, and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlbench.proof.audit import audit_run
from crlbench.proof.draws import MOST_Z, check_draws, standard_errors_apart
from crlbench.proof.facts import Facts, facts_of
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"
ENTRY = RESULTS / "mini-a8d2d33fcaa9" / "tiny2-llama@b4fca4cc" / "ppo"
CHAIN = RESULTS / "preference-0847728245ed" / "tiny2-llama@b4fca4cc" / "bon"
LAST = "curve/20480"


@pytest.fixture(scope="module")
def reals() -> dict[str, Run]:
    """The stored runs of the real arm's first seed, by task."""
    runs = load_runs(ENTRY, files="used").runs
    return {run.task: run for run in runs if (run.arm, run.seed) == ("real", 0)}


@pytest.fixture
def real(reals: dict[str, Run]) -> Run:
    return reals["addition"]


class Forged(Run):
    """A run with other vectors than those that are stored."""

    vectors: dict[str, np.ndarray]

    def items(self, ref: str, field_name: str) -> np.ndarray:
        return self.vectors.get(ref, super().items(ref, field_name))


def findings(run: Run, **vectors: np.ndarray) -> list[str]:
    forged = Forged(run.record, run.folder)
    object.__setattr__(forged, "vectors", {n.replace("__", "/"): v for n, v in vectors.items()})
    facts = facts_of(forged)
    assert isinstance(facts, Facts)
    return [str(finding) for finding in check_draws(facts)]


def new_items(run: Run) -> np.ndarray:
    return run.items("start/id_greedy", "")[0] == 0


def raised(run: Run, ref: str, group: np.ndarray | slice = slice(None)) -> dict[str, Any]:
    """The vector with every item of a group right."""
    vector = run.items(ref, "").copy()
    vector[..., group] = 1
    return {ref.replace("/", "__"): vector}


def test_stored_runs_of_all_arms_agree_with_themselves(real: Run) -> None:
    assert findings(real) == [] and audit_run(real) == []
    for run in load_runs(CHAIN, files="used").runs[:3]:  # the last stage begins elsewhere
        assert findings(run) == []


@pytest.mark.parametrize(
    ("ref", "others"),
    [
        (LAST, ["end/id", "end/id_pass"]),
        ("curve/0", ["start/id", "start/id_pass"]),
        ("end/hard", ["end/hard_pass"]),
        ("start/hard", ["start/hard_pass"]),
    ],
)
def test_one_vector_that_was_raised(real: Run, ref: str, others: list[str]) -> None:
    found = findings(real, **raised(real, ref))
    assert len(found) == len(others)
    for line, other in zip(found, others, strict=True):
        assert f"addition/real/seed-00/items.npz: mean of {ref} on all items: stored 1.0000" in line
        assert f"the mean of {other} (independent draws of one model: z = " in line


def test_draws_that_were_lowered_on_new_items(reals: dict[str, Run]) -> None:
    """Beyond the first items, whose completions are stored."""
    run = reals["counting"]
    new = new_items(run)
    new[:32] = False
    vector = run.items("start/id", "").copy()
    vector[:, new] = 0
    (line,) = findings(run, start__id=vector)
    assert "start/id on new items: stored 0.0299, expected about 0.2152" in line


def test_right_answers_that_moved_from_known_to_new_items(real: Run) -> None:
    """Every mean of all items stays."""
    vector, new = real.items(LAST, "").copy(), new_items(real)
    right = int(vector.sum())
    order = np.concatenate([np.flatnonzero(new), np.flatnonzero(~new)])
    vector[:] = 0
    vector[order[:right]] = 1
    found = findings(real, curve__20480=vector)
    assert found and all("on known items" in line or "on new items" in line for line in found)


def test_a_run_without_one_of_the_vectors_is_asked_nothing(real: Run) -> None:
    """Older tracks have no many draws, and a run that a rule ended has no end."""
    splits = {n: s for n, s in real.record.splits.items() if n == "id_greedy"}
    bare = replace(real, record=real.record.model_copy(update={"splits": splits}))
    assert findings(bare, **raised(real, LAST)) == []
    failed = real.record.status.model_copy(update={"state": "failed", "rule": "kl_cap", "at": 79})
    early = replace(real, record=real.record.model_copy(update={"status": failed}))
    assert not [line for line in findings(early, **raised(real, LAST)) if LAST in line]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("draws", [(1, 1), (1, 32), (2, 32)])
def test_one_policy_stays_far_below_the_bound(share: float, draws: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    far = [
        standard_errors_apart(*((random.random((n, 256)) < share).astype(float) for n in draws))
        for _ in range(500)
    ]
    assert np.std([*far, *(-z for z in far)]) < 1.2 and max(far) < MOST_Z / 2


def test_scores_that_nobody_can_have_are_apart_and_no_error() -> None:
    honest, beyond = np.zeros((2, 8)), np.full((2, 8), 5.0)
    assert standard_errors_apart(honest, beyond) == math.inf
    assert standard_errors_apart(beyond, beyond) == 0.0
