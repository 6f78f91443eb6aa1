"""An episode as it is stored: every turn, with a digest of the state before it.

All but the numbers of tokens follows from the start and what was said. So an episode is checked by
describing it again.
"""

from __future__ import annotations

from typing import Any

from crlbench.errors import ValidationError
from crlbench.play.loop import Episode
from crlbench.reward.checked import opened, taken
from crlbench.reward.env import (
    Environment,
    Said,
    Start,
    Turn,
    canonical,
    digest,
    read_said,
    said_value,
)

Described = dict[str, Any]
"""``turns``, ``end`` (digest of the last state) and ``scores`` (one of each seat). A turn has
``seat``, ``state`` (digest of the state before it), ``said``, ``paid`` (one of each seat) and
``fault``; the policy's also ``observation`` (messages) and ``tokens`` (how many were sampled)."""
Sayings = list[tuple[Any, int]]
"""What the policy said in each of its turns, as JSON data, and how many tokens were sampled."""


def sayings(episode: Episode) -> Sayings:
    """What was said in an episode that was played."""
    return [(said_value(turn.said), len(turn.ids)) for turn in episode.spoken]


def sayings_in(described: Described) -> Sayings:
    """What was said in a stored episode."""
    own = [turn for turn in described["turns"] if "tokens" in turn]
    return [(turn["said"], turn["tokens"]) for turn in own]


def transcript_of(said: Sayings) -> str:
    """The completion of an episode, as its verifier reads it."""
    return canonical([value for value, _ in said])


def describe(environment: Environment, start: Start, said: Sayings) -> Described:
    """What happens where the policy says this from a start.

    Raises:
        ValidationError: the episode is over before all is said, or goes on after it; what is said
            is none; or the environment breaks a rule of its kind.
    """
    position = opened(environment, start)
    turns = [_turn(turn) for turn in position.turns]
    spoken: set[int] = set()
    for value, count in said:
        if position.scores is not None:
            raise ValidationError(f"the episode is over after {len(turns)} turns; more is said")
        seat, number = position.seat, len(position.turns)
        appends = environment.history == "append" and seat in spoken
        told = {"observation": [*(position.news if appends else position.view)], "tokens": count}
        spoken.add(seat)
        position = taken(environment, start, position, _read(value))
        own, *others = position.turns[number:]
        turns += [_turn(own) | told, *map(_turn, others)]
    if position.scores is None:
        raise ValidationError(f"the episode goes on after {len(turns)} turns; nothing is said")
    return {"turns": turns, "end": digest(position.state), "scores": [*position.scores]}


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "seat": turn.seat,
        "state": turn.state,
        "said": said_value(turn.said),
        "paid": [*turn.paid],
        "fault": turn.fault,
    }


def _read(value: Any) -> Said:
    try:
        return read_said(value)
    except ValueError:
        raise ValidationError(f"{value!r:.80} is nothing that a turn can say") from None
