"""One LightningModule for every recipe: an iteration is a rollout and its updates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crlbench.algo import objective, step
from crlbench.algo.recipe import Recipe
from crlbench.base.heap import give_back
from crlbench.contract.dynamics import mean_stats
from crlbench.errors import UsageError
from crlbench.train.buffer import SampleBuffer, Sampled, kept_rows
from crlbench.train.collect import Collected
from crlbench.train.frozen import Followed, StartModel, Weights, held
from crlbench.train.learner import FirstOrder, Iteration, Objective, Step, Update
from crlbench.train.metrics import clipped_tokens
from crlbench.train.old_tokens import OldTokens
from crlbench.train.ranks import whole_weights
from crlbench.train.sampling import SamplingLearner
from crlbench.train.surrogate import Shown, Surrogate, decoding_gap
from crlbench.train.trust_region import TrustRegion
from crlbench.types import Experience, PromptBatch, Rollout


class PolicyOptimization(SamplingLearner):
    """Policy optimisation of a language model under a frozen recipe and conditions."""

    carried = (*SamplingLearner.carried, "kl_coefficient", "decoding_checked")

    def __init__(
        self,
        *,
        recipe: Recipe,
        update: Update | None = None,
        reference: Weights | None = None,
        **settings: Any,
    ) -> None:
        """``settings`` are those of :class:`SamplingLearner`. All ranks hold the same experience.

        Args:
            update: None for that of the recipe's rule.
            reference: weights of the model that the policy carries as its reference; None where
                that is the model it begins with.
        """
        super().__init__(update=update or update_of(recipe.step), **settings)
        self.recipe = recipe
        self.kl_coefficient = recipe.kl.coefficient.start
        rule, first = recipe.kl.reference, StartModel() if reference is None else held(reference)
        self.reference = Followed(
            rule, first if rule.moves else StartModel(), is_learner=reference is None
        )
        self.buffer = SampleBuffer()
        self.shown = Shown()

    def training_step(self, batch: PromptBatch, _: int) -> None:
        self.set_learning_rate(batch.iteration)
        self.reference.begin(batch.iteration, self.conditions.budget.iterations, self.learned)
        with whole_weights(self.learning):
            collected = self.collect(batch)
            sampled = self.keep(collected, batch.iteration)
        give_back()
        experience: Experience | None = None
        stats: list[dict[str, float]] = []
        counts: dict[str, float] = {}
        if self.update_due(batch.iteration):
            experience, counts = self.prepare(self.buffer.take())
            stats, counts["empty_minibatches"] = self.learn(experience, batch.iteration)
        self.finish_iteration(batch, collected, sampled, experience, stats, counts)
        give_back()

    @property
    def records(self) -> bool:
        # What is recorded cannot differ from decoding, so the check of decoding comes first.
        return self.decoding_checked and not self.update.whole_experience

    def keep(self, collected: Collected, iteration: int) -> Sampled | None:
        """What may teach, put into the buffer; None where a recipe that resamples finds nothing.

        Only what is kept pays for the log-probs of the learner and of the reference. Without a
        KL in the recipe the reference is asked once per interval of the grid, to be watched.
        """
        rollout, reward = collected.rollout, collected.reward
        if self.recipe.select.resamples:
            rows = kept_rows(rollout, reward.outcome, self.recipe)
            if not len(rows):
                return None
            rollout, reward = rollout.rows(rows), reward.rows(rows)
        reference = self.reference if self.recipe.needs_reference else None
        with self.update.attention():
            tokens = self.old_tokens.find(rollout, reference, watched=self.ends_interval(iteration))
        self.charge_tokens(rollout)
        if self.update.whole_experience:
            self.shown.gap = decoding_gap(rollout, tokens.old)
        sampled = Sampled(
            rollout,
            reward,
            tokens.old,
            tokens.ref,
            tokens.start,
            tokens.values,
            tokens.final_values,
        )
        self.buffer.add(sampled)
        return sampled

    def charge_tokens(self, rollout: Rollout) -> None:
        """Charge the passes that found what is known of sampled tokens.

        A reference that is only watched is the benchmark's cost.
        """
        if self.meter is None:
            return
        valued = self.recipe.critic is not None
        if not self.old_tokens.known(rollout):
            self.meter.read(rollout, valued=valued)
        if self.recipe.needs_reference:
            self.meter.read(rollout, "reference")
        if self.recipe.advantage.needs_final_values:
            self.meter.read(rollout.longer(), valued=valued)

    @property
    def old_tokens(self) -> OldTokens:
        """Who finds the log-probs that an update starts from."""
        return OldTokens(
            self.passes,
            self.recipe,
            float32=self.conditions.hardware.precision == "fp32",
            needs_pass=self.update.whole_experience,
        )

    def update_due(self, iteration: int) -> bool:
        """Whether the buffer is full, or an interval of the grid ends and something waits.

        Without resampling every iteration fills the buffer. The grid belongs to the budget: how
        often the policy is evaluated has no influence.
        """
        prompts = self.conditions.budget.prompts
        full = not self.recipe.select.resamples or self.buffer.groups >= prompts
        return full or (self.ends_interval(iteration) and self.buffer.groups > 0)

    def prepare(self, sampled: Sampled) -> tuple[Experience, dict[str, float]]:
        """Advantages and targets of everything that waited, and what was counted."""
        experience, counts = objective.prepare(
            sampled.rollout,
            sampled.reward.outcome,
            sampled.old,
            sampled.ref,
            sampled.values,
            self.recipe,
            step_rewards=sampled.reward.steps,
            token_ends=sampled.reward.token_ends,
            kl_coefficient=self.kl_coefficient,
            final_values=sampled.final_values,
            max_length=self.collector.max_tokens,
        )
        if self.recipe.select.resamples:
            counts["short_batches"] = float(sampled.groups < self.conditions.budget.prompts)
        return experience, counts

    def learn(self, experience: Experience, iteration: int) -> tuple[list[dict[str, float]], float]:
        """A step on each minibatch, and how many minibatches had nothing to teach."""
        stats: list[dict[str, float]] = []
        empty = 0
        for rows in self.minibatches(experience, iteration):
            minibatch = experience.rows(rows)
            if not bool((minibatch.rollout.action_mask & minibatch.keep[:, None]).any()):
                empty += 1
                continue
            if not stats and self.old_tokens.deferred:
                self.old_tokens.settle(experience, rows)
                self.charge_settled(experience, rows)
                minibatch = experience.rows(rows)
            minibatch = minibatch.trimmed()
            stats.append(self.step(self.surrogate(minibatch)))
            self.charge_step(minibatch)
            experience.old_logprobs[rows, : minibatch.old_logprobs.shape[1]] = (
                minibatch.old_logprobs
            )
        return stats, float(empty)

    def charge_settled(self, experience: Experience, first: Tensor) -> None:
        """Charge the pass that found the old log-probs of all rows but ``first`` (b,)."""
        rows = torch.arange(len(experience.keep), device=first.device)
        rest = rows[~torch.isin(rows, first)]
        if self.meter is not None and len(rest):
            self.meter.read(experience.rollout.rows(rest))

    def advance(self, objective: Objective) -> Step:
        """One step of the update rule, which a moving reference follows."""
        done = super().advance(objective)
        self.reference.follow(self.learned, moved=bool(done.moved))
        return done

    def charge_step(self, minibatch: Experience) -> None:
        """Charge a step on the rows that teach.

        An update of the whole experience charges its own passes.
        """
        if self.meter is None:
            return
        self.meter.update(1)
        if self.update.whole_experience:
            return
        taught = minibatch.keep & minibatch.rollout.action_mask.any(1)
        rollout = minibatch.rollout.rows(taught.nonzero().squeeze(1))
        self.meter.train(rollout, valued=self.recipe.critic is not None)

    def minibatches(self, experience: Experience, iteration: int) -> Iterator[Tensor]:
        """Rows (b,) int64 of each step. An update of the whole experience is one minibatch."""
        if self.update.whole_experience:
            yield torch.arange(len(experience.keep), device=experience.keep.device)
            return
        yield from self.shuffled(experience.rollout.group, iteration)

    def surrogate(self, minibatch: Experience) -> Surrogate:
        """The recipe's loss on a minibatch."""
        return Surrogate(
            minibatch,
            self.passes,
            self.recipe,
            kl_coefficient=self.kl_coefficient,
            length_cap=self.collector.max_tokens,
            shown=self.shown,
        )

    def finish_iteration(
        self,
        batch: PromptBatch,
        collected: Collected,
        sampled: Sampled | None,
        experience: Experience | None,
        stats: list[dict[str, float]],
        counts: dict[str, float],
    ) -> None:
        """Gather the iteration's figures and leave them to the recorder."""
        health = mean_stats(stats)
        if sampled is not None and experience is not None and self.old_tokens.deferred:
            sampled = replace(sampled, old=experience.old_logprobs)
        notes, self.shown = self.shown, Shown()
        health |= self.rollout_metrics.of(
            collected.rollout, collected.reward, sampled, experience, notes.gap, collected.audit
        )
        if collected.tally is not None:
            health |= collected.tally.figures()
        self.check_decoding(health["behavior_gap"])
        health["kl_per_completion"] = counts.pop("kl_per_completion", math.nan)
        health["kl_coefficient"] = self.kl_coefficient
        if experience is not None:
            self.kl_coefficient = self.recipe.kl.coefficient.next_coefficient(
                self.kl_coefficient, health["kl_per_completion"], experience.rollout.episodes
            )
        events = {name: int(count) for name, count in (counts | self.events).items()}
        self.events = {}
        events["skipped_updates"] = sum(not math.isfinite(s["grad_norm"]) for s in stats)
        if self.recipe.select.resamples:
            events["resampled_groups"] = len(batch.uids) - (sampled.groups if sampled else 0)
        self.last_iteration = Iteration(
            health,
            events,
            collected.rollout,
            collected.reward,
            notes.trained_tokens,
            [s["loss"] for s in stats],
            clipped_tokens(notes.observations),
        )
        self.iterations_done = batch.iteration + 1

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["buffer"] = self.buffer.state_dict()
        checkpoint |= self.reference.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.buffer.load_state_dict(checkpoint["buffer"])
        self.reference.is_learner &= not self.updated
        self.reference.load(checkpoint)


def update_of(rule: step.UpdateRule) -> Update:
    """What takes the steps of a recipe's update rule.

    Raises:
        UsageError: nothing here takes steps by that rule.
    """
    if isinstance(rule, step.TrustRegion):
        return TrustRegion(rule)
    if isinstance(rule, step.AdamStep):
        return FirstOrder()
    raise UsageError(
        f"the recipe's step is {type(rule).__name__}, and no update takes steps by it. Known are "
        "AdamStep and TrustRegion; hand your own Update to PolicyOptimization(update=...)."
    )
