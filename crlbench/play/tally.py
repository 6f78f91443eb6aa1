"""What happened in episodes, counted: the figures that only runs with episodes have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from crlbench.play.loop import Episode


@dataclass(frozen=True)
class Tally:
    """Counts over episodes; the turns are those of the policy."""

    episodes: int
    turns: int
    faults: int
    illegal: int
    """Faults that are neither malformed calls nor turns that were cut off."""
    malformed: int
    forked_rows: int
    tool_calls: int

    @staticmethod
    def joined(parts: Sequence[Tally]) -> Tally:
        """The counts of several batches, at least one, together."""
        names = [field.name for field in fields(Tally)]
        return Tally(**{name: sum(getattr(part, name) for part in parts) for name in names})

    def figures(self) -> dict[str, float]:
        """The names of :data:`~crlbench.contract.dynamics.EPISODE_STATS`."""
        return {
            "turns": self.turns / self.episodes,
            "faults": self.faults / self.turns,
            "illegal": self.illegal / self.turns,
            "malformed": self.malformed / self.turns,
            "forked_rows": self.forked_rows / self.episodes,
            "tool_calls": self.tool_calls / self.episodes,
        }


def tally(episodes: Sequence[Episode], appends: bool) -> Tally:
    """Count what happened in episodes that were played.

    Args:
        appends: whether a turn continues its seat's row. Then each row of a seat but its first is
            a fork. Else every turn is a row of its own by rule.
    """
    spoken = [(episode, turn) for episode in episodes for turn in episode.spoken]
    wrong = [turn for episode, turn in spoken if episode.position.turns[turn.turn].fault]
    rows = sum(turn.opens for _, turn in spoken)
    seats = sum(len({turn.seat for turn in episode.spoken}) for episode in episodes)
    return Tally(
        episodes=len(episodes),
        turns=len(spoken),
        faults=len(wrong),
        illegal=sum(not (turn.said.malformed or turn.said.cut) for turn in wrong),
        malformed=sum(bool(turn.said.malformed) for _, turn in spoken),
        forked_rows=rows - seats if appends else 0,
        tool_calls=sum(len(turn.said.calls) for _, turn in spoken),
    )
