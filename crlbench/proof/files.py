"""The files that repeat what a record says, where they were kept: curve, configuration, machine."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from crlbench.contract.conditions import diff, leaves
from crlbench.contract.verification import Finding
from crlbench.disk.hashing import digest
from crlbench.disk.names import RECORD_NAME
from crlbench.proof.facts import Facts
from crlbench.run.derived import curve_csv
from crlbench.verdict.runs import Run

CURVE, CONFIG, MACHINE = "curve.csv", "config.toml", "env.json"


def files(facts: Facts) -> Iterator[Finding]:
    """Each file says what the record says."""
    yield from _curve(facts)
    yield from _config(facts)
    yield from _machine(facts)


def _curve(facts: Facts) -> Iterator[Finding]:
    content = facts.run.content(CURVE)
    if content is None:
        return
    lines = content.decode("utf-8", "replace").splitlines()
    again = curve_csv(facts.record.curve).decode().splitlines()
    for number, expected in enumerate(again, start=1):
        stored = lines[number - 1] if number <= len(lines) else "missing"
        yield from facts.differs(f"line {number}", stored, expected, RECORD_NAME, CURVE)


def config_of(run: Run) -> dict[str, Any] | None:
    """What ``config.toml`` says; None where it was not kept or is no TOML."""
    content = run.content(CONFIG)
    try:
        return None if content is None else tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None


def _config(facts: Facts) -> Iterator[Finding]:
    if facts.run.content(CONFIG) is None:
        return
    stored, record = config_of(facts.run), facts.record
    if stored is None:
        yield facts.finding("(whole)", "unreadable", "TOML", file=CONFIG)
        return
    expected = {
        "recipe": record.algo.name,
        "task": record.task.name,
        "arm": record.arm,
        "seed_index": record.seed.index,
        "track": record.protocol.track,
        "track_version": record.protocol.track_version,
        "division": record.protocol.division,
        "fingerprint": record.fingerprint.hash,
        "plan_hash": record.plan_hash,
        "conditions": facts.conditions.model_dump(mode="json"),
        "recipe_config": record.algo.config,
    }
    given = {name: stored.get(name) for name in expected}
    for field, (found, wanted) in diff(_present(given), _present(expected)).items():
        yield facts.finding(field, found, wanted, RECORD_NAME, CONFIG)


def _present(data: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of nested mappings, without None: TOML has none."""
    return {name: value for name, value in leaves(dict(data)).items() if value is not None}


def _machine(facts: Facts) -> Iterator[Finding]:
    content = facts.run.content(MACHINE)
    if content is None:
        return
    try:
        stored = json.loads(content)
        installed, machine = stored["packages"], facts.record.environment
        stored = stored | {"packages": machine.get("packages")}
    except (ValueError, TypeError, KeyError, RecursionError):
        yield facts.finding("(whole)", "unreadable", "JSON with packages", file=MACHINE)
        return
    for field, (found, wanted) in diff(leaves(stored), leaves(machine)).items():
        yield facts.finding(field, found, wanted, RECORD_NAME, MACHINE)
    stated, why = machine.get("packages_sha256"), f"of the packages in {MACHINE}"
    yield from facts.differs("environment.packages_sha256", stated, digest(installed), why)
    for name, version in dict(machine.get("packages") or {}).items():
        found = installed.get(name) if isinstance(installed, dict) else None
        yield from facts.differs(f"packages.{name}", found, version, RECORD_NAME, MACHINE)
