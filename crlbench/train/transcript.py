"""What an episode is as text: what is stored of it, and what its verifier is given.

Where a rollout states no turns, an episode is the text of its completion. Where it does, it is a
transcript, even of one turn: a JSON list of what was said, in the order of the turns. A turn in
which the policy chose no token is none.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from crlbench.contract.task_card import unknown_kind
from crlbench.disk.hashing import canonical_json
from crlbench.errors import ValidationError
from crlbench.types import Rollout


def transcripts(rollout: Rollout) -> list[str]:
    """One text of each episode, in the order of their first rows."""
    if rollout.episode is None and rollout.turn is None:
        return rollout.texts
    whole = rollout.stated()
    assert whole.episode is not None
    episodes: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for episode, turns in zip(whole.episode.tolist(), said_by_row(whole), strict=True):
        episodes[episode] += turns
    return [
        canonical_json([text for _, text in sorted(turns, key=lambda turn: turn[0])])
        for turns in episodes.values()
    ]


def said_by_row(rollout: Rollout) -> list[list[tuple[int, str]]]:
    """The turns of each row: the number of a turn, and what was said in it."""
    if rollout.turn is None:
        return [[(0, text)] for text in rollout.texts]
    rows = []
    for numbers, text in zip(rollout.turn.tolist(), rollout.texts, strict=True):
        turns = sorted({number for number in numbers if number >= 0}) or [0]
        texts = json.loads(text) if len(turns) > 1 else [text]
        rows.append(list(zip(turns, texts, strict=True)))
    return rows


def verified_text(kind: str, sample: Mapping[str, Any]) -> str:
    """What the verifier of a task of a kind is given of a stored sample.

    Raises:
        ValidationError: there is no such kind.
    """
    read = READ.get(kind)
    if read is None:
        raise ValidationError(f"{unknown_kind(kind)}.")
    return read(sample)


READ: Mapping[str, Callable[[Mapping[str, Any]], str]] = {"single-turn": itemgetter("completion")}
"""What reads a stored sample, by the kind of its task."""
