"""Discrete soft actor-critic (experimental): critics and policy learn from a replay.

An iteration samples completions into the replay, then takes steps in turn: the critics', the
policy's with its temperature, and the target's, which follows the critics by a share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from crlbench.algo.replay import SacRecipe, StartPrior, check_words
from crlbench.base.heap import give_back
from crlbench.contract.dynamics import REPLAY_STATS, mean_stats
from crlbench.contract.experience import Source
from crlbench.train.learner import Group
from crlbench.train.passes import Passes
from crlbench.train.ranks import whole_weights
from crlbench.train.replay import Replay
from crlbench.train.sampling import WatchedLearner
from crlbench.train.twin_critic import TwinCritic, frozen_copy
from crlbench.types import PromptBatch, Rollout

CRITIC_EPS = 1e-4
"""Adam's epsilon of the critics. With the usual 1e-8 some seeds of a discrete SAC never learn
(vwxyzjn/cleanrl#270)."""

STEPS = tuple(name for name in REPLAY_STATS if name not in ("loss", "replay_rows"))
"""Figures of a step of critics and policy."""


class States(NamedTuple):
    """The n states of completions, each with the token taken there."""

    row: Tensor
    """(n,) int64: the completion."""
    place: Tensor
    """(n,) int64: the position of the token."""
    actions: Tensor
    """(n,) int64: the token."""
    is_last: Tensor
    """(n,) bool: the completion's last one."""

    @staticmethod
    def of(rollout: Rollout) -> States:
        """The states of a rollout in which every completion is sampled whole."""
        row, place = rollout.action_mask.nonzero(as_tuple=True)
        last = rollout.completion_mask.sum(1)[row] - 1
        return States(row, place, rollout.completion_ids[row, place], place == last)

    def before(self, values: Tensor) -> Tensor:
        """(n, V) what (B, T, V) says of the states."""
        return values.cpu()[self.row, self.place]

    def after(self, values: Tensor) -> Tensor:
        """(n, V) what (B, T + 1, V) says of the states that follow."""
        return values.cpu()[self.row, self.place + 1]


@dataclass(eq=False)
class SoftObjective:
    """What critics and policy share: a step is a mean over the states of its completions."""

    rollout: Rollout
    passes: Passes
    recipe: SacRecipe
    critic: TwinCritic
    alpha: float

    @property
    def states(self) -> int:
        """States of the whole step."""
        return int(self.rollout.action_mask.sum())

    def parts(self) -> list[tuple[Tensor, bool]]:
        return self.passes.micro_batches(self.rollout, torch.arange(len(self.rollout.texts)))

    def part(self, rows: Tensor) -> Rollout:
        """The completions of a pass, as wide as the longest."""
        some = self.rollout.rows(rows)
        return some.trimmed(int(some.completion_mask.sum(1).max()))

    def distribution(self, rollout: Rollout) -> Tensor:
        """(B, T, V) log-probabilities of the policy."""
        found = self.passes.policy(*self.passes.inputs(rollout), distribution=True).distribution
        assert found is not None  # it was asked for
        return found

    def prior(self, rollout: Rollout) -> Tensor | None:
        """(B, T, V) log-probabilities of the prior; None where entropy is rewarded."""
        if not isinstance(self.recipe.prior, StartPrior):
            return None
        return self.passes.policy.reference_distribution(*self.passes.inputs(rollout))

    def figures(self, shown: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
        """Means of what the passes showed of the states."""
        return {
            name: float(torch.cat([part[name] for part in shown]).double().mean())
            for name in shown[0]
        }


@dataclass(eq=False)
class CriticObjective(SoftObjective):
    """The squared errors of both critics."""

    rewards: Tensor
    """(B,) float32: what each completion was paid, at its last token."""
    target: TwinCritic

    def losses(self, rows: Tensor) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        part, paid = self.part(rows), self.rewards[rows]
        states, longer = States.of(part), part.longer()
        y = self.targets(longer, states, paid, part.finished)
        q1, q2 = (states.before(q) for q in self.critic(self.passes.inputs(part)))
        loss = self.recipe.soft_losses.critic_loss(q1, q2, states.actions, y)
        taken = torch.minimum(q1, q2).detach().gather(1, states.actions[:, None]).squeeze(1)
        shown = {
            "critic_loss": loss.detach().expand(len(y)),
            "q_value": taken,
            "q_target": y,
        }
        return {"critics": loss * (len(y) / self.states)}, shown

    @torch.no_grad()
    def targets(self, longer: Rollout, states: States, paid: Tensor, finished: Tensor) -> Tensor:
        """(n,) what the critics are fitted to.

        A completion that was cut off goes on in the state after its last token.
        """
        prior = self.prior(longer)
        q1, q2 = self.target(self.passes.inputs(longer))
        return self.recipe.soft_losses.target(
            torch.where(states.is_last, paid[states.row], 0.0),
            states.is_last & finished[states.row],
            states.after(self.distribution(longer)),
            states.after(q1),
            states.after(q2),
            self.alpha,
            None if prior is None else states.after(prior),
        )


@dataclass(eq=False)
class ActorObjective(SoftObjective):
    """Minus the soft value of the policy, and the loss of the temperature where that learns."""

    log_alpha: Tensor

    def losses(self, rows: Tensor) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        part = self.part(rows)
        states, losses = States.of(part), self.recipe.soft_losses
        logprobs = states.before(self.distribution(part))
        prior = self.prior(part)
        with torch.no_grad():
            q1, q2 = (states.before(q) for q in self.critic(self.passes.inputs(part)))
        found = {
            "actor": losses.actor_loss(
                logprobs, q1, q2, self.alpha, None if prior is None else states.before(prior)
            )
        }
        wanted = self.recipe.temperature.target_entropy(logprobs.shape[1])
        if wanted is not None:
            found["temperature"] = losses.temperature_loss(
                self.log_alpha.cpu(), logprobs.detach(), wanted
            )
        known = logprobs.detach()
        shown = {
            "actor_loss": found["actor"].detach().expand(len(known)),
            "entropy": -(known.exp() * known).sum(1),
        }
        share = len(known) / self.states
        return {name: loss * share for name, loss in found.items()}, shown


class SoftActorCritic(WatchedLearner):
    """Soft actor-critic over the tokens of single-turn completions, on one device."""

    source: Source = "replay"

    def __init__(self, *, recipe: SacRecipe, **settings: Any) -> None:
        """``settings`` are those of :class:`~crlbench.train.sampling.SamplingLearner`."""
        super().__init__(**settings)
        self.recipe = recipe
        self.critic: TwinCritic | None = None
        self.target: TwinCritic | None = None
        self.log_alpha = nn.Parameter(torch.tensor([math.log(recipe.temperature.first)]))
        self.replay = Replay(recipe.replay.capacity, self.collector.pad)

    def configure_model(self) -> None:
        super().configure_model()
        if self.critic is None:
            words = self.learning.config.vocab_size
            check_words("the model", words)
            self.critic = TwinCritic(self.learning, words, self.seed)
            self.target = frozen_copy(self.critic)

    def groups(self) -> list[Group]:
        assert self.critic is not None  # configure_model() made it
        rate = self.conditions.optimization.value_learning_rate
        critics = {f"critic.{name}": p for name, p in self.critic.learning().items()}
        groups = [*super().groups(), Group(critics, rate, CRITIC_EPS)]
        if self.learns_alpha:
            groups.append(Group({"log_alpha": self.log_alpha}, rate))
        return groups

    @property
    def alpha(self) -> float:
        """The present temperature of the entropy."""
        if not self.learns_alpha:
            return self.recipe.temperature.first
        return float(self.log_alpha.detach().exp()[0])

    @property
    def learns_alpha(self) -> bool:
        """Whether the temperature moves."""
        return self.recipe.temperature.target_entropy(self.learning.config.vocab_size) is not None

    def training_step(self, batch: PromptBatch, _: int) -> None:
        self.set_learning_rate(batch.iteration)
        with whole_weights(self.learning):
            collected = self.collect(batch)
            seen = self.look(collected, batch.iteration)
        give_back()
        paid = collected.reward.paid
        self.replay.add(collected.rollout, paid)
        stats: list[dict[str, float]] = []
        losses: list[float] = []
        trained = 0
        for number in range(self.recipe.replay.updates if len(self.replay) else 0):
            count = self.conditions.budget.rows
            rollout, rewards = self.replay.draw(count, self.seed, batch.iteration, number)
            stats.append(self.update_on(rollout, rewards))
            losses += [stats[-1]["critic_loss"], stats[-1]["actor_loss"]]
            trained += 2 * int(rollout.action_mask.sum())
        figures = mean_stats(stats, STEPS) | {"replay_rows": float(len(self.replay))}
        figures["loss"] = sum(losses) / len(losses) if losses else math.nan
        norms = [step[name] for step in stats for name in ("grad_norm", "critic_grad_norm")]
        self.close(
            batch,
            collected,
            seen,
            figures,
            losses=losses,
            skipped=sum(not math.isfinite(norm) for norm in norms),
            trained_tokens=trained,
            counts={"dropped_rows": int((~paid.isfinite()).sum())},
        )
        give_back()

    def update_on(self, rollout: Rollout, rewards: Tensor) -> dict[str, float]:
        """A step of the critics, one of the policy, and the target follows; their figures."""
        assert self.critic is not None and self.target is not None
        alpha, shared = self.alpha, (rollout, self.passes, self.recipe, self.critic)
        critics = self.advance(CriticObjective(*shared, alpha, rewards, self.target)).figures
        actor = self.step(ActorObjective(*shared, alpha, self.log_alpha[0]))
        self.recipe.soft_losses.follow(self.target, self.critic)
        norm = {"critic_grad_norm": critics.pop("grad_norm")}
        return critics | norm | actor | {"temperature": alpha}

    # -- the replay is a part of the checkpoint --------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["replay"] = self.replay.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.replay.load_state_dict(checkpoint["replay"])
