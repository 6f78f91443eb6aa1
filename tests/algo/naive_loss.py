"""The second half of :mod:`tests.algo.naive`: from advantages to a loss, and what a step shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.algo.naive import Batch, Config, Place, Prepared, beta, kl


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
    weights = aggregation(x, recipe["aggregate"], kept, x.places(kept))
    learned = x.places(kept)
    if recipe["advantage"]["part"] == "StepGae":
        learned = [turn[0] for turn in x.turns(kept)]
    value_weights = aggregation(x, recipe["aggregate"], kept, learned)
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
            if recipe["critic"] is not None and (i, t) in value_weights:
                target, v = given.returns[i, t], value_weights[i, t]
                part, slope = squared(recipe["critic"], x.new_values[i][t], x.values[i][t], target)
                value += v * part
                d_values[i, t] += recipe["critic"]["coefficient"] * v * slope
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


def aggregation(x: Batch, part: Config, kept: list[int], places: list[Place]) -> dict[Place, float]:
    """The weight of each of some tokens of kept rows."""
    name, everything = part["part"], len(x.tracks())
    lengths = {i: sum(row == i for row, _ in places) for i in kept}
    tracks = [[i for i in rows if lengths.get(i)] for rows in x.tracks()]
    tracks = [rows for rows in tracks if rows]
    turns = [[place for place in turn if place in places] for turn in x.turns(kept)]
    turns = [turn for turn in turns if turn]
    per_group: dict[int, int] = {}
    for i, n in lengths.items():
        if n:
            per_group[x.group[i]] = per_group.get(x.group[i], 0) + n
    weights = {}
    for i, t in places:
        if name == "TokenMean":
            weights[i, t] = 1.0 / len(places)
        elif name == "SequenceMean":
            count = everything if part["count_empty"] else len(tracks)
            within = lengths[i] + part["row_eps"] if part["row"] == "mean" else 1.0
            weights[i, t] = 1.0 / (count * within)
        elif name == "FixedLength":
            count = everything if part["per_completion"] else 1
            weights[i, t] = 1.0 / ((part["length"] or x.max_length) * count)
        elif name == "TrajectoryMean":
            own = next(rows for rows in tracks if i in rows)
            weights[i, t] = 1.0 / (len(tracks) * sum(lengths[j] for j in own))
        elif name == "TurnMean":
            own = next(turn for turn in turns if (i, t) in turn)
            weights[i, t] = 1.0 / (len(turns) * len(own))
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
    if part["part"] == "TurnRatio":
        ratios, slopes = {}, {}
        for turn in x.turns([i]):
            whole = ratio_of_tokens(part, {t: log[t] for _, t in turn})
            ratios, slopes = ratios | whole[0], slopes | whole[1]
        return ratios, slopes
    assert part["part"] == "SequenceRatio"
    return ratio_of_tokens(part, log)


def ratio_of_tokens(part: Config, log: dict[int, float]):
    """One ratio of some tokens, and its derivatives, from their log-ratios."""
    own = list(log)
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
