"""What a result cost, in words: measured on the machine that made it."""

from __future__ import annotations

from collections.abc import Mapping

from crlbench.base import wording


def cost_words(cost: Mapping[str, float | None]) -> str:
    """``21 min, 2.41 GB``: of one seed of all tasks, and of a run; a dash where nothing is known.

    Args:
        cost: of an entry, as its brief has it.
    """
    seconds, memory = cost["seconds"], cost["memory"]
    parts = [] if memory is None else [wording.memory(memory)]
    if seconds is not None:
        minutes = seconds / 60
        parts.insert(0, f"{wording.number(minutes, 0 if minutes >= 10 else 1)} min")
    return ", ".join(parts) or wording.NONE
