"""On-policy distillation: the policy samples, and a teacher says what it would have said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from crlbench.algo.distillation import DistillRecipe
from crlbench.base.heap import give_back
from crlbench.contract.charges import Coefficients
from crlbench.contract.dynamics import TEACHER_STATS, mean_stats
from crlbench.contract.experience import Source
from crlbench.policy.against import Against, compare_distributions
from crlbench.train.charging import charge_reading
from crlbench.train.passes import Passes
from crlbench.train.ranks import whole_weights
from crlbench.train.sampling import WatchedLearner
from crlbench.types import PromptBatch, Rollout


class FrozenTeacher(NamedTuple):
    """A model that is asked and never learns."""

    model: nn.Module
    """Causal language model; it moves to the learner's device with it."""
    coefficients: Coefficients
    """FLOPs of its passes."""


@dataclass(eq=False)
class Imitation:
    """The mean divergence from the teacher over a step's tokens, as the objective of the step."""

    rollout: Rollout
    passes: Passes
    recipe: DistillRecipe
    teacher: nn.Module

    def parts(self) -> list[tuple[Tensor, bool]]:
        return self.passes.micro_batches(self.rollout, torch.arange(len(self.rollout.texts)))

    def losses(self, rows: Tensor) -> tuple[Mapping[str, Tensor], Against]:
        part = self.rollout.rows(rows)
        part = part.trimmed(int(part.completion_mask.sum(1).max()))
        found = compare_distributions(
            self.passes.policy,
            self.teacher,
            self.passes.inputs(part),
            part.action_mask,
            self.recipe.divergence,
        )
        loss = found.divergence.sum() / int(self.rollout.action_mask.sum())
        return {"divergence": loss}, Against(*(x.detach() for x in found))

    def figures(self, shown: Sequence[Against]) -> dict[str, float]:
        def mean(name: str) -> float:
            return float(torch.cat([getattr(part, name) for part in shown]).double().mean())

        return {
            "loss": mean("divergence"),
            "entropy": mean("entropy"),
            "teacher_kl": mean("reverse_kl"),
            "teacher_agreement": mean("agreement"),
        }


class Distillation(WatchedLearner):
    """Distillation of a teacher on the policy's own completions; rewards are measured alone."""

    source: Source = "teacher"
    carried = (*WatchedLearner.carried, "teacher_tokens", "teacher_flops")

    def __init__(self, *, recipe: DistillRecipe, teacher: FrozenTeacher, **settings: Any) -> None:
        """``settings`` are those of :class:`~crlbench.train.sampling.SamplingLearner`."""
        super().__init__(**settings)
        self.recipe = recipe
        # In a tuple, so that its weights are no part of this module: no checkpoint holds them.
        self.teacher = teacher
        self.teacher_tokens = 0
        """Tokens that the teacher has read so far."""
        self.teacher_flops = 0
        """FLOPs of its passes so far."""

    def training_step(self, batch: PromptBatch, _: int) -> None:
        self.set_learning_rate(batch.iteration)
        with whole_weights(self.learning):
            collected = self.collect(batch)
            seen = self.look(collected, batch.iteration)
        give_back()
        rollout, stats, trained = collected.rollout, list[dict[str, float]](), 0
        model = self.teacher.model.to(self.device)
        for rows in self.shuffled(rollout.group, batch.iteration):
            some = rollout.rows(rows)
            stats.append(self.step(Imitation(some, self.passes, self.recipe, model)))
            trained += int(some.action_mask.sum())
            self.charge(some)
        self.close(
            batch,
            collected,
            seen,
            mean_stats(stats, TEACHER_STATS),
            losses=[step["loss"] for step in stats],
            skipped=sum(not math.isfinite(step["grad_norm"]) for step in stats),
            trained_tokens=trained,
            counts={},
        )
        give_back()

    def charge(self, rollout: Rollout) -> None:
        """Charge a step on completions: the pass of the teacher that it asked for, and its own."""
        asked = charge_reading(rollout, self.teacher.coefficients)
        self.teacher_tokens += asked.read_tokens
        self.teacher_flops += asked.flops
        if self.meter is not None:
            self.meter.read(rollout, "teacher")
            self.meter.train(rollout)
            self.meter.update(1)

    @property
    def other_cost(self) -> dict[str, int]:
        return {"teacher_tokens": self.teacher_tokens, "teacher_flops": self.teacher_flops}
