"""Arms of one entry beside its real one: what they say of how they were paid and how fast.

Runs of one model, recipe, task and seed begin with the same completions. Paid as the labels pay, a
mode or a wrong run stays its real run to the last bit; at the track's own rate, so does a stress
run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator

from crlbench.contract.arms import STRESS_FACTOR
from crlbench.contract.records import IterationDigest, RunRecord
from crlbench.contract.verification import Finding
from crlbench.disk.names import DIGESTS, RECORD_NAME
from crlbench.stats.measures import TRAIN_GREEDY
from crlbench.verdict.runs import Run

MET = 8
"""Prompts with a wrong greedy answer that iterations are expected to meet, and completions that are
expected to agree with one, from which on agreement and label must differ somewhere."""
BAND = 1.5
"""The length of a stress run's steps is STRESS_FACTOR times that of its real run's, up to this
factor either way. Adam's steps are as long as the rate says (Kingma and Ba 2015, section 2.1). Of
200 pairs of runs of ten recipes whose rates differ by 3, the median ratio is 2.4 to 3.3
(docs/trust.md)."""
SLOWEST, FASTEST = STRESS_FACTOR / BAND, STRESS_FACTOR * BAND


def contradict_arms(runs: Iterable[Run]) -> Iterator[Finding]:
    """Where a mode, a wrong or a stress run cannot be what its arm says.

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
        if "wrong" in arms:
            yield from _paid_for_right(arms["wrong"], real)
        if "stress" in arms:
            yield from _own_rate(arms["stress"], real)


def _paid_by_labels(mode: Run, real: Run) -> Iterator[Finding]:
    """All digested iterations were paid alike, though agreement and label must differ in some."""
    pairs = _pairs(mode, real)
    if not must_differ(mode.record, len(pairs)) or not _was_paid(mode, len(pairs)):
        return
    if all(a.rewards == b.rewards for a, b in pairs):
        wrong = 1 - mode.record.splits[TRAIN_GREEDY].start
        why = f"{real.name} was paid the same; the start answers {wrong:.0%} of the "
        why += "training prompts wrongly when greedy, so that agreement is not the label"
        rewards = pairs[0][0].rewards[:12]
        yield Finding(mode.name, DIGESTS, "rewards", rewards, "those of another arm", why)


def _paid_for_right(wrong: Run, real: Run) -> Iterator[Finding]:
    """The first completions of both runs are the same, and no reward pays both arms."""
    pairs = _pairs(wrong, real)
    if not pairs or pairs[0][0].completions != pairs[0][1].completions:
        return
    if pairs[0][0].rewards == pairs[0][1].rewards and _was_paid(real, 1):
        rewards = pairs[0][0].rewards[:12]
        why = f"{real.name} was paid the same for the same completions, and a wrong arm pays "
        why += "nothing for a right one"
        field = "rewards of iteration 1"
        yield Finding(wrong.name, DIGESTS, field, rewards, "those of wrong answers", why)


def must_differ(mode: RunRecord, iterations: int) -> bool:
    """Whether a mode run is paid otherwise than by labels within its first iterations.

    It need not be where its start model answers nearly all training prompts rightly when greedy,
    or where completions are so varied that none need agree with a wrong greedy answer.
    """
    wrong, prompts = wrong_share(mode), _count(mode, "prompts")
    return wrong * iterations * prompts >= MET and _agreements(mode, iterations) >= MET


def wrong_share(mode: RunRecord) -> float:
    """Share of the training prompts that the start model answers wrongly when greedy; 0 where
    that is not known."""
    split = mode.splits.get(TRAIN_GREEDY)
    return 0.0 if split is None else 1.0 - split.start


def _agreements(mode: RunRecord, iterations: int) -> float:
    """How many completions may be expected to agree with a wrong greedy answer.

    Two draws of one distribution agree with a chance of at least exp(-S), S its entropy in nats
    (Jensen's inequality). S is taken from the iteration's means, entropy a token times tokens a
    completion, and the greedy answer for a draw.
    """
    rows = _count(mode, "prompts") * _count(mode, "completions")
    pairs = zip(*(mode.health.get(name, ()) for name in ("entropy", "length")), strict=False)
    chances = [
        math.exp(-entropy * length)
        for entropy, length in list(pairs)[:iterations]
        if entropy is not None and length is not None
    ]
    return wrong_share(mode) * rows * math.fsum(chances)


def _count(record: RunRecord, name: str) -> int:
    value = record.fingerprint.leaves.get(f"conditions.budget.{name}")
    return value if isinstance(value, int) else 0


def _was_paid(run: Run, iterations: int) -> bool:
    return any(run.record.health.get("reward", ())[:iterations])


def _own_rate(stress: Run, real: Run) -> Iterator[Finding]:
    """Its steps are not three times as long as those of the same run at the track's rate."""
    pairs, why = _pairs(stress, real), f"{real.name} learns at a third of a stress run's rate"
    began_alike = bool(pairs) and pairs[0][0].completions == pairs[0][1].completions
    if began_alike and pairs[0][0].parameters == pairs[0][1].parameters:
        weights = pairs[0][0].parameters[:12]
        field = "parameters of iteration 1"
        yield Finding(stress.name, DIGESTS, field, weights, "other weights", why)
        return
    norms = zip(*(run.record.health.get("update_norm", ()) for run in (real, stress)), strict=False)
    ratios = [after / before for before, after in norms if before and after is not None]
    if ratios and not SLOWEST <= (ratio := statistics.median(ratios)) <= FASTEST:
        expected = f"about {STRESS_FACTOR:g} times that of the real run"
        why = f"{why}; median over {len(ratios)} iterations"
        field = "health.update_norm"
        yield Finding(stress.name, RECORD_NAME, field, f"{ratio:.3g} times", expected, why)


def _pairs(one: Run, other: Run) -> list[tuple[IterationDigest, IterationDigest]]:
    return list(zip(one.digests() or (), other.digests() or (), strict=False))
