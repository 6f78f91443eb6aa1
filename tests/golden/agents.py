"""Families of credit in episodes: turns and trajectories, roles, implicit process rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from crlbench.algo.advantage import Gae, GroupMean, StepGae, rewards_to_go
from crlbench.algo.aggregate import Totals, TrajectoryMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.implicit import bounded, outcome_loss, process_returns
from crlbench.algo.masked import masked_whiten
from crlbench.algo.normalize import GroupStd, NoNorm, WhitenTurns
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.roles import above_role_baseline
from crlbench.algo.steps import sum_over
from tests.golden.advantages import whitened
from tests.golden.build import experience, rollout_of, signal_of
from tests.golden.cases import Case, Computed, Family
from tests.golden.losses import surrogate


def numbered(names: Sequence[str]) -> Tensor:
    """(B,) int64: equal names have equal numbers."""
    return torch.tensor([sorted(set(names)).index(name) for name in names])


def run_step_mdp(case: Case) -> Computed:
    """Rows of one turn each; rows of a trajectory stand in the order of its steps."""
    x, p, mask = case.x, case.params, case.mask("token_level_rewards")
    assert all(a[0] != b[0] or a[1] < b[1] for a, b in neighbours(x["trajectory"], x["step"]))
    trajectory = numbered(x["trajectory"])
    signal = signal_of(
        mask,
        x["token_level_rewards"],
        values=x["values"].double(),
        trajectory=trajectory,
        group=x["group"],
        rewards=sum_over((x["token_level_rewards"] * mask).sum(1).double(), trajectory),
    )
    if "norm_adv_by_std_in_grpo" in p:
        divide = GroupStd(eps=p["epsilon"]) if p["norm_adv_by_std_in_grpo"] else NoNorm()
        raw, _ = GroupMean()(signal)
        return {"advantages": divide(raw, mask, signal)[0]}, mask
    if case.function == "compute_token_gae_advantage_return":
        raw, returns = Gae(p["gamma"], p["lam"])(signal)
        return {"advantages": whitened(case, raw, signal), "returns": returns}, mask
    raw, returns = StepGae(p["gamma"], p["lam"])(signal)
    return {"advantages": WhitenTurns()(raw, mask, signal)[0], "returns": returns}, mask


def neighbours(trajectory: Sequence[str], step: Sequence[int]):
    """Pairs of (trajectory, step) of rows side by side."""
    rows = list(zip(trajectory, step, strict=True))
    return list(zip(rows, rows[1:], strict=False))


def run_rollout_mean(case: Case) -> Computed:
    x, p, mask = case.x, case.params, case.mask("log_probs")
    trajectory = numbered(x["rollout_ids"])
    rollout = rollout_of(mask, x["old_log_probs"], trajectory=trajectory)
    minibatch = experience(mask, x["old_log_probs"], x["advantages"])
    totals = Totals.of(replace(minibatch, rollout=rollout))
    losses = torch.ones_like(x["advantages"]).requires_grad_()
    TrajectoryMean()(losses, mask, totals, trajectory).backward()
    clip = PpoClip(p["eps_low"], p["eps_high"], p["dual_clip"])
    outputs = surrogate(case, TokenRatio(), clip, TrajectoryMean(), None, totals, trajectory)
    return outputs | {"normalized_advantages": losses.grad * x["advantages"]}, None


def run_role_baselines(case: Case) -> Computed:
    """Games of two players, one after the other; what one wins the other loses."""
    x, p = case.x, case.params
    roles = [("game", 0), ("game", 1)]
    means = dict.fromkeys(roles, p["initial_baseline"])
    turn_rewards: list[float] = []
    after: list[float] = []
    for outcome, turns in zip(x["outcome_player0"], x["turns_per_player"], strict=True):
        earned = [float(outcome), -float(outcome)]
        advantages, means = above_role_baseline(earned, roles, means, p["ema_decay"])
        for advantage, count in zip(advantages, turns, strict=True):
            paid = torch.zeros(1, count, dtype=torch.float64)
            paid[0, -1] = advantage
            own = torch.ones(1, count, dtype=torch.bool)
            turn_rewards += rewards_to_go(paid, own, p["gamma"])[0].tolist()
        after += [means[role] for role in roles]
    flat = torch.tensor(turn_rewards, dtype=torch.float64)
    return {"turn_rewards": flat, "baseline_after": torch.tensor(after, dtype=torch.float64)}, None


def run_implicit(case: Case) -> Computed:
    x, p = case.x, case.params
    if "token_log_ratio" in x:
        loss = outcome_loss(x["token_log_ratio"], x["outcome"], case.mask("outcome"), p["beta"])
        return {"loss": loss}, None
    rewards = x["implicit_process_rewards"]
    mask = case.mask("implicit_process_rewards")
    if "eps" in p:
        return {"normalized": bounded(rewards, mask, p["eps"])}, mask
    group = torch.arange(len(mask)) // p["group_size"]
    outcome = x["verifier_rewards"].sum(1)
    gammas = p["reward_model_gamma"], p["verifier_gamma"]
    returns = process_returns(rewards, outcome, mask, group, *gammas)
    return {"returns": returns, "advantages": masked_whiten(returns, mask)}, mask


def run_agent_credit(case: Case) -> Computed:
    if "rollout_ids" in case.x:
        return run_rollout_mean(case)
    return run_role_baselines(case) if "outcome_player0" in case.x else run_implicit(case)


AGENTS: dict[str, Family] = {"agent_credit": run_agent_credit, "step_mdp": run_step_mdp}
