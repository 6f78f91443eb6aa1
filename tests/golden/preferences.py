"""Families of losses on pairs of completions."""

from __future__ import annotations

from crlbench.algo.preference import bradley_terry
from tests.golden.cases import Case, Computed, Family


def run_reward_model(case: Case) -> Computed:
    x = case.x
    chosen, rejected = (x[name].clone().requires_grad_() for name in ("chosen", "rejected"))
    loss = bradley_terry(
        chosen,
        rejected,
        margin=x.get("margin"),
        centering=case.params.get("center_rewards_coefficient") or 0.0,
        keep=x["pair_mask"] != 0 if "pair_mask" in x else None,
    )
    loss.backward()
    return {
        "loss": loss.detach(),
        "grad_chosen": chosen.grad,
        "grad_rejected": rejected.grad,
    }, None


PREFERENCES: dict[str, Family] = {"reward_model_loss": run_reward_model}
