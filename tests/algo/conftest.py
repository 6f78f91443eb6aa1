"""Small batches as the algo room sees them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from crlbench.types import Rollout


@pytest.fixture
def rollout_of() -> Callable[..., Rollout]:
    """A rollout around an action mask; only the mask, groups and log-probs carry meaning."""

    def build(mask: Tensor, **overrides: object) -> Rollout:
        rows = mask.shape[0]
        given = {
            "prompt_ids": torch.zeros(rows, 1, dtype=torch.long),
            "prompt_mask": torch.ones(rows, 1, dtype=torch.bool),
            "completion_ids": torch.zeros(mask.shape, dtype=torch.long),
            "completion_mask": mask,
            "action_mask": mask,
            "behavior_logprobs": torch.full(mask.shape, -1.0),
            "group": torch.arange(rows) // 2,
            "finished": torch.ones(rows, dtype=torch.bool),
            "texts": [""] * rows,
        }
        return Rollout(**{**given, **overrides})

    return build
