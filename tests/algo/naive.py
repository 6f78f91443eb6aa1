"""Every recipe once more, token by token in plain Python floats.

An independent reading of the papers' formulas, for comparison: it imports nothing from crlbench,
reads recipes as configurations (part names and numbers), loops over rows and tokens, and
differentiates by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

Rows = list[list[float]]
Config = dict
Place = tuple[int, int]
"""(row, token)."""


@dataclass
class Batch:
    """B completions of at most T tokens, as nested lists."""

    mask: list[list[bool]]
    group: list[int]
    outcome: list[float]
    truncated: list[bool]
    old: Rows
    ref: Rows
    values: Rows
    final_values: list[float]
    new: Rows
    new_values: Rows
    entropy: Rows
    max_length: int

    def places(self, rows: Iterable[int]) -> list[Place]:
        """The valid tokens of the given rows, in order."""
        columns = range(len(self.mask[0]))
        return [(i, t) for i, t in product(rows, columns) if self.mask[i][t]]

    def own(self, i: int) -> list[int]:
        """The valid tokens of a row."""
        return [t for _, t in self.places([i])]


@dataclass
class Prepared:
    advantages: dict[Place, float]
    returns: dict[Place, float]
    keep: list[bool]


# -- from rewards to advantages ------------------------------------------------------------


def prepare(x: Batch, recipe: Config) -> Prepared:
    """Advantages of kept tokens, value targets of all sound ones, and who is kept."""
    rows = range(len(x.mask))
    rewards = [shaped(recipe["overlong"], x.outcome[i], len(x.own(i)), x.max_length) for i in rows]
    sound = [i for i in rows if math.isfinite(rewards[i])]
    earned = {place: 0.0 for place in x.places(sound)}
    penalty = dict(earned)
    for i in sound:
        for t in x.own(i):
            if recipe["kl"]["part"] == "KlInReward":
                estimate, _ = kl(recipe["kl"]["estimator"], x.old[i][t] - x.ref[i][t])
                penalty[i, t] = beta(recipe) * estimate
            earned[i, t] = (rewards[i] if t == x.own(i)[-1] else 0.0) - penalty[i, t]
    totals = {i: sum(earned[p] for p in x.places([i])) if x.own(i) else rewards[i] for i in sound}

    part = recipe["advantage"]
    returns: dict[Place, float] = {}
    if part["part"] == "Gae":
        advantages, returns = gae(x, sound, earned, part)
    elif part["part"] == "RewardToGo":
        advantages = to_go(x, sound, earned, part["gamma"])
    elif part["penalty"] == "completion":
        rowwise = above_baseline(x, part["part"], totals)
        advantages = {(i, t): rowwise[i] for i, t in x.places(sound)}
    else:
        rowwise = above_baseline(x, part["part"], {i: rewards[i] for i in sound})
        rest = to_go(x, sound, {place: -value for place, value in penalty.items()}, 1.0)
        advantages = {(i, t): rowwise[i] + rest[i, t] for i, t in x.places(sound)}

    kept = [i for i in sound if selected(x, recipe, i, sound)]
    advantages = {place: advantages[place] for place in x.places(kept)}
    outcomes = {i: rewards[i] for i in sound}
    advantages = normalised(x, recipe["normalize"], advantages, outcomes, totals)
    return Prepared(advantages, returns, [i in kept for i in rows])


def shaped(rule: Config, reward: float, length: int, cap: int) -> float:
    if rule["part"] != "SoftPunishment":
        return reward
    free, cache = cap - rule["cache"] * cap, rule["cache"] * cap
    if length <= free:
        return reward
    return reward - rule["factor"] * min((length - free) / cache, 1.0)


def selected(x: Batch, recipe: Config, i: int, sound: list[int]) -> bool:
    if recipe["overlong"]["part"] == "MaskTruncated" and x.truncated[i]:
        return False
    if recipe["select"]["part"] == "KeepAll":
        return True
    assert recipe["select"]["part"] in ("DropUniformGroups", "DynamicSampling")
    return len({x.outcome[j] for j in sound if x.group[j] == x.group[i]}) > 1


def gae(x: Batch, sound: list[int], earned: dict[Place, float], part: Config):
    """The sum of discounted temporal differences, written out."""
    advantages, returns = {}, {}
    for i in sound:
        own = x.own(i)
        end = x.final_values[i] if part["bootstrap_truncated"] and x.truncated[i] else 0.0
        after = [x.values[i][t] for t in own[1:]] + [end]
        deltas = [
            earned[i, t] + part["gamma"] * after[k] - x.values[i][t] for k, t in enumerate(own)
        ]
        for k, t in enumerate(own):
            decay = part["gamma"] * part["lam"]
            a = sum(decay ** (m - k) * deltas[m] for m in range(k, len(own)))
            advantages[i, t], returns[i, t] = a, a + x.values[i][t]
    return advantages, returns


def to_go(x: Batch, sound: list[int], earned: dict[Place, float], gamma: float):
    result = {}
    for i in sound:
        own = x.own(i)
        for k, t in enumerate(own):
            result[i, t] = sum(gamma ** (m - k) * earned[i, own[m]] for m in range(k, len(own)))
    return result


def above_baseline(x: Batch, name: str, rewards: dict[int, float]) -> dict[int, float]:
    result = {}
    for i, reward in rewards.items():
        peers = [j for j in rewards if name == "BatchMean" or x.group[j] == x.group[i]]
        if len({rewards[j] for j in peers}) == 1:
            result[i] = 0.0
            continue
        if name == "LeaveOneOut":
            peers.remove(i)
        result[i] = reward - mean([rewards[j] for j in peers])
    return result


def normalised(
    x: Batch,
    part: Config,
    advantages: dict[Place, float],
    outcomes: dict[int, float],
    totals: dict[int, float],
):
    name = part["part"]
    if name == "NoNorm":
        return advantages
    if name == "GroupStd":
        result = {}
        for (i, t), a in advantages.items():
            peers = [outcomes[j] for j in outcomes if x.group[j] == x.group[i]]
            flat = max(peers) == min(peers)
            result[i, t] = 0.0 if flat else a / (spread(peers, part["ddof"]) + part["eps"])
        return result
    if name == "BatchStd":
        of = outcomes
        if part["of"] == "centred":
            of = above_baseline(x, "GroupMean", outcomes)
        elif part["of"] == "leave_one_out":
            of = above_baseline(x, "LeaveOneOut", totals)
        scale = spread(list(of.values()), part["ddof"])
        return {p: a / (scale + part["eps"]) if scale else 0.0 for p, a in advantages.items()}
    assert name == "Whiten"
    numbers = list(advantages.values())
    if len(numbers) <= part["ddof"]:
        return advantages
    middle = mean(numbers)
    scale = math.sqrt(spread(numbers, part["ddof"]) ** 2 + part["eps"]) if part["divide"] else 1.0
    back = 0.0 if part["shift_mean"] else middle
    return {place: (a - middle) / scale + back for place, a in advantages.items()}


def mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def spread(numbers: list[float], ddof: int) -> float:
    """Standard deviation; exactly 0 where all are equal or there are too few."""
    if len(numbers) <= ddof or max(numbers) == min(numbers):
        return 0.0
    middle = mean(numbers)
    return math.sqrt(math.fsum((n - middle) ** 2 for n in numbers) / (len(numbers) - ddof))


# -- from advantages to a loss -------------------------------------------------------------


@dataclass
class Objective:
    loss: float
    policy_loss: float
    value_loss: float
    d_new: dict[Place, float]
    d_values: dict[Place, float]
    d_entropy: dict[Place, float]


def objective(x: Batch, given: Prepared, recipe: Config) -> Objective:
    """The loss and its derivatives; everything is a weighted sum over kept tokens."""
    kept = [i for i, keep in enumerate(given.keep) if keep]
    weights = aggregation(x, recipe["aggregate"], kept)
    d_new = dict.fromkeys(weights, 0.0)
    d_values, d_entropy = dict(d_new), dict(d_new)
    policy = value = extra = 0.0
    for i in kept:
        ratios, slopes = ratio_of_row(x, recipe["ratio"], i)
        for t in x.own(i):
            w, a = weights[i, t], given.advantages[i, t]
            loss, by_ratio, by_logprob = surrogate(recipe["clip"], ratios[t], a, x.new[i][t])
            policy += w * loss
            d_new[i, t] += w * by_logprob
            for s, slope in slopes[t].items():
                d_new[i, s] += w * by_ratio * slope
            if recipe["critic"] is not None:
                target = given.returns[i, t]
                part, slope = squared(recipe["critic"], x.new_values[i][t], x.values[i][t], target)
                value += w * part
                d_values[i, t] += recipe["critic"]["coefficient"] * w * slope
            if recipe["kl"]["part"] == "KlInLoss":
                part, slope = kl(recipe["kl"]["estimator"], x.new[i][t] - x.ref[i][t])
                extra += beta(recipe) * w * part
                d_new[i, t] += beta(recipe) * w * slope
            extra -= recipe["entropy_bonus"] * w * x.entropy[i][t]
            d_entropy[i, t] -= recipe["entropy_bonus"] * w
    total = policy + extra
    if recipe["critic"] is not None:
        total += recipe["critic"]["coefficient"] * value
    return Objective(total, policy, value, d_new, d_values, d_entropy)


def aggregation(x: Batch, part: Config, kept: list[int]) -> dict[Place, float]:
    """The weight of every kept token."""
    name, everything = part["part"], len(x.mask)
    lengths = {i: len(x.own(i)) for i in kept}
    tokens, rows = sum(lengths.values()), sum(n > 0 for n in lengths.values())
    per_group: dict[int, int] = {}
    for i, n in lengths.items():
        if n:
            per_group[x.group[i]] = per_group.get(x.group[i], 0) + n
    weights = {}
    for i, t in x.places(kept):
        if name == "TokenMean":
            weights[i, t] = 1.0 / tokens
        elif name == "SequenceMean":
            count = everything if part["count_empty"] else rows
            within = lengths[i] + part["row_eps"] if part["row"] == "mean" else 1.0
            weights[i, t] = 1.0 / (count * within)
        elif name == "FixedLength":
            count = everything if part["per_completion"] else 1
            weights[i, t] = 1.0 / ((part["length"] or x.max_length) * count)
        else:
            assert name == "GroupTokenMean"
            weights[i, t] = 1.0 / (len(per_group) * per_group[x.group[i]])
    return weights


def ratio_of_row(x: Batch, part: Config, i: int):
    """The ratio of each token, and its derivatives by the row's log-probabilities."""
    own = x.own(i)
    log = {t: x.new[i][t] - x.old[i][t] for t in own}
    if part["part"] == "NoRatio":
        return {t: x.new[i][t] for t in own}, {t: {t: 1.0} for t in own}
    if part["part"] == "TokenRatio":
        limit = part["log_ratio_clamp"] or math.inf
        ratios = {t: math.exp(min(max(log[t], -limit), limit)) for t in own}
        return ratios, {t: {t: ratios[t] if abs(log[t]) <= limit else 0.0} for t in own}
    assert part["part"] == "SequenceRatio"
    exponent = sum(log.values()) if own else 0.0
    if part["mean"] == "geometric" and own:
        exponent /= len(own)
    limit = part["log_ratio_max"] or math.inf
    s = math.exp(min(exponent, limit))
    slope = s if exponent <= limit else 0.0
    if part["mean"] == "geometric":
        return dict.fromkeys(own, s), {t: {t: slope} for t in own}
    return dict.fromkeys(own, s), {t: dict.fromkeys(own, slope) for t in own}


