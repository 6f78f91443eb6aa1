"""One LightningModule for every recipe: an iteration is a rollout and its updates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torchmetrics import MeanMetric

from crlbench.algo import objective
from crlbench.algo.aggregate import Totals
from crlbench.algo.kl import Fixed
from crlbench.algo.observe import Observation, step_stats
from crlbench.algo.recipe import Recipe
from crlbench.conditions import Conditions
from crlbench.dynamics import StepStats, mean_stats
from crlbench.errors import ValidationError
from crlbench.policy.policy import Policy, TokenOutputs
from crlbench.policy.sample import DrawKey, Sampler
from crlbench.seeding import rng
from crlbench.train.buffer import SampleBuffer, Sampled, kept_rows
from crlbench.train.displacement import Displacement, Weights
from crlbench.train.evaluation import Examination, examine, outcomes_of
from crlbench.train.memory import give_back
from crlbench.train.metrics import RolloutMetrics, clipped_tokens
from crlbench.train.microbatch import divided, token_budget
from crlbench.train.optimizer import TracedAdamW
from crlbench.train.ranks import ALONE, Ranks, whole
from crlbench.train.reward import Reward, Scorer, placebo_reward, real_reward
from crlbench.train.sharding import shard, whole_weights
from crlbench.types import Experience, PromptBatch, Rollout

MAX_GAP = {"fp32": 1e-3, "bf16": 0.5}
"""Mean absolute gap between behaviour and old log-probs that rounding explains, by precision."""

FREE_PASS = 4
"""How many times the token budget a pass without gradient may hold."""
CHECKPOINT_ABOVE = 4
"""How many times the token budget a single completion may hold before its pass keeps only the
input of every layer and computes the rest again (gradient checkpointing)."""

CARRIED = (
    "iterations_done",
    "skipped_running",
    "longest_skip",
    "kl_coefficient",
    "decoding_checked",
    "updated",
)
"""Plain state of the module that a checkpoint carries."""


@dataclass(frozen=True)
class Iteration:
    """What one iteration leaves behind for the recorder."""

    health: dict[str, float]
    """The names of :data:`~crlbench.dynamics.UPDATE_STATS`; NaN where there is no value."""
    counts: dict[str, int]
    rollout: Rollout
    """Everything that was sampled, kept or not."""
    reward: Reward
    trained_tokens: int
    """Tokens of the completions of all updates: K times each completion that teaches."""
    losses: list[float]
    """One per optimizer step, in order."""
    clipped: dict[str, Counter[int]]
    """``low``, ``high``: how often each token id was held back at that bound."""


@dataclass(frozen=True)
class Pass:
    """What the pass over a micro-batch of b rows showed."""

    rows: Tensor
    """(b,) int64: places in the minibatch."""
    observation: Observation
    old: Tensor | None
    """(b, t) old log-probs, where the pass had to find them."""
    gap: Tensor
    """(n,) absolute gaps between the log-probs of decoding and the learner's, one a token; of
    none but the iteration's first minibatch."""


