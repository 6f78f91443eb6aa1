"""Families of whole policy updates."""

from __future__ import annotations

import math

import torch

from crlbench.algo.soft_actor_critic import DiscreteSac
from tests.algo.test_trust_region import trpo_step
from tests.golden.cases import Case, Computed, Family


def run_trpo(case: Case) -> Computed:
    return trpo_step(case.params, case.x), None


def run_sac(case: Case) -> Computed:
    """The peer takes means over states and actions, ours are expectations over actions."""
    x, p = case.x, case.params
    sac, alpha = DiscreteSac(gamma=p["gamma"]), p["alpha"]
    now, after = (torch.log_softmax(x[name], 1) for name in ("logits", "next_logits"))
    target = sac.target(
        x["rewards"].squeeze(1),
        x["dones"].squeeze(1) != 0,
        after,
        x["q1_target_next"],
        x["q2_target_next"],
        alpha,
    )
    log_alpha, actions = torch.tensor(math.log(alpha), dtype=torch.float64), now.shape[1]
    return {
        "critic_target": target,
        "critic_loss": sac.critic_loss(x["q1"], x["q2"], x["actions"].squeeze(1), target),
        "actor_loss_peer": sac.actor_loss(now, x["q1"], x["q2"], alpha) / actions,
        "alpha_loss_peer": sac.temperature_loss(log_alpha, now, p["target_entropy"]) / actions,
    }, None


UPDATES: dict[str, Family] = {"trpo_step": run_trpo, "sac_discrete": run_sac}