def surrogate(part: Config, ratio: float, a: float, logprob: float) -> tuple[float, float, float]:
    """(loss, its derivative by the ratio, its derivative by the log-probability itself)."""
    name = part["part"]
    if name == "NoClip":
        return -ratio * a, -a, 0.0
    if name == "PpoClip":
        bounded = min(max(ratio, 1.0 - part["low"]), 1.0 + part["high"])
        loss, slope = (-ratio * a, -a) if ratio * a <= bounded * a else (-bounded * a, 0.0)
        if part["dual"] is not None and a < 0 and loss > -part["dual"] * a:
            return -part["dual"] * a, 0.0, 0.0
        return loss, slope, 0.0
    if name == "Cispo":
        weight = min(ratio, 1.0 + part["high"])
        if part["low"] is not None:
            weight = max(weight, 1.0 - part["low"])
        return -weight * a * logprob, 0.0, -weight * a
    assert name == "Sapo"
    tau = part["tau_positive"] if a > 0 else part["tau_negative"]
    gate = 1.0 / (1.0 + math.exp(-tau * (ratio - 1.0)))
    return -4.0 / tau * gate * a, -4.0 * gate * (1.0 - gate) * a, 0.0


def held_back(part: Config, ratio: float, a: float) -> tuple[bool, bool]:
    """Whether the lower and the upper bound hold the token back."""
    if part["part"] == "PpoClip":
        return a < 0 and ratio < 1.0 - part["low"], a > 0 and ratio > 1.0 + part["high"]
    if part["part"] == "Cispo":
        below = part["low"] is not None and a != 0 and ratio < 1.0 - part["low"]
        return below, a != 0 and ratio > 1.0 + part["high"]
    return False, False


