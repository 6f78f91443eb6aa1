"""What the start model answers on two classes of machine: how far stored and replayed may differ.

Under float32 a few answers may be others. Under bfloat16 draws move, so that means are compared.
A mean alone would let right answers move between items: the greedy answers decide which items
were known, and the draws how often. So greedy answers have a bound on how many differ, and draws
of ID items one on the mean of the known items and one on that of the new ones.
"""

from __future__ import annotations

import numpy as np

from crlbench.proof.bands import FEW, LEARNED_REWARD, Band
from crlbench.stats.measures import GREEDY, ID, PASS, TRAIN_GREEDY

START = "start/"
"""Begins the names of these vectors."""
GREEDY_ANSWERS = (START + GREEDY, START + TRAIN_GREEDY)
"""Vectors without a draw: another answer needs two tokens that are nearly alike."""
DRAWN = (START + ID, START + ID + PASS)
"""Vectors of draws of the items that the greedy answers divide."""


def start_within(
    ref: str, before: np.ndarray, after: np.ndarray, band: Band, known: np.ndarray | None
) -> bool:
    """Whether rounding explains two vectors of the start model.

    Args:
        ref: their name.
        before, after: (draws, N) stored and replayed scores.
        band: of the precision.
        known: (N,) bool by the replay's greedy answers on ID items; None where it made none.
    """
    stored, replayed = (vector.astype(np.float64) for vector in (before, after))
    moved = int((np.abs(stored - replayed) > LEARNED_REWARD).sum())
    if band.draw is not None:
        return moved <= FEW
    if ref in GREEDY_ANSWERS and moved > band.share * stored.size + FEW:
        return False
    groups = [np.ones(stored.shape[1], dtype=bool)]
    if ref in DRAWN and known is not None:
        groups += [known, ~known]
    return all(_alike(stored[:, group], replayed[:, group], band) for group in groups)


def _alike(stored: np.ndarray, replayed: np.ndarray, band: Band) -> bool:
    """Whether two means are near enough; two without an item are."""
    if not stored.size:
        return True
    return abs(float(stored.mean() - replayed.mean())) <= band.mean(stored.size)
