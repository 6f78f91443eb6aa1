"""Where a peer's numbers are not ours: conventions that we do not offer, and peers' faults.

A convention shows only in some inputs. Each rule here computes from a case's inputs which
outputs it changes, and the test demands a difference in exactly those.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from tests.golden.cases import Case

Outputs = set[str] | None
"""Names of outputs that differ; None is at least one of them."""

NOT_YET = {
}
"""Family -> why nothing of it exists yet."""


def in_every_case(*names: str) -> Callable[[Case], Outputs]:
    return lambda case: set(names)


def in_some_output(case: Case) -> Outputs:
    return None


def lonely(case: Case) -> Tensor:
    """(B,) bool: completions without another of the same prompt."""
    group = case.x["group"]
    return (group[:, None] == group[None, :]).sum(1) == 1


def lonely_tokens(case: Case) -> Tensor:
    return lonely(case)[:, None] & (case.x["mask"] != 0)


def raw_reward_of_lonely(case: Case) -> Outputs:
    earned = (case.x["rewards"] != 0)[:, None] & lonely_tokens(case)
    return {"advantages"} if earned.any() else set()


def spread_of_others(case: Case) -> Outputs:
    """Whether dividing by the spread of the others of a group changes any advantage."""
    rewards, group = case.x["rewards"].double(), case.x["group"]
    for i, reward in enumerate(rewards):
        others = rewards[(group == group[i]) & (torch.arange(len(group)) != i)]
        if len(others) < 2 or others.std() == 0:
            continue
        advantage = reward - others.mean()
        if not case.near(advantage, advantage / (others.std() + case.variant["eps"])):
            return {"advantages"}
    return set()


def undivided_kl(case: Case) -> Outputs:
    kl = case.params["kl_coef"] * case.x["kl_per_token"]
    return {"advantages", "returns"} if (kl * case.x["mask"]).any() else set()


def constant_of_empty_rows(case: Case) -> Outputs:
    empty = (case.x["mask"] == 0).all(1)
    return {"loss"} if case.x["advantages"][empty].sum() != 0 else set()


def clipped_or_uneven_rows(case: Case) -> Outputs:
    """GMPO's value is ours while nothing is clipped, its gradient where A is one per row."""
    x, mask, p = case.x, case.x["mask"] != 0, case.params
    drift = (x["log_probs"] - x["old_log_probs"])[mask]
    first = x["advantages"][:, :1]
    uneven = ((x["advantages"] != first) & mask).any()
    clipped = drift.abs().max() > min(p["eps_low"], p["eps_high"])
    return None if clipped or uneven else set()


def cut_rewards(case: Case) -> Outputs:
    truncated, before = case.x["truncated"] != 0, case.x["rewards"]
    coefficient = case.params["coef"]
    after = before * coefficient if coefficient >= 0 else torch.full_like(before, coefficient)
    return {"rewards"} if (truncated & (after != before)).any() else set()


def judged_otherwise(case: Case) -> Outputs:
    """Rows on which the peer's filters of difficulty and of long errors decide as ours do not."""
    x, p = case.x, case.params
    tokens = (x["mask"] != 0).sum(1)
    otherwise = torch.zeros(len(tokens)).bool()
    if p["difficulty_mask"]:
        for one in x["group"].unique():
            scores = x["rewards"][x["group"] == one]
            within = p["low"] < float(scores.mean()) < p["high"]
            otherwise |= (x["group"] == one) & (within != bool(scores.min() < scores.max()))
    if p["error_max_len_clip"]:
        short = tokens < p["error_max_len_threshold"]
        otherwise |= ~(((x["rewards"] == 0) & short) | (x["rewards"] == 1))
    return {"final_mask"} if (otherwise & (tokens > 0)).any() else set()


def left_out_pairs(case: Case) -> Outputs:
    return {"loss"} if (case.x["pair_mask"] == 0).any() else set()


@dataclass(frozen=True)
class Convention:
    why: str
    shows: Callable[[Case], Outputs] = in_some_output
    where: Callable[[Case], Tensor] | None = None
    """Positions that it concerns; all others must match."""


NAN_IF_EMPTY = Convention(
    "NaN where no token is valid; ours is 0, and the optimiser step is skipped"
)
LONELY = Convention(
    "the raw reward is the advantage of a completion without another of its prompt; ours is 0",
    raw_reward_of_lonely,
    lonely_tokens,
)

OTHER_LOSS = Convention("another loss of a pair, which no part of the axis is")
PER_TOKEN = Convention("DPO on log-probabilities per token; ours takes sums, as the paper does")

