"""Who plays: where an episode starts, by which dice, and how a model's text is read.

Evaluation plays a start by its own dice, so that every model, seed and draw meets the same.
Training draws them anew each time that a start is visited, and all episodes of a group share them:
a group compares what was said, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from crlbench.contract.conditions import Play as PlayConditions
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DrawKey, Sampler
from crlbench.policy.text.calling import Calling
from crlbench.policy.text.dialogue import Dialogue
from crlbench.reward.env import Call, Environment, Said, Start, read_start
from crlbench.reward.tools import read_text, tools_of, with_tools
from crlbench.seeding import _key, derive  # private: its bytes are in every task's digest

Reading = Callable[[str, bool], Said]
"""(text of a turn, whether it was cut off) -> what was said, with its calls of tools."""


def read_plainly(text: str, cut: bool) -> Said:
    """A turn of an environment without tools."""
    return Said(text, cut=cut)


def reading_of(environment: Environment, dialogue: Dialogue) -> Reading:
    """How a model's turns are read: calls in the form of its chat template, or on one line."""
    if dialogue.calling is not None:
        return partial(_read_calls, dialogue.calling)
    return partial(read_text, environment)


def _read_calls(calling: Calling, text: str, cut: bool) -> Said:
    """A turn with calls, or broken ones, keeps its whole text; of any other thoughts are left out.

    One that ends inside a thought says what stands there. So the text of a turn is read again as
    the same turn, also where the template opens a thought before it.
    """
    if cut:
        return Said(text, cut=True)
    reply = calling.read(text)
    if not reply.calls and not reply.malformed:
        return Said(text if calling.ends_in_thought(reply, text) else reply.content)
    return Said(text, tuple(Call(*call) for call in reply.calls), reply.malformed)


def calling_of(environment: Environment, tokenizer: Any, thinking: str) -> Calling | None:
    """How a chat model calls the tools of an environment; None where there are none.

    Raises:
        ValidationError: see :meth:`Calling.of`.
    """
    tools = tools_of(environment)
    if not tools:
        return None
    functions = [tool.as_function() for tool in tools]
    return Calling.of(tokenizer, functions, thinking, with_tools("", tools))


SELF = "self"
"""The name of a rival that is the policy: all seats learn."""


def under(play: PlayConditions, environment: Environment, task: str) -> Environment:
    """An environment as the conditions of a run have it played.

    Raises:
        ValidationError: they name a rival for the only seat, or one that the environment has not.
    """
    rivals = play.rivals
    if rivals is not None and environment.seats == 1:
        raise ValidationError(
            f"play.rivals = '{rivals}': task '{task}' has one seat and no rivals; leave it out."
        )
    if rivals not in (None, SELF, *environment.panel):
        known = ", ".join((SELF, *environment.panel))
        raise ValidationError(
            f"play.rivals = '{rivals}': task '{task}' has no such seat. Known: {known}."
        )
    return replace(environment, history=play.history or environment.history)


def against(start: Start, rivals: str | None, seats: int) -> Start:
    """A start of training with these rivals; None leaves those of the start."""
    if rivals is None:
        return start
    others = [seat for seat in range(seats) if seat != start.seat]
    named = () if rivals == SELF else tuple((seat, rivals) for seat in others)
    return replace(start, rivals=named)


@dataclass(frozen=True)
class Table:
    """Everything that an episode of one environment and one model needs."""

    environment: Environment
    dialogue: Dialogue
    sampler: Sampler
    """Decodes the turns; it knows the longest one."""
    context: int
    """Tokens that the model reads at most."""
    reading: Reading = read_plainly
    name: str = "unnamed"
    """The task, for messages."""
    exchanged: bool = False
    """Whether a seat is told what an episode of another start is told: what a policy scores so, it
    scores without looking."""
    rivals: str | None = None
    """Who sits against the policy in training: :data:`SELF` or a scripted seat; None: whom the
    start names."""

    @property
    def appends(self) -> bool:
        """Whether a turn sees everything of its seat before it."""
        return self.environment.history == "append"


@dataclass(frozen=True)
class Visit:
    """A start, and the episodes that are to be played from it."""

    uid: str
    start: Start
    episodes: int


def visits(
    uids: Sequence[str], answers: Sequence[Any], episodes: int, key: DrawKey, trains: bool
) -> list[Visit]:
    """A visit of each start of a batch; ``trains``: whether dice are drawn anew."""
    found = []
    for uid, answer in zip(uids, answers, strict=True):
        start = read_start(answer)
        if trains:
            assert key.seed is not None
            dice = derive(key.seed, "chance", key.iteration, uid)
            start = replace(start, chance=f"{dice:016x}")
        found.append(Visit(uid, start, episodes))
    return found


def turn_uniforms(
    key: DrawKey, uid: str, index: int, seat: int, turn: int, count: int
) -> list[float]:
    """``count`` uniforms in [0, 1) of a turn of episode ``index`` of a start; NaN if greedy.

    The first turn of seat 0 has the draws of a single-turn completion. The numbers are those of
    :func:`crlbench.seeding.uniforms`, all of a turn computed at once.
    """
    if key.seed is None:
        return [float("nan")] * count
    path = (key.purpose, key.iteration, uid, index)
    later = () if (seat, turn) == (0, 0) else (seat, turn)
    stream = hashlib.shake_256(_key(key.seed, (*path, *later))).digest(8 * count)
    found: list[float] = ((np.frombuffer(stream, ">u8") >> np.uint64(11)) * 2.0**-53).tolist()
    return found
