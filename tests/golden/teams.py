"""The family of values of teams."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from crlbench.algo.team import (
    Layer,
    Layers,
    Mixer,
    best_next,
    chosen,
    counterfactual_advantages,
    lambda_targets,
    one_step_targets,
    policy_loss,
    squared_error,
    summed_value,
)
from tests.golden.cases import Case, Computed, Family


def layers(x: Mapping[str, Tensor], name: str) -> Layers:
    """The layers of a network of pymarl: one, or those at the places of a sequence."""
    places = [name] if f"param.{name}.weight" in x else [f"{name}.0", f"{name}.2"]
    return tuple(Layer(x[f"param.{p}.weight"], x[f"param.{p}.bias"]) for p in places)


def run_mixer(case: Case) -> Computed:
    x = case.x
    names = ("hyper_w_1", "hyper_b_1", "hyper_w_final", "V")
    mixer = Mixer(*(layers(x, name) for name in names))
    values = x["agent_qs"].requires_grad_()
    team = mixer(values, x["states"])
    (gradient,) = torch.autograd.grad(team.sum(), values)
    return {"q_tot": team.detach(), "dqtot_dq": gradient}, None


def run_double_q(case: Case) -> Computed:
    x, p = case.x, case.params
    now = chosen(x["q_online"][:, :-1], x["actions"])
    after = best_next(x["q_online"], x["q_target_next"], x["avail_actions"])
    if p["mixer"] == "vdn":
        now, after = summed_value(now), summed_value(after)
    targets = one_step_targets(x["rewards"], x["terminated"], after, p["gamma"])
    return {"targets": targets, "loss": squared_error(now, targets, x["mask"])}, None


def run_team(case: Case) -> Computed:
    x, p = case.x, case.params
    if "pi" in x:
        advantages = counterfactual_advantages(x["pi"], x["q_vals"], x["actions"])
        loss = policy_loss(x["pi"], x["actions"], advantages, x["mask"])
        return {"advantages": advantages, "loss": loss}, None
    if "td_lambda" in p:
        given = x["rewards"], x["terminated"], x["mask"], x["target_qs"]
        return {"targets": lambda_targets(*given, p["gamma"], p["td_lambda"])}, None
    if "q_online" in x:
        return run_double_q(case)
    return run_mixer(case) if "states" in x else ({"q_tot": summed_value(x["agent_qs"])}, None)


TEAMS: dict[str, Family] = {"value_decomposition": run_team}
