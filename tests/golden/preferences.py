"""Families of losses on pairs of completions."""

from __future__ import annotations

import torch
from torch import Tensor

from crlbench.algo.pairs.loss import ConservativeDpo, Dpo, Ipo, PairLogprobs, PairLoss, RobustDpo
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.preference import bradley_terry
from tests.golden.build import TRL
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


def run_dpo(case: Case) -> Computed:
    pairs, leaves = pairs_of(case)
    recipe = PairRecipe(name="golden", pair_loss=pair_loss_of(case))
    losses = recipe.losses(pairs)
    keep = case.x["pair_mask"] != 0 if "pair_mask" in case.x else torch.ones_like(losses).bool()
    loss = losses[keep].mean()
    loss.backward()
    chosen, rejected = recipe.pair_loss.rewards(pairs)
    return {
        "losses": losses.detach(),
        "loss": loss.detach(),
        "chosen_rewards": chosen.detach(),
        "rejected_rewards": rejected.detach(),
        "grad_policy_chosen": leaves[0].grad,
        "grad_policy_rejected": leaves[1].grad,
    }, None


def pair_loss_of(case: Case) -> PairLoss:
    """The part that a case asks for; the nearest that we have where there is none."""
    p = case.params
    beta, smoothing = p["beta"], p.get("label_smoothing", 0.0)
    if p.get("loss") == "ipo":
        return Ipo(beta, average=case.repo == TRL)
    if p.get("loss") == "robust":
        return RobustDpo(beta, smoothing)
    # TRL's sigmoid takes a label smoothing and does not use it.
    ignored = case.variant.get("label_smoothing") or ""
    return ConservativeDpo(beta, smoothing) if smoothing and not ignored else Dpo(beta)


def pairs_of(case: Case) -> tuple[PairLogprobs, tuple[Tensor, Tensor]]:
    """The pairs of a case, and the log-probabilities to be differentiated by."""
    x = case.x
    if "token_log_probs" in x:  # rows alternate: preferred, other
        mask = x["mask"]
        sums = (x["token_log_probs"] * mask).sum(1), (x["ref_token_log_probs"] * mask).sum(1)
        policy, ref = ((rows[0::2], rows[1::2]) for rows in sums)
        counts = mask.sum(1)[0::2], mask.sum(1)[1::2]
    else:
        policy, ref = ((x[f"{who}_chosen"], x[f"{who}_rejected"]) for who in ("policy", "ref"))
        mask = x.get("completion_mask", torch.ones(2 * len(policy[0]), 1))
        counts = tuple(mask.sum(1).chunk(2))
    leaves = tuple(side.clone().requires_grad_() for side in policy)
    return PairLogprobs(*leaves, *ref, *(count.to(ref[0].dtype) for count in counts)), leaves


PREFERENCES: dict[str, Family] = {"dpo_loss": run_dpo, "reward_model_loss": run_reward_model}
