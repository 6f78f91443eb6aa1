"""Families of masked statistics, KL, aggregation, shaping by length, filters and token figures."""

from __future__ import annotations

import re
from dataclasses import replace

import torch
from torch import Tensor

from crlbench.algo.aggregate import Totals
from crlbench.algo.kl import K1, K2, K3, AbsoluteK1, Adaptive, KlEstimator, KlInLoss, KlInReward
from crlbench.algo.masked import masked_mean, masked_var, masked_whiten
from crlbench.algo.objective import prepare
from crlbench.algo.overlong import CountTruncated, MaskTruncated, SoftPunishment, soft_overlong
from crlbench.algo.recipes import load
from crlbench.algo.select import DropUniformGroups, KeepAll
from crlbench.algo.token_rewards import token_rewards
from crlbench.policy.head import token_statistics
from tests.golden.build import ADD_TO_COUNT, TRL, aggregation, rollout_of, totals_of
from tests.golden.cases import Case, Computed, Family


def run_masked_stats(case: Case) -> Computed:
    x, mask, variant = case.x["values"], case.mask("values"), case.variant
    if "normalized" in case.y:
        return {"normalized": normalized(x, mask, case)}, mask
    options = {} if case.role == "reference" else {"ddof": variant["ddof"]}
    if case.repo in ADD_TO_COUNT:
        options["count_eps"] = 1e-8
    count = {"count_eps": options.get("count_eps", 0.0)}
    outputs = {"mean": masked_mean(x, mask, **count), "var": masked_var(x, mask, **options)}
    if "shift_mean" in case.params:
        options["shift_mean"] = case.params["shift_mean"]
        outputs["whitened"] = masked_whiten(x, mask, **options)
    return outputs, mask


def normalized(x: Tensor, mask: Tensor, case: Case) -> Tensor:
    """Whitening per row, per group of rows or per batch: the same function on other slices."""
    variant, rows = case.variant, x.shape[0]
    options = {"ddof": variant["ddof"], "eps": variant["eps"]}
    if variant.get("population") == "per row":
        return whiten_slices(x, mask, 1, {**options, "eps_place": "floor"})
    options["eps_place"] = "std"
    sizes = {"batch": rows, "group": case.params["group_size"]}
    if variant["std"] is None:
        return x - masked_mean(x, mask)
    if variant["mean"] == variant["std"]:
        return whiten_slices(x, mask, sizes[variant["mean"]], options)
    assert (variant["mean"], variant["std"]) == ("group", "batch")
    size = sizes["group"]
    means = [masked_mean(x[i : i + size], mask[i : i + size]) for i in range(0, rows, size)]
    centred = x - torch.stack(means).repeat_interleave(size)[:rows, None]
    return masked_whiten(centred, mask, shift_mean=False, **options)


def whiten_slices(x: Tensor, mask: Tensor, size: int, options: dict) -> Tensor:
    pieces = zip(x.split(size), mask.split(size), strict=True)
    return torch.cat([masked_whiten(part, valid, **options) for part, valid in pieces])


ESTIMATORS = {"k1": K1, "k2": K2, "k3": K3, "abs": AbsoluteK1}


def estimator(case: Case) -> KlEstimator:
    """Our defaults for a reference case, the peer's clamps otherwise."""
    name, text = case.params["kl"], case.variant.get("clamp") or ""
    cls = ESTIMATORS[name]
    if case.role == "reference":
        return cls()
    if "output_clamp" in case.params:
        return cls(case.params["input_clamp"], case.params["output_clamp"])
    found = re.search(r"output \+-(\d+)", text)
    only = re.match(r"(k\d) ", text)
    if found is None or (only and only[1] != name):
        return cls(None, None)
    return cls(None, float(found[1]))


def run_kl_estimators(case: Case) -> Computed:
    logprobs = case.x["log_probs"].clone().requires_grad_()
    kl = KlInLoss(1.0, estimator(case))(logprobs, case.x["ref_log_probs"], case.mask("log_probs"))
    kl.sum().backward()
    return {"kl": kl.detach(), "grad_log_probs": logprobs.grad}, None


