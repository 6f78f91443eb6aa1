"""A replay: whole completions of the past, with what they were paid."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from crlbench.seeding import rng
from crlbench.types import Rollout


class Replay:
    """The last ``capacity`` completions; a checkpoint carries them."""

    def __init__(self, capacity: int, pad: int) -> None:
        """``pad`` is the token that fills narrower rows up."""
        self.capacity = capacity
        self.pad = pad
        self.rollout: Rollout | None = None
        self.rewards = torch.zeros(0)
        """(N,) float32, one of each completion."""

    def __len__(self) -> int:
        return len(self.rewards)

    def add(self, rollout: Rollout, rewards: Tensor) -> None:
        """Keep completions; the oldest make room. One without a defined reward is left out."""
        defined = rewards.isfinite().nonzero().squeeze(1)
        if not len(defined):
            return
        parts = [] if self.rollout is None else [self.rollout]
        joined = Rollout.concatenate([*parts, rollout.rows(defined)], self.pad)
        self.rewards = torch.cat([self.rewards, rewards[defined].float()])[-self.capacity :]
        kept = torch.arange(len(joined.texts))[-self.capacity :]
        rows = joined.rows(kept)
        self.rollout = rows.trimmed(int(rows.completion_mask.sum(1).max()))

    def draw(self, count: int, seed: int, *path: str | int) -> tuple[Rollout, Tensor]:
        """``count`` completions (all, where there are fewer) and their rewards, by a keyed draw.

        Raises:
            ValueError: the replay is empty.
        """
        if self.rollout is None:
            raise ValueError("Replay.draw: nothing was added")
        places = rng(seed, "replay", *path).sample(range(len(self)), min(count, len(self)))
        rows = torch.tensor(sorted(places))
        return self.rollout.rows(rows), self.rewards[rows]

    def state_dict(self) -> dict[str, Any]:
        """Tensors, texts and numbers only, so that a checkpoint loads with ``weights_only``."""
        rollout = None if self.rollout is None else asdict(self.rollout)
        return {"rollout": rollout, "rewards": self.rewards}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        stored = state["rollout"]
        self.rollout = None
        if stored is not None:
            on_host: dict[str, Any] = {
                n: v.cpu() if isinstance(v, Tensor) else v for n, v in stored.items()
            }
            self.rollout = Rollout(**on_host)
        self.rewards = state["rewards"].cpu()
