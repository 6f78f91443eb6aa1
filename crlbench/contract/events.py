"""What a cell says while it runs: small dictionaries of JSON values, told apart by their ``kind``.

They are for whoever watches. A result rests on none of them, and they may be lost with a process.
A function of one's own that a launcher runs may send other kinds; who watches passes over a kind
that it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypedDict


class StartEvent(TypedDict):
    """A launcher begins a cell, or begins it again: the first event of every attempt."""

    kind: Literal["start"]
    attempt: int
    """1, or 2 after the process of the first attempt died."""


class ProgressEvent(TypedDict):
    """How far a run is: when it begins, after each iteration and evaluation, before its end."""

    kind: Literal["progress"]
    phase: Literal["start", "train", "end"]
    """``start`` scores the start model, ``end`` scores what was learned."""
    iteration: int
    """Iterations done, 0 to ``iterations``."""
    iterations: int
    """Iterations of the whole run."""
    reward: float | None
    """Mean reward of the last rollout; None before the first one, in other phases, and where it is
    no finite number."""
    score: float | None
    """Mean of the last point of the curve, 0 to 1; None before the first one."""
    completions: int | None
    """Completions consumed at that point; None before the first one."""


def progress(
    phase: Literal["start", "train", "end"],
    iteration: int,
    iterations: int,
    reward: float | None = None,
    score: float | None = None,
    completions: int | None = None,
) -> ProgressEvent:
    """The event of a phase, where a number that JSON does not hold is None."""
    return {
        "kind": "progress",
        "phase": phase,
        "iteration": iteration,
        "iterations": iterations,
        "reward": reward if reward is not None and math.isfinite(reward) else None,
        "score": score if score is not None and math.isfinite(score) else None,
        "completions": completions,
    }


class RebuiltEvent(TypedDict):
    """A stored file was of no use and was made again."""

    kind: Literal["rebuilt"]
    file: str
    """``<folder>/<name>``, below the folder of the model."""
    reason: str
    """Why, for a person."""


class Figures(TypedDict):
    """What a cell costs on this machine, from two real iterations."""

    startup_s: float
    """Seconds, without imports and the reading of weights."""
    iteration_s: float
    """Seconds of one."""
    evaluation_s: float
    """Seconds of one point of the curve."""
    end_s: float
    """Seconds to score the end of a run."""
    start_s: float
    """Seconds to score the start model on all tasks, once for each model."""
    greedy_s: float
    """Seconds in which the start model answers the training prompts of a task greedily, once for
    each model and task of a mode arm."""
    peak_memory_bytes: float


class CalibrationEvent(TypedDict):
    """What a dry run measured."""

    kind: Literal["calibration"]
    figures: Figures


class StageForecast(TypedDict):
    """What a stage of a chain is expected to cost, for one seed."""

    charges: dict[str, int]
    """Labels, demonstrations, tokens, bytes, FLOPs and updates; what is 0 is absent."""
    effort: float
    """FLOPs of its passes, those of decoding weighted by what they take longer."""
    evaluations: int
    """How often it is scored on the items of the curve; 0 of the last stage, whose time was
    measured."""


class ForecastEvent(TypedDict):
    """What the stages of a chain are expected to cost, by name in their order."""

    kind: Literal["forecast"]
    stages: dict[str, StageForecast]


class ProductEvent(TypedDict):
    """A stage of a chain that was run alone has its product."""

    kind: Literal["product"]
    folder: str


Event = StartEvent | ProgressEvent | RebuiltEvent | CalibrationEvent | ForecastEvent | ProductEvent
"""Any of them; ``event["kind"]`` says which."""

Emit = Callable[[Event], None]
"""Takes an event of a cell that runs."""
