"""What stored figures and digests say of a mode, a wrong or a stress arm, without a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from crlbench.contract.arms import ARMS
from crlbench.contract.records import IterationDigest, SplitScore
from crlbench.contract.verification import Finding
from crlbench.proof.facts import facts_of
from crlbench.proof.figures import check_figures
from crlbench.verdict.arm_agreement import contradict_arms, must_differ
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run
from tests.support.simulate import Plan, write_board

PROMPTS, ROWS = 32, 256
"""Of the simulated track: eight completions a prompt."""
HALF = np.arange(PROMPTS) < PROMPTS / 2


@dataclass(frozen=True)
class Digested(Run):
    """A run with digests of its first iterations."""

    rows: tuple[IterationDigest, ...] = field(default=())

    def digests(self) -> Sequence[IterationDigest]:
        return self.rows


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    plan = Plan(
        tasks=("addition",), board=("addition",), seeds=1, items=16, mode=1, stress=1, wrong=1,
        protocol="CRL-2", track_version=1,
    )
    runs = load_runs(write_board(tmp_path_factory.mktemp("arms"), plan)).runs
    return {run.arm: run for run in runs}


def changed(run: Run, wrong: float | None = None, **health: list[Any]) -> Run:
    """A run with other figures; ``wrong``: share of its training prompts."""
    record, splits = run.record, dict(run.record.splits)
    if wrong is not None:
        splits["train_greedy"] = SplitScore(
            start=1 - wrong, end=None, n=512, draws=1, start_ref="start/train_greedy", end_ref=None
        )
    record = record.model_copy(update={"health": record.health | health, "splits": splits})
    return Run(record, run.folder)


def digested(run: Run, **rows: Sequence[str]) -> Digested:
    """With three digests; of each tensor by its iterations, else as all runs have them."""

    def line(i: int) -> IterationDigest:
        same = {"prompts": f"{i}b" * 32, "completions": f"{i}c" * 32, "rewards": "0a" * 32}
        same["parameters"] = f"{ARMS.index(run.arm)}{i}" * 32
        given = {name: values[i - 1] for name, values in rows.items()}
        return IterationDigest(iteration=i, losses=["0x0p+0"], **(same | given))

    return Digested(run.record, run.folder, tuple(map(line, (1, 2, 3))))


def columns(iterations: int, reward: Sequence[float], **more: float) -> dict[str, list[Any]]:
    figures = {"entropy": 0.3, "length": 4.0} | more
    return {"reward": list(reward)} | {n: [v] * iterations for n, v in figures.items()}


def findings(*runs: Run) -> list[Finding]:
    return [*contradict_arms(runs)]


def test_digests_of_a_mode_arm_that_labels_paid(arms: dict[str, Run]) -> None:
    real = digested(arms["real"])
    mode = changed(arms["mode"], 0.3, **columns(40, [0.4] * 40))
    (found,) = findings(real, digested(mode))
    assert (found.field, found.stored) == ("rewards", ("0a" * 32)[:12])
    other = digested(mode, rewards=("0a" * 32, "0b" * 32, "0a" * 32))
    assert findings(real, other) == []


def test_nothing_was_paid_while_digests_were_taken(arms: dict[str, Run]) -> None:
    """No reward equals no reward, whatever was paid later."""
    late = changed(arms["mode"], 0.3, **columns(40, [0.0] * 3 + [0.4] * 37))
    assert findings(digested(arms["real"]), digested(late)) == []


@pytest.mark.parametrize(
    ("wrong", "entropy", "differs"),
    [(0.3, 0.3, True), (0.02, 0.3, False), (0.9, 1.5, False), (0.9, None, False)],
)
def test_when_agreement_must_differ_from_labels(
    arms: dict[str, Run], wrong: float, entropy: float | None, differs: bool
) -> None:
    """Not where prompts with a wrong greedy answer are few, nor where no two completions agree."""
    mode = changed(arms["mode"], wrong, **columns(40, [0.4] * 40, length=8.0))
    mode = changed(mode, None, entropy=[entropy] * 40)
    assert must_differ(mode.record, 3) is differs


def means(rng: np.random.Generator, iterations: int, right: Any, agree: Any) -> tuple[Any, Any]:
    """(iterations,) mean score and mean agreement of honest completions.

    Args:
        right, agree: (512,) chances of a training prompt; none is both.
    """
    score, paid = np.zeros(iterations), np.zeros(iterations)
    for i in range(iterations):
        prompts = rng.choice(len(right), PROMPTS, replace=False)
        draws = rng.random((PROMPTS, ROWS // PROMPTS))
        one, two = right[prompts][:, None], agree[prompts][:, None]
        score[i] = (draws < one).mean()
        greedy_right = two == one  # there agreement is the label
        paid[i] = np.where(greedy_right, draws < one, (draws >= one) & (draws < one + two)).mean()
    return score, paid


def accused(
    run: Run, score: Any, paid: Any, wrong: float | None, entropy: float = 0.3
) -> list[str]:
    n = len(score)
    health = {name: column[:n] for name, column in run.record.health.items()}
    health |= columns(n, paid.tolist(), entropy=entropy) | {"score": score.tolist()}
    health = _sound(health, n)
    mode = changed(Run(run.record.model_copy(update={"health": {}}), run.folder), wrong, **health)
    status = mode.record.status.model_copy(update={"state": "failed", "rule": "kl_cap", "at": n})
    record = mode.record.model_copy(update={"status": status, "curve": mode.record.curve[:1]})
    facts = facts_of(Run(record, run.folder))
    return [one.field for one in check_figures(facts) if one.field.startswith("health.reward")]


def _sound(health: dict[str, list[Any]], n: int) -> dict[str, list[Any]]:
    """With every column that the checks read, and no figure that cannot be."""
    kept = ("iteration", "reward", "score", "entropy", "length")
    sizes = {
        "audit": 0.3, "truncated": 0.0, "repetition": 0.0, "group_variance": 0.1,
        "uniform_groups": 0.25, "kept_fraction": 1.0, "kl_coefficient": 0.0, "loss": 0.0,
        "policy_loss": 0.0, "clip_fraction": 0.0, "reference_kl": 0.1,
    }
    sizes |= {"tokens": ROWS * 4.0, "bytes": ROWS * 4.0}
    return {name: health[name] for name in kept} | {k: [v] * n for k, v in sizes.items()}


@pytest.mark.parametrize("iterations", [1, 2, 7, 8, 20])
@pytest.mark.parametrize(("wrong", "agree"), [(0.05, 0.15), (0.3, 0.15), (0.3, 0.03), (0.9, 0.15)])
def test_honest_mode_arms_are_not_refused(
    arms: dict[str, Run], iterations: int, wrong: float, agree: float
) -> None:
    """Few iterations, few wrong prompts, or answers that seldom agree."""
    rng, refused = np.random.default_rng(7), 0
    for _ in range(100):
        is_wrong = np.arange(512) < 512 * wrong
        right = np.where(is_wrong, 0.02, 0.8)
        score, paid = means(rng, iterations, right, np.where(is_wrong, agree, 0.8))
        refused += bool(accused(arms["mode"], score, paid, wrong))
    assert refused == 0


def test_answers_that_never_agree_are_no_forgery(arms: dict[str, Run]) -> None:
    """Long answers to hard prompts: agreement pays for the easy ones, as labels do."""
    rng = np.random.default_rng(8)
    easy = np.where(np.arange(512) < 256, 0.8, 0.0)
    score, paid = means(rng, 20, easy, easy)
    assert np.array_equal(score, paid)
    assert accused(arms["mode"], score, paid, 0.5, entropy=2.0) == []


@pytest.mark.parametrize(("iterations", "honest", "found"), [(20, 0, 1), (20, 4, 1), (7, 0, 0)])
def test_labels_in_nearly_all_iterations_are_found(
    arms: dict[str, Run], iterations: int, honest: int, found: int
) -> None:
    """A forger who changes some iterations is found as well; of few ones a replay decides."""
    rng = np.random.default_rng(9)
    is_wrong = np.arange(512) < 154
    right = np.where(is_wrong, 0.1, 0.8)
    score, agreed = means(rng, iterations, right, np.where(is_wrong, 0.4, 0.8))
    paid = np.where(np.arange(iterations) < honest, agreed, score)
    assert accused(arms["mode"], score, paid, 0.3) == ["health.reward"] * found


def test_digests_of_a_wrong_arm_that_labels_paid(arms: dict[str, Run]) -> None:
    real = digested(changed(arms["real"], **columns(40, [0.4] * 40)))
    wrong = changed(arms["wrong"], **columns(40, [0.1] * 40))
    (found,) = findings(real, digested(wrong))
    assert (found.field, found.stored) == ("rewards of iteration 1", ("0a" * 32)[:12])
    assert findings(real, digested(wrong, rewards=("0b" * 32, "0a" * 32, "0a" * 32))) == []
    assert findings(real, digested(wrong, completions=("9c" * 32,) * 3)) == []
    unpaid = digested(changed(arms["real"], **columns(40, [0.0] + [0.4] * 39)))
    assert findings(unpaid, digested(wrong)) == []


@pytest.mark.parametrize("iterations", [1, 8, 20])
@pytest.mark.parametrize(("right", "hit"), [(0.3, 0.05), (0.1, 0.1), (0.02, 0.01), (0.9, 0.0)])
def test_honest_wrong_arms_are_not_refused(
    arms: dict[str, Run], iterations: int, right: float, hit: float
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        counts = rng.multinomial(ROWS, [right, hit, 1 - right - hit], size=iterations) / ROWS
        assert accused(arms["wrong"], counts[:, 0], counts[:, 1], None) == []


def test_wrong_arms_that_cannot_be(arms: dict[str, Run]) -> None:
    """Paid as labels pay; and for more completions than were wrong."""
    score = np.random.default_rng(4).binomial(ROWS, 0.3, 20) / ROWS
    assert accused(arms["wrong"], score, score, None) == ["health.reward"]
    most = np.where(np.arange(20) == 3, 1.0, 0.1)
    assert accused(arms["wrong"], score, most, None) == ["health.reward[3]"]


def rates(arms: dict[str, Run], factors: Sequence[float]) -> list[Finding]:
    """Of a stress run whose steps are so many times as long as those of its real run."""
    n = len(factors)
    real = changed(arms["real"], update_norm=[None, *np.linspace(0.02, 0.01, n)])
    longer = np.linspace(0.02, 0.01, n) * factors
    stress = changed(arms["stress"], update_norm=[None, *longer])
    return findings(digested(real), digested(stress))


@pytest.mark.parametrize("factor", [2.3, 3.0, 3.4])
def test_a_stress_arm_at_three_times_the_rate(arms: dict[str, Run], factor: float) -> None:
    assert rates(arms, [factor] * 20) == []
    assert rates(arms, [factor] * 12 + [0.5] * 8) == []


@pytest.mark.parametrize("factor", [1.0, 1.8, 5.0])
def test_a_stress_arm_at_another_rate_after_its_first_iteration(
    arms: dict[str, Run], factor: float
) -> None:
    (found,) = rates(arms, [3.0] + [factor] * 19)
    assert found.field == "health.update_norm" and found.stored == f"{factor:.3g} times"


def test_a_stress_arm_with_the_weights_of_its_real_run(arms: dict[str, Run]) -> None:
    same = {"parameters": ["ab" * 32] * 3}
    real, stress = (digested(arms[arm], **same) for arm in ("real", "stress"))
    (found,) = findings(real, stress)
    assert found.field == "parameters of iteration 1"
