"""A single-turn task as an environment of one turn: the same prompts, texts and scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crlbench.reward.env import (
    Chance,
    Environment,
    Message,
    Said,
    Start,
    State,
    Step,
    canonical,
    start_text,
)
from crlbench.reward.score import Score

LONGEST = 1 << 16
"""Bytes of a state: it holds the prompt, the answer and the completion."""


def as_environment(verify: Callable[[str, str], Any]) -> Environment:
    """The environment whose only turn is a completion, scored by a task's verifier.

    A prompt that shows solved examples as replies (role ``assistant``) is no observation: an
    episode of it raises ``ValidationError`` when it begins.
    """

    def observe(state: State, seat: int) -> list[Message]:
        return list(state["messages"])

    def step(state: State, said: Said, chance: Chance) -> Step:
        return Step(state | {"text": said.text}, over=True)

    def score(state: State) -> tuple[float, ...]:
        judged = verify(state["text"], state["answer"])
        return (float(judged.outcome if isinstance(judged, Score) else judged),)

    return Environment(
        mover=lambda state: 0,
        observe=observe,
        step=step,
        score=score,
        max_turns=1,
        max_observation_bytes=LONGEST,
        max_state_bytes=LONGEST,
    )


def start_of(row: Mapping[str, Any]) -> str:
    """The start of a row of such a task, as :func:`as_environment` plays it."""
    state = {"messages": row["messages"], "answer": row["answer"], "text": ""}
    return start_text(Start(canonical(state)))
