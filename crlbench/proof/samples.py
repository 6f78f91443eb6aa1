"""The completions that a run keeps to read: as many as it keeps, in order, none longer than any is.

Whether the questions and the verdicts are those of the task is seen where the task is
(:mod:`crlbench.proof.rescore`).
"""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.contract.verification import Finding
from crlbench.disk.names import SAMPLES
from crlbench.proof.facts import Facts
from crlbench.verdict.runs import Sample

SHOWN = 32
"""Completions of an end, at most."""
TOKEN_BYTES = 256
"""Of the longest token that a vocabulary has, such as a run of spaces."""
MAX_TEXT = 2**17
"""Characters of a prompt or an answer: what a template may write, and a question."""
MAX_UID = 300


def samples(facts: Facts) -> Iterator[Finding]:
    """The first items of both ends, each with the score that its item vector has."""
    rows, record = facts.run.samples(), facts.record
    shown = min(SHOWN, facts.conditions.evaluation.curve_items)
    ends = ["start", *(["end"] if facts.scored_at_end else [])]
    yield from facts.differs("(whole)", len(rows), shown * len(ends), "lines", SAMPLES)
    vectors = {side: facts.run.items(f"{side}/id", f"splits.id.{side}_ref") for side in ends}
    narrow = any(v.ndim != 2 or v.shape[1] < shown for v in vectors.values())
    if len(rows) != shown * len(ends) or narrow:  # the shapes are said with the splits
        return
    for number, row in enumerate(rows):
        side, item = ends[number // shown], number % shown
        field = f"line {number + 1}: "
        yield from _texts(facts, field, row, rows[item])
        x = 0 if side == "start" else record.cost.get("completions")
        yield from facts.differs(f"{field}x", row.x, x, "completions by then", SAMPLES)
        why = f"{side}/id[0, {item}] in items.npz"
        stored = float(vectors[side][0, item])
        yield from facts.differs(f"{field}score", row.score, stored, why, SAMPLES)


def _texts(facts: Facts, field: str, row: Sample, first: Sample) -> Iterator[Finding]:
    """Both ends ask the same questions; nothing is longer than it can be."""
    task = f"{facts.record.task.name}/id/"
    if not row.uid.startswith(task) or len(row.uid) > MAX_UID:
        yield facts.finding(f"{field}uid", row.uid, f"{task}...", file=SAMPLES)
    for name in ("uid", "prompt", "answer"):
        stored, expected = getattr(row, name), getattr(first, name)
        yield from facts.differs(field + name, stored, expected, "as at the start", SAMPLES)
        if len(stored) > MAX_TEXT:
            found = f"{len(stored)} characters"
            yield facts.finding(field + name, found, f"at most {MAX_TEXT}", file=SAMPLES)
    most = min(MAX_TEXT, TOKEN_BYTES * (facts.conditions.sampling.max_completion_bytes + 1))
    if len(row.completion.encode("utf-8", "replace")) > most:
        found, why = f"{len(row.completion)} characters", "the cap of the conditions"
        yield facts.finding(f"{field}completion", found, f"at most {most} bytes", why, SAMPLES)