def squared(critic: Config, value: float, old: float, target: float) -> tuple[float, float]:
    plain = (value - target) ** 2
    if critic["clip"] is None:
        return 0.5 * plain, value - target
    near = min(max(value, old - critic["clip"]), old + critic["clip"])
    if plain >= (near - target) ** 2:
        return 0.5 * plain, value - target
    return 0.5 * (near - target) ** 2, 0.0


def kl(estimator: Config, d: float) -> tuple[float, float]:
    """The estimate of d = l - l_ref and its derivative by l."""
    limit = estimator["input_clamp"] or math.inf
    inside = abs(d) <= limit
    d = min(max(d, -limit), limit)
    value, slope = {
        "K1": lambda: (d, 1.0),
        "K2": lambda: (0.5 * d * d, d),
        "K3": lambda: (math.exp(-d) + d - 1.0, 1.0 - math.exp(-d)),
        "AbsoluteK1": lambda: (abs(d), math.copysign(1.0, d)),
    }[estimator["part"]]()
    limit = estimator["output_clamp"] or math.inf
    inside = inside and abs(value) <= limit
    return min(max(value, -limit), limit), slope if inside else 0.0


def beta(recipe: Config) -> float:
    coefficient = recipe["kl"]["coefficient"]
    return coefficient["value"] if coefficient["part"] == "Fixed" else coefficient["initial"]


