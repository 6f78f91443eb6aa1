"""What of the learned area was known before (protocol CRL-2): E = H + L_known + L_new.

The greedy answers of the start model divide the items of a task once for all runs of a model.

=======  ====================================================================================
known    items that the start model answers rightly when it decodes greedily
new      all others, the set W
L_known  the part of L that the known items bring; L_new that of the new ones: they add up to L
Λ_new    (A_W - H_W) / max(1 - H_W, .2): Λ by the same rule, on the items of W alone
strict   new items that are right in fewer than 2 of 32 sampled answers of the start model
=======  ====================================================================================

Right is a score of at least half of the way from floor to ceiling, u >= 1/2. Of a verifier that
pays 0 or 1 that is a right answer. A model whose second choice is right scores old knowledge as
new; the strict set leaves such items out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.intervals import trimmed_mean

RIGHT = 0.5
"""u from which on an answer counts as right."""
LEAST_NEW = 64
"""Fewer new items give no Λ_new: the cell is saturated."""
STRICT_DRAWS = 32
"""Sampled answers of the start model that the strict set needs."""
SECOND_CHOICE = 2
"""Right answers among them from which on a new item was known after all."""
STRICT_GAP = 0.1
"""A larger difference between Λ_new and the strict Λ_new is flagged."""


def is_right(u: np.ndarray) -> np.ndarray:
    """(...) bool: whether answers of that u are right."""
    return np.asarray(u) >= RIGHT


@dataclass(frozen=True)
class Division:
    """The items of one task and model, divided by the start model's answers."""

    known: np.ndarray
    """(N,) bool."""
    second: np.ndarray | None
    """(N,) bool: wrong greedily, and right in two or more of 32 draws; None without the draws."""

    @property
    def new(self) -> np.ndarray:
        """(N,) bool: the set W."""
        return ~self.known

    @property
    def strict(self) -> np.ndarray | None:
        """(N,) bool: new, and no second choice; None without the draws."""
        return None if self.second is None else ~self.known & ~self.second

    @property
    def second_share(self) -> float | None:
        """Share of all items that were known as a second choice; None without the draws."""
        return None if self.second is None else float(self.second.mean())


def divide(greedy: np.ndarray, draws: np.ndarray | None = None) -> Division:
    """Divide items by what the start model answers.

    Args:
        greedy: (N,) u of its greedy answers.
        draws: (32, N) u of its sampled answers, or None.

    Raises:
        ValidationError: the shapes do not fit, or there are not 32 draws.
    """
    known = is_right(greedy)
    if draws is None:
        return Division(known, None)
    if draws.shape != (STRICT_DRAWS, len(known)):
        raise ValidationError(
            f"sampled answers of the start model: shape {draws.shape}, but {STRICT_DRAWS} draws "
            f"of {len(known)} items are needed"
        )
    return Division(known, ~known & (is_right(draws).sum(axis=0) >= SECOND_CHOICE))


def learned_parts(
    learned: np.ndarray, known: np.ndarray, fallen: np.ndarray | float = 0.0
) -> np.ndarray:
    """(2, n) L_known and L_new of each seed; they add up to L.

    A failed run falls to 0 on the new items, or to their start if that is lower: by that rule
    failing earns nothing there. Its L_known is what is left of L.

    Args:
        learned: (n, N) what each item adds to L, times N: ``ItemTable.learned``.
        known: (N,) bool.
        fallen: (n,) what that rule adds to L_new where all items together fall by another one.
    """
    groups = np.stack([known, ~known]).astype(np.float64)
    shift = np.array([[-1.0], [1.0]]) * np.broadcast_to(fallen, len(learned))
    return groups @ learned.T / learned.shape[1] + shift


@dataclass(frozen=True)
class Novelty:
    """What of one task was known before; means over seeds unless said otherwise."""

    new_items: int
    """Items of W."""
    items: int
    """All items."""
    known: float
    """L_known."""
    new: float
    """L_new."""
    lam_new: float | None
    """Λ_new, 25 %-trimmed mean over seeds; None for fewer than 64 new items."""
    seeds: tuple[float, ...]
    """Λ_new of each seed; empty where there is none."""
    strict_items: int | None
    """Items of the strict set; None where 32 draws are not stored."""
    lam_strict: float | None
    """Λ_new on the strict set; None for fewer than 64 such items, or without 32 draws."""
    second_share: float | None
    """Share of all items that are wrong greedily and right in two or more of 32 draws."""

    @property
    def learned(self) -> float:
        """L = L_known + L_new."""
        return self.known + self.new

    @property
    def known_share(self) -> float | None:
        """L_known / L; None where nothing was learned, or one of the parts is a loss."""
        return share_of(self.known, self.new)

    @property
    def saturated(self) -> bool:
        """Whether new items are too few to be ranked by."""
        return self.new_items < LEAST_NEW

    @property
    def unchecked(self) -> bool:
        """Whether too few items are left without second choices to tell what Λ_new is of."""
        few = self.strict_items is not None and self.lam_strict is None
        return few and self.lam_new is not None

    @property
    def flagged(self) -> bool:
        """Whether the strict set says something else."""
        if self.lam_new is None or self.lam_strict is None:
            return False
        return abs(self.lam_new - self.lam_strict) > STRICT_GAP


def share_of(part: float, rest: float) -> float | None:
    """The share of one part of what was learned; None where one of the two is a loss, or nothing
    was learned: two parts of opposite signs have no shares."""
    return part / (part + rest) if min(part, rest) >= 0 and part + rest > 0 else None


def novelty(
    division: Division,
    learned: np.ndarray,
    lam_new: np.ndarray | None,
    lam_strict: np.ndarray | None,
    fallen: np.ndarray | float = 0.0,
) -> Novelty:
    """What of one task was known before.

    Args:
        learned: (n, N) as for :func:`learned_parts`.
        lam_new: (n,) Λ of each seed on the new items; None for fewer than 64.
        lam_strict: the same on the strict set.
        fallen: as for :func:`learned_parts`.
    """
    known, new = learned_parts(learned, division.known, fallen).mean(axis=1)
    strict = division.strict
    return Novelty(
        new_items=int(division.new.sum()),
        items=len(division.known),
        known=float(known),
        new=float(new),
        lam_new=None if lam_new is None else float(trimmed_mean(lam_new)),
        seeds=() if lam_new is None else tuple(map(float, lam_new)),
        strict_items=None if strict is None else int(strict.sum()),
        lam_strict=None if lam_strict is None else float(trimmed_mean(lam_strict)),
        second_share=division.second_share,
    )


def known_share(parts: Sequence[Novelty]) -> float | None:
    """L_known / L of several tasks, each the same; None as for one."""
    if not parts:
        return None
    return share_of(sum(p.known for p in parts), sum(p.new for p in parts))
