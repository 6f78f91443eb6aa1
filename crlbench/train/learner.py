"""What every training shares: a policy that is built, stepped, evaluated and stored.

A subclass says in ``training_step`` where its loss comes from. An :class:`Objective` is that loss
in parts that fit into memory; an :class:`Update` takes one step on it. ``FirstOrder`` takes any
objective; an update that needs more of one refuses the others.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import lightning as L
import torch
from torch import Tensor, nn

from crlbench.contract.conditions import Conditions
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.seeding import rng
from crlbench.train.charging import Meter
from crlbench.train.collect import Collector, PaidByModel
from crlbench.train.optimizer import Displacement, TracedAdamW, Weights
from crlbench.train.passes import Passes
from crlbench.train.ranks import ALONE, Ranks, shard, whole, whole_weights
from crlbench.train.requests import Examination, Truth
from crlbench.train.reward import Reward
from crlbench.types import PromptBatch, Rollout


class Objective(Protocol):
    """What one optimizer step is taken on; its parts add up to the loss of the step."""

    def parts(self) -> list[tuple[Tensor, bool]]:
        """Rows (b,) int64 of this rank's passes, and whether they count; equally many by rank."""
        ...

    def losses(self, rows: Tensor) -> tuple[Mapping[str, Tensor], Any]:
        """Scalars to minimise together, by name, and what the pass over the rows showed."""
        ...

    def figures(self, shown: Sequence[Any]) -> dict[str, float]:
        """The figures of the step, from what the passes of all ranks showed."""
        ...


@dataclass(frozen=True)
class Step:
    """What became of one step."""

    figures: dict[str, float]
    """Figures of the objective, and ``grad_norm``."""
    moved: Weights
    """New minus old, by the names of the weights: zeros for a step that was taken back, empty for
    one that was never tried."""
    skipped: bool
    """Whether the gradient was not finite."""
    counts: dict[str, float] = field(default_factory=dict)
    """Events of the step."""


class Update(Protocol):
    """A rule that turns an objective into a step of a learner's weights."""

    whole_experience: bool
    """True: one step on all rows, after passes of its own. False: steps on minibatches."""

    def attention(self) -> contextlib.AbstractContextManager[None]:
        """How the passes before the step have to be run."""
        ...

    def step(self, learner: Learner, objective: Any) -> Step:
        """Take one step, or none."""
        ...


