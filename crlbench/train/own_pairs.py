"""Preference optimisation on pairs of the policy's own completions, sampled and judged on the way.

An iteration samples completions of its prompts, has them judged, and learns from the pairs that
they give. Rounds say who samples: without them the policy as it is (online), with R of them the
policy at the beginning of the present one of R equal parts of a run (iterative). Every pair is of
one iteration and is never used again in another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from crlbench.algo.reference import Round
from crlbench.base.heap import give_back
from crlbench.contract.experience import Source
from crlbench.policy.decode.loop import DrawKey
from crlbench.train.collect import Answers
from crlbench.train.frozen import HeldWeights, held
from crlbench.train.lessons import LessonBatch
from crlbench.train.preference import PreferenceOptimization
from crlbench.types import PromptBatch, Rollout


class PairMaker(Protocol):
    """Has completions judged, and pairs a better with a worse one."""

    def __call__(self, batch: PromptBatch, texts: Sequence[str]) -> list[tuple[int, int]]:
        """(preferred, other) rows of the completions, pairs of a prompt together.

        Args:
            batch: the prompts; ``completions_per_prompt`` texts are of each.
            texts: the completions, in row order.
        """
        ...


class OwnPairs(PreferenceOptimization):
    """Preference optimisation whose pairs the policy samples itself."""

    source: Source = "own-pairs"

    def __init__(self, *, judge: PairMaker, rounds: int | None, **settings: Any) -> None:
        """``settings`` are those of :class:`PreferenceOptimization`.

        Args:
            judge: makes pairs of completions.
            rounds: parts of a run in which one policy samples; None: every iteration is one.
        """
        super().__init__(**settings)
        self.judge = judge
        self.rounds = None if rounds is None else Round(rounds)
        self.sampling: HeldWeights | None = None
        """Who samples in the present round; None: the policy as it is."""
        self.completions: Rollout | None = None
        """All that the present iteration sampled."""

    def training_step(self, batch: PromptBatch, index: int) -> None:  # type: ignore[override]
        iterations, iteration = self.conditions.budget.iterations, batch.iteration
        if self.rounds is not None and (
            iteration == 0 or self.rounds.round_begins(iteration, iterations)
        ):
            self.sampling = held(self.learned())
        self.completions = self.sample(batch)
        if self.meter is not None:
            self.meter.sample(self.completions)
        give_back()
        pairs = self.judge(batch, self.completions.texts)
        lessons = lessons_of(batch, self.completions, pairs)
        if pairs:
            super().training_step(lessons, index)
            return
        self.set_learning_rate(iteration)
        self.begin(lessons)
        self.trained_tokens = 0
        self.finish_iteration(lessons, [])

    @torch.no_grad()
    def sample(self, batch: PromptBatch) -> Rollout:
        """Completions of the prompts by who samples in the present round."""
        assert isinstance(self.collector, Answers)  # chains are refused on other tasks
        with self.acting(self.sampling):
            key = DrawKey(self.seed, "rollout", batch.iteration)
            return self.collector.sampler.sample(self.learning, batch, key)

    @contextlib.contextmanager
    def acting(self, other: HeldWeights | None) -> Iterator[None]:
        """Let the policy act with other weights for a while."""
        if other is None:
            yield
            return
        mine = held(self.learned())
        self.put(other.weights)
        try:
            yield
        finally:
            self.put(mine.weights)

    @torch.no_grad()
    def put(self, weights: Mapping[str, Tensor]) -> None:
        """Give the policy all weights that learn."""
        for name, parameter in self.trainable().items():
            parameter.copy_(weights[name])

    def figures(self, stats: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return super().figures(stats) if stats else {}

    def finish_iteration(self, batch: LessonBatch, stats: Sequence[dict[str, float]]) -> None:
        """As for frozen pairs; completions, tokens and bytes are all that was sampled."""
        super().finish_iteration(batch, stats)
        assert self.completions is not None
        whole = self.completions
        sizes = {
            "tokens": float(whole.action_mask.sum()),
            "bytes": float(sum(len(text.encode()) for text in whole.texts)),
            "pairs": float(len(batch.uids)),
        }
        done = self.iteration
        self.last_iteration = replace(done, rollout=whole, health=done.health | sizes)

    # -- who samples is a part of the checkpoint -------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.sampling is not None:
            checkpoint["sampling"] = self.sampling.weights

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if "sampling" in checkpoint:
            self.sampling = HeldWeights(checkpoint["sampling"])


def lessons_of(
    batch: PromptBatch, completions: Rollout, pairs: Sequence[tuple[int, int]]
) -> LessonBatch:
    """Pairs of completions as what is learned from, the preferred one of each first."""
    rows = torch.tensor([row for pair in pairs for row in pair], dtype=torch.int64)
    group = torch.arange(len(pairs)).repeat_interleave(2)
    prompts = completions.group.tolist()
    uids = [batch.uids[prompts[better]] for better, _ in pairs]
    preferred = torch.tensor([True, False]).repeat(len(pairs))
    rollout = replace(completions.rows(rows), group=group, prompt=None)
    return LessonBatch(batch.iteration, uids, rollout, preferred)