NOT_OFFERED = {
    "dpo_loss/nemo-avg1-*": PER_TOKEN,
    "dpo_loss/oat-DPO-*": Convention(
        "pairs that are left out still count in the mean; ours is over the pairs that take part",
        left_out_pairs,
    ),
    "dpo_loss/oat-SLiC-*": OTHER_LOSS,
    "dpo_loss/trl-exo_pair-*": OTHER_LOSS,
    "dpo_loss/trl-hinge-*": OTHER_LOSS,
    "dpo_loss/trl-sigmoid_norm-*": PER_TOKEN,
    "dr_grpo_advantage/verl-*-singleton-*": LONELY,
    "extra_policy_losses/verl-geo_mean-*": Convention(
        "GMPO clips each token's log-ratio by the sign of A before the mean over the row; our "
        "ratio knows no advantage, and our clip rules come after the ratio",
        clipped_or_uneven_rows,
    ),
    "filtering/roll-*": Convention(
        "keeps prompts whose mean score lies in a band, and drops long errors; ours drops prompts "
        "whose scores are all the same",
        judged_otherwise,
    ),
    "grpo_advantage/nemo-loo1-*": Convention(
        "divides by the spread of the others of the group, another number for each completion",
        spread_of_others,
    ),
    "grpo_advantage/verl-*-singleton-*": LONELY,
    "loss_aggregation/openrlhf-0-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/openrlhf-1-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/roll-token-mean-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/verl-seq-mean-token-mean-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/verl-seq-mean-token-sum-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/verl-token-mean-allmasked-*": NAN_IF_EMPTY,
    "masked_stats/areal-norm-*-batch-None-*": Convention(
        "each token minus the mean of all others; our leave-one-out is over completions"
    ),
    "overlong_punishment/openrlhf-stop*": Convention(
        "multiplies or replaces the reward of a completion that is cut off; ours lowers it by "
        "length, or leaves such completions out",
        cut_rewards,
    ),
    "policy_loss_clip/nemo-kl-*": Convention(
        "multiplies the KL by exp(l - sg(l)): same value, but adds a score-function term to the "
        "gradient; we offer the estimators' own gradients only",
        in_every_case("grad_log_probs"),
    ),
    "reinforce_advantage/openrlhf-group_norm-*": Convention(
        "divides the outcome alone by the spread and adds the KL after it; ours divides what the "
        "estimator returns",
        undivided_kl,
    ),
    "rloo_advantage/verl-compute_rloo_outcome_advantage-singleton-*": LONELY,
    "trl_rloo_loss/*": Convention(
        "an empty completion adds -A / B to the loss, a constant without a gradient",
        constant_of_empty_rows,
    ),
}
"""Pattern of family/label -> the convention of these alternative cases that is not offered."""


def convention(case: Case) -> Convention | None:
    if case.role != "alternative":
        return None
    found = (one for pattern, one in NOT_OFFERED.items() if fnmatchcase(case.name, pattern))
    return next(found, None)


def differing(case: Case) -> Outputs:
    """The outputs in which our numbers must differ from the peer's."""
    if case.role == "divergent":
        return set() if fault_hidden(case) else None
    one = convention(case)
    return one.shows(case) if one else set()


def fault_hidden(case: Case) -> bool:
    """Whether a divergent peer's fault cannot be seen in the inputs of the case."""
    if case.family == "gae":
        return leak_telescopes(case)
    if case.family == "grpo_advantage":
        # Rounding decides how far float32 statistics are off, so ask the exact number.
        return bool(case.near(exact_group_advantages(case), case.y["advantages"]).all())
    if case.family == "reinforce_advantage":
        return nothing_to_accumulate(case)
    if case.family == "kl_in_reward":
        # A score one position too late is clamped to the window.
        return bool((case.x["last_token_index"] == case.x["log_probs"].shape[1] - 1).all())
    return False


def leak_telescopes(case: Case) -> bool:
    """Values that leak from masked positions telescope away where lam = 1.

    Values inside a completion do so only where gamma = 1 too, because they shift the discount.
    """
    gamma, lam, rule = case.params["gamma"], case.params["lam"], case.variant["mask_rule"]
    if lam != 1.0 or "DEFECT" in str(case.variant):
        return False
    return rule.startswith("none") or (rule.endswith("over every position") and gamma == 1.0)


def nothing_to_accumulate(case: Case) -> bool:
    """A KL that is not summed over later tokens shows only where a later token has one."""
    x, mask = case.x, case.x["mask"] != 0
    later = mask & (mask.cumsum(1) > 1)
    return not (later & (x["old_log_probs"] != x["ref_log_probs"])).any()


def exact_group_advantages(case: Case) -> Tensor:
    """GRPO's advantages by the standard library's exact statistics, 0 in uniform groups."""
    rewards, group = case.x["rewards"].tolist(), case.x["group"].tolist()
    members: dict[int, list[float]] = {}
    for reward, prompt in zip(rewards, group, strict=True):
        members.setdefault(prompt, []).append(reward)

    def advantage(reward: float, peers: list[float]) -> float:
        if max(peers) == min(peers):
            return 0.0
        return (reward - statistics.mean(peers)) / (statistics.stdev(peers) + 1e-6)

    exact = [advantage(reward, members[one]) for reward, one in zip(rewards, group, strict=True)]
    return torch.tensor(exact, dtype=torch.float64)
