"""How Gen of a run moves with the weights of its items, to first order.

Gen is a mean over thousands of items in a dozen splits; under 10,000 draws of items it is
followed by its derivative, which is a number per item and adds up over splits. What the five
templates of one source item add is added together first: they are drawn as one cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crlbench.stats.generalization import FORMAT, HARD, PARTS, WEIGHTS
from crlbench.stats.measures import ID, TRANSFER, fallen, head_room

TEMPLATES = 5
"""Rows of FORMAT that ask one source item in turn: row i has template i % 5 + 1."""

Ends = tuple[np.ndarray, np.ndarray | None]
"""(N,) or (n, N) u of each item of a split with the start and with the final model, means over
draws; None as the second: the run failed and ends as :func:`fallen` says."""

Blocks = dict[int, np.ndarray]
"""By number of clusters N, (N,) or (n, N): the derivative by the weight of each cluster, where
weights sum to 1. Clusters of equally many stand together by their position in the split."""


def gen_blocks(
    splits: Mapping[str, Ends],
    panel: Mapping[str, Ends],
    shares: Sequence[float] = WEIGHTS,
    unchanged: float = 0.0,
) -> Blocks:
    """Derivatives of Gen of one run, or of n runs at once.

    Args:
        splits: ``id``, ``hard``, ``format`` and ``transfer/<task>`` of every other task.
        panel: members of the retain panel by name.
        shares: weights of the parts of Gen.
        unchanged: how Fgt moves with a member that neither lost nor won, as a share of how it moves
            with one that lost. The positive part has a kink there; 0 is its lower slope, and one
            half the slope that a loss on either side has on average.
    """
    weights = dict(zip(PARTS, shares, strict=True))
    transfers = [name for name in sorted(splits) if name.startswith(TRANSFER)]
    rows = [
        weights["id"] * derivative(*splits[ID]),
        weights["hard"] * derivative(*splits[HARD]),
        weights["format"] * sum_clusters(derivative(*splits[FORMAT])),
    ]
    share = weights["transfer"] / max(1, len(transfers))
    rows += [share * derivative(*splits[name]) for name in transfers]
    for before, after in panel.values():
        loss = before - (fallen(before) if after is None else after)
        # Fgt is a mean of positive parts: a member that won does not move it.
        slope = np.heaviside(loss.mean(axis=-1, keepdims=True), unchanged)
        rows.append(slope * -loss / len(panel))
    blocks: Blocks = {}
    for row in rows:
        blocks[row.shape[-1]] = blocks.get(row.shape[-1], 0.0) + row
    return blocks


def derivative(before: np.ndarray, after: np.ndarray | None) -> np.ndarray:
    """(..., N) derivative of λ = (u(B) - u(0)) / max(1 - u(0), .2) by the weights of its items."""
    ended = fallen(before) if after is None else after
    start = before.mean(axis=-1, keepdims=True)
    room = head_room(start)
    change = (ended.mean(axis=-1, keepdims=True) - start) / room
    # On the clamp the headroom does not move with the start.
    moving = np.where(1.0 - start == room, change, 0.0)
    return (ended + (moving - 1.0) * before) / room


def sum_clusters(rows: np.ndarray) -> np.ndarray:
    """(..., ⌈N / 5⌉) the same by the weights of source items, five templates each."""
    starts = np.arange(0, rows.shape[-1], TEMPLATES)
    return np.add.reduceat(rows, starts, axis=-1) * (len(starts) / rows.shape[-1])
