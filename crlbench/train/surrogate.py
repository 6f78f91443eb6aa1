"""A recipe's loss on one minibatch of experience, as the objective of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from crlbench.algo import objective
from crlbench.algo.aggregate import Totals
from crlbench.algo.observe import Observation, step_stats
from crlbench.algo.recipe import Recipe
from crlbench.train.passes import Passes
from crlbench.types import Experience, Rollout


@dataclass
class Shown:
    """What the passes of an iteration's updates showed."""

    observations: list[Observation] = field(default_factory=list)
    gap: Tensor = field(default_factory=lambda: torch.zeros(0))
    """(n,) absolute gaps between the log-probs of decoding and the learner's, one a token; of
    none but the iteration's first minibatch."""
    trained_tokens: int = 0
    """Action tokens of all steps so far."""


@dataclass(frozen=True)
class Seen:
    """What the pass over a micro-batch of b rows showed."""

    rows: Tensor
    """(b,) int64: places in the minibatch."""
    observation: Observation
    old: Tensor | None
    """(b, t) old log-probs, where the pass had to find them."""
    gap: Tensor
    """(n,) as in :class:`Shown`."""


@dataclass(eq=False)
class Surrogate:
    """The loss of a minibatch, whose parts share the denominators of the whole step."""

    minibatch: Experience
    """Experience into which the first pass puts old log-probs that are not known yet (NaN)."""
    passes: Passes
    recipe: Recipe
    kl_coefficient: float
    length_cap: int
    shown: Shown
    """What the passes show is added here."""

    @cached_property
    def totals(self) -> Totals:
        """The denominators of the whole step."""
        return Totals.of(self.minibatch, self.length_cap)

    def parts(self) -> list[tuple[Tensor, bool]]:
        """Micro-batches of the rows that teach."""
        rollout = self.minibatch.rollout
        taught = (self.minibatch.keep & rollout.action_mask.any(1)).nonzero().squeeze(1)
        return self.passes.micro_batches(rollout, taught)

    def losses(self, rows: Tensor) -> tuple[dict[str, Tensor], Seen]:
        """The recipe's loss of some rows (b,), with its graph."""
        part = self.minibatch.rows(rows).trimmed()
        outputs = self.passes.with_graph(part.rollout)
        new = outputs.logprobs.detach()
        unknown = bool(part.old_logprobs.isnan().any())
        if unknown:
            part = replace(part, old_logprobs=new)
        loss, observation = objective.loss(
            part,
            outputs.logprobs,
            outputs.values,
            outputs.entropy,
            self.recipe,
            self.totals,
            self.kl_coefficient,
        )
        gap = decoding_gap(part.rollout, new)
        if self.shown.observations:
            gap = gap[:0]
        return {"policy": loss}, Seen(rows, observation, new if unknown else None, gap)

    def figures(self, shown: Sequence[Seen]) -> dict[str, float]:
        """The figures of the step; what the passes of all ranks found is kept."""
        for part in shown:
            if part.old is not None:
                self.minibatch.old_logprobs[part.rows, : part.old.shape[1]] = part.old
        gaps = [part.gap for part in shown]
        self.shown.gap = torch.cat([self.shown.gap, *gaps])
        return self.note([part.observation for part in shown])

    def note(self, observations: list[Observation]) -> dict[str, float]:
        """Add what a step showed to that of the iteration; its figures."""
        self.shown.observations += observations
        self.shown.trained_tokens += int(self.minibatch.rollout.action_mask.sum())
        return step_stats(observations)


def decoding_gap(rollout: Rollout, logprobs: Tensor) -> Tensor:
    """(n,) absolute gaps between what decoding said of its tokens and ``logprobs`` (b, t)."""
    return (rollout.behavior_logprobs - logprobs).abs()[rollout.action_mask]
