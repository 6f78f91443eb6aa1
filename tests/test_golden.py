"""Our formulas against numbers computed by other projects' own functions.

Parametrised over every case of every file in the folder named by CRLBENCH_GOLDEN (default
tests/golden). Options are chosen from a case's ``params``, ``variant`` and ``peer``, never
from its id; ``reference`` cases get our defaults wherever the case does not set a parameter.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crlbench.algo.advantage import Gae
from crlbench.algo.aggregate import Aggregation, FixedLength, SequenceMean, TokenMean, Totals
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import (
    K1,
    K2,
    K3,
    AbsoluteK1,
    Adaptive,
    KlEstimator,
    KlInLoss,
    KlInReward,
    NoKl,
)
from crlbench.algo.masked import masked_mean, masked_var, masked_whiten
from crlbench.algo.normalize import Whiten
from crlbench.algo.objective import loss
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipes import load
from crlbench.algo.signal import Signal
from crlbench.algo.token_rewards import token_rewards
from crlbench.algo.value import Critic
from crlbench.types import Experience, Rollout

COMMITTED = Path(__file__).parent / "golden"
FOLDER = Path(os.environ.get("CRLBENCH_GOLDEN") or COMMITTED)

NAN_IF_EMPTY = "NaN where no token is valid; ours is 0, and the optimiser step is skipped"

NOT_OFFERED = {
    "masked_stats/areal-norm-*-batch-None-*": (
        "each token minus the mean of all others; our leave-one-out is over completions"
    ),
    "policy_loss_clip/nemo-kl-*": (
        "multiplies the KL by exp(l - sg(l)): same value, but adds a score-function term to the "
        "gradient; we offer the estimators' own gradients only"
    ),
    "loss_aggregation/verl-token-mean-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/verl-seq-mean-token-sum-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/verl-seq-mean-token-mean-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/openrlhf-1-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/openrlhf-0-allmasked-*": NAN_IF_EMPTY,
    "loss_aggregation/roll-token-mean-allmasked-*": NAN_IF_EMPTY,
}
"""Pattern of family/label -> why the convention of these alternative cases is not offered."""


@dataclass(frozen=True)
class Case:
    raw: dict

    @property
    def id(self) -> str:
        return self.raw["id"]

    @property
    def name(self) -> str:
        """family/label, without the split that the id begins with."""
        return self.id.split("/", 1)[1]

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    @property
    def role(self) -> str:
        return self.raw["role"]

    @property
    def repo(self) -> str:
        return self.raw["peer"]["repo"]

    @property
    def params(self) -> dict:
        return self.raw["params"]

    @property
    def variant(self) -> dict:
        return self.raw["variant"]

    @cached_property
    def x(self) -> dict:
        return {name: decode(value) for name, value in self.raw["inputs"].items()}

    @cached_property
    def y(self) -> dict:
        return {name: decode(value) for name, value in self.raw["outputs"].items()}

    def mask(self, like: str) -> Tensor:
        """The case's mask as bool; every position where the peer knows no mask."""
        return self.x["mask"] != 0 if "mask" in self.x else torch.ones_like(self.x[like]).bool()


NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def decode(value):
    if not (isinstance(value, dict) and set(value) == {"dtype", "shape", "data"}):
        return value

    def numbers(data):
        if isinstance(data, list):
            return [numbers(entry) for entry in data]
        return NON_FINITE.get(data, data) if isinstance(data, str) else data

    dtype = getattr(torch, value["dtype"])
    return torch.tensor(numbers(value["data"]), dtype=dtype).reshape(value["shape"])


def read_cases(folder: Path) -> list[Case]:
    cases = []
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")]):
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        cases += [Case(raw) for raw in json.loads(text)["cases"]]
    return cases


ADD_TO_COUNT = {"volcengine/verl", "alibaba/ROLL", "NVIDIA-NeMo/RL"}
"""Peers that add 1e-8 to the number of valid tokens, which shows at a tolerance of 1e-9."""


# -- one function per family: our outputs under the peer's names, and where to compare them --

Computed = tuple[dict[str, Tensor | float], Tensor | None]


