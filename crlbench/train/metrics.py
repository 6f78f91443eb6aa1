"""Figures of a rollout as torchmetrics.

Every rank of a run computes them from the whole iteration, so they are not reduced over ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric, MetricCollection, SumMetric

from crlbench.algo.kl import K1, K2, K3, KlEstimator
from crlbench.algo.masked import select
from crlbench.algo.observe import Observation
from crlbench.contract.dynamics import ROLLOUT_STATS
from crlbench.train.buffer import Sampled
from crlbench.train.reward import Reward, said_by_row
from crlbench.types import Experience, Rollout

RIGHT = 0.5
"""Verifier score from which a completion is right."""
GRAM = 4
"""Tokens in a row that count as a repetition."""
SPLIT = ("length", "truncated", "repetition")
"""Figures that are also given for right and for wrong completions."""
REFERENCE_KL: dict[str, KlEstimator] = {
    "reference_kl": K1(),
    "reference_kl_k2": K2(),
    "reference_kl_k3": K3(output_clamp=None),
}
SUMS = {"tokens", "bytes"}
MEANS = ROLLOUT_STATS.keys() - SUMS - {"kl_per_completion", "kl_coefficient"}
"""All figures of completions; the two of the KL are the recipe's."""


class RolloutMetrics(MetricCollection):
    """Figures of one iteration's completions; NaN where there is nothing to average.

    ``reward`` is the reward paid, before any shaping; ``group_variance`` is the mean over
    prompts of the variance (divided by G) of the verifier's scores, ``uniform_groups`` the share
    of prompts whose scores are all equal; both leave out prompts with an undefined score.
    ``behavior_gap`` covers the tokens of the iteration's first minibatch, ``reference_kl``
    the completions whose log-probs the start model computed, and
    ``explained_variance`` those of the iteration's update.
    """

    def __init__(self) -> None:
        figures: dict[str, Metric | MetricCollection] = {
            name: MeanMetric(nan_strategy="ignore", sync_on_compute=False) for name in MEANS
        }
        super().__init__(figures | {name: SumMetric(sync_on_compute=False) for name in SUMS})

    def _apply(self, *_: Any, **__: Any) -> RolloutMetrics:
        """They stay on the host, where rollouts lie, wherever the learner goes."""
        return self

    def of(
        self,
        rollout: Rollout,
        reward: Reward,
        sampled: Sampled | None,
        experience: Experience | None,
        gap: Tensor,
        audit: Tensor | None = None,
    ) -> dict[str, float]:
        """The figures of one iteration: all completions, those that were kept (``sampled``), the
        update's.

        All rows of a trajectory are one completion, where the reward is paid on its last row.
        ``gap`` (n,) are the gaps between decoding and learner of the tokens compared; ``audit``
        (B,) are the scores of the second verifier, where there is one.
        """
        last, lengths = reward.is_last, rollout.action_mask.sum(dim=1).float()
        trajectory = None if reward.last is None else rollout.trajectory
        per_row = {
            "length": _sums(lengths, trajectory),
            "truncated": (~rollout.finished).float()[last],
            "repetition": _means(
                repetition(rollout.completion_ids, rollout.action_mask), trajectory
            ),
        }
        score = reward.score[last]
        sides = {"right": score >= RIGHT, "wrong": score < RIGHT}
        variance = group_variance(score, rollout.group[last])
        values = per_row | {
            f"{name}_{side}": per_row[name][chosen]
            for name in SPLIT
            for side, chosen in sides.items()
        }
        values |= {
            "reward": reward.of_trajectories[last],
            "score": score,
            "audit": torch.zeros(0) if audit is None else audit[last],
            "group_variance": variance,
            "uniform_groups": (variance == 0).float()[variance.isfinite()],
            "behavior_gap": gap,
            "explained_variance": explained_variance(experience),
            "kept_fraction": kept_fraction(rollout, sampled, experience),
            **reference_kl(sampled),
            "tokens": lengths,
            "bytes": torch.tensor(
                [float(sum(len(t.encode()) for _, t in row)) for row in said_by_row(rollout)]
            ),
        }
        for name, value in values.items():
            self[name].update(value)
        figures = {name: float(value) for name, value in self.compute().items()}
        self.reset()
        return figures


