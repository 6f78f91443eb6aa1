"""From a rollout to an experience, and from an experience to a loss."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from crlbench.algo.aggregate import Totals
from crlbench.algo.kl import K1, K2, K3, KlEstimator, kl_per_completion
from crlbench.algo.masked import masked_sum, select
from crlbench.algo.observe import Observation
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.signal import Signal
from crlbench.algo.steps import Timeline, any_over, sum_over
from crlbench.algo.token_rewards import StepRewards, place_steps, token_rewards
from crlbench.types import Experience, Rollout, as_bool


@torch.no_grad()
def prepare(
    rollout: Rollout,
    outcome: Tensor,
    old: Tensor,
    ref: Tensor | None,
    values: Tensor | None,
    recipe: Recipe,
    step_rewards: StepRewards | None = None,
    kl_coefficient: float | None = None,
    *,
    token_ends: Sequence[Sequence[int]] | None = None,
    final_values: Tensor | None = None,
    max_length: int | None = None,
) -> tuple[Experience, dict[str, float]]:
    """Token rewards, advantages and value targets of one whole batch, and what was counted.

    ``outcome`` (B,) is the reward of each completion before any shaping by its length, NaN
    where undefined. What the rows of a trajectory are paid adds up, and reaches its last token.
    ``old``, ``ref`` and ``values`` are (B, T): log-probabilities of the learner and of the
    reference, critic estimates. ``max_length`` is the cap on completions in tokens.
    ``step_rewards`` come with ``token_ends`` (see
    :func:`~crlbench.algo.token_rewards.place_steps`); ``kl_coefficient`` overrides the recipe's
    starting value; ``final_values`` (B,) is the critic's value after the last token.

    A row with a non-finite number at a valid token, or a non-finite reward, is dropped, with all
    rows of its trajectory: it teaches nothing and enters no statistic. A trajectory of which a row
    was cut off counts as cut off. Counts: ``dropped_rows`` (those), ``filtered_rows``
    (removed by the sample filter or as overlong), ``empty_rows`` (no valid token),
    ``whitening_skipped`` (1 if so), ``uniform_rows`` (not scaled, as their group does not vary)
    and ``kl_per_completion`` (nats, over the trajectories not dropped; NaN without reference).
    """
    _check_inputs(recipe, ref, values)
    mask, trajectory = as_bool(rollout.action_mask), rollout.trajectory
    paid = outcome.to(mask.device).double()
    correctness = sum_over(paid, trajectory)
    rewards = sum_over(recipe.overlong.shaped(paid, mask.sum(1), max_length), trajectory)
    steps = None
    if step_rewards is not None:
        if token_ends is None:
            raise ValueError("step_rewards need token_ends to find their tokens")
        steps = place_steps(step_rewards, token_ends, mask)
    finite = _finite_rows([old, rollout.behavior_logprobs, steps, ref, values], mask)
    valid = ~any_over(~(torch.isfinite(rewards) & finite), trajectory)
    live = mask & valid[:, None]
    penalty = None
    if recipe.kl.place == "reward":
        assert ref is not None
        penalty = _beta(recipe, kl_coefficient) * recipe.kl(old.double(), ref.double(), live)

    line = Timeline.of(live, trajectory)
    along = (None if x is None else line.gather(x) for x in (steps, penalty))
    signal = Signal(
        rewards=rewards,
        token_rewards=line.scatter(token_rewards(line.at_end(rewards), line.mask, *along)),
        mask=live,
        group=rollout.group,
        truncated=any_over(~as_bool(rollout.finished), trajectory),
        valid=valid,
        values=None if values is None else values.double(),
        final_values=None if final_values is None else final_values.double(),
        correctness=correctness,
        trajectory=trajectory,
        turn=rollout.turn,
        state=rollout.state,
    )
    advantages, returns = recipe.advantage(signal)
    keep = valid & recipe.select(signal) & recipe.overlong.keep(signal.truncated)
    kept = live & keep[:, None]
    advantages, counts = recipe.normalize(advantages, kept, signal)
    experience = Experience(
        rollout=rollout,
        rewards=rewards.float(),
        token_rewards=signal.token_rewards.float(),
        old_logprobs=old.float(),
        ref_logprobs=None if ref is None else ref.float(),
        values=None if values is None else values.float(),
        returns=None if returns is None else select(live, returns).float(),
        advantages=select(kept, advantages).float(),
        keep=keep,
        value_mask=signal.turns.start_tokens if recipe.advantage.values_turns else None,
    )
    completions = int(signal.counted.sum())
    return experience, {
        "dropped_rows": float((~valid).sum()),
        "filtered_rows": float((valid & ~keep).sum()),
        "empty_rows": float((~mask.any(1)).sum()),
        "whitening_skipped": 0.0,
        "uniform_rows": 0.0,
        "kl_per_completion": (
            math.nan
            if ref is None
            else kl_per_completion(old[valid], ref[valid], mask[valid], completions)
        ),
        **counts,
    }


def loss(
    minibatch: Experience,
    new_logprobs: Tensor,
    values: Tensor | None,
    entropy: Tensor | None,
    recipe: Recipe,
    totals: Totals,
    kl_coefficient: float | None = None,
) -> tuple[Tensor, Observation]:
    """The scalar to minimise for a (micro-)batch, and what it shows about the policy.

    ``new_logprobs``, ``values`` and ``entropy`` are (b, T), differentiable, of the policy as it
    is now; what they hold at masked positions and in dropped rows has no influence. ``totals``
    counts the whole optimiser step, so the losses of its micro-batches add up to the loss of
    the step, and :func:`~crlbench.algo.observe.step_stats` joins their observations.
    """
    _check_inputs(recipe, minibatch.ref_logprobs, values)
    if recipe.entropy_bonus and entropy is None:
        raise ValueError(f"recipe '{recipe.name}' has an entropy bonus and needs the entropy")
    rollout = minibatch.rollout
    mask = as_bool(rollout.action_mask) & minibatch.keep[:, None]
    new, old = _clean(mask, new_logprobs), _clean(mask, minibatch.old_logprobs)
    advantages = _clean(mask, minibatch.advantages)

    belongs = getattr(rollout, recipe.aggregate.by)

    def aggregate(token_losses: Tensor) -> Tensor:
        return recipe.aggregate(token_losses, mask, totals, belongs)

    ratio = recipe.ratio.over_turns(new, old, mask, rollout.turn)
    policy_loss = aggregate(recipe.clip(ratio, advantages, new))
    total = policy_loss

    value_loss = torch.zeros_like(policy_loss)
    if recipe.critic is not None:
        assert values is not None and minibatch.values is not None
        assert minibatch.returns is not None
        asked = mask if minibatch.value_mask is None else mask & minibatch.value_mask
        targets = (_clean(asked, x) for x in (values, minibatch.values, minibatch.returns))
        value_loss = recipe.aggregate(
            recipe.critic(*targets), asked, totals.critic or totals, belongs
        )
        total = total + recipe.critic.coefficient * value_loss
    if recipe.kl.place == "loss":
        assert minibatch.ref_logprobs is not None
        kl = recipe.kl(new, _clean(mask, minibatch.ref_logprobs), mask)
        total = total + _beta(recipe, kl_coefficient) * aggregate(kl)
    if recipe.entropy_bonus:
        assert entropy is not None
        total = total - recipe.entropy_bonus * aggregate(_clean(mask, entropy))

    with torch.no_grad():
        low, high = recipe.clip.clipped(ratio, advantages)
        token_ratio = TokenRatio()(new, old, mask)
        figures = {
            "loss": total,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": _token_mean(entropy, mask, totals),
            "clip_fraction": _token_mean(low | high, mask, totals),
            "clip_low": _token_mean(low, mask, totals),
            "clip_high": _token_mean(high, mask, totals),
        }
        for name, estimator in _OF_OLD.items():
            figures[f"approx_kl{name}"] = _token_mean(estimator(old, new), mask, totals)
        numbers = torch.stack([x.detach().double() for x in figures.values()]).tolist()
    return total, Observation(
        sums=dict(zip(figures, numbers, strict=True)),
        ids=rollout.completion_ids[mask],
        ratio=token_ratio[mask],
        low=low[mask],
        high=high[mask],
    )


_OF_OLD: dict[str, KlEstimator] = {"": K3(output_clamp=None), "_k1": K1(), "_k2": K2()}
"""Ending of ``approx_kl`` -> estimator."""


def _check_inputs(recipe: Recipe, ref: Tensor | None, values: Tensor | None) -> None:
    if recipe.needs_reference and ref is None:
        raise ValueError(f"recipe '{recipe.name}' needs reference log-probabilities")
    if recipe.critic is not None and values is None:
        raise ValueError(f"recipe '{recipe.name}' needs the critic's values")


def _beta(recipe: Recipe, kl_coefficient: float | None) -> float:
    return recipe.kl.coefficient.start if kl_coefficient is None else kl_coefficient


def _finite_rows(tensors: list[Tensor | None], mask: Tensor) -> Tensor:
    """(B,) bool: rows where every given tensor is finite at every valid token."""
    finite = torch.stack([torch.isfinite(x) for x in tensors if x is not None]).all(0)
    return (finite | ~mask).all(1)


def _clean(mask: Tensor, x: Tensor) -> Tensor:
    """``x`` in at least float32, 0 at masked positions."""
    return select(mask, x if x.dtype == torch.float64 else x.float())


def _token_mean(x: Tensor | None, mask: Tensor, totals: Totals) -> Tensor:
    if x is None:
        return torch.zeros((), device=mask.device)
    return masked_sum(x.double(), mask) / max(totals.tokens, 1.0)
