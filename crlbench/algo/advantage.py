"""Advantage estimators: how credit reaches tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.part import Part
from crlbench.algo.signal import Signal, centred, left_out
from crlbench.algo.token_rewards import place_outcome


@dataclass(frozen=True)
class AdvantageEstimator(Part, ABC):
    """Axis ``advantage``."""

    needs_critic: ClassVar[bool] = False
    needs_final_values: ClassVar[bool] = False
    """Whether the critic's values after the last token are needed."""
    needs_group: ClassVar[bool] = False
    """Whether a single completion per prompt would teach nothing."""
    credits_steps: ClassVar[bool] = False
    """Whether a step reward reaches the tokens up to its step and no others."""
    values_turns: ClassVar[bool] = False
    """Whether the critic estimates turns: it learns at the first token of a turn alone."""

    @property
    def credits_turns(self) -> bool:
        """Whether the reward of a turn reaches the turns up to it and no others."""
        return self.credits_steps

    @abstractmethod
    def __call__(self, signal: Signal) -> tuple[Tensor, Tensor | None]:
        """(advantages (B, T), value targets (B, T) or None); 0 where ``signal.mask`` is False."""


@dataclass(frozen=True)
class Gae(AdvantageEstimator):
    """Generalised advantage estimation (Schulman et al. 2015, arXiv 1506.02438).

    The recursion runs over valid tokens only, so tokens of others inside a completion are
    skipped, and from the last token of a row to the first of the next row of its trajectory. A
    cut-off completion counts as ended unless ``bootstrap_truncated``, which needs the critic's
    value of the state after the last token.
    """

    gamma: float = 1.0
    lam: float = 0.95
    bootstrap_truncated: bool = False

    needs_critic: ClassVar[bool] = True
    credits_steps: ClassVar[bool] = True

    @property
    def needs_final_values(self) -> bool:  # type: ignore[override]
        return self.bootstrap_truncated

    formula: ClassVar[str] = (
        "delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lam A_{t+1};  "
        "return_t = A_t + V_t   (t+1: the next valid token; 0 after the last)"
    )
    source: ClassVar[str] = "Schulman et al. 2015, arXiv 1506.02438, eq. 16"

    def check(self) -> None:
        self.require(0.0 <= self.gamma <= 1.0, "gamma", "between 0 and 1")
        self.require(0.0 <= self.lam <= 1.0, "lam", "between 0 and 1")

    def __call__(self, signal: Signal) -> tuple[Tensor, Tensor]:
        if signal.values is None:
            raise ValueError("Gae needs the critic's values")
        line, after = signal.timeline, None
        if self.bootstrap_truncated:
            if signal.final_values is None:
                raise ValueError("Gae(bootstrap_truncated=True) needs final_values")
            after = line.at_end(select(signal.truncated & signal.valid, signal.final_values))
        rewards, values = line.gather(signal.token_rewards), line.gather(signal.values)
        advantages, returns = gae(rewards, values, line.mask, self.gamma, self.lam, after)
        return line.scatter(advantages), line.scatter(returns)


