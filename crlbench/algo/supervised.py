"""Learning from demonstrations: a recipe, its one axis, and its loss.

Notation as in the papers: i a demonstration, t a token of it, its end token included, l_it the
token's log-probability, n_i the number of tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.part import Part
from crlbench.algo.recipe import BaseRecipe


@dataclass(frozen=True)
class Likelihood(Part, ABC):
    """Axis ``likelihood``."""

    @abstractmethod
    def __call__(self, logprobs: Tensor, mask: Tensor, rows: int, tokens: int) -> Tensor:
        """() share of some rows in the loss of a step.

        Args:
            logprobs: (b, T) log-probabilities of the demonstrations' tokens.
            mask: (b, T) bool, True where a token is real.
            rows: demonstrations of the whole step.
            tokens: tokens of the whole step.
        """


@dataclass(frozen=True)
class TokenNll(Likelihood):
    """Every token of a step weighs the same."""

    formula: ClassVar[str] = "-sum_it l_it / sum_i n_i"
    source: ClassVar[str] = "Ouyang et al. 2022, arXiv 2203.02155, section 3.5"

    def __call__(self, logprobs: Tensor, mask: Tensor, rows: int, tokens: int) -> Tensor:
        return -select(mask, logprobs).sum() / max(1, tokens)


@dataclass(frozen=True)
class SequenceNll(Likelihood):
    """Every demonstration weighs the same, however long it is."""

    formula: ClassVar[str] = "-mean_i (sum_t l_it / n_i)"
    source: ClassVar[str] = "the row mean of Liu et al. 2025, arXiv 2503.20783"

    def __call__(self, logprobs: Tensor, mask: Tensor, rows: int, tokens: int) -> Tensor:
        means = select(mask, logprobs).sum(1) / mask.sum(1).clamp(min=1)
        return -means.sum() / max(1, rows)


@dataclass(frozen=True)
class SupervisedRecipe(BaseRecipe):
    """An algorithm that learns from demonstrations, without sampling."""

    axes: ClassVar[Mapping[str, type[Part]]] = {"likelihood": Likelihood}
    roles: ClassVar[Mapping[str, str]] = {"likelihood": "loss of a step"}

    likelihood: Likelihood

    @property
    def statement(self) -> str:
        return "L = negative log-likelihood of the demonstrations"
