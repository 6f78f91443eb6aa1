"""Independent draws of one model on the same items: their means must agree.

A run scores its start and its final model several times on the same items: on the curve, by the
draws of a split and by the many draws of pass@k. These draws are independent and of one
temperature. Somebody who raises one of the vectors contradicts the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from crlbench.contract.records import CurvePoint
from crlbench.contract.verification import Finding
from crlbench.disk.names import ITEMS
from crlbench.proof.facts import Facts
from crlbench.stats.measures import GREEDY, ID, PASS, PASS_SPLITS, unit
from crlbench.stats.novelty import is_right

MOST_Z = 8.0
"""Standard errors by which two means may differ. The largest of all stored runs is 3.5."""
PRIOR = 0.5
"""Right answers of one draw, added to those of an item: a share that few draws estimate is never 0
or 1. Of two draws an item the standard error comes out up to 15 % too small."""


def check_draws(facts: Facts) -> Iterator[Finding]:
    """Vectors of one model on the same items have means that chance explains.

    Known and new items are compared apart as well: right answers that move between them leave the
    mean of all items.
    """
    known = _known(facts)
    for end in ("start", "end"):
        for split in PASS_SPLITS:
            vectors = _vectors_of(facts, split, end)
            for ref, other in combinations(vectors, 2):
                a, b = vectors[ref], vectors[other]
                if a.shape[1] == b.shape[1]:
                    groups = _groups(a.shape[1], known if split == ID else None)
                    yield from _first_difference(facts, (ref, a), (other, b), groups)


def _vectors_of(facts: Facts, split: str, end: str) -> dict[str, np.ndarray]:
    """All vectors (draws, N) of a split's items that one end drew, by their names."""
    refs = {}
    if split == ID and (point := _point_at(facts, end)) is not None:
        refs[point.items_ref] = "curve"
    for name in (split, split + PASS):
        stored = facts.record.splits.get(name)
        ref = None if stored is None else getattr(stored, f"{end}_ref")
        if ref is not None:
            refs[ref] = f"splits.{name}.{end}_ref"
    vectors = {ref: np.atleast_2d(facts.run.items(ref, field)) for ref, field in refs.items()}
    return {ref: v.astype(np.float64) for ref, v in vectors.items() if v.ndim == 2}


def _point_at(facts: Facts, end: str) -> CurvePoint | None:
    """The evaluation of the model that an end scores; None where there is none.

    The last stage of a chain may begin with another model than the start model.
    """
    if end == "end":
        return facts.point_at(facts.iterations) if facts.scored_at_end else None
    return facts.record.curve[0] if facts.record.curve and facts.record.lineage is None else None


def _known(facts: Facts) -> np.ndarray | None:
    """(N,) bool: ID items that the start model answers rightly when greedy; None where the run has
    no such answers."""
    stored = facts.record.splits.get(GREEDY)
    if stored is None:
        return None
    task = facts.record.task
    greedy = np.atleast_2d(facts.run.items(stored.start_ref, f"splits.{GREEDY}.start_ref"))[0]
    return is_right(np.asarray(unit(greedy.astype(np.float64), task.floor, task.ceiling)))


def _groups(size: int, known: np.ndarray | None) -> dict[str, np.ndarray]:
    """(N,) bool masks of the items that are compared, by what a message calls them."""
    groups = {"all items": np.ones(size, dtype=bool)}
    if known is not None and known.shape == (size,):
        groups |= {"known items": known, "new items": ~known}
    return groups


def _first_difference(
    facts: Facts,
    one: tuple[str, np.ndarray],
    other: tuple[str, np.ndarray],
    groups: Mapping[str, np.ndarray],
) -> Iterator[Finding]:
    """The first group of items on which two vectors contradict one another."""
    for name, group in groups.items():
        a, b = one[1][:, group], other[1][:, group]
        if (z := standard_errors_apart(a, b)) > MOST_Z:
            field = f"mean of {one[0]} on {name}"
            expected = f"about {b.mean():.4f}, the mean of {other[0]}"
            why = f"independent draws of one model: z = {z:.1f}, and chance explains {MOST_Z:g}"
            yield facts.finding(field, f"{a.mean():.4f}", expected, why, ITEMS)
            return


def standard_errors_apart(a: np.ndarray, b: np.ndarray) -> float:
    """How far apart the means of two samples are, in standard errors, if one policy drew both.

    The share of an item is estimated from both samples. Scores between 0 and 1 vary at most as
    right and wrong answers of the same mean do.

    Args:
        a, b: (draws, N) scores of the same items; the numbers of draws may differ.
    """
    if not a.size:
        return 0.0
    draws = len(a) + len(b)
    share = np.clip((a.sum(axis=0) + b.sum(axis=0) + PRIOR) / (draws + 2 * PRIOR), 0.0, 1.0)
    variance = float((share * (1 - share)).sum()) * (1 / len(a) + 1 / len(b))
    gap = abs(float((a.mean(axis=0) - b.mean(axis=0)).sum()))
    # Only scores that nobody can have leave no variance.
    return gap / math.sqrt(variance) if variance > 0 else math.inf if gap else 0.0
