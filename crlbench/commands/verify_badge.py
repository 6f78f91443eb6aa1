"""What ``crlbench verify --badge`` writes: a line for each run that was proven, and by whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crlbench import __version__
from crlbench.commands.verify_recompute import Recomputed
from crlbench.commands.verify_replay import Replayed
from crlbench.contract.verification import Badge, Outcome, read_verifications
from crlbench.disk.hashing import digest
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.errors import EnvironmentUnfit
from crlbench.proof.entry import Home
from crlbench.run.ledger import append_line, utc_now
from crlbench.verdict.badges import Badges, read_badges
from crlbench.verdict.runs import Run

MACHINE_DIGITS = 12
"""Of the hash of a class of machine, in a line that says who replayed a run."""


def write_badges(
    by: str,
    runs: Sequence[Run],
    homes: dict[Path, Home],
    found: Recomputed,
    replayed: Sequence[Replayed],
) -> None:
    """Add a line for each run to the verifications of its entry.

    Raises:
        EnvironmentUnfit: something could not be checked here, so that no badge can be given.
        ValidationError: the verifications were changed.
    """
    if found.gaps and not found.all_findings:
        raise EnvironmentUnfit(f"--badge: not everything could be checked here: {found.gaps[0]}")
    known: dict[Path, Badges] = {}
    for run in runs:
        outcome: Outcome = "mismatch" if found.findings[run.name] else "equal"
        home = homes[run.folder]
        if home.folder not in known:
            known[home.folder] = read_badges(home.folder)
        last = known[home.folder].last(run.record.record_id, "recomputed")
        if last != outcome:  # said once, however often a seed is replayed
            _add(home, run, "recomputed", by, 0, outcome)
    for one in replayed:
        machine = digest(dict(one.machine))[:MACHINE_DIGITS]
        kind: Badge = "reproduced" if one.whole and one.outcome != "within" else "replayed"
        updates: int | str = "all" if one.whole else one.updates
        home = homes[one.run.folder]
        _add(home, one.run, kind, by, updates, one.outcome, {"machine": machine})


def _add(
    home: Home,
    run: Run,
    kind: Badge,
    by: str,
    updates: int | str,
    outcome: Outcome,
    more: Mapping[str, Any] | None = None,
) -> None:
    path = home.folder / VERIFICATION_NAME
    body = {
        "record_id": run.record.record_id,
        "run": run.name,
        "kind": kind,
        "by": by,
        "date": utc_now(),
        "updates": updates,
        "outcome": outcome,
        "crlbench": __version__,
    } | dict(more or {})
    append_line(path, read_verifications(path), body)
