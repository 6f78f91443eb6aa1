"""What learning from frozen answers shares: batches in place of rollouts, and figures of them.

An iteration reads a batch of lessons and takes K epochs of M steps on it. Nothing is sampled but by
the evaluations of the curve: entropy, length and the KL to the start are those of their
completions, so that the failure rules of a track watch the policy and not the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from crlbench.algo.masked import select
from crlbench.base.heap import give_back
from crlbench.contract.dynamics import STATS, mean_stats
from crlbench.contract.experience import Source
from crlbench.train.frozen import FrozenPolicy, HeldWeights, StartModel, held
from crlbench.train.learner import Iteration, Learner, Objective
from crlbench.train.lessons import LessonBatch
from crlbench.train.metrics import REFERENCE_KL, repetition
from crlbench.train.passes import Passes
from crlbench.train.ranks import whole_weights
from crlbench.train.requests import Examination
from crlbench.train.reward import Reward
from crlbench.types import PromptBatch, Rollout

TEMPERATURE = 1.0
"""Temperature of all log-probabilities of frozen answers: nobody sampled them here."""


class OfflineLearner(Learner):
    """A policy that learns from frozen answers; a subclass says by which objective."""

    source: Source
    """What is learned from; it names the figures of an iteration."""
    carried = (*Learner.carried, "watched")

    def __init__(
        self, *, start: Mapping[str, Tensor] | None = None, left_out: int = 0, **settings: Any
    ) -> None:
        """``settings`` are those of :class:`Learner`.

        Args:
            start: all that learns, by name, as :meth:`Learner.learned` has it: where to begin. None
                for the start model of the entry.
            left_out: lessons that found no room in the model's context; the first iteration counts
                them.
        """
        super().__init__(**settings)
        self.start: FrozenPolicy = StartModel() if start is None else held(start)
        self.left_out = left_out
        self.watched: dict[str, float] = {}
        """Figures of the evaluation since the last iteration; empty without one."""
        self.seen: list[dict[str, Tensor]] = []
        self.trained_tokens = 0

    def objective(self, batch: LessonBatch, rows: Tensor) -> Objective:
        """What a step on some answers (b,) int64 of an iteration is taken on."""
        raise NotImplementedError

    def begin(self, batch: LessonBatch) -> None:
        """What comes before the steps of an iteration."""

    def configure_model(self) -> None:
        is_new = self.policy is None
        super().configure_model()
        if is_new and isinstance(self.start, HeldWeights):
            with torch.no_grad():
                for name, parameter in self.trainable().items():
                    parameter.copy_(self.start.weights[name])

    @property
    def passes(self) -> Passes:
        return Passes(self.learning, TEMPERATURE, self.ranks, self.device)

    def training_step(self, batch: LessonBatch, _: int) -> None:
        self.set_learning_rate(batch.iteration)
        self.begin(batch)
        self.trained_tokens = 0
        stats = []
        for rows in self.shuffled(batch.rollout.group, batch.iteration):
            stats.append(self.step(self.objective(batch, rows)))
            if self.meter is not None:
                self.meter.train(batch.rollout.rows(rows))
                self.meter.update(1)
            self.trained_tokens += int(batch.rollout.action_mask[rows].sum())
        self.finish_iteration(batch, stats)
        give_back()

    def figures(self, stats: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The figures of an iteration's steps together."""
        return mean_stats(stats, stats[0])

    def finish_iteration(self, batch: LessonBatch, stats: Sequence[dict[str, float]]) -> None:
        """Gather the iteration's figures and leave them to the recorder."""
        rollout = batch.rollout
        found = self.figures(stats) | self.watched
        found["tokens"] = float(rollout.action_mask.sum())
        found["bytes"] = float(sum(len(text.encode()) for text in rollout.texts))
        health = {name: found.get(name, math.nan) for name in STATS[self.source]}
        events = {name: int(count) for name, count in self.events.items()}
        self.events, self.watched = {}, {}
        events["skipped_updates"] = sum(not math.isfinite(s["grad_norm"]) for s in stats)
        events["left_out"] = 0 if batch.iteration else self.left_out
        labels = batch.preferred.float()
        self.last_iteration = Iteration(
            health,
            events,
            rollout,
            Reward(labels, labels, None, None),
            self.trained_tokens,
            [s["loss"] for s in stats],
            {},
        )
        self.iterations_done = batch.iteration + 1

    # -- the policy's own completions, seen at evaluations alone ---------------------------------

    def validation_step(self, batch: PromptBatch, _: int) -> None:
        super().validation_step(batch, _)
        assert self.last_examination is not None
        with whole_weights(self.learning):
            self.seen.append(self.watch(self.last_examination))

    def watch(self, examination: Examination) -> dict[str, Tensor]:
        """Numbers to average, of an evaluation's completions and of their tokens, by figure."""
        rollout, mask = examination.rollout, examination.rollout.action_mask

        def run(part: Rollout) -> tuple[Tensor, Tensor, Tensor]:
            outputs = self.learning(*self.passes.inputs(part), actions=part.action_mask)
            return outputs.logprobs, outputs.entropy, self.start.logprobs(self.passes, part)

        logprobs, entropy, start = self.passes.evaluated(rollout, run)
        assert logprobs is not None and entropy is not None and start is not None
        new, old = select(mask, logprobs), select(mask, start)
        kl = {name: estimator(new, old)[mask] for name, estimator in REFERENCE_KL.items()}
        return kl | {
            "entropy": entropy[mask],
            "score": examination.scores,
            "length": mask.sum(1).float(),
            "truncated": (~rollout.finished).float(),
            "repetition": repetition(rollout.completion_ids, mask),
        }

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        seen, self.seen = self.seen, []
        names = seen[0] if seen else ()
        self.watched = {
            name: float(torch.cat([part[name] for part in seen]).double().mean()) for name in names
        }