class FirstOrder:
    """The learner's optimizer, on the norm-clipped gradient of all parts."""

    whole_experience = False

    def attention(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def step(self, learner: Learner, objective: Objective) -> Step:
        """One optimizer step of parts that add up; skipped where the gradient is not finite.

        Ranks add their gradients up in the last part.
        """
        optimizer: Any = learner.optimizers()
        optimizer.zero_grad()
        parts, observations = objective.parts(), []
        for number, (rows, counts) in enumerate(parts, start=1):
            with optimizer.toggle_model(sync_grad=number == len(parts)):
                losses, observation = objective.losses(rows)
                # Lightning's strategies take the mean over ranks; the denominators are those of
                # all.
                weight = learner.ranks.size if counts else 0
                total = torch.stack(list(losses.values())).sum()
                learner.manual_backward(total * weight)
                observations += [observation] if counts else []
        figures = objective.figures(learner.ranks.gather(observations))
        weights = learner.trainable()
        most = learner.conditions.optimization.max_grad_norm
        norm = float(whole(torch.nn.utils.clip_grad_norm_(list(weights.values()), most)))
        moved: Weights = {}
        finite = math.isfinite(norm)
        if finite:
            optimizer.step()
            # Autocast keeps its casts of the weights for as long as it is on, which is the whole
            # iteration: without this the next pass would be one of the old weights.
            torch.clear_autocast_cache()
            moved = {name: whole(p.grad) for name, p in weights.items() if p.grad is not None}
        optimizer.zero_grad()
        return Step(figures | {"grad_norm": norm}, moved, skipped=not finite)


@dataclass(frozen=True)
class Iteration:
    """What one iteration leaves behind for the recorder."""

    health: dict[str, float]
    """The names of :data:`~crlbench.contract.dynamics.STATS`, and of ``EPISODE_STATS`` where the
    task is an environment; NaN stands for no value."""
    counts: dict[str, int]
    rollout: Rollout
    """Everything that was sampled or read, kept or not."""
    reward: Reward
    trained_tokens: int
    """Tokens of the completions of all updates: K times each completion that teaches."""
    losses: list[float]
    """One per optimizer step, in order."""
    clipped: dict[str, Counter[int]]
    """``low``, ``high``: how often each token id was held back at that bound."""


@dataclass(frozen=True)
class Group:
    """Weights that learn at one rate."""

    weights: dict[str, nn.Parameter]
    """Weights by names that are no other group's."""
    learning_rate: float
    eps: float | None = None
    """Adam's epsilon; None for that of the conditions."""


class Learner(L.LightningModule):
    """A policy under fixed conditions; an iteration is a training step, and counts once."""

    carried: tuple[str, ...] = ("iterations_done", "skipped_running", "longest_skip", "updated")
    """Plain state that a checkpoint carries."""

    def __init__(
        self,
        *,
        build: Callable[[], Policy],
        collector: Collector,
        conditions: Conditions,
        seed: int,
        update: Update | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """``collector`` scores the points of the curve. ``ranks`` are the processes that train
        together: all hold the same figures, and divide rows and passes among them."""
        super().__init__()
        self.automatic_optimization = False
        # Frozen weights are rebuilt from the model entry and never stored in a checkpoint.
        self.strict_loading = False
        self.build = build
        self.collector = collector
        self.conditions = conditions
        self.seed = seed
        self.update = update or FirstOrder()
        self.ranks = ranks
        self.policy: Policy | None = None
        self.last_examination: Examination | None = None
        self.last_iteration: Iteration | None = None
        self.iterations_done = 0
        self.skipped_running = 0
        self.longest_skip = 0
        self.updated = False
        """Whether the policy is no longer the start model."""
        self.displacement = Displacement()
        self.events: dict[str, float] = {}
        """What the steps counted since the last iteration was closed."""
        self.meter: Meter | None = None
        """Adds up what is consumed, of the stages of chains; None where nobody asks."""

    @property
    def iteration(self) -> Iteration:
        """What the last iteration left behind."""
        assert self.last_iteration is not None
        return self.last_iteration

    # -- weights and their optimizer -------------------------------------------------------------

    def configure_model(self) -> None:
        if self.policy is None:
            self.policy = self.build()
        if self.device_mesh is not None:
            shard(self.policy, self.device_mesh["data_parallel"])

    @property
    def learning(self) -> Policy:
        """The policy, which Lightning builds before anything is asked of it."""
        assert self.policy is not None, "configure_model() comes first"
        return self.policy

    @property
    def passes(self) -> Passes:
        """How the policy is run over rows."""
        return Passes(self.learning, self.conditions.sampling.temperature, self.ranks, self.device)

    def groups(self) -> list[Group]:
        """All that learns, by learning rate: the model, and a value head. A learner with further
        networks adds theirs: the step, its figures, the checkpoint and the digests take them in.
        """
        o, head = self.conditions.optimization, self.learning.value_head
        valued = set() if head is None else {id(p) for p in head.parameters()}
        weights = self.learning.trainable()
        groups = [Group({n: p for n, p in weights.items() if id(p) not in valued}, o.learning_rate)]
        if valued:
            values = {n: p for n, p in weights.items() if id(p) in valued}
            groups.append(Group(values, o.value_learning_rate))
        return groups

    def trainable(self) -> dict[str, nn.Parameter]:
        """The weights of all groups, by name."""
        return {name: p for group in self.groups() for name, p in group.weights.items()}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        o = self.conditions.optimization
        return TracedAdamW(
            [
                {
                    "params": list(g.weights.values()),
                    "lr": g.learning_rate,
                    "base_lr": g.learning_rate,
                    "eps": o.adam_eps if g.eps is None else g.eps,
                }
                for g in self.groups()
            ],
            betas=(o.beta1, o.beta2),
            eps=o.adam_eps,
            weight_decay=o.weight_decay,
            fused=True,
        )

    def set_learning_rate(self, iteration: int) -> None:
        """Warm-up and schedule by iteration, the only clock."""
        o = self.conditions.optimization
        total = self.conditions.budget.iterations
        factor = min(1.0, (iteration + 1) / (o.warmup_iterations + 1))
        if o.schedule == "linear":
            factor *= 1.0 - iteration / total
        optimizer: Any = self.optimizers()
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor

    def shuffled(self, group: Tensor, iteration: int) -> Iterator[Tensor]:
        """Rows (b,) int64 of K epochs of M minibatches; each holds whole prompts, shuffled by a
        keyed draw.

        Fewer prompts than M make fewer minibatches. ``group`` (B,) int64 numbers the prompts.
        """
        o = self.conditions.optimization
        for epoch in range(o.epochs):
            order = list(range(int(group.max()) + 1))
            rng(self.seed, "minibatches", iteration, epoch).shuffle(order)
            for m in range(min(o.minibatches, len(order))):
                chosen = torch.tensor(sorted(order[m :: o.minibatches]), device=group.device)
                yield torch.isin(group, chosen).nonzero().squeeze(1)

    def step(self, objective: Objective) -> dict[str, float]:
        """One step of the update rule: its figures, and where it led in weight space."""
        done = self.advance(objective)
        return done.figures | self.displacement.measure(done.moved)

    def advance(self, objective: Objective) -> Step:
        """One step of the update rule, whose path nobody watches."""
        done = self.update.step(self, objective)
        self.learning.forget_recording()
        self.skipped_running = self.skipped_running + 1 if done.skipped else 0
        self.longest_skip = max(self.longest_skip, self.skipped_running)
        self.updated |= bool(done.moved)
        for name, count in done.counts.items():
            self.events[name] = self.events.get(name, 0.0) + count
        return done

    # -- the curve -------------------------------------------------------------------------------

    def validation_step(self, batch: PromptBatch, _: int) -> None:
        """Score the ID items: one point of the curve."""
        key = DrawKey(self.seed, "curve", self.iterations_done)
        part = batch.part(self.ranks.share(len(batch.uids)))
        with whole_weights(self.learning):
            results = [self.examine(part, key)] if part.uids else []
        self.last_examination = Examination.joined(self.ranks.gather(results), self.collector.pad)

    @torch.no_grad()
    def examine(self, batch: PromptBatch, key: DrawKey) -> Examination:
        """Items of an evaluation; where a reward model pays, also what is right, and the KL."""
        done = self.collector.examine(self.learning, batch, key)
        if not isinstance(self.collector, PaidByModel) or not self.learning.has_reference:
            return done
        judged = self.collector.judged(done.rollout, batch)
        if judged is None:
            return done
        return replace(done, truth=Truth(*judged, self.drift(done.rollout)))

    def drift(self, rollout: Rollout) -> Tensor:
        """(B,) summed log-ratios of the policy and the start model over sampled completions.

        Evaluations sample at temperature 1. In float32 decoding knows the policy's side.
        """
        passes = Passes(self.learning, 1.0, ALONE, self.device)
        policy = rollout.behavior_logprobs
        if self.conditions.hardware.precision != "fp32":
            policy, _ = passes.of_learner(rollout)
        ratios = (policy.double() - passes.of_reference(rollout).double()).cpu()
        return torch.where(rollout.action_mask.cpu(), ratios, 0.0).sum(dim=1)

    # -- what is kept ----------------------------------------------------------------------------

    def weights_finite(self) -> bool:
        """Whether every trainable weight is a finite number."""
        sums = [whole(p.detach().sum()).float() for p in self.trainable().values()]
        return bool(torch.stack(sums).isfinite().all())

    @property
    def other_cost(self) -> dict[str, int]:
        """What other models cost in training, for the record; empty where there are none."""
        return {}

    def learned(self) -> dict[str, Tensor]:
        """The trainable weights by name, whole on every rank."""
        return {name: whole(p.detach()) for name, p in self.trainable().items()}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        learning = {f"policy.{name}" for name in self.learning.trainable()}
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {
            n: t for n, t in state.items() if n in learning or not n.startswith("policy.")
        }
        checkpoint["displacement"] = self.displacement.last
        for name in self.carried:
            checkpoint[name] = getattr(self, name)
        if self.meter is not None:
            checkpoint["meter"] = self.meter.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.displacement.load(checkpoint["displacement"], self.device)
        for name in self.carried:
            setattr(self, name, checkpoint[name])
        if self.meter is not None and "meter" in checkpoint:
            self.meter.load(checkpoint["meter"])
