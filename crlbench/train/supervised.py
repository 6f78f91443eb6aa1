"""Supervised fine-tuning: demonstrations are imitated, token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crlbench.algo.supervised import SupervisedRecipe
from crlbench.contract.experience import Source
from crlbench.train.lessons import LessonBatch
from crlbench.train.offline import OfflineLearner
from crlbench.train.passes import Passes
from crlbench.types import Rollout


@dataclass(eq=False)
class Imitation:
    """The likelihood of a step's demonstrations, as the objective of the step."""

    rollout: Rollout
    passes: Passes
    recipe: SupervisedRecipe

    def parts(self) -> list[tuple[Tensor, bool]]:
        return self.passes.micro_batches(self.rollout, torch.arange(len(self.rollout.texts)))

    def losses(self, rows: Tensor) -> tuple[Mapping[str, Tensor], float]:
        part = self.rollout.rows(rows)
        part = part.trimmed(int(part.completion_mask.sum(1).max()))
        loss = self.recipe.likelihood(
            self.passes.with_graph(part).logprobs,
            part.action_mask,
            len(self.rollout.texts),
            int(self.rollout.action_mask.sum()),
        )
        return {"likelihood": loss}, float(loss.detach())

    def figures(self, shown: Sequence[float]) -> dict[str, float]:
        return {"loss": sum(shown)}


class SupervisedTuning(OfflineLearner):
    """Supervised fine-tuning of a language model under a frozen recipe and conditions."""

    source: Source = "demonstrations"

    def __init__(self, *, recipe: SupervisedRecipe, **settings: Any) -> None:
        """``settings`` are those of :class:`OfflineLearner`."""
        super().__init__(**settings)
        self.recipe = recipe

    def objective(self, batch: LessonBatch, rows: Tensor) -> Imitation:
        return Imitation(batch.rollout.rows(rows), self.passes, self.recipe)
