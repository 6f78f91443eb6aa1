"""What learning from one's own completions shares: sampling them, paying them, watching them.

A subclass says what it makes of them. Control arms change what completions are paid, here and for
every kind of recipe alike.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crlbench.contract.dynamics import STATS
from crlbench.contract.experience import Source
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DrawKey
from crlbench.train.buffer import Sampled
from crlbench.train.collect import Collected
from crlbench.train.learner import Iteration, Learner
from crlbench.train.metrics import RolloutMetrics
from crlbench.train.reward import (
    Agreement,
    WrongAnswers,
    mode_reward,
    placebo_reward,
    wrong_reward,
)
from crlbench.train.surrogate import decoding_gap
from crlbench.types import PromptBatch

MAX_GAP = {"fp32": 1e-3, "bf16": 0.5}
"""Mean absolute gap between behaviour and old log-probs that rounding explains, by precision."""


class SamplingLearner(Learner):
    """A policy that learns from completions that it samples, under an arm."""

    source: Source = "rewards"
    """What is learned from; it names the figures of an iteration."""

    def __init__(
        self, *, arm: str = "real", wrong: WrongAnswers | None = None, **settings: Any
    ) -> None:
        """``settings`` are those of :class:`Learner`. All ranks hold the same rollouts. The wrong
        arm needs ``wrong``."""
        super().__init__(**settings)
        self.arm = arm
        self.agreement: Agreement | None = None
        self.wrong = wrong
        self.decoding_checked = False
        self.rollout_metrics = RolloutMetrics()

    @property
    def records(self) -> bool:
        """Whether the next pass may use what decoding computed."""
        return False

    def collect(self, batch: PromptBatch) -> Collected:
        """What the policy did with all prompts; each rank takes its own."""
        prompts = batch.part(self.ranks.share(len(batch.uids)))
        key = DrawKey(self.seed, "rollout", batch.iteration)
        with self.learning.recording() if self.records else contextlib.nullcontext():
            part = self.collector.collect(self.learning, prompts, key)
        collected = Collected.joined(self.ranks.gather([part]), self.collector.pad)
        if self.meter is not None:
            self.meter.sample(collected.rollout)
        data = self.conditions.data
        if self.arm == "mode":
            assert self.agreement is not None  # found before the first iteration
            agreed = mode_reward(
                collected.reward, collected.rollout, batch, self.agreement, data.reward_scale
            )
            collected = replace(collected, reward=agreed)
        if self.arm == "wrong":
            assert self.wrong is not None
            misled = wrong_reward(
                collected.reward, collected.rollout, batch, self.wrong, data.reward_scale
            )
            collected = replace(collected, reward=misled)
        if self.arm == "placebo":
            blind = placebo_reward(
                collected.reward,
                batch,
                self.seed,
                data.reward_scale,
                data.reward,
                collected.rollout.episode,
            )
            collected = replace(collected, reward=blind)
        return collected

    def ends_interval(self, iteration: int) -> bool:
        """Whether an interval of the budget's grid ends with this iteration."""
        return (iteration + 1) % self.conditions.budget.iterations_per_point == 0

    def check_decoding(self, gap: float) -> None:
        """Once per run: what was sampled from is what is trained.

        Raises:
            ValidationError: the log-probs of decoding and of a forward pass differ by more than
                rounding.
        """
        if self.decoding_checked or math.isnan(gap):
            return
        self.decoding_checked = True
        most = MAX_GAP[self.conditions.hardware.precision]
        if gap > most:
            raise ValidationError(
                f"decoding and forward pass disagree: their log-probabilities differ by {gap:.2g} "
                f"nats a token on average, at most {most} is rounding. The model's cache or its "
                "sampling parameters are not what the loop assumes: nothing learned would count."
            )


class WatchedLearner(SamplingLearner):
    """A learner that looks at its completions where an interval of the grid ends, and no more often
    than it must: what it learns from needs no log-probabilities of them."""

    carried = (*SamplingLearner.carried, "decoding_checked")

    @torch.no_grad()
    def look(self, collected: Collected, iteration: int) -> tuple[Sampled | None, Tensor]:
        """The completions with the log-probabilities of learner and start model, and the gaps (n,)
        between decoding and learner: where an interval ends, and in the first iteration."""
        if self.decoding_checked and not self.ends_interval(iteration):
            return None, torch.zeros(0)
        rollout = collected.rollout
        old, _ = self.passes.of_learner(rollout)
        start = self.passes.of_reference(rollout) if self.ends_interval(iteration) else None
        gap = decoding_gap(rollout, old)
        return Sampled(rollout, collected.reward, old, None, start), gap

    def close(
        self,
        batch: PromptBatch,
        collected: Collected,
        seen: tuple[Sampled | None, Tensor],
        figures: Mapping[str, float],
        *,
        losses: Sequence[float],
        skipped: int,
        trained_tokens: int,
        counts: Mapping[str, int],
    ) -> None:
        """Leave the iteration to the recorder.

        Args:
            figures: of the steps, by name.
            losses: one per optimizer step.
            skipped: steps whose gradient was not finite.
            counts: further events.
        """
        sampled, gap = seen
        found = self.rollout_metrics.of(
            collected.rollout, collected.reward, sampled, None, gap, collected.audit
        )
        self.check_decoding(found["behavior_gap"])
        found |= {"kept_fraction": 1.0, **figures}
        events = {name: int(count) for name, count in self.events.items()}
        self.events = {}
        self.last_iteration = Iteration(
            {name: found[name] for name in STATS[self.source]},
            events | {"skipped_updates": skipped, **counts},
            collected.rollout,
            collected.reward,
            trained_tokens,
            list(losses),
            {},
        )
        self.iterations_done = batch.iteration + 1