def run_kl_in_reward(case: Case) -> Computed:
    x, params = case.x, case.params
    logprobs, ref = x["log_probs"], x["ref_log_probs"]
    last = x.get("valid_score_idxs", x.get("last_token_index"))
    if last is None:
        mask = case.mask("log_probs")
    else:
        mask = torch.arange(logprobs.shape[1]) <= last[:, None]
    coefficient = next(params[k] for k in ("kl_coef", "kl_coeff", "kl_ratio") if k in params)
    estimate = ESTIMATORS[params.get("kl", "k1")]()
    if "clamped to [-10,10]" in (case.raw.get("notes") or ""):
        estimate = replace(estimate, input_clamp=None, output_clamp=10.0)
    penalty = coefficient * KlInReward(coefficient, estimate)(logprobs, ref, mask)
    scores = x.get("token_level_scores")
    outcome = torch.zeros_like(logprobs[:, 0]) if scores is not None else x["score"]
    rewards = token_rewards(outcome, mask, scores, penalty)
    at = None if case.variant.get("kl_masked") else mask
    return {"rewards": rewards, "kl": estimate(logprobs, ref)}, at


def run_adaptive_kl(case: Case) -> Computed:
    p = case.params
    controller = Adaptive(p["init"], p["target"], p["horizon"], case.variant["error_clip"])
    value, values = controller.start, []
    for kl, n in zip(case.x["current_kl"].tolist(), case.x["n_steps"].tolist(), strict=True):
        value = controller.next_coefficient(value, kl, n)
        values.append(value)
    return {"values": torch.tensor(values, dtype=torch.float64)}, None


def run_loss_aggregation(case: Case) -> Computed:
    matrix, mask = case.x["loss_matrix"], case.mask("loss_matrix")
    totals = totals_of(mask)
    part = aggregation(case, mask.shape[1])
    outputs = {"loss": part(matrix, mask, totals)}
    if "per_row" in case.y:
        one = Totals(totals.tokens, 1, 1)
        rows = zip(matrix.split(1), mask.split(1), strict=True)
        outputs["per_row"] = torch.stack([part(row, valid, one) for row, valid in rows])
    return outputs, None


def run_overlong(case: Case) -> Computed:
    x, p = case.x, case.params
    if "coef" in p:
        return {"rewards": CountTruncated().shaped(x["rewards"], x["truncated"], None)}, None
    lengths = x["lengths"]
    if "growing linearly" in case.variant["beyond_max"]:
        penalty = soft_overlong(lengths, p["max_len"], p["buffer"], p["factor"], floored=False)
        return {"penalty": penalty, "rewards": x["rewards"] + penalty}, None
    rule = SoftPunishment(cache=p["buffer"] / p["max_len"], factor=p["factor"])
    nothing = torch.zeros(len(lengths)).double()
    return {
        "penalty": rule.shaped(nothing, lengths, p["max_len"]),
        "rewards": rule.shaped(x.get("rewards", nothing), lengths, p["max_len"]),
    }, None


def run_filtering(case: Case) -> Computed:
    """Through ``prepare``: the tokens of the rows that it keeps."""
    x, p = case.x, case.params
    mask = x["mask"] != 0
    masks_truncated = p.get("max_len_mask", case.repo == TRL)
    recipe = replace(
        load("grpo"),
        select=DropUniformGroups() if p.get("difficulty_mask") else KeepAll(),
        overlong=MaskTruncated() if masks_truncated else CountTruncated(),
    )
    logprobs = torch.zeros(mask.shape)
    fields = {"group": x["group"]} if "group" in x else {}
    rollout = rollout_of(mask, logprobs, finished=~truncated(case), **fields)
    rewards = x.get("rewards", torch.zeros(len(mask)))
    prepared, _ = prepare(rollout, rewards, logprobs, logprobs, None, recipe)
    kept = mask & prepared.keep[:, None]
    return {"mask": kept, "final_mask": kept}, None


def truncated(case: Case) -> Tensor:
    """(B,) bool, by the peer's own rule; our rollouts know why they stopped."""
    if "completion_ids" in case.x:
        ends = (case.params["eos"], case.params["pad"])
        return torch.tensor([ids[-1] not in ends for ids in case.x["completion_ids"]])
    return (case.x["mask"] != 0).sum(1) == case.params["max_response_length"]


def run_logprob_entropy(case: Case) -> Computed:
    logprobs, entropy = token_statistics(case.x["logits"], case.x["labels"])
    return {"log_probs": logprobs, "entropy": entropy}, None


PRIMITIVES: dict[str, Family] = {
    "adaptive_kl": run_adaptive_kl,
    "filtering": run_filtering,
    "kl_estimators": run_kl_estimators,
    "kl_in_reward": run_kl_in_reward,
    "logprob_entropy": run_logprob_entropy,
    "loss_aggregation": run_loss_aggregation,
    "masked_stats": run_masked_stats,
    "overlong_punishment": run_overlong,
}
