"""What a result cost, in words: measured on the machine that made it."""

from __future__ import annotations

from collections.abc import Mapping

from crlbench.base import wording


def minutes_words(seconds: float | None) -> str:
    """``0.4 min``, ``21 min``, ``340 min``; a dash where it is not known."""
    if seconds is None:
        return wording.NONE
    minutes = seconds / 60
    return f"{wording.number(minutes, 0 if minutes >= 10 else 1)} min"


def cost_words(cost: Mapping[str, float | None]) -> str:
    """``21 min a seed, 2.41 GB``; a dash where nothing is known.

    Args:
        cost: of an entry, as its brief has it.
    """
    seconds, memory = cost["seconds"], cost["memory"]
    parts = [] if seconds is None else [f"{minutes_words(seconds)} a seed"]
    parts += [] if memory is None else [wording.memory(memory)]
    return ", ".join(parts) or wording.NONE
