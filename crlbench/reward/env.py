"""What an environment is: a task of several turns, as pure functions over plain data.

An episode is a function of its start and of what the policy said. So it can be played again,
compared, forked and hashed (:mod:`crlbench.reward.playing`). Starts, turns and transcripts have
one canonical text each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crlbench.errors import ValidationError

State = dict[str, Any]
"""JSON data. Its canonical text has at most ``max_state_bytes`` bytes."""
Message = dict[str, str]
"""``role`` (system, user or tool) and ``content``."""
Chance = Callable[[str], float]
"""A label to a number in [0, 1); the same label gives the same number within a turn."""

ROLES = ("system", "user", "tool")
"""Who may speak in an observation."""


@dataclass(frozen=True)
class Call:
    """One call of a tool, with arguments as JSON data."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What a seat said in one turn."""

    text: str
    calls: tuple[Call, ...] = ()
    malformed: str = ""
    """Why the text holds no calls although it tries to; empty where nothing is wrong."""
    cut: bool = False
    """Whether the turn was cut off at its cap. Calls of such a turn are never executed."""


@dataclass(frozen=True)
class Step:
    """What one turn made of a state."""

    state: State
    paid: tuple[float, ...] = ()
    """What each seat earned in this turn alone; empty where nobody earned anything."""
    over: bool = False
    fault: str = ""
    """What was wrong with the turn: one of a few fixed sentences; empty where nothing was."""


@dataclass(frozen=True)
class Environment:
    """The functions and the limits of an environment.

    All functions are total and pure: they never raise, draw nothing of their own and never change
    their arguments.
    """

    mover: Callable[[State], int]
    """Whose turn it is."""
    observe: Callable[[State, int], list[Message]]
    """Everything that a seat must know which sees nothing else."""
    step: Callable[[State, Said, Chance], Step]
    score: Callable[[State], tuple[float, ...]]
    """A number in [0, 1] for each seat, also of an episode that was ended before its time."""
    max_turns: int
    """Turns of an episode, those of scripted seats included."""
    max_observation_bytes: int
    """Longest observation: the contents of its messages, the system's left out."""
    news: Callable[[State, int], list[Message]] | None = None
    """What is new to a seat since its last turn; None: what :attr:`observe` says."""
    legal: Callable[[State], tuple[str, ...]] | None = None
    """The legal texts in their canonical form, where they can be listed."""
    rival: Callable[[str, State, Chance], str] | None = None
    """What a scripted seat of a name says."""
    hidden: Callable[[State, int], tuple[str, ...]] | None = None
    """Fields of the state that a seat may not learn from what it is told; None: there are none."""
    seats: int = 1
    history: Literal["restate", "append"] = "restate"
    """Whether a turn sees its observation alone, or everything of its seat before it."""
    tools: tuple[dict[str, Any], ...] = ()
    """Declared tools, as JSON data."""
    panel: tuple[str, ...] = ()
    """Names of the scripted seats."""
    on_illegal: Literal["fault", "forfeit"] = "fault"
    """What an illegal text does: the turn is spent, or the episode is lost."""
    max_state_bytes: int = 4096

    def table(self) -> dict[str, Any]:
        """The facts that ``frozen.toml`` states, as plain data."""
        return {
            "seats": self.seats,
            "max_turns": self.max_turns,
            "history": self.history,
            "max_observation_bytes": self.max_observation_bytes,
            "max_state_bytes": self.max_state_bytes,
            "on_illegal": self.on_illegal,
            "tools": [tool["name"] for tool in self.tools],
            "panel": list(self.panel),
        }


@dataclass(frozen=True)
class Start:
    """Where an episode begins, and who sits where."""

    state: str
    """Canonical JSON of the state."""
    seat: int = 0
    """The seat whose score counts."""
    rivals: tuple[tuple[int, str], ...] = ()
    """(seat, name) of the scripted seats; the policy speaks for all others."""
    chance: str = ""
    """The key of everything that is drawn."""


@dataclass(frozen=True)
class Turn:
    """One turn that was taken."""

    seat: int
    state: str
    """Digest of the state before it, see :func:`digest`."""
    said: Said
    paid: tuple[float, ...]
    fault: str


