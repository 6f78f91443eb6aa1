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
    trajectory: list[int] | None = None
    turn: list[list[int]] | None = None
    state: list[list[int]] | None = None

    def tracks(self) -> list[list[int]]:
        """The rows of each trajectory, in order."""
        if self.trajectory is None:
            return [[i] for i in range(len(self.mask))]
        of: dict[int, list[int]] = {}
        for i, name in enumerate(self.trajectory):
            of.setdefault(name, []).append(i)
        return list(of.values())

    def track(self, i: int) -> list[int]:
        """The rows of the trajectory of row i."""
        return next(rows for rows in self.tracks() if i in rows)

    def turns(self, rows: list[int]) -> list[list[Place]]:
        """The tokens of each turn of some rows."""
        of: dict[tuple[int, int], list[Place]] = {}
        for i, t in self.places(rows):
            of.setdefault((i, self.turn[i][t] if self.turn else 0), []).append((i, t))
        return list(of.values())

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


def prepare(x: Batch, recipe: Config) -> Prepared:
    """Advantages of kept tokens, value targets of all sound ones, and who is kept."""
    rows = range(len(x.mask))
    paid = [shaped(recipe["overlong"], x.outcome[i], len(x.own(i)), x.max_length) for i in rows]
    rewards = [sum(paid[j] for j in x.track(i)) for i in rows]
    sound = [i for i in rows if math.isfinite(rewards[i])]
    earned = {place: 0.0 for place in x.places(sound)}
    penalty = dict(earned)
    for i, t in earned:
        if recipe["kl"]["part"] == "KlInReward":
            estimate, _ = kl(recipe["kl"]["estimator"], x.old[i][t] - x.ref[i][t])
            penalty[i, t] = beta(recipe) * estimate
        last = (i, t) == x.places(x.track(i))[-1]
        earned[i, t] = (rewards[i] if last else 0.0) - penalty[i, t]
    totals = {}
    for i in sound:
        line = x.places(x.track(i))
        totals[i] = sum(earned[p] for p in line) if line else rewards[i]

    part = recipe["advantage"]
    returns: dict[Place, float] = {}
    if part["part"] == "Gae":
        advantages, returns = gae(x, sound, earned, part)
    elif part["part"] == "StepGae":
        advantages, returns = step_gae(x, sound, earned, part)
    elif part["part"] == "RewardToGo":
        advantages = to_go(x, sound, earned, part["gamma"])
    elif part["part"] == "TurnToGo":
        advantages = turn_to_go(x, sound, earned, part["gamma"])
    elif part["part"] == "AnchorState":
        advantages = anchored(x, sound, earned, totals, part)
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
    if recipe["overlong"]["part"] == "MaskTruncated" and any(x.truncated[j] for j in x.track(i)):
        return False
    if recipe["select"]["part"] == "KeepAll":
        return True
    assert recipe["select"]["part"] in ("DropUniformGroups", "DynamicSampling")
    return len({earned_by(x, j) for j in sound if x.group[j] == x.group[i]}) > 1


def earned_by(x: Batch, i: int) -> float:
    """The outcome of the trajectory of row i."""
    return sum(x.outcome[j] for j in x.track(i))


def lines(x: Batch, sound: list[int]) -> list[list[Place]]:
    """The tokens of each sound trajectory."""
    return [x.places(rows) for rows in x.tracks() if rows[0] in sound]


def gae(x: Batch, sound: list[int], earned: dict[Place, float], part: Config):
    """The sum of discounted temporal differences, written out."""
    advantages, returns = {}, {}
    for rows in x.tracks():
        if rows[0] not in sound:
            continue
        line = x.places(rows)
        cut = part["bootstrap_truncated"] and any(x.truncated[i] for i in rows)
        values = [x.values[i][t] for i, t in line] + [x.final_values[rows[-1]] if cut else 0.0]
        found = differences([earned[place] for place in line], values, part["gamma"], part["lam"])
        for place, a, value in zip(line, found, values, strict=False):
            advantages[place], returns[place] = a, a + value
    return advantages, returns


