"""Stored episodes as they are read: every turn with what was told, said and paid.

A stored run may be a stranger's. What is no episode is refused with its line and field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import explain
from crlbench.disk.names import EPISODES
from crlbench.errors import ValidationError
from crlbench.verdict.runs import Run


class _Read(BaseModel):
    """Read as written: other fields and other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Told(_Read):
    """One message of an observation."""

    role: str
    content: str


class Call(_Read):
    """One call of a tool."""

    name: str
    arguments: dict[str, Any]


class Spoken(_Read):
    """What a turn said where it is more than a text."""

    text: str
    calls: list[Call]
    malformed: str
    cut: bool


class StoredTurn(_Read):
    """One turn of a stored episode."""

    seat: int
    state: str
    """Digest of the state before it."""
    said: str | Spoken
    paid: list[float]
    """What each seat earned."""
    fault: str
    observation: list[Told] | None = None
    """What the policy was told; None for the turn of a scripted seat."""
    tokens: int | None = None
    """Tokens that were sampled; None for the turn of a scripted seat."""

    @property
    def spoken(self) -> Spoken:
        """What was said, as a text that made no calls where it is one."""
        if isinstance(self.said, Spoken):
            return self.said
        return Spoken(text=self.said, calls=[], malformed="", cut=False)


class StoredEpisode(_Read):
    """One stored episode."""

    uid: str
    x: int
    """Completions consumed when it was played."""
    turns: list[StoredTurn]
    end: str
    """Digest of the last state."""
    scores: list[float]
    """One of each seat."""


def stored_episodes(run: Run) -> dict[tuple[str, int], StoredEpisode]:
    """The first stored episode of each item and time, by ``(uid, x)``, in stored order.

    Raises:
        ValidationError: one is no episode (names line and field).
    """
    found: dict[tuple[str, int], StoredEpisode] = {}
    for number, line in enumerate(run.episodes(), start=1):
        episode = _episode(line, f"{run.folder / EPISODES}: line {number}")
        found.setdefault((episode.uid, episode.x), episode)
    return found


def _episode(line: Mapping[str, Any], where: str) -> StoredEpisode:
    try:
        return StoredEpisode.model_validate(line)
    except PydanticError as error:
        raise ValidationError(explain(error, where)) from None
