"""Transcripts of environments with tools, as their audits read them: no step is taken."""

from __future__ import annotations

import json
from typing import Any

FIELDS = {"text", "calls", "malformed", "cut"}
MOST = 4
"""Calls of one turn above which none is executed."""

Turns = list[str | list[dict[str, Any]]]
"""A text that calls nothing, or the calls of a turn; no calls where they were malformed."""


def read_turns(text: str, most: int) -> Turns | None:
    """The turns of a transcript; None for a text that is none, or one no episode can have.

    Args:
        most: turns of an episode.
    """
    try:
        turns = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(turns, list) or not 0 < len(turns) <= most:
        return None
    found: Turns = []
    for turn in turns:
        if isinstance(turn, str):
            found.append(turn)
        elif not isinstance(turn, dict) or turn.keys() != FIELDS or turn["cut"] is not False:
            return None
        elif turn["malformed"] or len(turn["calls"]) > MOST:
            found.append([])
        else:
            found.append(turn["calls"])
    return found


def final_text(turns: Turns | None) -> str | None:
    """The text of the last turn, if it is the only one without calls; else None."""
    if turns is None or any(isinstance(turn, str) for turn in turns[:-1]):
        return None
    return turns[-1] if isinstance(turns[-1], str) else None
