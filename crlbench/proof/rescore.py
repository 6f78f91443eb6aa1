"""The completions that a run stored to read, verified again.

A run stores the first draw of the first items at each end (:data:`~crlbench.run.ends.SHOWN`), so
each of them has its place in the item vectors ``start/id`` and ``end/id``, and in ``id_audit``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import RunRecord
from crlbench.contract.verification import Finding
from crlbench.disk.names import SAMPLES
from crlbench.policy.weights.load import Reader
from crlbench.run.admission import admit
from crlbench.run.ends import AUDITED, SHOWN
from crlbench.run.reward_model import ask
from crlbench.run.subject import (
    auditor_of,
    prompts_of,
    row_cap,
    scorer_of,
    shown_prompt,
)
from crlbench.train.reward import verified_text

LEARNED = 1e-4
"""Between two evaluations of a reward model, in other batches or on another machine."""

Vector = Callable[[str, str], np.ndarray]
"""(name of the vector, field that refers to it) -> scores (draws, items)."""


@dataclass(frozen=True)
class _Place:
    """Where a stored completion belongs."""

    uid: str
    x: int
    answer: str
    side: str
    item: int


def rescore(
    record: RunRecord,
    run: str,
    rows: Sequence[Mapping[str, Any]],
    vector: Vector,
    task: Task,
    conditions: Conditions,
) -> Iterator[Finding]:
    """Compare stored completions with the items, and their scores with the task's verifiers.

    Args:
        record: of the run.
        run: its name, for findings.
        rows: the stored samples, in order.
        vector: gives the item vectors.
        task: the task that the run was trained on, at the digest that the record states.
        conditions: of the run.

    Raises:
        EnvironmentUnfit: the task's verifier cannot run here.
    """
    found = [*strangers(record, run, rows, task, conditions)]
    yield from found
    if not found:
        places = list(_places(record, task, conditions))
        yield from _scores(record, run, rows, places, vector, task)


def strangers(
    record: RunRecord,
    run: str,
    rows: Sequence[Mapping[str, Any]],
    task: Task,
    conditions: Conditions,
) -> Iterator[Finding]:
    """Compare what stored completions are of with the rows of the task; no code of it runs.

    Args:
        record, run, rows, task, conditions: as :func:`rescore`.

    Raises:
        EnvironmentUnfit: the rows are not on this machine.
    """
    places = list(_places(record, task, conditions))
    if len(rows) != len(places):
        yield Finding(run, SAMPLES, "(whole)", f"{len(rows)} lines", f"{len(places)} lines")
        return
    for number, (row, place) in enumerate(zip(rows, places, strict=True), start=1):
        for name in ("uid", "x", "answer"):
            if row[name] != getattr(place, name):
                stored, expected = row[name], getattr(place, name)
                yield Finding(run, SAMPLES, f"line {number}: {name}", stored, expected)


def _places(record: RunRecord, task: Task, conditions: Conditions) -> Iterator[_Place]:
    shown = task.rows("id")[: min(SHOWN, conditions.evaluation.curve_items)]
    ends = [("start", 0)]
    if "id" in record.splits and record.splits["id"].end_ref is not None:
        ends.append(("end", int(record.cost["completions"])))
    for side, x in ends:
        for item, row in enumerate(shown):
            yield _Place(f"{task.name}/id/{row['id']}", x, row["answer"], side, item)


def _scores(
    record: RunRecord,
    run: str,
    rows: Sequence[Mapping[str, Any]],
    places: Sequence[_Place],
    vector: Vector,
    task: Task,
) -> Iterator[Finding]:
    """Three numbers that must be one: of the sample, of its vector, of the verifier here."""
    texts = [verified_text(task.card.kind, row) for row in rows]
    items = task.rows("id")
    learned = task.card.reward_model is not None
    answers: list[Any] = [place.answer for place in places]
    if learned:
        answers = [ask(task, items[place.item]) for place in places]
    paid = [np.float32(score.outcome) for score in scorer_of(task)(texts, answers)]
    audited = [np.float32(score.outcome) for score in auditor_of(task)(texts, answers)]
    found = zip(rows, places, paid, audited, strict=True)
    for number, (row, place, score, audit) in enumerate(found, start=1):
        stored = row["score"]
        for split, ours in (("id", score), (AUDITED, audit)):
            ref = f"{place.side}/{split}"
            entry = float(vector(ref, f"splits.{split}.{place.side}_ref")[0, place.item])
            field = f"line {number}: {'score' if split == 'id' else 'audit'}"
            if split == "id" and entry != stored:
                why = f"{ref}[0, {place.item}] in items.npz"
                yield Finding(run, SAMPLES, field, stored, entry, why)
            if abs(entry - float(ours)) > (LEARNED if learned and split == "id" else 0.0):
                name = "the verifier" if split == "id" else "the second verifier"
                why = f"{name} of the completion; stored in items.npz: {ref}[0, {place.item}]"
                yield Finding(run, SAMPLES, field, entry, float(ours), why)


def reader_of(card: ModelCard) -> Reader:
    """How a model reads prompts; needs no weights.

    Raises:
        EnvironmentUnfit: the model's tokenizer is not on this machine.
    """
    return admit(card).reader


def check_prompts(
    run: str,
    rows: Sequence[Mapping[str, Any]],
    task: Task,
    reader: Reader,
    conditions: Conditions,
) -> Iterator[Finding]:
    """Compare the stored prompts with what this model reads for those items."""
    cap = row_cap(task, reader, conditions)
    items = prompts_of(task, "id", reader, cap, conditions.evaluation.curve_items)
    shown = [shown_prompt(prompt, reader) for prompt in items[:SHOWN]]
    for number, row in enumerate(rows, start=1):
        expected = shown[(number - 1) % len(shown)]
        if row["prompt"] != expected:
            yield Finding(run, SAMPLES, f"line {number}: prompt", row["prompt"], expected)
