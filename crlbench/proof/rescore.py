"""The completions that a run stored to read, verified again.

A run stores the first draw of the first items at each end (:data:`~crlbench.run.ends.SHOWN`), so
each of them has its place in the item vectors ``start/id`` and ``end/id``, and in ``id_audit``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crlbench.catalog.frozen import Task
from crlbench.contract.model_card import ModelCard
from crlbench.contract.verification import Finding
from crlbench.disk.names import SAMPLES
from crlbench.policy.weights.load import Reader
from crlbench.proof.bands import LEARNED_REWARD
from crlbench.proof.facts import Facts, finding_in
from crlbench.run.admission import admit
from crlbench.run.ends import AUDITED, SHOWN
from crlbench.run.reward_model import asked
from crlbench.run.subject import (
    auditor_of,
    prompts_of,
    row_cap,
    scorer_of,
    shown_prompt,
)
from crlbench.train.transcript import verified_text
from crlbench.verdict.runs import Run

Rows = Sequence[Mapping[str, Any]]
"""Stored samples of a run, in order."""


@dataclass(frozen=True)
class _Place:
    """Where a stored completion belongs."""

    uid: str
    x: int
    answer: str
    side: str
    item: int


def rescore(facts: Facts, rows: Rows, task: Task) -> Iterator[Finding]:
    """Compare stored completions with the items, and their scores with the task's verifiers.

    Args:
        facts: The run and its conditions.
        rows: The stored samples, in order.
        task: The task that the run was trained on, at the digest that the record states.

    Raises:
        EnvironmentUnfit: the task's verifier cannot run here.
    """
    problems = [*strangers(facts, rows, task)]
    yield from problems
    if not problems:
        yield from _check_scores(facts.run, rows, list(_places(facts, task)), task)


def strangers(facts: Facts, rows: Rows, task: Task) -> Iterator[Finding]:
    """Compare what stored completions are of with the rows of the task; no code of it runs.

    Raises:
        EnvironmentUnfit: the rows are not on this machine.
    """
    run, places = facts.run, list(_places(facts, task))
    if len(rows) != len(places):
        lines = f"{len(rows)} lines", f"{len(places)} lines"
        yield finding_in(run, "(whole)", *lines, file=SAMPLES)
        return
    for number, (row, place) in enumerate(zip(rows, places, strict=True), start=1):
        for name in ("uid", "x", "answer"):
            if row[name] != (expected := getattr(place, name)):
                field = f"line {number}: {name}"
                yield finding_in(run, field, row[name], expected, file=SAMPLES)


def _places(facts: Facts, task: Task) -> Iterator[_Place]:
    record = facts.record
    items = task.rows("id")[: min(SHOWN, facts.conditions.evaluation.curve_items)]
    ends = [("start", 0)]
    if "id" in record.splits and record.splits["id"].end_ref is not None:
        ends.append(("end", int(record.cost["completions"])))
    for side, x in ends:
        for item, row in enumerate(items):
            yield _Place(f"{task.name}/id/{row['id']}", x, row["answer"], side, item)


def _check_scores(run: Run, rows: Rows, places: Sequence[_Place], task: Task) -> Iterator[Finding]:
    """Three numbers that must be one: of the sample, of its vector, of the verifier here."""
    texts = [verified_text(task.card.kind, row) for row in rows]
    items = task.rows("id")
    learned = task.card.reward_model is not None
    answers: list[Any] = [place.answer for place in places]
    if learned:
        answers = [asked(task, items[place.item]) for place in places]
    scores = [np.float32(score.outcome) for score in scorer_of(task)(texts, answers)]
    audits = [np.float32(score.outcome) for score in auditor_of(task)(texts, answers)]
    pairs = enumerate(zip(rows, places, scores, audits, strict=True), start=1)
    for number, (row, place, score, audit) in pairs:
        stored = row["score"]
        for split, ours in (("id", score), (AUDITED, audit)):
            ref = f"{place.side}/{split}"
            entry = float(run.items(ref, f"splits.{split}.{place.side}_ref")[0, place.item])
            field = f"line {number}: {'score' if split == 'id' else 'audit'}"
            if split == "id" and entry != stored:
                why = f"{ref}[0, {place.item}] in items.npz"
                yield finding_in(run, field, stored, entry, why, SAMPLES)
            if abs(entry - float(ours)) > (LEARNED_REWARD if learned and split == "id" else 0.0):
                name = "the verifier" if split == "id" else "the second verifier"
                why = f"{name} of the completion; stored in items.npz: {ref}[0, {place.item}]"
                yield finding_in(run, field, entry, float(ours), why, SAMPLES)


def reader_of(card: ModelCard) -> Reader:
    """How a model reads prompts; needs no weights.

    Raises:
        EnvironmentUnfit: the model's tokenizer is not on this machine.
    """
    return admit(card).reader


def check_prompts(facts: Facts, rows: Rows, task: Task, reader: Reader) -> Iterator[Finding]:
    """Compare the stored prompts with what this model reads for those items."""
    cap = row_cap(task, reader, facts.conditions)
    items = prompts_of(task, "id", reader, cap, facts.conditions.evaluation.curve_items)
    prompts = [shown_prompt(prompt, reader) for prompt in items[:SHOWN]]
    for number, row in enumerate(rows, start=1):
        expected = prompts[(number - 1) % len(prompts)]
        if row["prompt"] != expected:
            field = f"line {number}: prompt"
            yield finding_in(facts.run, field, row["prompt"], expected, file=SAMPLES)
