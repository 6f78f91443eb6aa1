"""Families of advantages: our estimators and normalisers on a peer's rewards."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from crlbench.algo.advantage import (
    AdvantageEstimator,
    BatchMean,
    Gae,
    GroupMean,
    LeaveOneOut,
    RewardToGo,
)
from crlbench.algo.kl import KlInReward
from crlbench.algo.masked import masked_whiten
from crlbench.algo.normalize import BatchStd, GroupStd, NoNorm, Normalizer, Whiten
from crlbench.algo.signal import Signal
from tests.golden.build import ADD_TO_COUNT, TRL, outcome_signal, signal_of
from tests.golden.cases import Case, Computed, Family


def run_gae(case: Case) -> Computed:
    values, mask = case.x["values"], case.mask("values")
    signal = signal_of(mask, case.x["token_level_rewards"], values=values)
    raw, returns = Gae(gamma=case.params["gamma"], lam=case.params["lam"])(signal)
    outputs = {"advantages_raw": raw, "returns": returns}
    if "advantages" in case.y:
        outputs["advantages"] = whitened(case, raw, signal)
    return outputs, mask


def whitened(case: Case, raw: Tensor, signal: Signal) -> Tensor:
    """Our whitening, with the last digits of the peer's arithmetic."""
    mask = signal.mask
    if case.repo == TRL:
        correction = rounded_correction(mask.sum())
        biased = masked_whiten(raw, mask, ddof=0, eps=Whiten().eps / float(correction))
        return biased / correction.sqrt()
    if case.repo in ADD_TO_COUNT:
        return masked_whiten(raw, mask, count_eps=1e-8)
    return Whiten()(raw, mask, signal)[0]


def rounded_correction(n: Tensor) -> Tensor:
    """n / (n - 1) of integers as TRL has it: torch rounds the quotient to float32."""
    return (n / (n - 1)).float().double()


# -- one outcome per completion --------------------------------------------------------------

BASELINES = {
    "group": GroupMean(),
    "leave-one-out": LeaveOneOut(),
    "batch": BatchMean(),
    None: RewardToGo(),
}
"""``mean`` of a variant -> estimator."""
STD_OF = {"raw rewards": "raw", "group-centred rewards": "centred"}


def baseline(case: Case) -> AdvantageEstimator:
    if case.role == "divergent":
        return GroupMean()
    default = "leave-one-out" if case.family == "rloo_advantage" else "group"
    return BASELINES[case.variant.get("mean", default)]


def divisor(case: Case) -> Normalizer:
    """Our defaults for a reference case, the peer's epsilon and floor otherwise."""
    variant, params = case.variant, case.params
    if case.role == "divergent":
        return GroupStd()
    level = variant["std"] if "std" in variant else scale_of(params)
    # The leave-one-out set is not offered, so the advantages stay as they are.
    if level in (None, "leave-one-out set"):
        return NoNorm()
    options = {} if case.role == "reference" else {"eps": variant.get("eps", 1e-6)}
    if level == "group":
        floor = 1e-6 if "max(var,1e-6)" in variant.get("std_floor", "") else 0.0
        return GroupStd(**options, floor=floor)
    return BatchStd(of=STD_OF[variant.get("std_of", "raw rewards")], **options)


def scale_of(params: dict) -> str | None:
    if "scale_rewards" in params:
        return {"none": None}.get(params["scale_rewards"], params["scale_rewards"])
    return "group" if params.get("norm_adv_by_std_in_grpo") else None


def run_outcome(case: Case) -> Computed:
    """A baseline and a divisor on the rewards of completions."""
    if "rewards_per_func" in case.x:
        return run_several_rewards(case)
    mask = case.x["mask"] != 0 if "mask" in case.x else None
    signal = outcome_signal(case.x["rewards"], case.x["group"], mask)
    advantages = scaled(case, baseline(case), divisor(case), signal)
    per_row = case.y["advantages"].dim() == 1
    return {"advantages": advantages[:, 0] if per_row else advantages}, None


def scaled(
    case: Case, estimator: AdvantageEstimator, normalizer: Normalizer, signal: Signal
) -> Tensor:
    """(B, T): both parts, with the last digits of TRL's standard deviation."""
    raw, _ = estimator(signal)
    if case.repo != TRL or isinstance(normalizer, NoNorm):
        return normalizer(raw, signal.mask, signal)[0]
    group = signal.group
    pool = torch.zeros_like(group) if isinstance(normalizer, BatchStd) else group
    result = torch.zeros_like(raw)
    for one in pool[signal.valid].unique():
        n = (signal.valid & (pool == one)).sum()
        if n < 2:
            continue
        off = (rounded_correction(n) / (n.double() / (n - 1))).sqrt()
        part = replace(normalizer, eps=normalizer.eps / float(off))
        rows = (pool == one)[:, None]
        result = torch.where(rows, part(raw, signal.mask, signal)[0] / off, result)
    return result


