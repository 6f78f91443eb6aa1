"""Families of losses: recipes of our parts through ``objective.loss``."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import Aggregation, FixedLength, SequenceMean, TokenMean, Totals
from crlbench.algo.clip import Cispo, NoClip, PpoClip, Sapo
from crlbench.algo.kl import K3, KlInLoss, NoKl
from crlbench.algo.masked import masked_mean
from crlbench.algo.normalize import NoNorm
from crlbench.algo.objective import loss
from crlbench.algo.observe import step_stats
from crlbench.algo.ratio import NoRatio, SequenceRatio, TokenRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.recipes import load
from crlbench.algo.value import Critic
from tests.golden.build import TRL, aggregation, experience, totals_of
from tests.golden.cases import Case, Computed, Family


def surrogate(
    case: Case,
    ratio: NoRatio | SequenceRatio | TokenRatio,
    clip: Cispo | NoClip | PpoClip | Sapo,
    aggregate: Aggregation,
    kl: KlInLoss | NoKl | None = None,
    totals: Totals | None = None,
    trajectory: Tensor | None = None,
) -> dict[str, Tensor | float]:
    """Loss, gradient and statistics of the parts on a case's tensors.

    ``trajectory`` (B,) names the trajectory of each row; None: each is one.
    """
    x, mask, old = case.x, case.mask("log_probs"), case.x["old_log_probs"]
    advantages = x["advantages"] if "advantages" in x else x["advantages_per_seq"]
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand(mask.shape)
    recipe = Recipe(
        name="golden",
        advantage=GroupMean(),
        normalize=NoNorm(),
        ratio=ratio,
        clip=clip,
        aggregate=aggregate,
        kl=kl or NoKl(),
    )
    minibatch = experience(mask, old, advantages, ref_logprobs=x.get("ref_log_probs"))
    minibatch = replace(minibatch, rollout=replace(minibatch.rollout, trajectory=trajectory))
    new = x["log_probs"].clone().requires_grad_()
    total, observation = loss(minibatch, new, None, None, recipe, totals or totals_of(mask))
    total.backward()
    assert torch.isfinite(new.grad).all()
    stats = step_stats([observation])
    return {
        "loss": total.detach(),
        "grad_log_probs": new.grad,
        "clipfrac": stats["clip_fraction"],
        "approx_kl": stats["approx_kl_k1"],
    }


def run_policy_loss(case: Case) -> Computed:
    p, mask = case.params, case.mask("log_probs")
    ratio = TokenRatio(p.get("log_ratio_clamp", TokenRatio().log_ratio_clamp))
    clip = PpoClip(p["eps_low"], p["eps_high"], p.get("dual_clip"))
    kl = KlInLoss(p["kl_coef"], p["kl"]) if "kl_coef" in p else None
    outputs = surrogate(case, ratio, clip, aggregation(case, mask.shape[1]), kl)
    if "clipfrac_lower" in case.y:
        outputs["clipfrac_lower"] = dually_clipped(case, ratio, clip)
    return outputs, None


def dually_clipped(case: Case, ratio: TokenRatio, clip: PpoClip) -> Tensor:
    """Share of tokens whose loss the dual clip bounds."""
    x, mask = case.x, case.mask("log_probs")
    arguments = ratio(x["log_probs"], x["old_log_probs"], mask), x["advantages"], x["log_probs"]
    bounded = replace(clip, dual=None)(*arguments) > clip(*arguments)
    return masked_mean(bounded.double(), mask)


def run_gspo(case: Case) -> Computed:
    p = case.params
    ratio = SequenceRatio() if case.role == "reference" else SequenceRatio(log_ratio_max=None)
    clip = PpoClip(p["eps_low"], p["eps_high"])
    count_empty = case.variant["empty_rows"].startswith("COUNTED")
    row_eps = {"row_eps": 0.0} if case.repo == TRL else {}
    return surrogate(case, ratio, clip, SequenceMean("mean", count_empty, **row_eps)), None


def run_trl_grpo(case: Case) -> Computed:
    p, kind = case.params, case.params["loss_type"]
    ratio = {
        "token": TokenRatio(log_ratio_clamp=None),
        "sequence": SequenceRatio(log_ratio_max=None),
    }[p["importance_sampling_level"]]
    rows = SequenceMean(count_empty=True, row_eps=0.0)
    aggregate = {
        "grpo": rows,
        "sapo": rows,
        "luspo": replace(rows, row="sum"),
        "dr_grpo": FixedLength(p["max_completion_length"]),
    }.get(kind, TokenMean())
    totals = totals_of(case.mask("log_probs"))
    if kind in ("dapo", "cispo"):
        totals = replace(totals, tokens=p["num_items_in_batch"])
    kl = KlInLoss(p["beta"], K3(None, None)) if p["beta"] else None
    return surrogate(case, ratio, trl_clip(p), aggregate, kl, totals), None


def trl_clip(p: dict) -> Cispo | PpoClip | Sapo:
    if p["loss_type"] == "cispo":
        # Its epsilon is the bound on the ratio itself.
        return Cispo(low=None, high=p["epsilon_high"] - 1.0)
    if p["loss_type"] == "sapo":
        # torch.where of two numbers rounds them to float32.
        temperatures = torch.tensor([p["sapo_temperature_pos"], p["sapo_temperature_neg"]])
        return Sapo(*temperatures.float().tolist())
    low, high, delta = p["epsilon_low"], p["epsilon_high"], p.get("delta")
    if delta is None:
        return PpoClip(low, high)
    # delta bounds the unclipped branch for both signs of A: with A < 0 that is the dual clip,
    # and with A > 0 it shows only below the upper bound, where the two change places.
    return PpoClip(low, min(high, delta - 1.0), dual=max(delta, 1.0 + high))


def run_trl_rloo(case: Case) -> Computed:
    p = case.params
    ratio = SequenceRatio("product", log_ratio_max=None)
    aggregate = SequenceMean(count_empty=True, row_eps=0.0)
    return surrogate(case, ratio, PpoClip(p["epsilon_low"], p["epsilon_high"]), aggregate), None


def run_extra(case: Case) -> Computed:
    p, kind = case.params, case.function.removeprefix("compute_policy_loss_")
    ratio, clip = {
        "sapo": lambda: (TokenRatio(), Sapo(p["tau_pos"], p["tau_neg"])),
        "cispo": lambda: (TokenRatio(), Cispo(p["eps_low"], p["eps_high"])),
        "gpg": lambda: (NoRatio(), NoClip()),
        "reinforce": lambda: (NoRatio(), NoClip()),
        # Not offered; the nearest that we have.
        "geo_mean": lambda: (SequenceRatio(), PpoClip(p["eps_low"], p["eps_high"])),
    }[kind]()
    return surrogate(case, ratio, clip, aggregation(case, 0)), None


def run_value_loss(case: Case) -> Computed:
    x, mask = case.x, case.mask("values")
    critic = Critic(coefficient=1.0, clip=case.params["cliprange_value"])
    recipe = replace(
        load("ppo"), kl=NoKl(), critic=critic, aggregate=aggregation(case, mask.shape[1])
    )
    zeros = torch.zeros_like(x["values"])
    minibatch = experience(mask, zeros, zeros, values=x["old_values"], returns=x["returns"])
    values = x["values"].clone().requires_grad_()
    total, observation = loss(minibatch, zeros, values, None, recipe, totals_of(mask))
    total.backward()
    arguments = (values.detach(), x["old_values"], x["returns"])
    worse = critic(*arguments) > replace(critic, clip=None)(*arguments)
    return {
        "loss": step_stats([observation])["value_loss"],
        "grad_values": values.grad,
        "clipfrac": masked_mean(worse.double(), mask),
    }, None


LOSSES: dict[str, Family] = {
    "dual_clip": run_policy_loss,
    "extra_policy_losses": run_extra,
    "gspo_loss": run_gspo,
    "policy_loss_clip": run_policy_loss,
    "trl_grpo_loss_types": run_trl_grpo,
    "trl_rloo_loss": run_trl_rloo,
    "value_loss": run_value_loss,
}