def run_gae(case: Case) -> Computed:
    values, mask = case.x["values"], case.mask("values")
    rows = mask.shape[0]
    signal = Signal(
        rewards=torch.zeros(rows).double(),
        token_rewards=case.x["token_level_rewards"],
        mask=mask,
        group=torch.arange(rows),
        truncated=torch.zeros(rows).bool(),
        valid=torch.ones(rows).bool(),
        values=values,
    )
    raw, returns = Gae(gamma=case.params["gamma"], lam=case.params["lam"])(signal)
    outputs = {"advantages_raw": raw, "returns": returns}
    if "advantages" in case.y:
        outputs["advantages"] = whitened(case, raw, signal)
    return outputs, mask


def whitened(case: Case, raw: Tensor, signal: Signal) -> Tensor:
    """Our whitening, with the last digits of the peer's arithmetic."""
    mask = signal.mask
    if case.repo == "huggingface/trl":
        # TRL divides two integer tensors for N / (N - 1), which torch rounds to float32.
        n = mask.sum()
        correction = (n / (n - 1)).float().to(raw.dtype)
        biased = masked_whiten(raw, mask, ddof=0, eps=Whiten().eps / float(correction))
        return biased / correction.sqrt()
    if case.repo in ADD_TO_COUNT:
        return masked_whiten(raw, mask, count_eps=1e-8)
    return Whiten()(raw, mask, signal)[0]


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


def aggregation(case: Case, length: int) -> Aggregation:
    name, params, variant = case.params["aggregation"], case.params, case.variant
    count_empty = variant.get("empty_rows", "").startswith("COUNTED") or variant.get(
        "sequence_count", ""
    ).startswith("ALL rows")
    if name == "token-mean" or name.startswith("mean over everything"):
        return TokenMean()
    if name == "seq-mean-token-sum-norm":
        return FixedLength(int(params.get("loss_scale_factor") or length), per_completion=False)
    if name.startswith("dr-grpo"):
        return FixedLength(int(params["constant_normalizer"]))
    row = {"seq-mean-token-mean": "mean", "seq-mean-token-sum": "sum"}[name]
    return SequenceMean(row, count_empty)


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


def totals_of(mask: Tensor) -> Totals:
    return Totals(float(mask.sum()), float(mask.any(1).sum()), float(mask.shape[0]))


def experience(mask: Tensor, old: Tensor, advantages: Tensor, **critic_and_reference) -> Experience:
    """A minibatch as ``loss`` takes it, around the tensors of a case."""
    rows = mask.shape[0]
    rollout = Rollout(
        prompt_ids=torch.zeros(rows, 1).long(),
        prompt_mask=torch.ones(rows, 1).bool(),
        completion_ids=torch.zeros_like(mask).long(),
        completion_mask=mask,
        action_mask=mask,
        behavior_logprobs=old,
        group=torch.arange(rows),
        finished=torch.ones(rows).bool(),
        texts=[""] * rows,
    )
    tensors = {"ref_logprobs": None, "values": None, "returns": None, **critic_and_reference}
    return Experience(
        rollout=rollout,
        rewards=torch.zeros(rows),
        token_rewards=torch.zeros_like(old),
        old_logprobs=old,
        advantages=advantages,
        keep=torch.ones(rows).bool(),
        **tensors,
    )


def run_policy_loss(case: Case) -> Computed:
    """Through ``objective.loss``; a critic that is exactly right adds 0."""
    x, p = case.x, case.params
    mask, old = case.mask("log_probs"), x["old_log_probs"]
    advantages = x["advantages"] if "advantages" in x else x["advantages_per_seq"]
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand(mask.shape)
    kl = KlInLoss(p["kl_coef"], p["kl"]) if "kl_coef" in p else NoKl()
    recipe = replace(
        load("ppo"),
        ratio=TokenRatio(p.get("log_ratio_clamp", TokenRatio().log_ratio_clamp)),
        clip=PpoClip(p["eps_low"], p["eps_high"], p.get("dual_clip")),
        aggregate=aggregation(case, mask.shape[1]),
        kl=kl,
    )
    zeros = torch.zeros_like(old)
    minibatch = experience(
        mask, old, advantages, values=zeros, returns=zeros, ref_logprobs=x.get("ref_log_probs")
    )
    new = x["log_probs"].clone().requires_grad_()
    total, stats = loss(minibatch, new, zeros, None, recipe, totals_of(mask))
    total.backward()
    assert torch.isfinite(new.grad).all()
    single = replace(recipe.clip, dual=None)
    ratio = recipe.ratio(new.detach(), old, mask)
    bounded = single(ratio, advantages) > recipe.clip(ratio, advantages)
    return {
        "loss": total.detach(),
        "grad_log_probs": new.grad,
        "clipfrac": stats["clip_fraction"],
        "clipfrac_lower": masked_mean(bounded.double(), mask),
        "approx_kl": masked_mean(K1()(old, new.detach()), mask),
    }, None