# -- what an optimizer step shows ----------------------------------------------------------


def stats(x: Batch, given: Prepared, recipe: Config) -> dict[str, float]:
    """The statistics of one step over the whole batch."""
    found = objective(x, given, recipe)
    kept = [i for i, keep in enumerate(given.keep) if keep]
    places = x.places(kept)
    ratios = {(i, t): math.exp(x.new[i][t] - x.old[i][t]) for i, t in places}
    sides = []
    for i in kept:
        of_row, _ = ratio_of_row(x, recipe["ratio"], i)
        sides += [held_back(recipe["clip"], of_row[t], given.advantages[i, t]) for t in x.own(i)]
    n = max(len(places), 1)
    from_old = [x.old[i][t] - x.new[i][t] for i, t in places]
    ordered = sorted(ratios.values()) or [1.0]
    return {
        "loss": found.loss,
        "policy_loss": found.policy_loss,
        "value_loss": found.value_loss,
        "entropy": sum(x.entropy[i][t] for i, t in places) / n,
        "approx_kl": sum(math.exp(-d) + d - 1 for d in from_old) / n,
        "approx_kl_k1": sum(from_old) / n,
        "approx_kl_k2": sum(d * d / 2 for d in from_old) / n,
        "clip_fraction": sum(low or high for low, high in sides) / n,
        "clip_low": sum(low for low, _ in sides) / n,
        "clip_high": sum(high for _, high in sides) / n,
        "ratio_p01": quantile(ordered, 0.01),
        "ratio_p50": quantile(ordered, 0.5),
        "ratio_p99": quantile(ordered, 0.99),
        "ratio_max": ordered[-1],
        "ess": sum(ordered) ** 2 / (len(ordered) * sum(r * r for r in ordered)),
    }


def quantile(ordered: list[float], level: float) -> float:
    """Between the two neighbours in rank, linearly."""
    rank = level * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (rank - low) * (ordered[high] - ordered[low])
