"""The status of a run, derived again from its figures by the failure rules of its conditions.

Stored figures have 7 significant digits and the rules looked at all of them, so that a comparison
has three answers: surely, surely not, and None where rounding decides. Two rules leave no trace in
the figures: ``non_finite_weights``, and how many updates running were skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from crlbench.contract.arms import PAID_BY_TASK
from crlbench.contract.records import SCORE_DROP
from crlbench.contract.verification import Finding
from crlbench.proof.facts import Facts, describe_status
from crlbench.proof.figures import ROUNDED
from crlbench.run.needs import UPSTREAM
from crlbench.stats.stability import LAST

UNSEEN = ("skipped_updates", "non_finite_weights")
SEEN = ("kl_cap", "entropy_floor", "truncated_share")
"""Rules that leave a trace, in the order in which a run asks them."""

Row = Mapping[str, float | int | None]


def check_status(facts: Facts) -> Iterator[Finding]:
    """The run ended when and as its conditions say."""
    status = facts.record.status
    rules = (*UNSEEN, *SEEN, SCORE_DROP, UPSTREAM)
    if status.state == "failed" and status.rule not in rules:
        yield facts.finding("status.rule", status.rule, f"one of {', '.join(rules)}")
        return
    if status.state != "failed":
        yield from facts.differs("status.rule", status.rule, None)
    if status.rule == UPSTREAM:
        yield from facts.differs("status.at", status.at, 0, "nothing was trained")
        return
    last = facts.conditions.budget.iterations
    if not facts.early:
        yield from facts.differs("status.at", status.at, last, "iterations of the budget")
    elif status.at is None or not 1 <= status.at <= last:
        yield facts.finding("status.at", status.at, f"1 to {last}")
        return
    yield from _during(facts)
    if not facts.early:
        yield from _final(facts)


def _during(facts: Facts) -> Iterator[Finding]:
    """The first iteration at which a rule is surely broken is the one that ended the run."""
    status, rows = facts.record.status, _rows(facts)
    ending = describe_status(status)
    before = rows[:-1] if facts.early else rows
    for iteration in range(1, len(before) + 1):
        broken = [rule for rule, sure in _broken(facts, rows[:iteration]).items() if sure]
        if broken:
            expected = f"failed by {broken[0]} at {iteration}"
            yield facts.finding("status", ending, expected, "by the stored health")
            return
    if not facts.early or not rows:
        return
    verdicts = _broken(facts, rows)
    if status.rule in SEEN:
        earlier = SEEN[: SEEN.index(status.rule)]
        if verdicts[status.rule] is False:
            expected = f"no {status.rule} at {status.at}"
            yield facts.finding("status", ending, expected, "by the stored health")
    else:
        earlier = ()
        yield from _check_skipped(facts)
    for rule in earlier:
        if verdicts[rule]:
            yield facts.finding("status.rule", status.rule, rule, "which is asked before")


def _check_skipped(facts: Facts) -> Iterator[Finding]:
    limit = facts.conditions.rules.skipped_updates
    skipped = facts.record.counts.get("skipped_updates", 0)
    if facts.record.status.rule == "skipped_updates" and skipped < limit:
        yield facts.finding("counts.skipped_updates", skipped, f"at least {limit}", "the rule")


def _final(facts: Facts) -> Iterator[Finding]:
    """Whether the score fell: of arms that the task pays, where the run was not shortened."""
    record = facts.record
    if record.status.state == "partial" or not record.curve or "id" not in record.splits:
        return
    final = float(np.mean([point.score for point in record.curve[-LAST:]]))
    limit = record.splits["id"].start - facts.conditions.rules.score_drop
    fell = record.arm in PAID_BY_TASK and final < limit
    if fell != (record.status.rule == SCORE_DROP):
        at = facts.conditions.budget.iterations
        expected = f"failed by {SCORE_DROP} at {at}" if fell else f"completed at {at}"
        why = f"the last evaluations have a mean of {final:.6g}, the rule's limit is {limit:.6g}"
        yield facts.finding("status", describe_status(record.status), expected, why)


def _rows(facts: Facts) -> list[Row]:
    """The figures that the rules read, by iteration; none where the columns do not fit."""
    names = ("reference_kl", "entropy", "score", "truncated")
    columns = [facts.record.health.get(name, []) for name in names]
    if len({len(column) for column in columns}) > 1:
        return []
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _broken(facts: Facts, rows: Sequence[Row]) -> dict[str, bool | None]:
    """After these iterations, by rule: surely broken, surely not, or not to be told."""
    rules = facts.conditions.rules

    def figures(name: str) -> list[tuple[float, float]]:
        """The figures of that name that there are, each with its iteration's score."""
        return [(v, row["score"] or 0.0) for row in rows if (v := row[name]) is not None]

    def always(name: str, test: Callable[[float, float], bool | None]) -> bool | None:
        recent = figures(name)[-rules.patience :]
        return both(test(*pair) for pair in recent) if len(recent) == rules.patience else False

    def collapses(entropy: float, score: float) -> bool | None:
        first_entropy, first_score = figures("entropy")[0]
        low = below(entropy, rules.entropy_floor * first_entropy)
        return both((low, negate(below(first_score, score))))

    return {
        "kl_cap": always("reference_kl", lambda kl, _: below(rules.kl_cap, kl)),
        "entropy_floor": always("entropy", collapses),
        "truncated_share": always(
            "truncated", lambda share, _: negate(below(share, rules.truncated_share))
        ),
    }


def below(a: float, b: float) -> bool | None:
    """Whether a < b; None where both are equal up to the digits that are stored."""
    margin = ROUNDED * max(abs(a), abs(b))
    return None if 0 < abs(a - b) <= margin or (a == b != 0) else a < b


def negate(answer: bool | None) -> bool | None:
    """The opposite answer."""
    return None if answer is None else not answer


def both(answers: Iterable[bool | None]) -> bool | None:
    """Whether all are true, as far as can be told."""
    known = {*answers}
    if False in known:
        return False
    return None if None in known else True
