"""The files of a run beside its record: digests, samples, and those that repeat the record.

Whether the tensors were what their digests say is only seen by running the iterations again
(:mod:`crlbench.proof.replay`); whether the questions and the verdicts of the samples are those of
the task, where the task is (:mod:`crlbench.proof.rescore`).
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crlbench.contract.conditions import diff, leaves
from crlbench.contract.records import DIGESTED_ITERATIONS, IterationDigest
from crlbench.contract.verification import Finding
from crlbench.disk.hashing import digest, sha256_bytes
from crlbench.disk.names import DIGESTS, EPISODES, RECORD_NAME, SAMPLES
from crlbench.proof.facts import Facts
from crlbench.proof.figures import ROUNDED
from crlbench.run.mend import curve_csv
from crlbench.verdict.runs import Run
from crlbench.verdict.samples import Sample

CURVE, CONFIG, MACHINE = "curve.csv", "config.toml", "env.json"
SHOWN = 32
"""Most completions that are kept of an end."""
TOKEN_BYTES = 256
"""Bytes of the longest token that a vocabulary has, such as a run of spaces."""
MAX_TEXT = 2**17
"""Most characters of a prompt or an answer: what a template may write, and a question."""
MAX_UID = 300


def check_digests(facts: Facts) -> Iterator[Finding]:
    """One line for each digested iteration, under the root that the record states."""
    record, content = facts.record, facts.run.content(DIGESTS)
    if content is None:
        yield facts.finding("(whole)", "missing", "the file", "nothing can be replayed", DIGESTS)
        return
    root = sha256_bytes(content)
    yield from facts.differs("digest_root", record.digest_root, root, f"sha256 of {DIGESTS}")
    rows = facts.run.digests() or ()
    expected = [*range(1, min(DIGESTED_ITERATIONS, facts.iterations) + 1)]
    numbers = [row.iteration for row in rows]
    yield from facts.differs("iteration", numbers, expected, "a line each", DIGESTS)
    if numbers == expected:
        yield from _check_losses(facts, rows)


def _check_losses(facts: Facts, rows: Sequence[IterationDigest]) -> Iterator[Finding]:
    means, updates = facts.record.health.get("loss", []), 0
    for i, row in enumerate(rows):
        field = f"losses of iteration {row.iteration}"
        try:
            losses = [float.fromhex(loss) for loss in row.losses]
            plain = [loss.hex() for loss in losses] == row.losses
        except (ValueError, OverflowError):
            plain = False
        if not plain:
            yield facts.finding(field, row.losses, "hexadecimal floats", file=DIGESTS)
            return
        if len(losses) > facts.most_updates:
            most = f"at most {facts.most_updates}"
            yield facts.finding(field, len(losses), most, "updates", DIGESTS)
        updates += len(losses)
        point = facts.point_at(row.iteration)
        if point is not None and point.updates != updates:
            why = f"losses in {DIGESTS} up to there"
            yield facts.finding(f"curve, x = {point.x}: updates", point.updates, updates, why)
        mean = sum(losses) / len(losses) if losses else math.nan
        if i < len(means) and not _same(means[i], mean):
            why = f"the mean of the losses in {DIGESTS}"
            yield facts.finding(f"health.loss[{i}]", means[i], mean, why)


def _same(stored: float | int | None, mean: float) -> bool:
    if stored is None:
        return not math.isfinite(mean)
    return math.isclose(stored, mean, rel_tol=ROUNDED)


def check_samples(facts: Facts) -> Iterator[Finding]:
    """The first items of both ends, each with the score that its item vector has."""
    rows, record = facts.run.samples(), facts.record
    count = min(SHOWN, facts.conditions.evaluation.curve_items)
    ends = ["start", *(["end"] if facts.scored_at_end else [])]
    yield from facts.differs("(whole)", len(rows), count * len(ends), "lines", SAMPLES)
    vectors = {side: facts.run.items(f"{side}/id", f"splits.id.{side}_ref") for side in ends}
    narrow = any(v.ndim != 2 or v.shape[1] < count for v in vectors.values())
    if len(rows) != count * len(ends) or narrow:  # the shapes are said with the splits
        return
    for number, row in enumerate(rows):
        side, item = ends[number // count], number % count
        field = f"line {number + 1}: "
        yield from _check_texts(facts, field, row, rows[item])
        x = 0 if side == "start" else record.cost.get("completions")
        yield from facts.differs(f"{field}x", row.x, x, "completions by then", SAMPLES)
        why = f"{side}/id[0, {item}] in items.npz"
        stored = float(vectors[side][0, item])
        yield from facts.differs(f"{field}score", row.score, stored, why, SAMPLES)


def _check_texts(facts: Facts, field: str, row: Sample, first: Sample) -> Iterator[Finding]:
    """Both ends ask the same questions; nothing is longer than it can be."""
    task = f"{facts.record.task.name}/id/"
    if not row.uid.startswith(task) or len(row.uid) > MAX_UID:
        yield facts.finding(f"{field}uid", row.uid, f"{task}...", file=SAMPLES)
    for name in ("uid", "prompt", "answer"):
        stored, expected = getattr(row, name), getattr(first, name)
        yield from facts.differs(field + name, stored, expected, "as at the start", SAMPLES)
        if len(stored) > MAX_TEXT:
            size = f"{len(stored)} characters"
            yield facts.finding(field + name, size, f"at most {MAX_TEXT}", file=SAMPLES)
    most = MAX_TEXT
    if EPISODES not in facts.record.files:  # there the cap is that of a turn
        most = min(most, longest_text(facts))
    if len(row.completion.encode("utf-8", "replace")) > most:
        size, why = f"{len(row.completion)} characters", "the cap of the conditions"
        yield facts.finding(f"{field}completion", size, f"at most {most} bytes", why, SAMPLES)


def longest_text(facts: Facts) -> int:
    """Most bytes of a completion, or of what is said in one turn."""
    return TOKEN_BYTES * (facts.conditions.sampling.max_completion_bytes + 1)


def check_files(facts: Facts) -> Iterator[Finding]:
    """Each file says what the record says."""
    yield from _check_curve(facts)
    yield from _check_config(facts)
    yield from _check_machine(facts)


def _check_curve(facts: Facts) -> Iterator[Finding]:
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


def _check_config(facts: Facts) -> Iterator[Finding]:
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
    leaves_here = _leaves({name: stored.get(name) for name in expected})
    for field, pair in diff(leaves_here, _leaves(expected)).items():
        yield facts.finding(field, *pair, RECORD_NAME, CONFIG)


def _leaves(data: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of nested mappings, without None: TOML has none."""
    return leaves(_stated(dict(data)))


def _stated(value: Any) -> Any:
    """Plain data without what is None, in lists too."""
    if isinstance(value, dict):
        return {name: _stated(inner) for name, inner in value.items() if inner is not None}
    return [_stated(inner) for inner in value] if isinstance(value, list) else value


def _check_machine(facts: Facts) -> Iterator[Finding]:
    content = facts.run.content(MACHINE)
    if content is None:
        return
    try:
        stored = json.loads(content)
        packages, machine = stored["packages"], facts.record.environment
        stored = stored | {"packages": machine.get("packages")}
    except (ValueError, TypeError, KeyError, RecursionError):
        yield facts.finding("(whole)", "unreadable", "JSON with packages", file=MACHINE)
        return
    for field, pair in diff(leaves(stored), leaves(machine)).items():
        yield facts.finding(field, *pair, RECORD_NAME, MACHINE)
    sha256, why = machine.get("packages_sha256"), f"of the packages in {MACHINE}"
    yield from facts.differs("environment.packages_sha256", sha256, digest(packages), why)
    for name, version in dict(machine.get("packages") or {}).items():
        here = packages.get(name) if isinstance(packages, dict) else None
        yield from facts.differs(f"packages.{name}", here, version, RECORD_NAME, MACHINE)
