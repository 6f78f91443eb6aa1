"""A run against the folder it belongs to: the plan that declared it and the ledger of attempts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.contract.attempts import LEDGER_NAME, History, plan_hash, read
from crlbench.contract.machine import BEGUN_ON
from crlbench.contract.stored import json_object, read_bytes
from crlbench.contract.verification import Finding
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.names import ITEMS, PLAN_NAME, RECORD_NAME
from crlbench.proof.facts import finding_in
from crlbench.proof.forms import SKEW_S
from crlbench.proof.ledger import audit_ledger, audit_plan, seconds
from crlbench.verdict.attempts import Attempts, key_of, read_attempts
from crlbench.verdict.load import Runs
from crlbench.verdict.runs import Run


@dataclass(frozen=True)
class Home:
    """The folder of an entry: one model with one recipe."""

    folder: Path
    plan: dict[str, Any]
    attempts: Attempts | None
    """None without a ledger."""

    def resumed(self, run: Run) -> bool:
        """Whether a run was continued from a checkpoint, or nobody knows.

        Its record names the machine and the devices it ended on, and its first iterations may
        have been made on others.
        """
        history = None if self.attempts is None else self.attempts.cells.get(key_of(run))
        return history is None or history.resumed


def homes_of(runs: Runs) -> dict[Path, Home]:
    """The entries of runs, by the folder of each run; a run without a plan above it has none.

    Raises:
        ValidationError: a plan or a ledger is malformed, or its chain is broken.
        EnvironmentUnfit: a file may not be read.
    """
    homes: dict[Path, Home] = {}
    by_run = {}
    for run in runs:
        folder = _folder(runs, run)
        if folder is None:
            continue
        if folder not in homes:
            homes[folder] = Home(folder, json_object(folder / PLAN_NAME), read_attempts(folder))
        by_run[run.folder] = homes[folder]
    return by_run


def _folder(runs: Runs, run: Run) -> Path | None:
    """The nearest folder above a run that has a plan; also above the folder that was loaded."""
    for parent in run.folder.relative_to(runs.folder).parents:
        if parent.as_posix() in runs.plans:
            return runs.folder / parent
    above = (runs.folder.absolute(), *runs.folder.absolute().parents[:3])
    return next((folder for folder in above if (folder / PLAN_NAME).is_file()), None)


def audit_home(home: Home) -> Iterator[Finding]:
    """The plan and the ledger of an entry have the form that a run gives them."""
    name = "/".join(home.folder.absolute().parts[-2:])
    yield from audit_plan(name, home.plan)
    yield from audit_ledger(name, read(home.folder / LEDGER_NAME), home.plan)


def audit_in(home: Home, run: Run) -> Iterator[Finding]:
    """A run is one that its plan declared and that its ledger says ended so."""
    yield from _check_plan(home, run)
    hashes = {plan_hash(home.plan)} if home.attempts is None else home.attempts.hashes
    if run.record.plan_hash not in hashes:
        why = f"declared in {home.folder}; a plan is declared before it is run"
        yield finding_in(run, "plan_hash", run.record.plan_hash, ", ".join(sorted(hashes)), why)
    if home.attempts is not None:
        yield from _check_attempts(home.attempts, run)
    if BEGUN_ON in run.record.environment and not home.resumed(run):
        stored, why = "a class of machine", "the ledger says that the run was never continued"
        yield finding_in(run, f"environment.{BEGUN_ON}", stored, None, why)


def _check_plan(home: Home, run: Run) -> Iterator[Finding]:
    record, plan = run.record, home.plan
    recipe, model = plan.get("recipe"), plan.get("model")
    recipe = recipe if isinstance(recipe, dict) else {}
    model = model if isinstance(model, dict) else {}
    pairs = {
        "fingerprint.hash": (record.fingerprint.hash, plan.get("fingerprint")),
        "fingerprint.leaves": (record.fingerprint.leaves, plan.get("control")),
        "protocol.track": (record.protocol.track, plan.get("track")),
        "protocol.track_version": (record.protocol.track_version, plan.get("track_version")),
        "protocol.version": (record.protocol.version, plan.get("protocol")),
        "protocol.division": (record.protocol.division, plan.get("division")),
        "algo.name": (record.algo.name, recipe.get("name")),
        "algo.config": (record.algo.config, recipe.get("config")),
        "algo.recipe_sha256": (record.algo.recipe_sha256, recipe.get("file_sha256")),
        "subject.slug": (record.subject.slug, model.get("name")),
        "subject.entry_sha256": (record.subject.entry_sha256, model.get("entry_sha256")),
    }
    if record.subject.revision is not None:
        pairs["subject.revision"] = (record.subject.revision[:8], model.get("revision8"))
    why = f"{PLAN_NAME} says so"
    for field, (value, plan_value) in pairs.items():
        if value != plan_value:
            yield finding_in(run, field, value, plan_value, why)
    if bool(plan.get("partial")) != (record.status.state == "partial"):
        if plan.get("partial") and record.status.state == "failed":
            return  # a rule may end a shortened run too
        expected = "partial" if plan.get("partial") else "completed or failed"
        yield finding_in(run, "status.state", record.status.state, expected, why)


def _check_attempts(attempts: Attempts, run: Run) -> Iterator[Finding]:
    record, history = run.record, attempts.cells.get(key_of(run))
    if history is None or not history.ended:
        return
    record_id = history.ends[-1]
    if record_id not in (None, record.record_id):
        why = "the ledger says that the run ended with this record"
        yield finding_in(run, "record_id", record.record_id, record_id, why)
    items = history.results[-1][1]
    if items not in (None, record.files[ITEMS].sha256):
        why = "the ledger says that the run ended with these item vectors"
        yield finding_in(run, f"files.{ITEMS}", record.files[ITEMS].sha256, items, why)
    expected, path = history.record_sha256, run.folder / RECORD_NAME
    if expected is not None and expected != (sha256 := sha256_bytes(read_bytes(path))):
        why = "the ledger says that the run ended with this file"
        yield finding_in(run, "sha256", sha256, expected, why)
    if LEDGER_NAME not in attempts.discarded:  # a new ledger knows no earlier start
        yield from _check_times(history, run)
    if (history.last == "failed") != (record.status.state == "failed"):
        why = "the ledger says how the run ended"
        yield finding_in(run, "status.state", record.status.state, history.last, why)


def _check_times(history: History, run: Run) -> Iterator[Finding]:
    """A run worked between its first start and its last end, by the ledger's clock."""
    volatile = run.record.volatile
    try:
        first, last = seconds(history.begun_at) - SKEW_S, seconds(history.ended_at) + SKEW_S
        attempts = [(float(a["start"]), float(a["end"])) for a in volatile["attempts"]]
        wall_s = float(max(volatile["wall_s"]))
    except (ValueError, KeyError, TypeError, OverflowError):  # said where the forms are checked
        return
    if not all(first <= start <= end <= last for start, end in attempts):
        stored, expected = attempts, f"within {history.begun_at} to {history.ended_at}"
        yield finding_in(run, "volatile.attempts", stored, expected, "the ledger")
    if wall_s > last - first:
        expected = f"at most {last - first:.0f}"
        yield finding_in(run, "volatile.wall_s", wall_s, expected, "the ledger")
