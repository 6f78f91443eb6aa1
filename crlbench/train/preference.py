"""Preference optimisation: pairs of answers are pulled apart, measured against a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.pairs.loss import PairLogprobs
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.preference import pair_accuracy
from crlbench.contract.experience import Source
from crlbench.train.frozen import Followed, FrozenPolicy, Weights, held
from crlbench.train.learner import Objective
from crlbench.train.lessons import LessonBatch
from crlbench.train.offline import OfflineLearner
from crlbench.train.passes import Passes
from crlbench.types import Rollout

KEPT = "kept_mass"


@dataclass(frozen=True)
class Known:
    """Log-probabilities of whole answers that do not change during an iteration, each (B,) float32.

    NaN until the first pass of an answer finds it: by the same rows, padding and precision as the
    learner's own, so that an unchanged policy has no margin but rounding.
    """

    reference: Tensor
    start: Tensor

    @staticmethod
    def nothing(rows: int) -> Known:
        return Known(torch.full((rows,), math.nan), torch.full((rows,), math.nan))


@dataclass(frozen=True)
class PairsShown:
    """What the pass over n pairs showed; each (n,) but ``rows``, ``reference`` and ``start``."""

    rows: Tensor
    """(2n,) int64: places of the answers in the iteration."""
    reference: Tensor
    """(2n,) log-probabilities of the answers under the reference."""
    start: Tensor
    """(2n,) the same under the start."""
    losses: Tensor
    margins: Tensor
    chosen: Tensor
    rejected: Tensor
    kept: Tensor
    """Logarithm of pi(chosen) + pi(rejected), minus that of the start."""


@dataclass(eq=False)
class PairObjective:
    """The mean loss of a step's pairs; both answers of a pair are in one pass."""

    rollout: Rollout
    """The answers of the step; those of a pair stand together."""
    preferred: Tensor
    """(2N,) bool: one answer of each pair."""
    rows: Tensor
    """(2N,) int64: their places in the iteration."""
    passes: Passes
    recipe: PairRecipe
    reference: FrozenPolicy
    start: FrozenPolicy
    known: Known
    """Of the whole iteration; passes complete it."""

    def parts(self) -> list[tuple[Tensor, bool]]:
        return self.passes.micro_batches(
            self.rollout, torch.arange(len(self.rollout.texts)), whole_prompts=True
        )

    def losses(self, rows: Tensor) -> tuple[Mapping[str, Tensor], PairsShown]:
        part = self.rollout.rows(rows)
        part = part.trimmed(int(part.completion_mask.sum(1).max()))
        mask, places = part.action_mask, self.rows[rows]
        reference, start = self.frozen(part, places)
        new = select(mask, self.passes.with_graph(part).logprobs).sum(1)
        counts = mask.sum(1).to(new.dtype)
        sides = self.preferred[rows]
        pairs = PairLogprobs(*halves(new, sides), *halves(reference, sides), *halves(counts, sides))
        losses = self.recipe.losses(pairs)
        margins = self.recipe.pair_loss.margin(pairs).detach()
        chosen, rejected = halves(new.detach(), sides)
        kept = torch.logaddexp(chosen, rejected) - torch.logaddexp(*halves(start, sides))
        shown = PairsShown(
            places, reference, start, losses.detach(), margins, chosen, rejected, kept
        )
        return {"pairs": losses.sum() / (len(self.rows) // 2)}, shown

    def frozen(self, part: Rollout, places: Tensor) -> tuple[Tensor, Tensor]:
        """(2n,) log-probabilities of the answers under the reference, and under the start."""
        reference, start = self.known.reference[places], self.known.start[places]
        if bool(reference.isnan().any()):
            mask = part.action_mask
            reference = select(mask, self.reference.logprobs(self.passes, part)).sum(1)
            start = reference
            if self.start is not self.reference:
                start = select(mask, self.start.logprobs(self.passes, part)).sum(1)
        return reference, start

    def figures(self, shown: Sequence[PairsShown]) -> dict[str, float]:
        """Means over the pairs of the step; ``kept_mass`` is still a logarithm."""
        for part in shown:
            self.known.reference[part.rows] = part.reference
            self.known.start[part.rows] = part.start

        def mean(name: str) -> float:
            return float(torch.cat([getattr(part, name) for part in shown]).double().mean())

        margins = torch.cat([part.margins for part in shown])
        return {
            "loss": mean("losses"),
            "margin": mean("margins"),
            "pair_accuracy": float(pair_accuracy(margins, torch.zeros_like(margins))),
            "chosen_logp": mean("chosen"),
            "rejected_logp": mean("rejected"),
            KEPT: mean("kept"),
        }


class PreferenceOptimization(OfflineLearner):
    """Preference optimisation of a language model under a frozen recipe and conditions."""

    source: Source = "pairs"

    def __init__(
        self,
        *,
        recipe: PairRecipe,
        reference: Weights | None = None,
        **settings: Any,
    ) -> None:
        """``settings`` are those of :class:`OfflineLearner`.

        Args:
            reference: weights of the first reference, as ``start`` has them; None for the start.
                A recipe whose reference moves begins with them.
        """
        super().__init__(**settings)
        self.recipe = recipe
        first = self.start if reference is None else held(reference)
        self.reference = Followed(recipe.reference, first)
        self.known = Known.nothing(0)

    def begin(self, batch: LessonBatch) -> None:
        self.reference.begin(batch.iteration, self.conditions.budget.iterations, self.learned)
        self.known = Known.nothing(len(batch.rollout.texts))

    def objective(self, batch: LessonBatch, rows: Tensor) -> PairObjective:
        return PairObjective(
            batch.rollout.rows(rows),
            batch.preferred[rows],
            rows,
            self.passes,
            self.recipe,
            self.reference.policy,
            self.start,
            self.known,
        )

    def charge_reference(self, objective: PairObjective) -> None:
        """Charge the pass of the reference over answers that it has not read yet.

        What the start says of them is only watched: the benchmark's cost.
        """
        unknown = self.known.reference[objective.rows].isnan()
        if self.meter is not None and bool(unknown.any()):
            rows = unknown.nonzero().squeeze(1)
            self.meter.read(objective.rollout.rows(rows), "reference")

    def step(self, objective: Objective) -> dict[str, float]:
        """One step, after which an averaged reference follows."""
        assert isinstance(objective, PairObjective)
        self.charge_reference(objective)
        figures = super().step(objective)
        if self.reference.follow(self.learned):
            # What was known is of the reference before.
            self.known.reference.fill_(math.nan)
        return figures

    def figures(self, stats: Sequence[Mapping[str, float]]) -> dict[str, float]:
        found = super().figures(stats)
        return found | {KEPT: math.exp(min(found[KEPT], 700.0))}

    # -- a reference that moves is a part of the checkpoint --------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint |= self.reference.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.reference.load(checkpoint)


def halves(values: Tensor, preferred: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) values of the preferred answers, and of the others, of (2n,) in the order of pairs."""
    return values[preferred], values[~preferred]
