"""Which policy an answer's log-probabilities are measured against, from iteration to iteration."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

from crlbench.algo.part import Part
from crlbench.errors import unknown_name


@dataclass(frozen=True)
class Reference(Part, ABC):
    """Axis ``reference`` of recipes on pairs, and a field of the KL of policy optimisation."""

    moves: ClassVar[bool] = True
    """Whether the reference changes during a run."""

    @classmethod
    def from_shorthand(cls, value: Any, where: str) -> Reference:
        """``"ema"`` stands for ``Ema()``."""
        named: dict[str, type[Start | Round | Ema]] = {"start": Start, "round": Round, "ema": Ema}
        if not isinstance(value, str):
            return super().from_shorthand(value, where)
        if value not in named:
            raise unknown_name("reference", value, named, f"Where: {where}.")
        return named[value]()

    def round_begins(self, iteration: int, iterations: int) -> bool:
        """Whether the reference becomes the present policy before an iteration, counted from 0."""
        return False

    @property
    def kept(self) -> float:
        """Share of the reference that a step of the policy leaves as it is, by weight."""
        return 1.0


@dataclass(frozen=True)
class Start(Reference):
    """The policy that the run started from, in every iteration."""

    moves: ClassVar[bool] = False
    formula: ClassVar[str] = "ref = the start"
    source: ClassVar[str] = "Rafailov et al. 2023, arXiv 2305.18290, section 4"


@dataclass(frozen=True)
class Round(Reference):
    """The policy at the beginning of the present round; a run has ``rounds`` equal ones."""

    rounds: int = 4

    formula: ClassVar[str] = "ref = the policy at the beginning of each of rounds equal parts"
    source: ClassVar[str] = "Kim et al. 2024 (sDPO), arXiv 2403.19270"

    def check(self) -> None:
        self.require(self.rounds >= 1, "rounds", "at least 1")

    def round_begins(self, iteration: int, iterations: int) -> bool:
        """Whether one of the rounds begins with an iteration; the first begins at the start."""
        places = {iterations * number // self.rounds for number in range(1, self.rounds)}
        return iteration > 0 and iteration in places


@dataclass(frozen=True)
class Ema(Reference):
    """An exponential moving average of the policy's weights, updated after every step."""

    decay: float = 0.99

    formula: ClassVar[str] = "ref <- decay ref + (1 - decay) theta, after every step"
    source: ClassVar[str] = "Xu et al. 2024, arXiv 2404.10719"

    def check(self) -> None:
        self.require(0.0 <= self.decay < 1.0, "decay", "from 0, below 1")

    @property
    def kept(self) -> float:
        return self.decay
