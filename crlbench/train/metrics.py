"""Figures of a rollout as torchmetrics, so that they reduce over ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import MeanMetric, MetricCollection, SumMetric

from crlbench.train.reward import Reward
from crlbench.types import Experience


class RolloutMetrics(MetricCollection):
    """Per iteration: means over completions, and what was generated.

    ``reward`` mean outcome, ``score`` mean verifier score, ``truncated`` share cut off by the
    cap, ``length`` mean tokens, ``behavior_gap`` mean absolute gap between the log-probs of
    decoding and of the learner, ``explained_variance`` of the value head (0 without one),
    ``tokens`` and ``bytes`` generated.
    """

    def __init__(self) -> None:
        means = ("reward", "score", "truncated", "length", "behavior_gap", "explained_variance")
        super().__init__(
            {name: MeanMetric(nan_strategy="ignore") for name in means}
            | {name: SumMetric() for name in ("tokens", "bytes")}
        )

    def of(self, experience: Experience, reward: Reward) -> dict[str, float]:
        """The figures of one iteration."""
        rollout = experience.rollout
        lengths = rollout.completion_mask.sum(dim=1).float()
        gap = (rollout.behavior_logprobs - experience.old_logprobs).abs()
        self["reward"].update(experience.rewards)
        self["score"].update(reward.score)
        self["truncated"].update((~rollout.finished).float())
        self["length"].update(lengths)
        self["behavior_gap"].update(gap[rollout.action_mask])
        self["explained_variance"].update(explained_variance(experience))
        self["tokens"].update(lengths)
        self["bytes"].update(torch.tensor([float(len(t.encode())) for t in rollout.texts]))
        figures = {name: float(value) for name, value in self.compute().items()}
        self.reset()
        return figures


def explained_variance(experience: Experience) -> Tensor:
    """1 - Var(return - value) / Var(return) over valid tokens; 0 where it says nothing."""
    if experience.values is None or experience.returns is None:
        return torch.zeros(())
    mask = experience.rollout.action_mask & experience.keep[:, None]
    returns, values = experience.returns[mask].double(), experience.values[mask].double()
    if len(returns) < 2 or float(returns.var()) == 0.0:
        return torch.zeros(())
    return (1.0 - (returns - values).var() / returns.var()).float()
