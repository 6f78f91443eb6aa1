"""What a pair of answers loses, as a function of their log-probabilities.

Notation: c the preferred answer, r the other one; l the sum of the log-probabilities of an
answer's tokens, l_ref the same under the reference, n the number of its tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import logsigmoid

from crlbench.algo.part import Part


@dataclass(frozen=True)
class PairLogprobs:
    """N pairs; every field is (N,) of floats."""

    chosen: Tensor
    """Log-probability of the preferred answer, its end token included."""
    rejected: Tensor
    """Log-probability of the other answer."""
    ref_chosen: Tensor
    """Log-probability of the preferred answer under the reference."""
    ref_rejected: Tensor
    """Log-probability of the other answer under the reference."""
    chosen_tokens: Tensor
    """Tokens of the preferred answer."""
    rejected_tokens: Tensor
    """Tokens of the other answer."""

    def __post_init__(self) -> None:
        shapes = {tuple(getattr(self, f.name).shape) for f in fields(self)}
        if len(shapes) > 1 or self.chosen.dim() != 1:
            raise ValueError(f"PairLogprobs: shapes {sorted(shapes)}, expected one (N,)")

    def gaps(self, average: bool = False) -> tuple[Tensor, Tensor]:
        """l - l_ref of the preferred answers and of the others; per token with ``average``.

        An empty answer has a gap of 0.
        """
        chosen, rejected = self.chosen - self.ref_chosen, self.rejected - self.ref_rejected
        if not average:
            return chosen, rejected
        return chosen / self.chosen_tokens.clamp(min=1), rejected / self.rejected_tokens.clamp(
            min=1
        )


@dataclass(frozen=True)
class PairLoss(Part, ABC):
    """Axis ``pair_loss``."""

    beta: float = 0.1
    """Strength of the pull to the reference; larger stays nearer."""

    def check(self) -> None:
        self.require(self.beta > 0.0, "beta", "above 0")

    @abstractmethod
    def __call__(self, pairs: PairLogprobs) -> Tensor:
        """(N,) losses."""

    def rewards(self, pairs: PairLogprobs) -> tuple[Tensor, Tensor]:
        """(N,) implicit rewards beta (l - l_ref) of the preferred answers and of the others."""
        chosen, rejected = pairs.gaps()
        return self.beta * chosen, self.beta * rejected

    def margin(self, pairs: PairLogprobs) -> Tensor:
        """(N,) reward of the preferred answer minus that of the other one."""
        chosen, rejected = self.rewards(pairs)
        return chosen - rejected


@dataclass(frozen=True)
class Dpo(PairLoss):
    """Direct preference optimisation: the Bradley-Terry likelihood of implicit rewards."""

    formula: ClassVar[str] = "-log sigma(beta [(l_c - l_ref_c) - (l_r - l_ref_r)])"
    source: ClassVar[str] = "Rafailov et al. 2023, arXiv 2305.18290, equation 7"

    def __call__(self, pairs: PairLogprobs) -> Tensor:
        return -logsigmoid(self.margin(pairs))


@dataclass(frozen=True)
class Ipo(PairLoss):
    """Identity preference optimisation: a squared distance, so no margin grows without end.

    ``average`` takes log-probabilities per token, as TRL does, else sums.
    """

    average: bool = True

    formula: ClassVar[str] = "([(l_c - l_ref_c) / n_c - (l_r - l_ref_r) / n_r] - 1 / (2 beta))^2"
    source: ClassVar[str] = (
        "Azar et al. 2023, arXiv 2310.12036, equation 17; per token as in TRL's DPOTrainer"
    )

    def __call__(self, pairs: PairLogprobs) -> Tensor:
        chosen, rejected = pairs.gaps(self.average)
        return (chosen - rejected - 1 / (2 * self.beta)) ** 2


@dataclass(frozen=True)
class ConservativeDpo(PairLoss):
    """DPO with smoothed labels: a share of the pairs is taken to be the wrong way round."""

    label_smoothing: float = 0.1

    formula: ClassVar[str] = (
        "-(1 - label_smoothing) log sigma(h) - label_smoothing log sigma(-h),  "
        "h = beta [(l_c - l_ref_c) - (l_r - l_ref_r)]"
    )
    source: ClassVar[str] = (
        "Mitchell 2023, A note on DPO with noisy preferences & relationship to IPO"
    )

    def check(self) -> None:
        super().check()
        self.require(0.0 <= self.label_smoothing < 0.5, "label_smoothing", "from 0, below 0.5")

    def __call__(self, pairs: PairLogprobs) -> Tensor:
        h, s = self.margin(pairs), self.label_smoothing
        return -(1 - s) * logsigmoid(h) - s * logsigmoid(-h)


@dataclass(frozen=True)
class RobustDpo(ConservativeDpo):
    """DPO whose expected loss under flipped labels is the loss without flips."""

    formula: ClassVar[str] = (
        "[-(1 - label_smoothing) log sigma(h) + label_smoothing log sigma(-h)] "
        "/ (1 - 2 label_smoothing),  h = beta [(l_c - l_ref_c) - (l_r - l_ref_r)]"
    )
    source: ClassVar[str] = "Chowdhury et al. 2024, arXiv 2403.00409"

    def __call__(self, pairs: PairLogprobs) -> Tensor:
        h, s = self.margin(pairs), self.label_smoothing
        return (-(1 - s) * logsigmoid(h) + s * logsigmoid(-h)) / (1 - 2 * s)
