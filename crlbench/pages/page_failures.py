"""Which runs failed, vanished or are missing, why, and how each of them counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crlbench.base import wording
from crlbench.contract.arms import PAID_BY_TASK
from crlbench.contract.records import RunRecord
from crlbench.verdict.entry import Entry
from crlbench.verdict.runs import Run

Rules = Mapping[str, Any]
"""Leaves of ``conditions.rules`` by name."""

MEANINGS: dict[str, Callable[[Rules], str]] = {
    "skipped_updates": lambda r: (
        f"{_limit(r, 'skipped_updates')} updates running had a gradient that was no finite number"
    ),
    "non_finite_weights": lambda r: "a weight was no finite number any more",
    "kl_cap": lambda r: (
        f"KL to the start model above {_limit(r, 'kl_cap')} nats per token, measured "
        f"{_limit(r, 'patience')} times running"
    ),
    "entropy_floor": lambda r: (
        f"token entropy below {_share(r, 'entropy_floor')} of its first value in "
        f"{_limit(r, 'patience')} updates running, and a score no better than at first"
    ),
    "truncated_share": lambda r: (
        f"at least {_share(r, 'truncated_share')} of the completions cut off at the cap in "
        f"{_limit(r, 'patience')} iterations running"
    ),
    "score_drop": lambda r: (
        f"the last 3 evaluations are on average more than {_limit(r, 'score_drop')} below the "
        "start model"
    ),
}
"""What each rule that fails a run says, with the limits of the run's conditions."""

FINAL = "score_drop"
"""The rule that looks back on a whole run."""


def _limit(rules: Rules, name: str) -> str:
    value = rules.get(name)
    return f"{value:g}" if isinstance(value, int | float) else f"the track's {name}"


def _share(rules: Rules, name: str) -> str:
    value = rules.get(name)
    return wording.percent(value, 0) if isinstance(value, int | float) else f"the track's {name}"


def failures(entry: Entry, runs: Sequence[Run]) -> dict[str, Any]:
    """The panel of one entry and arm."""
    rows = [_row(run.record) for run in runs if run.status.state == "failed"]
    return {
        "failed": rows,
        "real": entry.arm == "real",
        "vanished": list(entry.vanished),
        "missing": list(entry.missing),
        "absent": list(entry.absent),
        "partial": list(entry.partial) if entry.standing != "partial" else [],
        "clean": not rows and not entry.vanished,
        "runs": wording.count(len(runs), "stored run"),
    }


def _row(record: RunRecord) -> dict[str, str]:
    status = record.status
    rules = {
        name.removeprefix("conditions.rules."): value
        for name, value in record.fingerprint.leaves.items()
        if name.startswith("conditions.rules.")
    }
    describe = MEANINGS.get(status.rule or "")
    return {
        "run": f"{record.task.name} seed-{record.seed.index:02d}",
        "rule": status.rule or "no rule stated",
        "at": wording.NONE if status.at is None else str(status.at),
        "meaning": describe(rules)
        if describe
        else "a rule that this version of crlbench does not know",
        "counts": _counts(record),
    }


def _counts(record: RunRecord) -> str:
    status = record.status
    if record.arm not in PAID_BY_TASK:
        if status.rule == FINAL:
            return "not as a failure: losing score is what this arm measures"
        return "as measured up to the failure, then u = 0 at most"
    if status.rule == FINAL:
        return (
            "its curve as measured, the end of every split as u = 0 at most, and in the failure "
            "rate"
        )
    return (
        "u = 0 at most from then on, in the curve, at the end of every split, in the failure rate"
    )