def _sums(values: Tensor, trajectory: Tensor | None) -> Tensor:
    """Sums of values (B,) over the rows of each trajectory, in order of the trajectories."""
    if trajectory is None:
        return values
    names, place = trajectory.unique(return_inverse=True)
    return values.new_zeros(len(names)).index_add(0, place, values)


def _means(values: Tensor, trajectory: Tensor | None) -> Tensor:
    """Means of values (B,) over the rows of each trajectory, in order of the trajectories."""
    if trajectory is None:
        return values
    return _sums(values, trajectory) / _sums(torch.ones_like(values), trajectory)


def repetition(ids: Tensor, mask: Tensor) -> Tensor:
    """(B,) share of a row's 4-grams of tokens that occurred in it before; both are (B, T).

    A 4-gram is four tokens side by side, all where ``mask``: none reaches across what somebody
    else said in between. 0 for a completion of fewer than 5 tokens, which has no two 4-grams. The
    end token counts as a token.
    """
    shares = []
    for tokens, action in zip(ids.tolist(), mask.tolist(), strict=True):
        spans = (slice(i, i + GRAM) for i in range(len(tokens) - GRAM + 1))
        grams = [tuple(tokens[span]) for span in spans if all(action[span])]
        shares.append(1.0 - len(set(grams)) / len(grams) if grams else 0.0)
    return torch.tensor(shares, device=ids.device)


def group_variance(scores: Tensor, group: Tensor) -> Tensor:
    """(P,) variance (divided by G) of the scores (B,) of each group; exactly 0 if all are equal."""
    return torch.stack([_variance(scores[group == g]) for g in group.unique()])


def _variance(scores: Tensor) -> Tensor:
    # A mean of equal numbers can round off them; the difference to one of them cannot.
    return (scores.double() - scores[0].double()).var(correction=0)


def reference_kl(sampled: Sampled | None) -> dict[str, Tensor]:
    """KL estimates of the sampling policy and the start model, one per token."""
    if sampled is None or sampled.start is None:
        return {name: torch.zeros(0) for name in REFERENCE_KL}
    mask = sampled.rollout.action_mask
    old, start = select(mask, sampled.old), select(mask, sampled.start)
    return {name: estimator(old, start)[mask] for name, estimator in REFERENCE_KL.items()}


def kept_fraction(
    rollout: Rollout, sampled: Sampled | None, experience: Experience | None
) -> Tensor:
    """Share of the iteration's completions that the filters leave to an update."""
    if experience is not None and len(experience.keep) == len(rollout.texts):
        return experience.keep.float().mean()
    return torch.tensor((len(sampled.rollout.texts) if sampled else 0) / len(rollout.texts))


def explained_variance(experience: Experience | None) -> Tensor:
    """1 - Var(return - value) / Var(return) over the valid tokens at which the critic learns; 0
    where the returns are equal.

    Empty where no update was made, or without a critic.
    """
    if experience is None or experience.values is None or experience.returns is None:
        return torch.zeros(0)
    mask = experience.rollout.action_mask & experience.keep[:, None]
    if experience.value_mask is not None:
        mask = mask & experience.value_mask
    returns, values = experience.returns[mask].double(), experience.values[mask].double()
    if len(returns) < 2 or float(returns.var()) == 0.0:
        return torch.zeros(())
    return (1.0 - (returns - values).var() / returns.var()).float()


def clipped_tokens(observations: Iterable[Observation]) -> dict[str, Counter[int]]:
    """How often each token id was held back at the ``low`` and at the ``high`` bound."""
    counts: dict[str, Counter[int]] = {"low": Counter(), "high": Counter()}
    for observation in observations:
        for side, by_token in counts.items():
            by_token.update(observation.ids[getattr(observation, side)].tolist())
    return counts
