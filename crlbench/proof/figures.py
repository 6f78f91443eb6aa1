"""The figures of training against one another: health, totals of the curve, cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from crlbench.contract.verification import Finding
from crlbench.proof.facts import Facts

ALWAYS = (
    "reward", "score", "audit", "length", "truncated", "repetition", "group_variance",
    "uniform_groups", "kept_fraction", "kl_coefficient", "tokens", "bytes",
)
"""Those that have a value in every iteration."""
WITH_LOSS = ("policy_loss", "entropy", "clip_fraction")
"""Those that have one in every iteration that has a loss."""
WATCHED = "reference_kl"
"""It has one where an interval of the grid ends: a recipe without a KL is watched there alone."""
NEEDED = ("iteration", "loss", *ALWAYS, *WITH_LOSS, WATCHED)
"""Columns of health that the checks read; a record may have more."""
EXACT = 10**7
"""Whole numbers below it are stored as they were: figures have 7 significant digits."""
ROUNDED = 1e-6
"""Relative, of what 7 significant digits and sums in float32 leave open."""
NO_LESS = {
    **dict.fromkeys(("score", "audit", "truncated", "truncated_right", "truncated_wrong"), 0.0),
    **dict.fromkeys(("repetition", "repetition_right", "repetition_wrong", "ess"), 0.0),
    **dict.fromkeys(("kept_fraction", "uniform_groups", "group_variance"), 0.0),
    **dict.fromkeys(("clip_fraction", "clip_low", "clip_high", "kl_coefficient"), 0.0),
    **dict.fromkeys(("ratio_p01", "ratio_p50", "ratio_p99", "ratio_max"), 0.0),
    **dict.fromkeys(("entropy", "behavior_gap", "grad_norm", "update_norm", "value_loss"), 0.0),
    **dict.fromkeys(("length", "length_right", "length_wrong"), 0.0),
    **dict.fromkeys(("approx_kl", "approx_kl_k2", "reference_kl_k2", "reference_kl_k3"), 0.0),
    "update_cosine": -1.0,
}
"""The least value that a figure can have, up to rounding."""
NO_MORE = {
    **dict.fromkeys(("score", "audit", "truncated", "truncated_right", "truncated_wrong"), 1.0),
    **dict.fromkeys(("repetition", "repetition_right", "repetition_wrong", "ess"), 1.0),
    **dict.fromkeys(("kept_fraction", "uniform_groups", "update_cosine"), 1.0),
    **dict.fromkeys(("clip_fraction", "clip_low", "clip_high", "explained_variance"), 1.0),
    "group_variance": 0.25,
}
"""The greatest. Scores are 0 to 1, so that their variance is at most one quarter."""
SLACK = 1e-5
"""Of these bounds: sums in float32."""

Column = Sequence[float | int | None]


def check_figures(facts: Facts) -> Iterator[Finding]:
    """Columns as long as the run, counts that are whole, sums that the curve states."""
    if missing := [*_incomplete(facts)]:
        yield from missing
        return
    if impossible := [*_bounds(facts)]:
        yield from impossible
        return
    yield from _rewards(facts)
    yield from _counted(facts)
    yield from _lengths(facts)
    for name in ("tokens", "bytes"):
        for j, point in enumerate(facts.record.curve):
            made = _column(facts, name)[: j * facts.interval]
            if not same_total(getattr(point, name), made):
                why = f"the sum of health.{name} up to there"
                stored = getattr(point, name)
                yield facts.finding(f"curve[{j}].{name}", stored, round(math.fsum(made)), why)


def _incomplete(facts: Facts) -> Iterator[Finding]:
    """Columns that are missing, of another length or without a value."""
    health, count = facts.record.health, facts.iterations
    absent = [name for name in NEEDED if name not in health]
    yield from facts.differs("health", absent, [], "columns that are missing")
    lengths = {name: len(column) for name, column in health.items()}
    for name, length in lengths.items():
        yield from facts.differs(f"health.{name}", length, count, "number of iterations")
    if absent or {*lengths.values()} != {count}:  # the conditions may ask for any number of them
        return
    numbers = [*range(1, count + 1)]
    yield from facts.differs("health.iteration", list(health["iteration"]), numbers)
    for name in health:
        yield from _kinds(facts, name)
    for name in ALWAYS:
        yield from _gaps(facts, name, [True] * count, "a number")
    for name in WITH_LOSS:
        lossy = [loss is not None for loss in health["loss"]]
        yield from _gaps(facts, name, lossy, "a number, as the loss is")
    step = facts.conditions.budget.iterations_per_point
    ends = [i % step == 0 and bool(kept) for i, kept in enumerate(health["kept_fraction"], 1)]
    yield from _gaps(facts, WATCHED, ends, "a number, where an interval of the grid ends")


def _gaps(facts: Facts, name: str, needed: Sequence[bool], expected: str) -> Iterator[Finding]:
    """The first iteration that needs a value and has none."""
    pairs = zip(facts.record.health[name], needed, strict=True)
    place = next((i for i, (value, need) in enumerate(pairs) if need and value is None), None)
    if place is not None:
        yield facts.finding(f"health.{name}[{place}]", None, expected)


def _kinds(facts: Facts, name: str) -> Iterator[Finding]:
    """The first value that is no number of the kind that is stored."""
    kind = int if name == "iteration" else float
    for place, value in enumerate(facts.record.health[name]):
        if value is not None and type(value) is not kind:
            yield facts.finding(f"health.{name}[{place}]", value, kind.__name__)
            return


def _column(facts: Facts, name: str) -> list[float]:
    return [float(value) for value in facts.record.health[name] if value is not None]


def _bounds(facts: Facts) -> Iterator[Finding]:
    """No figure is one that it cannot be."""
    for name, column in facts.record.health.items():
        low, high = NO_LESS.get(name, -math.inf), NO_MORE.get(name, math.inf)
        for i, value in enumerate(column):
            if value is not None and not low - SLACK <= value <= high + SLACK:
                yield facts.finding(f"health.{name}[{i}]", value, f"{low:g} to {high:g}")


def _counted(facts: Facts) -> Iterator[Finding]:
    """Shares of completions and of prompts are whole numbers of them; equal scores do not vary."""
    budget, health = facts.conditions.budget, facts.record.health
    whole = {"truncated": budget.rows, "kept_fraction": budget.rows}
    if not facts.record.counts.get("dropped_rows"):  # a prompt with an undefined score is left out
        whole["uniform_groups"] = budget.prompts
    for name, count in whole.items():
        for i, share in enumerate(_column(facts, name)):
            if not is_whole(share * count):
                yield facts.finding(f"health.{name}[{i}]", share, f"a share of {count}")
    pairs = zip(health["uniform_groups"], health["group_variance"], strict=True)
    for i, (uniform, variance) in enumerate(pairs):
        level = variance is not None and variance <= SLACK
        if not level if uniform == 1 else variance == 0:
            why = f"health.group_variance[{i}] is {variance}"
            yield facts.finding(f"health.uniform_groups[{i}]", uniform, "1 where that is 0", why)


def is_whole(value: float) -> bool:
    """Whether a number of 7 digits may be a whole one."""
    return abs(value - round(value)) <= ROUNDED * max(1.0, abs(value))


def _rewards(facts: Facts) -> Iterator[Finding]:
    """Where the outcome is what is learned from, the reward paid is the verifier's score."""
    data = facts.conditions.data
    if facts.record.arm != "real" or data.reward != "outcome":
        return
    pairs = zip(_column(facts, "reward"), _column(facts, "score"), strict=True)
    for i, (reward, score) in enumerate(pairs):
        paid = score * data.reward_scale
        if not math.isclose(reward, paid, rel_tol=10 * ROUNDED, abs_tol=ROUNDED):
            yield facts.finding(f"health.reward[{i}]", reward, paid, f"health.score[{i}], paid")