def run_value_loss(case: Case) -> Computed:
    x, mask = case.x, case.mask("values")
    critic = Critic(coefficient=1.0, clip=case.params["cliprange_value"])
    recipe = replace(
        load("ppo"), kl=NoKl(), critic=critic, aggregate=aggregation(case, mask.shape[1])
    )
    zeros = torch.zeros_like(x["values"])
    minibatch = experience(mask, zeros, zeros, values=x["old_values"], returns=x["returns"])
    values = x["values"].clone().requires_grad_()
    total, stats = loss(minibatch, zeros, values, None, recipe, totals_of(mask))
    total.backward()
    arguments = (values.detach(), x["old_values"], x["returns"])
    worse = critic(*arguments) > replace(critic, clip=None)(*arguments)
    return {
        "loss": stats["value_loss"],
        "grad_values": values.grad,
        "clipfrac": masked_mean(worse.double(), mask),
    }, None


FAMILIES: dict[str, Callable[[Case], Computed]] = {
    "adaptive_kl": run_adaptive_kl,
    "dual_clip": run_policy_loss,
    "gae": run_gae,
    "kl_estimators": run_kl_estimators,
    "kl_in_reward": run_kl_in_reward,
    "loss_aggregation": run_loss_aggregation,
    "masked_stats": run_masked_stats,
    "policy_loss_clip": run_policy_loss,
    "value_loss": run_value_loss,
}


def mismatches(case: Case) -> list[str]:
    """Names of the outputs in which we differ from the peer beyond the case's tolerance."""
    got, at = FAMILIES[case.family](case)
    wrong = []
    for name, expected in case.y.items():
        ours = torch.as_tensor(got[name], dtype=torch.float64).reshape(expected.shape)
        near = torch.isclose(ours, expected.double(), case.raw["rtol"], case.raw["atol"], True)
        if at is not None and near.shape == at.shape:
            near = near | ~at
        if not near.all():
            wrong.append(name)
    return wrong


def not_offered(case: Case) -> str | None:
    reasons = (why for pattern, why in NOT_OFFERED.items() if fnmatchcase(case.name, pattern))
    return next(reasons, None)


def fault_cancels(case: Case) -> bool:
    """Values that leak from masked positions telescope away where lam = 1.

    Values inside a completion do so only where gamma = 1 too, because they shift the discount.
    """
    if case.family != "gae" or case.role != "divergent":
        return False
    gamma, lam, rule = case.params["gamma"], case.params["lam"], case.variant["mask_rule"]
    if lam != 1.0 or "DEFECT" in str(case.variant):
        return False
    return rule.startswith("none") or (rule.endswith("over every position") and gamma == 1.0)


CASES = read_cases(FOLDER)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    if case.family not in FAMILIES:
        pytest.skip(f"family {case.family} is not implemented yet")
    wrong = mismatches(case)
    if fault_cancels(case):
        assert not wrong, "the values telescope at lam = 1, so the peer's fault cannot show"
    elif case.role == "divergent" or not_offered(case):
        assert wrong, "the peer's number is expected to differ from ours"
    else:
        assert not wrong, f"differs from {case.raw['peer']['repo']} in {', '.join(wrong)}"


def test_the_folder_holds_cases() -> None:
    assert CASES, f"no golden case in {FOLDER}"
    assert len({case.id for case in CASES}) == len(CASES)


def test_only_alternative_conventions_are_left_out() -> None:
    committed = read_cases(COMMITTED)
    for pattern in NOT_OFFERED:
        roles = {case.role for case in committed if fnmatchcase(case.name, pattern)}
        assert roles == {"alternative"}, pattern
