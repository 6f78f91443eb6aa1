"""Normalisation of advantages over the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from crlbench.algo.masked import masked_mean, masked_var, masked_whiten, select
from crlbench.algo.part import Part
from crlbench.algo.signal import GroupStats, Signal, centred, left_out


@dataclass(frozen=True)
class Normalizer(Part, ABC):
    """Axis ``normalize``."""

    needs_group: ClassVar[bool] = False
    """Whether a single completion per prompt would teach nothing."""
    credits_steps: ClassVar[bool] = False
    """Whether step rewards keep their weight where all outcomes are equal."""

    @abstractmethod
    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        """(normalised advantages, counts), 0 where not ``mask``.

        ``advantages`` (B, T); ``mask`` (B, T) bool is ``signal.mask`` without the rows that
        the sample filter removed; ``signal`` holds raw rewards and groups for part-specific
        statistics.
        """


@dataclass(frozen=True)
class NoNorm(Normalizer):
    """Advantages as they are."""

    credits_steps: ClassVar[bool] = True
    formula: ClassVar[str] = "A"

    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        return select(mask, advantages), {}


@dataclass(frozen=True)
class GroupStd(Normalizer):
    """Divided by the standard deviation of the outcome rewards of the same prompt.

    The KL penalty has no part in it: where all outcomes are equal it would be scaled up to a
    signal of its own. Uniform groups and groups of one get 0; ``uniform_rows`` counts them.
    ``floor`` is the smallest variance that any other group is taken to have.
    """

    ddof: int = 1
    eps: float = 1e-6
    floor: float = 0.0

    needs_group: ClassVar[bool] = True
    formula: ClassVar[str] = "A / (std_{j in group(i)} R_j + eps)"
    source: ClassVar[str] = "GRPO (Shao et al. 2024, arXiv 2402.03300); ddof and eps as in verl"

    def check(self) -> None:
        self.require(self.ddof in (0, 1), "ddof", "0 or 1")
        self.require(self.eps > 0.0, "eps", "above 0")
        self.require(self.floor >= 0.0, "floor", "0 or above")

    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        stats = GroupStats.of(signal.rewards, signal.counted, signal.group, self.ddof)
        scaled = advantages / (stats.var.clamp(min=self.floor).sqrt() + self.eps)[:, None]
        spread = mask & ~stats.uniform[:, None]
        uniform = float((stats.uniform & signal.valid).sum())
        return select(spread, scaled), {"uniform_rows": uniform}


@dataclass(frozen=True)
class BatchStd(Normalizer):
    """Divided by one standard deviation over all completions of the batch.

    ``of`` says of what: the ``raw`` outcome rewards, these ``centred`` on their group's mean, or
    the ``leave_one_out`` advantages (of everything earned, as in TRL). 0 where it does not vary.
    """

    of: Literal["raw", "centred", "leave_one_out"] = "raw"
    ddof: int = 1
    eps: float = 1e-6

    formula: ClassVar[str] = "A / (std_j R_j + eps)   (all completions of the batch)"
    source: ClassVar[str] = "Lite PPO (Liu et al. 2025, arXiv 2508.08221); raw rewards as in ROLL"

    @property
    def needs_group(self) -> bool:  # type: ignore[override]
        return self.of != "raw"

    def check(self) -> None:
        self.require(self.ddof in (0, 1), "ddof", "0 or 1")
        self.require(self.eps > 0.0, "eps", "above 0")

    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        valid, group, counted = signal.valid, signal.group, signal.counted
        x = {
            "raw": lambda: signal.rewards,
            "centred": lambda: centred(signal.rewards, valid, group, counted),
            "leave_one_out": lambda: left_out(signal.totals, valid, group, counted),
        }[self.of]()
        stats = GroupStats.of(x, counted, group.new_zeros(group.shape), self.ddof)
        if bool((stats.var == 0).all()):
            return select(mask, advantages * 0.0), {"uniform_rows": float(valid.sum())}
        scaled = advantages / (stats.var.sqrt() + self.eps)[:, None]
        return select(mask, scaled), {"uniform_rows": 0.0}


@dataclass(frozen=True)
class Whiten(Normalizer):
    """Zero mean and unit variance over all valid tokens of the batch.

    ``shift_mean = false`` keeps the mean, ``divide = false`` the spread. Skipped and counted
    (``whitening_skipped``) where at most ``ddof`` tokens are valid. ``eps`` is added to the
    variance, or to the standard deviation (``std``), or is the smallest variance (``floor``).
    """

    ddof: int = 1
    eps: float = 1e-8
    shift_mean: bool = True
    divide: bool = True
    eps_place: Literal["var", "std", "floor"] = "var"

    credits_steps: ClassVar[bool] = True
    formula: ClassVar[str] = "(A - mean) / sqrt(var + eps), over all valid tokens of the batch"
    source: ClassVar[str] = "Ziegler et al. 2019, arXiv 1909.08593; ddof 1 as in TRL and verl"

    def check(self) -> None:
        self.require(self.ddof in (0, 1), "ddof", "0 or 1")
        self.require(self.eps > 0.0, "eps", "above 0")

    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        if int(mask.sum()) <= self.ddof:
            return select(mask, advantages), {"whitening_skipped": 1.0}
        if self.divide:
            advantages = masked_whiten(
                advantages,
                mask,
                ddof=self.ddof,
                eps=self.eps,
                eps_place=self.eps_place,
                shift_mean=self.shift_mean,
            )
        elif self.shift_mean:
            advantages = advantages - masked_mean(advantages, mask)
        return select(mask, advantages), {"whitening_skipped": 0.0}


@dataclass(frozen=True)
class WhitenTurns(Normalizer):
    """Zero mean and unit variance over all turns of the batch, each of which counts once.

    The number of a turn is the mean over its tokens, so the length of a turn has no weight.
    Skipped and counted (``whitening_skipped``) where at most ``ddof`` turns are valid. ``eps`` is
    added to the standard deviation.
    """

    ddof: int = 1
    eps: float = 1e-8

    credits_steps: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "(A - mean_k A_k) / (std_k A_k + eps),  A_k = mean of A over the tokens of turn k"
    )
    source: ClassVar[str] = (
        "StepPO (arXiv 2604.18401) and PaperScout (arXiv 2601.10029), as in Agent-R1: over rows of "
        "one turn each"
    )

    def check(self) -> None:
        self.require(self.ddof in (0, 1), "ddof", "0 or 1")
        self.require(self.eps > 0.0, "eps", "above 0")

    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        turns = signal.turns
        tokens = turns.total(mask.double())
        kept = tokens > 0
        if int(kept.sum()) <= self.ddof:
            return select(mask, advantages), {"whitening_skipped": 1.0}
        of_turns = turns.total(select(mask, advantages).double()) / tokens.clamp(min=1)
        scale = masked_var(of_turns, kept, self.ddof).sqrt() + self.eps
        whitened = (advantages - masked_mean(of_turns, kept)) / scale
        return select(mask, whitened), {"whitening_skipped": 0.0}
