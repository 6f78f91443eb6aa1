"""What every training shares: a policy that is built, stepped, evaluated and stored.

A subclass says in ``training_step`` where its loss comes from. The loss itself is an
:class:`~crlbench.train.update.Objective`, the step an :class:`~crlbench.train.update.Update`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric

from crlbench.contract.conditions import Conditions
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.train.collect import Collector
from crlbench.train.displacement import Displacement
from crlbench.train.examination import Examination
from crlbench.train.optimizer import TracedAdamW
from crlbench.train.passes import Passes
from crlbench.train.ranks import ALONE, Ranks, whole
from crlbench.train.sharding import shard, whole_weights
from crlbench.train.update import FirstOrder, Objective, Update
from crlbench.types import PromptBatch


@dataclass(frozen=True)
class Group:
    """Weights that learn at one rate."""

    weights: dict[str, nn.Parameter]
    """By names that are no other group's."""
    learning_rate: float


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
        self.iterations_done = 0
        self.skipped_running = 0
        self.longest_skip = 0
        self.updated = False
        """Whether the policy is no longer the start model."""
        self.displacement = Displacement()
        self.events: dict[str, float] = {}
        """What the steps counted since the last iteration was closed."""
        self.eval_score = MeanMetric(sync_on_compute=False)

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
        return Passes(
            self.learning, self.conditions.sampling.temperature, self.ranks, self.device
        )

    @property
    def max_grad_norm(self) -> float:
        """Norm to which a gradient is clipped."""
        return self.conditions.optimization.max_grad_norm

    def groups(self) -> list[Group]:
        """All that learns, by learning rate: the model, and a value head. A learner with further
        networks adds theirs: the step, its figures, the checkpoint and the digests take them in.
        """
        o, head = self.conditions.optimization, self.learning.value_head
        valued = set() if head is None else {id(p) for p in head.parameters()}
        weights = self.learning.trainable()
        found = [Group({n: p for n, p in weights.items() if id(p) not in valued}, o.learning_rate)]
        if valued:
            values = {n: p for n, p in weights.items() if id(p) in valued}
            found.append(Group(values, o.value_learning_rate))
        return found

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

    def step(self, objective: Objective) -> dict[str, float]:
        """One step of the update rule: its figures, and where it led in weight space."""
        done = self.update.step(self, objective)
        self.skipped_running = self.skipped_running + 1 if done.skipped else 0
        self.longest_skip = max(self.longest_skip, self.skipped_running)
        self.updated |= bool(done.moved)
        for name, count in done.counts.items():
            self.events[name] = self.events.get(name, 0.0) + count
        return done.figures | self.displacement.measure(done.moved)

    # -- the curve -------------------------------------------------------------------------------

    def validation_step(self, batch: PromptBatch, _: int) -> None:
        """Score the ID items: one point of the curve."""
        key = DrawKey(self.seed, "curve", self.iterations_done)
        mine = batch.part(self.ranks.share(len(batch.uids)))
        with whole_weights(self.learning):
            own = [self.collector.examine(self.learning, mine, key)] if mine.uids else []
        self.last_examination = Examination.joined(self.ranks.gather(own), self.collector.pad)
        self.eval_score.update(self.last_examination.scores)

    def on_validation_epoch_end(self) -> None:
        self.log("eval/score", self.eval_score.compute())
        self.eval_score.reset()

    # -- what is kept ----------------------------------------------------------------------------

    def weights_finite(self) -> bool:
        """Whether every trainable weight is a finite number."""
        weights = self.trainable().values()
        return all(math.isfinite(float(whole(p.detach().sum()))) for p in weights)

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

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.displacement.load(checkpoint["displacement"], self.device)
        for name in self.carried:
            setattr(self, name, checkpoint[name])
