"""What of the learning of an entry was known before: E = H + L_known + L_new over its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crlbench.stats.novelty import Novelty, known_share
from crlbench.stats.pass_at_k import PassAtK
from crlbench.verdict.axes import IN_MEMORY, Estimate


@dataclass(frozen=True)
class EntryNovelty:
    """E = H + L_known + L_new of one entry: means over tasks."""

    tasks: dict[str, Novelty]
    lam: Estimate
    """Λ over all items, known ones included: 25 %-trimmed mean over seeds, mean over tasks."""
    known: float
    """L_known."""
    new: float
    """L_new."""
    known_share: float | None
    """L_known / L."""
    lam_new: float | None
    """Λ_new; None where a task is saturated."""
    lam_strict: float | None
    """Λ_new on the strict set; None where a task has too few such items or no 32 draws."""
    second_share: float | None
    """Share of items that are wrong greedily and right in two or more of 32 draws."""
    saturated: tuple[str, ...]
    """Tasks with fewer than 64 new items."""
    flagged: tuple[str, ...]
    """Tasks where the strict set differs by more than .1."""
    passes: dict[str, tuple[PassAtK, ...]] = field(metadata=IN_MEMORY)
    """pass@k by task; empty tuples where the conditions ask for no draws."""


def entry_novelty(
    tasks: Mapping[str, Novelty | None],
    lam: Estimate,
    passes: Mapping[str, tuple[PassAtK, ...]],
) -> EntryNovelty | None:
    """The same over the tasks of an entry; None where a task does not say it."""
    parts = {name: part for name, part in tasks.items() if part is not None}
    if not parts or len(parts) < len(tasks):
        return None
    all_parts = list(parts.values())
    return EntryNovelty(
        tasks=parts,
        lam=lam,
        known=float(np.mean([part.known for part in all_parts])),
        new=float(np.mean([part.new for part in all_parts])),
        known_share=known_share(all_parts),
        lam_new=_mean([part.lam_new for part in all_parts]),
        lam_strict=_mean([part.lam_strict for part in all_parts]),
        second_share=_mean([part.second_share for part in all_parts]),
        saturated=tuple(name for name, part in parts.items() if part.saturated),
        flagged=tuple(name for name, part in parts.items() if part.flagged),
        passes=dict(passes),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if len(numbers) == len(values) else None
