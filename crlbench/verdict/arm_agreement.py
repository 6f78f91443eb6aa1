"""Arms of one entry beside its real one: what they say of how they were paid and how fast.

Runs of one model, recipe, task and seed begin with the same completions. Paid as the labels pay, a
mode run stays its real run to the last bit; at the track's own rate, so does a stress run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crlbench.contract.arms import STRESS_FACTOR
from crlbench.contract.records import IterationDigest, RunRecord
from crlbench.contract.verification import Finding
from crlbench.disk.names import DIGESTS, RECORD_NAME
from crlbench.stats.measures import TRAIN_GREEDY
from crlbench.verdict.runs import Run

MET = 8
"""Prompts with a wrong greedy answer that iterations are expected to meet, from which on agreement
with the start model and the label must differ somewhere."""
SLOWEST, FASTEST = STRESS_FACTOR / 2, STRESS_FACTOR * 2
"""Between which lies the length of a stress run's first steps, in those of its real run. Adam's
steps are as long as the rate says (Kingma and Ba 2015, section 2.1)."""


def contradict_arms(runs: Iterable[Run]) -> Iterator[Finding]:
    """Where a mode or a stress run cannot be what its arm says.

    Raises:
        ValidationError: a file is damaged.
    """
    by_cell: dict[tuple[str, ...], dict[str, Run]] = {}
    for run in runs:
        cell = (run.model, run.recipe, run.task, str(run.seed), run.record.fingerprint.hash)
        by_cell.setdefault(cell, {})[run.arm] = run
    for arms in by_cell.values():
        real = arms.get("real")
        if real is None:
            continue
        if "mode" in arms:
            yield from _paid_by_labels(arms["mode"], real)
        if "stress" in arms:
            yield from _own_rate(arms["stress"], real)


def _paid_by_labels(mode: Run, real: Run) -> Iterator[Finding]:
    """All digested iterations were paid alike, though agreement and label must differ in some."""
    pairs = _pairs(mode, real)
    if not must_differ(mode.record, len(pairs)):
        return
    if all(a.rewards == b.rewards for a, b in pairs) and _was_paid(mode):
        wrong = 1 - mode.record.splits[TRAIN_GREEDY].start
        why = f"{real.name} was paid the same; the start answers {wrong:.0%} of the "
        why += "training prompts wrongly when greedy, so that agreement is not the label"
        rewards = pairs[0][0].rewards[:12]
        yield Finding(mode.name, DIGESTS, "rewards", rewards, "those of another arm", why)


def must_differ(mode: RunRecord, iterations: int) -> bool:
    """Whether a mode run is paid otherwise than by labels within so many iterations.

    It need not be where its start model answers nearly all training prompts rightly when greedy.
    """
    split = mode.splits.get(TRAIN_GREEDY)
    prompts = mode.fingerprint.leaves.get("conditions.budget.prompts")
    if split is None or not isinstance(prompts, int):
        return False
    return (1.0 - split.start) * iterations * prompts >= MET


def _was_paid(run: Run) -> bool:
    return any(run.record.health.get("reward", ()))


def _own_rate(stress: Run, real: Run) -> Iterator[Finding]:
    """The first update is not three times as long as that of the same run at the track's rate."""
    pairs = _pairs(stress, real)
    before, after = (_first_norm(run) for run in (real, stress))
    if not pairs or pairs[0][0].completions != pairs[0][1].completions:
        return
    if before is None or after is None or before <= 0:
        return
    why = f"{real.name} began alike, and a stress run learns at {STRESS_FACTOR:g} times its rate"
    if pairs[0][0].parameters == pairs[0][1].parameters:
        weights = pairs[0][0].parameters[:12]
        field = "parameters of iteration 1"
        yield Finding(stress.name, DIGESTS, field, weights, "other weights", why)
    elif not SLOWEST <= after / before <= FASTEST:
        expected = f"about {STRESS_FACTOR * before:.3g}"
        yield Finding(stress.name, RECORD_NAME, "health.update_norm[0]", after, expected, why)


def _first_norm(run: Run) -> float | None:
    norms = run.record.health.get("update_norm", ())
    return None if not norms or norms[0] is None else float(norms[0])


def _pairs(one: Run, other: Run) -> list[tuple[IterationDigest, IterationDigest]]:
    return list(zip(one.digests() or (), other.digests() or (), strict=False))