def gae(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float,
    after: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(advantages, returns), both (B, T) in the dtype of ``values``, 0 where not ``mask``.

    ``token_rewards`` and ``values`` are (B, T), ``mask`` (B, T) bool; ``after`` (B,) is the
    value of the state after the last token, 0 if None. Computed in float64.
    """
    rewards, v = select(mask, token_rewards).double(), select(mask, values).double()
    next_value = torch.zeros_like(v[:, :1]).squeeze(1) if after is None else after.double()
    next_advantage = torch.zeros_like(next_value)
    advantages = torch.zeros_like(v)
    for t in reversed(range(v.shape[1])):
        delta = rewards[:, t] + gamma * next_value - v[:, t]
        advantage = delta + gamma * lam * next_advantage
        advantages[:, t] = select(mask[:, t], advantage)
        next_value = torch.where(mask[:, t], v[:, t], next_value)
        next_advantage = torch.where(mask[:, t], advantage, next_advantage)
    return advantages.to(values.dtype), (advantages + v).to(values.dtype)


@dataclass(frozen=True)
class RewardToGo(AdvantageEstimator):
    """The discounted rewards from a token on, without a baseline (REINFORCE)."""

    gamma: float = 1.0

    credits_steps: ClassVar[bool] = True
    formula: ClassVar[str] = "A_t = sum_{s >= t} gamma^(s-t) r_s"
    source: ClassVar[str] = "Williams 1992, doi 10.1007/BF00992696; Sutton et al. 1999"

    def check(self) -> None:
        self.require(0.0 <= self.gamma <= 1.0, "gamma", "between 0 and 1")

    def __call__(self, signal: Signal) -> tuple[Tensor, None]:
        return to_go(signal, signal.token_rewards, self.gamma), None


@dataclass(frozen=True)
class Baselined(AdvantageEstimator, ABC):
    """The reward of a trajectory minus a baseline, the same for all of its tokens.

    A completion of a single turn is a trajectory. Each trajectory counts once in the baseline, in
    whatever rows it lies.

    What a completion earns beside its outcome (KL penalty, step rewards) is by default part of
    that reward, so the baseline sees it too. With ``penalty = "token"`` the baseline sees the
    outcome alone, and the rest reaches each token as reward-to-go.
    """

    penalty: Literal["completion", "token"] = "completion"

    @property
    def credits_steps(self) -> bool:  # type: ignore[override]
        return self.penalty == "token"

    @abstractmethod
    def above_baseline(self, rewards: Tensor, signal: Signal) -> Tensor:
        """(B,): ``rewards`` (B,) minus the baseline, 0 in rows that are not valid."""

    def __call__(self, signal: Signal) -> tuple[Tensor, None]:
        if self.penalty == "completion":
            rows = self.above_baseline(signal.totals, signal)
            return select(signal.mask, rows[:, None].expand(signal.mask.shape)), None
        rows, line = self.above_baseline(signal.rewards, signal), signal.timeline
        outcome = line.scatter(place_outcome(line.at_end(signal.rewards), line.mask))
        later = to_go(signal, signal.token_rewards - outcome, 1.0)
        return select(signal.mask, rows[:, None] + later), None


@dataclass(frozen=True)
class GroupMean(Baselined):
    """Against the mean of the completions of the same prompt; exactly 0 if all are equal."""

    needs_group: ClassVar[bool] = True
    formula: ClassVar[str] = "A_i = R_i - mean_{j in group(i)} R_j"
    source: ClassVar[str] = "GRPO (Shao et al. 2024, arXiv 2402.03300), section 4.1.2"

    def above_baseline(self, rewards: Tensor, signal: Signal) -> Tensor:
        return centred(rewards, signal.valid, signal.group, signal.counted)


@dataclass(frozen=True)
class LeaveOneOut(Baselined):
    """Against the mean of the other completions of the same prompt; 0 if there are none."""

    needs_group: ClassVar[bool] = True
    formula: ClassVar[str] = "A_i = R_i - mean_{j in group(i), j != i} R_j"
    source: ClassVar[str] = "Kool et al. 2019; RLOO (Ahmadian et al. 2024, arXiv 2402.14740)"

    def above_baseline(self, rewards: Tensor, signal: Signal) -> Tensor:
        return left_out(rewards, signal.valid, signal.group, signal.counted)


@dataclass(frozen=True)
class BatchMean(Baselined):
    """Against the mean of all completions of the batch."""

    formula: ClassVar[str] = "A_i = R_i - mean_j R_j   (all completions of the batch)"
    source: ClassVar[str] = "Williams 1992; Liu et al. 2025, arXiv 2508.08221, section 4.1"

    def above_baseline(self, rewards: Tensor, signal: Signal) -> Tensor:
        return centred(rewards, signal.valid, torch.zeros_like(signal.group), signal.counted)


@dataclass(frozen=True)
class StepGae(AdvantageEstimator):
    """Generalised advantage estimation over turns: a turn is one action, the same for its tokens.

    The reward of a turn is the sum of its tokens' rewards, its value the critic's before its first
    token, at which alone the critic learns.
    """

    gamma: float = 1.0
    lam: float = 1.0

    needs_critic: ClassVar[bool] = True
    values_turns: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "r_k = sum of r_t over turn k, V_k = V at its first token;  "
        "delta_k = r_k + gamma V_{k+1} - V_k;  A_k = delta_k + gamma lam A_{k+1};  "
        "return_k = A_k + V_k   (0 after the last turn)"
    )
    source: ClassVar[str] = (
        "StepPO (arXiv 2604.18401) and Agent-R1 (arXiv 2511.14460), compute_gae_advantage_return"
    )

    @property
    def credits_turns(self) -> bool:
        return True

    def check(self) -> None:
        self.require(0.0 <= self.gamma <= 1.0, "gamma", "between 0 and 1")
        self.require(0.0 <= self.lam <= 1.0, "lam", "between 0 and 1")

    def __call__(self, signal: Signal) -> tuple[Tensor, Tensor]:
        if signal.values is None:
            raise ValueError("StepGae needs the critic's values")
        turns = signal.turns
        rewards, values = turns.total(signal.token_rewards), turns.at_start(signal.values)
        advantages, returns = gae(rewards, values, turns.mask, self.gamma, self.lam)
        return turns.spread(advantages), turns.spread(returns)


@dataclass(frozen=True)
class TurnToGo(AdvantageEstimator):
    """The rewards of a turn and of those after it, discounted by turn, without a baseline."""

    gamma: float = 1.0

    formula: ClassVar[str] = "A_k = sum_{j >= k} gamma^(j-k) r_j,  r_j = sum of r_t over turn j"
    source: ClassVar[str] = "SPIRAL (arXiv 2506.24119), whose discount counts an agent's own turns"

    @property
    def credits_turns(self) -> bool:
        return True

    def check(self) -> None:
        self.require(0.0 <= self.gamma <= 1.0, "gamma", "between 0 and 1")

    def __call__(self, signal: Signal) -> tuple[Tensor, None]:
        turns = signal.turns
        rewards = turns.total(signal.token_rewards)
        return turns.spread(rewards_to_go(rewards, turns.mask, self.gamma)), None


@dataclass(frozen=True)
class AnchorState(AdvantageEstimator):
    """A trajectory against its group, plus ``weight`` times a turn against those of its state.

    The second part compares what turns earned from then on, discounted by turn, among all turns
    of the group that were said in one state; it is 0 for a turn that is alone in its state. A first
    turn whose state is unknown stands in the start of its group, any other alone. Neither part is
    divided by a deviation.
    """

    weight: float = 1.0
    gamma: float = 0.95

    needs_group: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "A_k = R_i - mean_{j in group(i)} R_j + weight (G_k - mean_{m: state m = state k} G_m),  "
        "G_k = sum_{j >= k} gamma^(j-k) r_j"
    )
    source: ClassVar[str] = "GiGPO (Feng et al. 2025, arXiv 2505.10978), with F_norm = 1"

    def check(self) -> None:
        self.require(self.weight >= 0.0, "weight", "0 or above")
        self.require(0.0 <= self.gamma <= 1.0, "gamma", "between 0 and 1")

    def __call__(self, signal: Signal) -> tuple[Tensor, None]:
        rows = centred(signal.totals, signal.valid, signal.group, signal.counted)
        turns = signal.turns
        later = rewards_to_go(turns.total(signal.token_rewards), turns.mask, self.gamma)
        valid = turns.mask.reshape(-1)
        of_state = centred(later.reshape(-1), valid, anchors(signal).reshape(-1))
        steps = turns.spread(of_state.view_as(later))
        return select(signal.mask, rows[:, None] + self.weight * steps), None


def anchors(signal: Signal) -> Tensor:
    """(n, K) int64: turns of one group that were said in one state have the same number."""
    turns = signal.turns
    group = turns.at_start(signal.group[:, None].expand(signal.mask.shape))
    place = torch.arange(turns.mask.numel(), device=group.device).view(turns.mask.shape)
    state = torch.full_like(place, -1)
    if signal.state is not None:
        state = turns.at_start(signal.state)
    alone = (state < 0) & (place % turns.mask.shape[1] > 0)
    keys = torch.stack([group, state.clamp(min=-1), torch.where(alone, place, -1)], -1)
    return torch.unique(keys.view(-1, 3), dim=0, return_inverse=True)[1].view(place.shape)


def to_go(signal: Signal, x: Tensor, gamma: float) -> Tensor:
    """(B, T) float64: :func:`rewards_to_go` of ``x`` (B, T) along each trajectory."""
    line = signal.timeline
    return line.scatter(rewards_to_go(line.gather(x), line.mask, gamma))


def rewards_to_go(token_rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """(B, T) float64: discounted sums over the valid tokens from each one on; 0 if masked."""
    rewards = select(mask, token_rewards).double()
    total, later = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        later = torch.where(mask[:, t], rewards[:, t] + gamma * later, later)
        total[:, t] = select(mask[:, t], later)
    return total