def differences(rewards: list[float], values: list[float], gamma: float, lam: float):
    """GAE of a sequence; ``values`` has one entry more, for the state after the last."""
    n = len(rewards)
    deltas = [rewards[k] + gamma * values[k + 1] - values[k] for k in range(n)]
    decay = gamma * lam
    return [sum(decay ** (m - k) * deltas[m] for m in range(k, n)) for k in range(n)]


def step_gae(x: Batch, sound: list[int], earned: dict[Place, float], part: Config):
    advantages, returns = {}, {}
    for rows in x.tracks():
        if rows[0] not in sound:
            continue
        turns = x.turns(rows)
        rewards = [sum(earned[place] for place in turn) for turn in turns]
        values = [x.values[turn[0][0]][turn[0][1]] for turn in turns] + [0.0]
        found = differences(rewards, values, part["gamma"], part["lam"])
        for turn, a, value in zip(turns, found, values, strict=False):
            for place in turn:
                advantages[place], returns[place] = a, a + value
    return advantages, returns


def to_go(x: Batch, sound: list[int], earned: dict[Place, float], gamma: float):
    result = {}
    for line in lines(x, sound):
        for k, place in enumerate(line):
            later = range(k, len(line))
            result[place] = sum(gamma ** (m - k) * earned[line[m]] for m in later)
    return result


def turn_to_go(x: Batch, sound: list[int], earned: dict[Place, float], gamma: float):
    result = {}
    for rows in x.tracks():
        turns = x.turns(rows) if rows[0] in sound else []
        for k, turn in enumerate(turns):
            later = sum(
                gamma ** (m - k) * earned[place] for m in range(k, len(turns)) for place in turns[m]
            )
            result |= dict.fromkeys(turn, later)
    return result


def anchored(
    x: Batch,
    sound: list[int],
    earned: dict[Place, float],
    totals: dict[int, float],
    part: Config,
):
    rowwise = above_baseline(x, "GroupMean", totals)
    later = turn_to_go(x, sound, earned, part["gamma"])
    states: dict[tuple, list[list[Place]]] = {}
    for rows in x.tracks():
        for k, turn in enumerate(x.turns(rows) if rows[0] in sound else []):
            i, t = turn[0]
            known = x.state is not None and x.state[i][t] >= 0
            name = x.state[i][t] if known else "start" if k == 0 else turn[0]
            states.setdefault((x.group[i], name), []).append(turn)
    result = {}
    for turns in states.values():
        earnings = [later[turn[0]] for turn in turns]
        for turn in turns:
            step = later[turn[0]] - mean(earnings) if len(set(earnings)) > 1 else 0.0
            result |= {(i, t): rowwise[i] + part["weight"] * step for i, t in turn}
    return result


def above_baseline(x: Batch, name: str, rewards: dict[int, float]) -> dict[int, float]:
    result = {}
    heads = [rows[0] for rows in x.tracks() if rows[0] in rewards]
    for i, reward in rewards.items():
        peers = [j for j in heads if name == "BatchMean" or x.group[j] == x.group[i]]
        if len({rewards[j] for j in peers}) == 1:
            result[i] = 0.0
            continue
        if name == "LeaveOneOut":
            peers.remove(x.track(i)[0])
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
    heads = [rows[0] for rows in x.tracks()]
    outcomes = {i: outcome for i, outcome in outcomes.items() if i in heads}
    totals = {i: total for i, total in totals.items() if i in heads}
    if name == "NoNorm":
        return advantages
    if name == "WhitenTurns":
        kept = [rows for rows in x.tracks() if any(i in rows for i, _ in advantages)]
        numbers = [mean([advantages[p] for p in turn]) for rows in kept for turn in x.turns(rows)]
        if len(numbers) <= part["ddof"]:
            return advantages
        middle, scale = mean(numbers), spread(numbers, part["ddof"]) + part["eps"]
        return {place: (a - middle) / scale for place, a in advantages.items()}
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
