"""Dynamic sampling: groups that may teach wait here until an update is due.

Nothing is trained off-policy: the weights do not change while a group waits, because an update
uses everything in the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from crlbench.algo.recipe import Recipe
from crlbench.algo.signal import Signal
from crlbench.algo.steps import sum_over
from crlbench.train.reward import Reward
from crlbench.types import Rollout, all_or_none, as_bool, joined


@dataclass(frozen=True)
class Sampled:
    """Completions with all that an update needs to know of them; B rows of at most T tokens."""

    rollout: Rollout
    reward: Reward
    old: Tensor
    """(B, T) float32 log-probs of the learner."""
    ref: Tensor | None
    """(B, T) float32 log-probs of the recipe's reference, or None where it has none."""
    start: Tensor | None
    """(B, T) float32 log-probs of the start model, or None where they were not computed."""
    values: Tensor | None = None
    """(B, T) float32 critic estimates, or None."""
    final_values: Tensor | None = None
    """(B,) float32 critic estimates of the state after the last token, or None."""

    @property
    def groups(self) -> int:
        """Number of prompts."""
        return len(self.rollout.group.unique())

    @staticmethod
    def concatenate(parts: Sequence[Sampled]) -> Sampled:
        """All rows of several, in order; the prompts of different parts stay distinct.

        ``start`` is left out where a part lacks it: the start model is watched only where an
        interval of the grid ends, while groups of several iterations wait.

        Raises:
            ValueError: some parts have a reference or estimates of a critic, and others have not.
        """
        old = joined([part.old for part in parts])
        start = [part.start for part in parts if part.start is not None]
        ref = all_or_none("Sampled.ref", [part.ref for part in parts])
        values = all_or_none("Sampled.values", [part.values for part in parts])
        final = all_or_none("Sampled.final_values", [part.final_values for part in parts])
        return Sampled(
            Rollout.concatenate([part.rollout for part in parts]),
            Reward.concatenate([part.reward for part in parts], old.shape[1]),
            old,
            None if ref is None else joined(ref),
            joined(start) if len(start) == len(parts) else None,
            None if values is None else joined(values),
            None if final is None else torch.cat(final),
        )


class SampleBuffer:
    """Kept groups of the present policy; empty between updates unless the recipe resamples."""

    def __init__(self) -> None:
        self.waiting: list[Sampled] = []

    @property
    def groups(self) -> int:
        """Prompts whose completions wait."""
        return sum(part.groups for part in self.waiting)

    def add(self, sampled: Sampled) -> None:
        self.waiting.append(sampled)

    def take(self) -> Sampled:
        """Everything that waits; the buffer is empty afterwards."""
        waiting, self.waiting = self.waiting, []
        return Sampled.concatenate(waiting)

    def state_dict(self) -> list[dict[str, Any]]:
        """Tensors, texts and numbers only, so that a checkpoint loads with ``weights_only``."""
        return [asdict(part) for part in self.waiting]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        self.waiting = [_restored(part) for part in state]


def kept_rows(rollout: Rollout, outcome: Tensor, recipe: Recipe) -> Tensor:
    """(b,) int64: all rows of the groups in which the recipe's filter keeps a completion.

    ``outcome`` (B,) is the reward before any shaping, NaN where undefined; that of a trajectory is
    the sum over its rows.
    """
    correctness = sum_over(outcome.double(), rollout.trajectory)
    mask = as_bool(rollout.action_mask)
    signal = Signal(
        rewards=correctness,
        token_rewards=torch.zeros(mask.shape, dtype=torch.float64, device=mask.device),
        mask=mask,
        group=rollout.group,
        truncated=~as_bool(rollout.finished),
        valid=torch.isfinite(correctness),
        correctness=correctness,
        trajectory=rollout.trajectory,
    )
    keep = recipe.select(signal) & signal.valid
    return torch.isin(rollout.group, rollout.group[keep]).nonzero().squeeze(1)


def _restored(part: dict[str, Any]) -> Sampled:
    """A part on the host, wherever it was stored from."""

    def moved(values: dict[str, Any]) -> dict[str, Any]:
        return {n: v.cpu() if isinstance(v, Tensor) else v for n, v in values.items()}

    rollout, reward = Rollout(**moved(part["rollout"])), Reward(**moved(part["reward"]))
    return Sampled(**moved(part) | {"rollout": rollout, "reward": reward})