def run_several_rewards(case: Case) -> Computed:
    """TRL's sums over reward functions; a completion that none of them scores has no reward."""
    scores, group, params = case.x["rewards_per_func"], case.x["group"], case.params
    weights = scores.new_tensor(params["reward_weights"])
    unscored = scores.isnan().all(1)
    if params["multi_objective_aggregation"] == "normalize_then_sum":
        normalizer = GroupStd(eps=case.variant["eps"])
        signals = [outcome_signal(one, group) for one in scores.unbind(1)]
        columns = [scaled(case, GroupMean(), normalizer, signal)[:, 0] for signal in signals]
        scores = torch.stack(columns, 1)
        parts = BatchMean(), BatchStd(eps=case.variant["eps"])
    else:
        parts = baseline(case), divisor(case)
    rewards = (scores * weights).nansum(1).masked_fill(unscored, torch.nan)
    return {"advantages": scaled(case, *parts, outcome_signal(rewards, group))[:, 0]}, None


def run_rloo(case: Case) -> Computed:
    if case.repo != TRL:
        return run_outcome(case)
    x, params = case.x, case.params
    mask = case.mask("old_log_probs")
    penalty = params["beta"] * KlInReward(params["beta"])(
        x["old_log_probs"].double(), x["ref_log_probs"].double(), mask
    )
    signal = outcome_signal(x["rewards"], x["group"], mask, penalty)
    normalizer = NoNorm()
    if params["normalize_advantages"]:
        normalizer = BatchStd(of="leave_one_out", eps=1e-4)
    advantages = scaled(case, LeaveOneOut(), normalizer, signal)
    first = mask.long().argmax(1, keepdim=True)
    # A completion without tokens has no place for its advantage.
    return {"advantages": advantages.gather(1, first)[:, 0]}, mask.any(1)


# -- REINFORCE and its kin -------------------------------------------------------------------


def run_reinforce(case: Case) -> Computed:
    x, params = case.x, case.params
    if "kl_per_token" in x:
        return run_openrlhf(case)
    if "token_level_rewards" in x:
        mask = case.mask("token_level_rewards")
        signal = signal_of(mask, x["token_level_rewards"])
        raw, _ = RewardToGo(params["gamma"])(signal)
    else:
        mask = case.mask("rewards")
        signal = outcome_signal(x["rewards"], x["group"], mask, own_penalty(case, mask))
        baselined = params.get("minus_baseline", True)
        raw, _ = (GroupMean("token") if baselined else RewardToGo())(signal)
    if case.role == "reference":
        return {"advantages": whitened(case, raw, signal), "returns": raw}, mask
    advantages, _ = Whiten(ddof=0, eps_place="floor")(raw, mask, signal)
    return {"advantages": advantages, "returns": raw}, mask


def own_penalty(case: Case, mask: Tensor) -> Tensor | None:
    if "kl_coef" not in case.params:
        return None
    coefficient, x = case.params["kl_coef"], case.x
    kl = KlInReward(coefficient, case.params["kl_type"])
    return coefficient * kl(x["old_log_probs"].double(), x["ref_log_probs"].double(), mask)


def run_openrlhf(case: Case) -> Computed:
    """Its estimators: the baseline sees the outcome, the KL reaches each token as return-to-go."""
    x, p = case.x, case.params
    mask = case.mask("kl_per_token")
    signal = outcome_signal(x["rewards"], x["group"], mask, p["kl_coef"] * x["kl_per_token"])
    whiten = Whiten(ddof=0, eps_place="floor", divide=not p["no_std_norm"])
    estimator, divide, normalizer = {
        "reinforce": (RewardToGo(p["gamma"]), NoNorm(), whiten),
        "gae": (Gae(p["gamma"], p["lam"]), NoNorm(), whiten),
        "reinforce_baseline": (GroupMean("token"), NoNorm(), whiten),
        "rloo": (LeaveOneOut("token"), NoNorm(), NoNorm()),
        "group_norm": (GroupMean("token"), GroupStd(eps=1e-9), NoNorm()),
        "dr_grpo": (GroupMean("token"), NoNorm(), NoNorm()),
    }[p["estimator"]]
    signal = replace(signal, values=x["values"].double())
    raw, returns = estimator(signal)
    raw, _ = divide(raw, mask, signal)
    advantages, _ = normalizer(raw, mask, signal)
    return {"advantages": advantages, "returns": raw if returns is None else returns}, mask


ADVANTAGES: dict[str, Family] = {
    "dr_grpo_advantage": run_outcome,
    "gae": run_gae,
    "grpo_advantage": run_outcome,
    "liteppo_advantage": run_outcome,
    "reinforce_advantage": run_reinforce,
    "rloo_advantage": run_rloo,
}
