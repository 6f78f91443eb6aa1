"""The figures of training against one another: health, totals of the curve, cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from crlbench.report.audit_facts import Facts
from crlbench.verification import Finding

NEEDED = (
    "iteration", "loss", "reward", "score", "length", "truncated", "entropy", "reference_kl",
    "tokens", "bytes",
)
"""Columns of health that the checks read; a record may have more."""
ALWAYS = ("reward", "score", "length", "truncated", "tokens", "bytes")
"""Those that have a value in every iteration."""
EXACT = 10**7
"""Whole numbers below it are stored as they were: figures have 7 significant digits."""
ROUNDED = 1e-6
"""Relative, of what 7 significant digits and sums in float32 leave open."""
SHARES = ("score", "audit", "truncated", "repetition", "kept_fraction", "uniform_groups")

Column = Sequence[float | int | None]


def figures(facts: Facts) -> Iterator[Finding]:
    """Columns as long as the run, counts that are whole, sums that the curve states."""
    if missing := [*_incomplete(facts)]:
        yield from missing
        return
    yield from _rewards(facts)
    yield from _shares(facts)
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
    for name, column in health.items():
        yield from facts.differs(f"health.{name}", len(column), count, "number of iterations")
    if not absent:
        numbers = [*range(1, count + 1)]
        yield from facts.differs("health.iteration", list(health["iteration"]), numbers)
        for name in ALWAYS:
            if None in health[name]:
                place = list(health[name]).index(None)
                yield facts.finding(f"health.{name}[{place}]", None, "a number")


def _column(facts: Facts, name: str) -> list[float]:
    return [float(value) for value in facts.record.health[name] if value is not None]


def _shares(facts: Facts) -> Iterator[Finding]:
    for name in SHARES:
        for i, value in enumerate(facts.record.health.get(name, ())):
            if value is not None and not 0 <= value <= 1:
                yield facts.finding(f"health.{name}[{i}]", value, "0 to 1")


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


def cost(facts: Facts) -> Iterator[Finding]:
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