def _lengths(facts: Facts) -> Iterator[Finding]:
    """Tokens are as many as the mean length says, and whole as bytes are."""
    rows = facts.conditions.budget.rows
    tokens, lengths = _column(facts, "tokens"), _column(facts, "length")
    for i, (made, length) in enumerate(zip(tokens, lengths, strict=True)):
        if not math.isclose(made, rows * length, rel_tol=10 * ROUNDED, abs_tol=0.5):
            why = f"{rows} completions of length {length}"
            yield facts.finding(f"health.tokens[{i}]", made, round(rows * length), why)
    for name in ("tokens", "bytes"):
        for i, made in enumerate(_column(facts, name)):
            if made < 0 or made != int(made):
                yield facts.finding(f"health.{name}[{i}]", made, "a whole number")


def same_total(stated: float, parts: Sequence[float]) -> bool:
    """Whether a total is the sum of stored figures, up to what their rounding leaves open."""
    slack = math.fsum(ROUNDED * part for part in parts if part >= EXACT)
    return abs(stated - math.fsum(parts)) <= slack


def check_cost(facts: Facts) -> Iterator[Finding]:
    """Completions as the budget gives them, tokens as the figures add up, FLOPs by the rule."""
    stored, parameters = facts.record.cost, facts.record.subject.params_total
    completions = facts.iterations * facts.conditions.budget.rows
    yield from facts.differs("cost.completions", stored.get("completions"), completions)
    made, trained = stored.get("generated_tokens"), stored.get("trained_tokens")
    if not isinstance(made, int) or not isinstance(trained, int):
        yield facts.finding("cost", sorted(stored), ["generated_tokens", "trained_tokens"])
        return
    tokens = [t for t in facts.record.health.get("tokens", ()) if t is not None]
    if not same_total(made, tokens):
        why = "the sum of health.tokens"
        yield facts.finding("cost.generated_tokens", made, round(math.fsum(tokens)), why)
    most = facts.conditions.optimization.epochs * made
    if not 0 <= trained <= most:
        yield facts.finding("cost.trained_tokens", trained, f"0 to {most}", "epochs x generated")
    flops = 2 * parameters * made + 6 * parameters * trained
    why = "2 per parameter and token generated, 6 per parameter and token trained"
    yield from facts.differs("cost.flops_estimate", stored.get("flops_estimate"), flops, why)
