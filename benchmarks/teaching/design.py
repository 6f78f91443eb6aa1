"""What the study runs: fixed before its first run (docs/studies/teach-or-elicit.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True, order=True)
class Start:
    """A moment of one pretraining, from which runs begin."""

    noise: float
    """Share of the documents of the corpus that carry a wrong answer."""
    updates: int
    """Updates of pretraining by then."""

    @property
    def name(self) -> str:
        """``noise-0.25-1800``: the file of its records."""
        return f"noise-{self.noise:.2f}-{self.updates}"


@dataclass(frozen=True)
class Design:
    """Starts, arms, tasks, seeds and conditions of the study."""

    track: str = "mini"
    version: int = 2
    """Of the track: another version is refused."""
    recipe: str = "ppo"
    architecture: str = "tiny-llama"
    noises: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5)
    moments: tuple[int, ...] = (1200, 2400, 1800)
    """In the order in which they run: where the processor time does not reach, the last are left
    out."""
    early: tuple[int, ...] = (1200, 1800)
    """Moments in the first 60 % of the schedule."""
    arms: tuple[str, ...] = ("real", "mode", "placebo", "wrong")
    tasks: tuple[str, ...] = ("addition", "counting", "modular", "chains")
    """The first four of the track."""
    seeds: int = 3
    settings: tuple[tuple[str, str], ...] = (
        ("evaluation.pass_draws", "64"),
        ("evaluation.retain", "[]"),
    )
    """Conditions that differ from the track's."""
    hours: float = 12.0
    """Processor time at most."""
    scored: int = 256
    """Prompts of each family on which a moment of a pretraining is scored, for its own table."""

    def starts(self, moment: int) -> list[Start]:
        """The starts of one moment."""
        return [Start(noise, moment) for noise in self.noises]

    def cells(self) -> Iterator[tuple[str, str, int]]:
        """Task, arm and seed of every cell of a start."""
        yield from product(self.tasks, self.arms, range(self.seeds))

    @property
    def cells_of_start(self) -> int:
        return len(self.tasks) * len(self.arms) * self.seeds


DESIGN = Design()
TRIAL = Design(
    noises=(0.0, 0.25),
    moments=(4,),
    early=(4,),
    tasks=("addition", "counting"),
    seeds=2,
    settings=(
        ("budget.grid", "3"),
        ("budget.iterations_per_point", "1"),
        ("budget.prompts", "4"),
        ("evaluation.curve_items", "16"),
        ("evaluation.end_items", "16"),
        *DESIGN.settings,
    ),
    scored=2,
)
"""Every step of the study on models that have learned nothing: it says that the steps work."""

CELL_S = {"real": 70.0, "mode": 60.0, "placebo": 60.0, "wrong": 60.0}
"""Processor seconds of a cell as assumed for the size: the pilot of the track measured 60 to 79 for
this architecture, about 8 of them for a start, and the end of a real run is scored with 64 draws of
512 items besides."""
START_S = 25.0
"""Processor seconds to score a start on one task: the same draws."""
PRETRAINING_S = 500.0
"""Processor seconds of one pretraining up to the last moment, with the scores of its moments."""


def expected_seconds(design: Design) -> float:
    """Processor seconds that a design is expected to take."""
    cells = sum(CELL_S[arm] for arm in design.arms) * design.seeds
    start = len(design.tasks) * (cells + START_S)
    return len(design.noises) * (PRETRAINING_S + len(design.moments) * start)