@dataclass(frozen=True)
class Position:
    """How far an episode has come: the policy speaks next, or it is over."""

    state: str
    """Canonical JSON."""
    turns: tuple[Turn, ...] = ()
    """All turns so far."""
    seat: int = 0
    """Who speaks next."""
    view: tuple[Message, ...] = ()
    """What that seat is told where it sees nothing else."""
    news: tuple[Message, ...] = ()
    """What that seat is told where it sees its former turns."""
    scores: tuple[float, ...] | None = None
    """A number of each seat once the episode is over."""


def canonical(value: Any) -> str:
    """One text per JSON value: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def broken(name: str, value: Any, allowed: str) -> ValidationError:
    """What is wrong with something that a function of an environment returned."""
    return ValidationError(f"{name} returned {value!r:.200}; allowed: {allowed}")


def state_text(state: Any, max_bytes: int) -> str:
    """The canonical text of a state.

    Raises:
        ValidationError: it is no JSON object that reads back as itself, or too long.
    """
    try:
        text = canonical(state)
        same = isinstance(state, dict) and json.loads(text) == state
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise broken("step", state, "a state of JSON data: dicts with text keys, and lists")
    if len(text) > max_bytes:
        raise broken("step", state, f"a state of at most {max_bytes} bytes, and it has {len(text)}")
    return text


def digest(state: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a state's canonical text."""
    return hashlib.sha256(state.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Draw:
    """The :data:`Chance` of a turn: each number depends on these three and its label alone."""

    key: str
    purpose: str
    """``step``, or ``rival`` for what a scripted seat draws."""
    turn: int

    def __call__(self, label: str) -> float:
        data = canonical([self.key, self.purpose, self.turn, label]).encode()
        return (int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 11) * 2.0**-53


def start_text(start: Start) -> str:
    """A start as the ``answer`` of a row."""
    rivals = {str(seat): name for seat, name in start.rivals}
    table = {"state": json.loads(start.state), "seat": start.seat, "chance": start.chance}
    return canonical(table | ({"rivals": rivals} if rivals else {}))


def read_start(answer: str) -> Start:
    """The start that a row's ``answer`` states.

    Raises:
        ValidationError: it is none.
    """
    try:
        table = json.loads(answer)
        rivals = tuple((int(seat), name) for seat, name in table.pop("rivals", {}).items())
        start = Start(canonical(table["state"]), table["seat"], rivals, table["chance"])
        same = start_text(start) == answer
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        same = False
    if not same or type(start.seat) is not int or type(start.chance) is not str:
        raise ValidationError(
            f"{answer!r:.200} is no start of an episode; expected canonical JSON with state, seat, "
            "chance and, where seats are scripted, rivals"
        )
    return start


def said_value(said: Said) -> Any:
    """A turn as JSON data: its text, or a table where there is more to say."""
    if said == Said(said.text):
        return said.text
    calls = [{"name": call.name, "arguments": call.arguments} for call in said.calls]
    return {"text": said.text, "calls": calls, "malformed": said.malformed, "cut": said.cut}


def read_said(value: Any) -> Said:
    """The turn that :func:`said_value` made.

    Raises:
        ValueError: it made no such value.
    """
    if isinstance(value, str):
        return Said(value)
    match value:
        case {"text": str(text), "calls": [*calls], "malformed": str(why), "cut": bool(cut)}:
            said = Said(text, tuple(map(_read_call, calls)), why, cut)
            if said_value(said) == value:
                return said
    raise ValueError("no turn")


def _read_call(value: Any) -> Call:
    match value:
        case {"name": str(name), "arguments": dict(arguments)}:
            return Call(name, arguments)
    raise ValueError("no call")


def transcript(said: Sequence[Said]) -> str:
    """What the policy said, in order, as the completion of an episode."""
    return canonical([said_value(one) for one in said])


def read_transcript(text: str) -> list[Said] | None:
    """What the policy said in a transcript; None where the text is none."""
    try:
        values = json.loads(text)
        said = [read_said(value) for value in values] if isinstance(values, list) else None
        return said if said is not None and transcript(said) == text else None
    except (ValueError, RecursionError):
        return None
