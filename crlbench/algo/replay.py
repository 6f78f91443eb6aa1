"""Discrete soft actor-critic as a recipe: its axes beside the losses.

Notation: s a prefix of tokens, a the next token, pi the policy, alpha the temperature of the
entropy, A the vocabulary.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from crlbench.algo.part import Part
from crlbench.algo.recipe import BaseRecipe
from crlbench.algo.soft_actor_critic import DiscreteSac
from crlbench.errors import UsageError, ValidationError

MOST_WORDS = 512
"""Largest vocabulary: the critics estimate every word in every state."""


@dataclass(frozen=True)
class Temperature(Part, ABC):
    """Axis ``temperature``: what a nat of entropy is worth, in rewards."""

    @property
    @abstractmethod
    def first(self) -> float:
        """Alpha at the start."""

    def target_entropy(self, words: int) -> float | None:
        """Entropy in nats that alpha is moved towards; None where it does not move."""
        return None


@dataclass(frozen=True)
class FixedTemperature(Temperature):
    """Alpha stays."""

    alpha: float = 0.05

    formula: ClassVar[str] = "temperature alpha"
    source: ClassVar[str] = "Haarnoja et al. 2018, arXiv 1801.01290"

    def check(self) -> None:
        self.require(self.alpha > 0, "alpha", "above 0")

    @property
    def first(self) -> float:
        return self.alpha


@dataclass(frozen=True)
class LearnedTemperature(Temperature):
    """Alpha rises while the policy has less entropy than wanted, and falls while it has more."""

    start: float = 0.05
    share: float = 0.1
    """Entropy that is wanted, as a share of that of the uniform distribution."""

    formula: ClassVar[str] = "alpha from start, by the loss of the temperature;  H = share ln |A|"
    source: ClassVar[str] = (
        "Haarnoja et al. 2018, arXiv 1812.05905, section 5; the share is a choice"
    )

    def check(self) -> None:
        self.require(self.start > 0, "start", "above 0")
        self.require(0 < self.share < 1, "share", "between 0 and 1")

    @property
    def first(self) -> float:
        return self.start

    def target_entropy(self, words: int) -> float:
        return self.share * math.log(words)


@dataclass(frozen=True)
class Prior(Part, ABC):
    """Axis ``prior``: the distribution that the policy is rewarded for staying near."""


@dataclass(frozen=True)
class UniformPrior(Prior):
    """None in particular: entropy is what is rewarded."""

    formula: ClassVar[str] = "entropy of the policy"
    source: ClassVar[str] = "Haarnoja et al. 2018, arXiv 1801.01290"


@dataclass(frozen=True)
class StartPrior(Prior):
    """The start model: minus the KL from it takes the place of the entropy."""

    formula: ClassVar[str] = "-KL(pi || start): log pi becomes log pi - log start in all losses"
    source: ClassVar[str] = "Levine 2018, arXiv 1805.00909"


@dataclass(frozen=True)
class Replay(Part):
    """Axis ``replay``: whole completions are kept, and drawn by key with equal chances."""

    capacity: int = 2048
    """Completions that are kept; the oldest make room."""
    updates: int = 4
    """Steps of the critics in an iteration, each followed by one of the policy, on as many drawn
    completions as an iteration samples."""

    formula: ClassVar[str] = (
        "the last capacity completions;  updates steps of critics and policy an iteration"
    )
    source: ClassVar[str] = "Mnih et al. 2015, doi 10.1038/nature14236; the numbers are a choice"

    def check(self) -> None:
        self.require(self.capacity >= 1, "capacity", "at least 1")
        self.require(self.updates >= 1, "updates", "at least 1")


@dataclass(frozen=True)
class SacRecipe(BaseRecipe):
    """Soft actor-critic over tokens: off policy, from a replay. Experimental."""

    axes: ClassVar[Mapping[str, type[Part]]] = {
        "soft_losses": DiscreteSac,
        "temperature": Temperature,
        "prior": Prior,
        "replay": Replay,
    }
    neutral: ClassVar[Mapping[str, str]] = {"prior": "UniformPrior"}
    roles: ClassVar[Mapping[str, str]] = {
        "replay": "replay",
        "prior": "what is rewarded beside the task",
        "temperature": "temperature",
        "soft_losses": "losses of a state",
    }

    soft_losses: DiscreteSac = field(default_factory=DiscreteSac)
    temperature: Temperature = field(default_factory=LearnedTemperature)
    prior: Prior = field(default_factory=UniformPrior)
    replay: Replay = field(default_factory=Replay)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, StartPrior) and isinstance(self.temperature, LearnedTemperature):
            raise UsageError(
                f"recipe '{self.name}': LearnedTemperature wants an entropy, and StartPrior "
                "rewards a KL in its place. Set temperature=fixed-temperature, or prior=none."
            )

    @property
    def statement(self) -> str:
        return "L = critics, then policy and temperature: means over states of the replay"

    @property
    def blind_to_steps(self) -> str | None:
        return f"soft_losses={self.soft_losses.part}"

    @property
    def blind_to_turns(self) -> str | None:
        return self.blind_to_steps


def check_words(model: str, words: int) -> None:
    """Refuse a vocabulary of more than :data:`MOST_WORDS`.

    Raises:
        ValidationError: names the model and the number.
    """
    if words > MOST_WORDS:
        raise ValidationError(
            f"soft actor-critic estimates every word in every state, so it takes at most "
            f"{MOST_WORDS} words: {model} has {words:,}. Choose a model with a vocabulary of "
            "characters, such as tiny-llama, or another recipe."
        )
