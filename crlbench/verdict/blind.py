"""How much of its gain a model keeps where it cannot look: with exchanged observations.

At both ends of a run the curve's starts are played once more, and each episode is told what an
episode of another start is told. What was gained there was gained without looking: by the form of
the reply, or by a fixed sequence of texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.stats.measures import BLIND, ID
from crlbench.verdict.run_measures import ends_by_rule
from crlbench.verdict.runs import Run

MOST_KEPT = 0.4
"""Share of the gain above which a model has learned to play without looking."""
LEAST_GAIN = 0.05
"""Gain in score below which there is nothing to keep a share of."""


@dataclass(frozen=True)
class BlindGain:
    """What one task says; means over the runs that were scored at their end."""

    gain: float
    """End less start, in score."""
    blind: float
    """The same with exchanged observations."""
    kept: float | None
    """``blind`` as a share of ``gain``; None for a gain below :data:`LEAST_GAIN`."""

    @property
    def looks(self) -> bool:
        """Whether the share is small enough; a share that is not known is."""
        return self.kept is None or self.kept <= MOST_KEPT


def blind_gain(runs: Sequence[Run]) -> BlindGain | None:
    """What the runs of a task kept; None where none of them stores blind ends."""
    gains, blind = [], []
    for run in runs:
        if BLIND not in run.record.splits or ends_by_rule(run.record):
            continue
        start, end = (run.split_items(ID, end=side) for side in (False, True))
        before, after = (run.split_items(BLIND, end=side) for side in (False, True))
        if start is None or end is None or before is None or after is None:
            continue
        gains.append(float(end.mean(dtype=np.float64) - start.mean(dtype=np.float64)))
        blind.append(float(after.mean(dtype=np.float64) - before.mean(dtype=np.float64)))
    if not gains:
        return None
    gain, kept = float(np.mean(gains)), float(np.mean(blind))
    return BlindGain(gain, kept, kept / gain if gain >= LEAST_GAIN else None)