class PolicyOptimization(L.LightningModule):
    """Policy optimisation of a language model under a frozen recipe and conditions."""

    def __init__(
        self,
        *,
        build: Callable[[], Policy],
        sampler: Sampler,
        score: Scorer,
        recipe: Recipe,
        conditions: Conditions,
        seed: int,
        arm: str = "real",
        evaluation_sampler: Sampler | None = None,
        audit: Scorer | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """``evaluation_sampler`` decodes the curve; without one, ``sampler`` does.

        ``audit`` scores every completion of training a second time; nothing is learned from it.
        ``ranks`` are the processes that train together. All hold the same rollouts, experience
        and figures; sampling, verifying and the passes of the model are divided among them.
        """
        super().__init__()
        self.automatic_optimization = False
        # Frozen weights are rebuilt from the model entry and never stored in a checkpoint.
        self.strict_loading = False
        self.build = build
        self.sampler = sampler
        self.evaluation_sampler = evaluation_sampler or sampler
        self.scorer = score
        self.auditor = audit
        self.recipe = recipe
        self.conditions = conditions
        self.seed = seed
        self.arm = arm
        self.ranks = ranks
        self.policy: Policy | None = None
        self.last_iteration: Iteration | None = None
        self.last_examination: Examination | None = None
        self.iterations_done = 0
        self.skipped_running = 0
        self.longest_skip = 0
        self.kl_coefficient = recipe.kl.coefficient.start
        self.decoding_checked = False
        self.updated = False
        """Whether the policy is no longer the start model."""
        self.buffer = SampleBuffer()
        self.displacement = Displacement()
        self.observations: list[Observation] = []
        self.gap = torch.zeros(0)
        """(n,) absolute gaps between the log-probs of decoding and the learner's, one a token of
        the iteration's first minibatch."""
        self.trained_tokens = 0
        self.rollout_metrics = RolloutMetrics()
        self.eval_score = MeanMetric(sync_on_compute=False)

    def configure_model(self) -> None:
        if self.policy is None:
            self.policy = self.build()
        if self.device_mesh is not None:
            shard(self.policy, self.device_mesh["data_parallel"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        o = self.conditions.optimization
        head = [] if self.policy.value_head is None else list(self.policy.value_head.parameters())
        in_head = {id(p) for p in head}
        body = [p for p in self.policy.trainable().values() if id(p) not in in_head]
        groups: list[dict[str, Any]] = [{"params": body, "lr": o.learning_rate}]
        if head:
            groups.append({"params": head, "lr": o.value_learning_rate})
        for group in groups:
            group["base_lr"] = group["lr"]
        return TracedAdamW(
            groups,
            betas=(o.beta1, o.beta2),
            eps=o.adam_eps,
            weight_decay=o.weight_decay,
            fused=True,
        )

    def training_step(self, batch: PromptBatch, _: int) -> None:
        self.set_learning_rate(batch.iteration)
        with whole_weights(self.policy):
            rollout, reward, audited = self.roll_out(batch)
            kept = self.keep(rollout, reward, batch.iteration)
        give_back()
        experience, stats, counts = None, [], {}
        if self.update_due(batch.iteration):
            experience, counts = self.prepare(self.buffer.take())
            stats, counts["empty_minibatches"] = self.learn(experience, batch.iteration)
        self.finish_iteration(batch, rollout, reward, audited, kept, experience, stats, counts)
        give_back()

    def roll_out(self, batch: PromptBatch) -> tuple[Rollout, Reward, Tensor | None]:
        """Completions of all prompts, what they earn, and their second scores (B,), if any.

        Each rank samples and verifies its own prompts.
        """
        mine = batch.part(self.ranks.share(len(batch.uids)))
        key = DrawKey(self.seed, "rollout", batch.iteration)
        own = self.sampler.sample(self.policy, mine, key)
        found = self.ranks.gather([(own, self.reward(own, mine), self.audit(own, mine))])
        rollouts, rewards, audits = zip(*found, strict=True)
        rollout = Rollout.concatenate(rollouts, self.sampler.pad)
        reward = Reward.concatenate(rewards, rollout.completion_ids.shape[1])
        if self.arm == "placebo":
            scale, kind = self.conditions.data.reward_scale, self.conditions.data.reward
            reward = placebo_reward(reward, batch, self.seed, scale, kind)
        return rollout, reward, torch.cat(audits) if self.auditor is not None else None

    def learn(self, experience: Experience, iteration: int) -> tuple[list[StepStats], float]:
        """K epochs of M optimizer steps, and how many had nothing to teach."""
        stats, empty = [], 0
        for rows in self.minibatches(experience, iteration):
            if not self.totals(experience.rows(rows)).tokens:
                empty += 1
                continue
            if not stats:
                self.settle(experience, rows)
            minibatch = experience.rows(rows).trimmed()
            stats.append(self.step(minibatch))
            width = minibatch.old_logprobs.shape[1]
            experience.old_logprobs[rows, :width] = minibatch.old_logprobs
        return stats, float(empty)

    def reward(self, rollout: Rollout, batch: PromptBatch) -> Reward:
        """What the verifier pays for every completion."""
        scale, kind = self.conditions.data.reward_scale, self.conditions.data.reward
        return real_reward(self.scorer, rollout, batch, self.sampler.tokenizer, scale, kind)

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        """(B,) what the second verifier says of every completion; None without one."""
        if self.auditor is None:
            return None
        return torch.tensor(outcomes_of(self.auditor, rollout, batch))

    def keep(self, rollout: Rollout, reward: Reward, iteration: int) -> Sampled | None:
        """What may teach, put into the buffer; None where a recipe that resamples finds nothing.

        Only what is kept pays for the log-probs of the learner and of the reference. Without a
        KL in the recipe the reference is asked once per interval of the grid, to be watched.
        """
        if self.recipe.select.resamples:
            rows = kept_rows(rollout, reward.outcome, self.recipe)
            if not len(rows):
                return None
            rollout, reward = rollout.rows(rows), reward.rows(rows)
        watched = self.recipe.needs_reference or self.ends_interval(iteration)
        kept = Sampled(rollout, reward, *self.evaluate_tokens(rollout, reference=watched))
        self.buffer.add(kept)
        return kept

    def update_due(self, iteration: int) -> bool:
        """Whether the buffer is full, or an interval of the grid ends and something waits.

        Without resampling every iteration fills the buffer. The grid belongs to the budget: how
        often the policy is evaluated has no influence.
        """
        full = not self.recipe.select.resamples or self.buffer.groups >= self.prompts
        return full or (self.ends_interval(iteration) and self.buffer.groups > 0)

    def ends_interval(self, iteration: int) -> bool:
        """Whether an interval of the budget's grid ends with this iteration."""
        return (iteration + 1) % self.conditions.budget.iterations_per_point == 0

    @property
    def prompts(self) -> int:
        """P, prompts per iteration."""
        return self.conditions.budget.prompts

    @torch.no_grad()
    def evaluate_tokens(
        self, rollout: Rollout, reference: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The learner's old log-probs, the reference's, and the values, each (B, T) or None.

        Last the values after the last token (B,), where the recipe wants them. In float32 what
        decoding saw is what a pass would see, up to rounding that :meth:`check_decoding` bounds.
        In bfloat16 it is not, and old log-probs that nothing looks at before the update are left
        to it (:meth:`settle`).

        A KL in the reward is the difference of two passes. Before the first update the policy is
        the reference, whose pass then stands for both: the KL is exactly 0, where whitening would
        make a signal of rounding.
        """
        old, values = rollout.behavior_logprobs, rollout.behavior_values
        known = self.knows_tokens(rollout)
        if not known:
            old, values = self.in_parts(rollout, self.old_tokens)
        (ref,) = self.in_parts(rollout, self.reference_tokens) if reference else (None,)
        if known and self.recipe.kl.place == "reward" and not self.updated:
            old = ref
        final = self.final_values(rollout) if self.recipe.advantage.needs_final_values else None
        return old, ref, values, final

    def knows_tokens(self, rollout: Rollout) -> bool:
        """Whether no pass of the learner is needed between sampling and the update."""
        valued = self.recipe.critic is None or rollout.behavior_values is not None
        exact = self.conditions.hardware.precision == "fp32"
        return (exact and valued) or self.defers_old

    @property
    def defers_old(self) -> bool:
        """Whether the first update may find the old log-probs by its own pass."""
        recipe = self.recipe
        return (
            self.conditions.hardware.precision != "fp32"
            and recipe.critic is None
            and recipe.kl.place != "reward"
            and isinstance(recipe.kl.coefficient, Fixed)
            and not recipe.select.resamples
        )

    @torch.no_grad()
    def settle(self, experience: Experience, first: Tensor) -> None:
        """Old log-probs that were deferred: of all rows but ``first`` (b,), by a pass.

        Those of the first minibatch stay unknown (NaN): its own pass is theirs.
        """
        if not self.defers_old:
            return
        old, rows = experience.old_logprobs, torch.arange(len(experience.keep))
        rest = rows.to(first.device)[~torch.isin(rows.to(first.device), first)]
        old[first] = old[first].masked_fill(experience.rollout.completion_mask[first], math.nan)
        if len(rest):
            with whole_weights(self.policy):
                found, _ = self.in_parts(experience.rollout.rows(rest), self.old_tokens)
            old[rest] = found

    def old_tokens(self, rollout: Rollout) -> tuple[Tensor, Tensor | None]:
        """Log-probs and values (b, T) of the learner as it is."""
        outputs = self.policy(*self.inputs(rollout))
        return outputs.logprobs, outputs.values

    def reference_tokens(self, rollout: Rollout) -> tuple[Tensor]:
        """Log-probs (b, T) of the start model."""
        return (self.policy.reference_logprobs(*self.inputs(rollout)),)

    @torch.no_grad()
    def in_parts(
        self, rollout: Rollout, run: Callable[[Rollout], Sequence[Tensor | None]]
    ) -> list[Tensor | None]:
        """What ``run`` finds, each (B, T) or None, of as many rows at once as memory allows.

        Each rank runs its own prompts.
        """
        rows = torch.arange(len(rollout.texts), device=rollout.group.device)
        mine = self.ranks.shares(rows, rollout.group)[self.ranks.rank]
        found = []
        for part in divided(rollout, mine, FREE_PASS * self.token_budget):
            some = rollout.rows(part)
            found.append((part, run(some.trimmed(int(some.completion_mask.sum(1).max())))))
        everything: list[Tensor | None] = []
        for part, results in self.ranks.gather(found):
            everything = everything or [
                None if x is None else x.new_zeros(rollout.completion_ids.shape) for x in results
            ]
            for into, x in zip(everything, results, strict=True):
                if into is not None:
                    into[part, : x.shape[1]] = x
        return everything

    @property
    def token_budget(self) -> int:
        """Tokens of which a pass may keep what its backward pass needs."""
        return token_budget(self.policy.config, self.device.type)

    def final_values(self, rollout: Rollout) -> Tensor:
        """(B,) critic estimates of the state after each completion's last token."""
        ids, mask = rollout.completion_ids, rollout.completion_mask
        lengths = mask.sum(1, keepdim=True)
        pad = torch.nn.functional.pad
        longer = replace(
            rollout,
            completion_ids=pad(ids, (0, 1)),
            completion_mask=pad(mask, (0, 1)).scatter(1, lengths, True),
        )
        (_, values) = self.in_parts(longer, self.old_tokens)
        return values.gather(1, lengths).squeeze(1)

    def inputs(self, rollout: Rollout) -> tuple[Any, ...]:
        """What the policy reads of a rollout: each prompt once, completions, temperature."""
        first, group = one_row_per_prompt(rollout.group)
        ids, mask = without_padding(rollout.prompt_ids[first], rollout.prompt_mask[first])
        return (
            ids,
            mask,
            rollout.completion_ids,
            rollout.completion_mask,
            group,
            self.conditions.sampling.temperature,
        )

    def prepare(self, sampled: Sampled) -> tuple[Experience, dict[str, float]]:
        """Advantages and targets of everything that waited, and what was counted."""
        experience, counts = objective.prepare(
            sampled.rollout,
            sampled.reward.outcome,
            sampled.old,
            sampled.ref if self.recipe.needs_reference else None,
            sampled.values,
            self.recipe,
            step_rewards=sampled.reward.steps,
            token_ends=sampled.reward.token_ends,
            kl_coefficient=self.kl_coefficient,
            final_values=sampled.final_values,
            max_length=self.sampler.max_tokens,
        )
        if self.recipe.select.resamples:
            counts["short_batches"] = float(sampled.groups < self.prompts)
        return experience, counts

    def minibatches(self, experience: Experience, iteration: int) -> Iterator[Tensor]:
        """Rows (b,) int64 of K epochs of M minibatches; each holds whole prompts, shuffled by a
        keyed draw.

        Fewer prompts than M make fewer minibatches.
        """
        o = self.conditions.optimization
        group = experience.rollout.group
        for epoch in range(o.epochs):
            order = list(range(int(group.max()) + 1))
            rng(self.seed, "minibatches", iteration, epoch).shuffle(order)
            for m in range(min(o.minibatches, len(order))):
                chosen = torch.tensor(sorted(order[m :: o.minibatches]), device=group.device)
                yield torch.isin(group, chosen).nonzero().squeeze(1)

    def step(self, minibatch: Experience) -> StepStats:
        """One update and where it led in weight space."""
        self.trained_tokens += int(minibatch.rollout.completion_mask.sum())
        stats, moved = self.update(minibatch)
        self.updated |= bool(moved)
        return StepStats(**stats | self.displacement.measure(moved))

    def update(self, minibatch: Experience) -> tuple[dict[str, float], Weights]:
        """One optimizer step, of micro-batches that add up; and how the weights moved.

        Skipped where the gradient is not finite. Old log-probs that are not known yet are put
        into ``minibatch``. Ranks add their gradients up in the last micro-batch.
        """
        optimizer, totals = self.optimizers(), self.totals(minibatch)
        optimizer.zero_grad()
        parts, seen = self.micro_batches(minibatch), []
        for number, (rows, counts) in enumerate(parts, start=1):
            with optimizer.toggle_model(sync_grad=number == len(parts)):
                seen += self.accumulate(minibatch, rows, totals, counts)
        seen = self.look(minibatch, self.ranks.gather(seen))
        weights = self.policy.trainable()
        norm = torch.nn.utils.clip_grad_norm_(
            list(weights.values()), self.conditions.optimization.max_grad_norm
        )
        norm = whole(norm)
        moved: Weights = {}
        if not torch.isfinite(norm):
            self.skipped_running += 1
            self.longest_skip = max(self.longest_skip, self.skipped_running)
        else:
            optimizer.step()
            # Autocast keeps its casts of the weights for as long as it is on, which is the whole
            # iteration: without this the next pass would be one of the old weights.
            torch.clear_autocast_cache()
            self.skipped_running = 0
            moved = {name: whole(p.grad) for name, p in weights.items() if p.grad is not None}
        optimizer.zero_grad()
        return step_stats(seen) | {"grad_norm": float(norm)}, moved

    def micro_batches(self, minibatch: Experience) -> list[tuple[Tensor, bool]]:
        """Rows (b,) of this rank's micro-batches, and whether they count.

        All ranks have equally many, because in each pass they put sharded weights together. A
        rank that is done runs a row more, with weight 0.
        """
        taught = (minibatch.keep & minibatch.rollout.completion_mask.any(1)).nonzero().squeeze(1)
        shares = self.ranks.shares(taught, minibatch.rollout.group[taught])
        plans = [divided(minibatch.rollout, rows, self.token_budget) for rows in shares]
        mine = [(rows, True) for rows in plans[self.ranks.rank]]
        return mine + [(taught[:1], False)] * (max(map(len, plans)) - len(mine))

    def accumulate(
        self, minibatch: Experience, rows: Tensor, totals: Totals, counts: bool
    ) -> list[Pass]:
        """Add the gradient of some rows (b,) of a minibatch, or nothing if it does not count."""
        part = minibatch.rows(rows).trimmed()
        rollout = part.rollout
        outputs = self.learner_pass(rollout)
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
            totals,
            self.kl_coefficient,
        )
        # Lightning's strategies take the mean over ranks; the totals are those of all.
        self.manual_backward(loss * (self.ranks.size if counts else 0))
        if not counts:
            return []
        gap = (rollout.behavior_logprobs - new).abs()[rollout.action_mask]
        gap = gap[:0] if self.observations else gap
        return [Pass(rows, observation, new if unknown else None, gap)]

    def look(self, minibatch: Experience, passes: Sequence[Pass]) -> list[Observation]:
        """Note what the passes of an update showed, those of all ranks."""
        for one in passes:
            if one.old is not None:
                minibatch.old_logprobs[one.rows, : one.old.shape[1]] = one.old
        gaps = [one.gap for one in passes]
        self.gap = torch.cat([self.gap.to(gaps[0].device), *gaps])
        seen = [one.observation for one in passes]
        self.observations += seen
        return seen

    def learner_pass(self, rollout: Rollout) -> TokenOutputs:
        """What the policy says of completions, with a graph.

        A single completion that is far beyond the token budget is run whole, and its graph holds
        the inputs of the layers alone.
        """
        tokens = rollout.prompt_ids.shape[1] + rollout.completion_ids.shape[1]
        if len(rollout.texts) > 1 or tokens <= CHECKPOINT_ABOVE * self.token_budget:
            return self.policy(*self.inputs(rollout))
        with self.policy.gradient_checkpointing():
            return self.policy(*self.inputs(rollout), shared_prefix=False)

    def totals(self, minibatch: Experience) -> Totals:
        """The denominators of an optimizer step."""
        return Totals.of(minibatch, self.sampler.max_tokens)

    def set_learning_rate(self, iteration: int) -> None:
        """Warm-up and schedule by iteration, the only clock."""
        o = self.conditions.optimization
        total = self.conditions.budget.iterations
        factor = min(1.0, (iteration + 1) / (o.warmup_iterations + 1))
        if o.schedule == "linear":
            factor *= 1.0 - iteration / total
        for group in self.optimizers().param_groups:
            group["lr"] = group["base_lr"] * factor

    def finish_iteration(
        self,
        batch: PromptBatch,
        rollout: Rollout,
        reward: Reward,
        audited: Tensor | None,
        kept: Sampled | None,
        experience: Experience | None,
        stats: list[StepStats],
        counts: dict[str, float],
    ) -> None:
        """Gather the iteration's figures, log them, leave them to the recorder."""
        health = dict(mean_stats(stats))
        if kept is not None and experience is not None and self.defers_old:
            kept = replace(kept, old=experience.old_logprobs)
        health |= self.rollout_metrics.of(rollout, reward, kept, experience, self.gap, audited)
        self.check_decoding(health["behavior_gap"])
        health["kl_per_completion"] = counts.pop("kl_per_completion", math.nan)
        health["kl_coefficient"] = self.kl_coefficient
        if experience is not None:
            self.kl_coefficient = self.recipe.kl.coefficient.next_coefficient(
                self.kl_coefficient, health["kl_per_completion"], len(experience.rewards)
            )
        self.log_dict({f"train/{n}": value for n, value in health.items() if math.isfinite(value)})
        events = {name: int(count) for name, count in counts.items()}
        events["skipped_updates"] = sum(not math.isfinite(s["grad_norm"]) for s in stats)
        if self.recipe.select.resamples:
            events["resampled_groups"] = len(batch.uids) - (kept.groups if kept else 0)
        self.last_iteration = Iteration(
            health,
            events,
            rollout,
            reward,
            self.trained_tokens,
            [s["loss"] for s in stats],
            clipped_tokens(self.observations),
        )
        self.observations, self.trained_tokens, self.gap = [], 0, torch.zeros(0)
        self.iterations_done = batch.iteration + 1

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

    def validation_step(self, batch: PromptBatch, _: int) -> None:
        """Score the ID items: one point of the curve."""
        key, sampler = DrawKey(self.seed, "curve", self.iterations_done), self.evaluation_sampler
        mine = batch.part(self.ranks.share(len(batch.uids)))
        with whole_weights(self.policy):
            own = [examine(self.policy, sampler, self.scorer, mine, key)] if mine.uids else []
        self.last_examination = Examination.joined(self.ranks.gather(own), sampler.pad)
        self.eval_score.update(self.last_examination.scores)

    def on_validation_epoch_end(self) -> None:
        self.log("eval/score", self.eval_score.compute())
        self.eval_score.reset()

    def weights_finite(self) -> bool:
        """Whether every trainable weight is a finite number."""
        learned = self.policy.trainable().values()
        return all(math.isfinite(float(whole(p.detach().sum()))) for p in learned)

    def learned(self) -> dict[str, Tensor]:
        """The trainable weights by name, whole on every rank."""
        return {name: whole(p.detach()) for name, p in self.policy.trainable().items()}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        learned = {f"policy.{name}" for name in self.policy.trainable()}
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {n: t for n, t in state.items() if n in learned}
        checkpoint["buffer"] = self.buffer.state_dict()
        checkpoint["displacement"] = self.displacement.last
        for name in CARRIED:
            checkpoint[name] = getattr(self, name)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.buffer.load_state_dict(checkpoint["buffer"], self.device)
        self.displacement.load(checkpoint["displacement"], self.device)
        for name in CARRIED:
            setattr(self, name, checkpoint[name])


def without_padding(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Left-padded prompts (p, L) without the columns that are padding in all of them."""
    start = int(mask.any(0).int().argmax())
    return ids[:, start:], mask[:, start:]


def one_row_per_prompt(group: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each prompt (p,), and each row's prompt among them (b,).

    ``group`` (b,) int64 need not be contiguous; its order is kept.
    """
    _, compact = torch.unique(group, return_inverse=True)
    rows = torch.arange(len(group), device=group.device)
    first = torch.full((int(compact.max()) + 1,), len(group), device=group.device)
    return first.scatter_reduce(0, compact, rows, reduce="amin"), compact
