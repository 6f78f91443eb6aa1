"""The scores of a run against the verifiers of its tasks.

A run stores the first draw of the first items at each end (:data:`~crlbench.run.ends.SHOWN`), so
each of them has its place in the item vectors ``start/id`` and ``end/id``, and in ``id_audit``:
those are verified again. All other scores must be ones that the verifiers can pay: 0 or 1 without
partial credit, and within the range of the frozen card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.experience import UNPAID, paid_by_model, source_of
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import WHOLE_BELOW, RunRecord
from crlbench.contract.task_card import TaskCard
from crlbench.contract.verification import Finding
from crlbench.disk.names import ITEMS, SAMPLES
from crlbench.policy.weights.load import Reader
from crlbench.proof.bands import LEARNED_REWARD
from crlbench.proof.facts import Facts, finding_in
from crlbench.run.admission import admit
from crlbench.run.archive import catalog_of
from crlbench.run.ends import AUDITED, SHOWN
from crlbench.run.reward_model import ask
from crlbench.run.subject import (
    auditor_of,
    load_task,
    prompts_of,
    row_cap,
    scorer_of,
    shown_prompt,
)
from crlbench.stats.measures import TRAIN_GREEDY
from crlbench.train.reward import verified_text
from crlbench.verdict.runs import Run

DIGITS = 1e-6
"""Relative rounding that the digits of a stored figure leave open."""
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
    problems = [*check_items(facts, rows, task)]
    yield from problems
    if not problems:
        yield from _check_scores(facts.run, rows, list(_places(facts, task)), task)


def check_items(facts: Facts, rows: Rows, task: Task) -> Iterator[Finding]:
    """Compare what stored completions are of with the rows of the task; no code of it runs.

    Raises:
        EnvironmentUnfit: the rows are not on this machine.
    """
    run, places = facts.run, list(_places(facts, task))
    yield from _check_training(facts, task)
    if len(rows) != len(places):
        lines = f"{len(rows)} lines", f"{len(places)} lines"
        yield finding_in(run, "(whole)", *lines, file=SAMPLES)
        return
    for number, (row, place) in enumerate(zip(rows, places, strict=True), start=1):
        for name in ("uid", "x", "answer"):
            if row[name] != (expected := getattr(place, name)):
                field = f"line {number}: {name}"
                yield finding_in(run, field, row[name], expected, file=SAMPLES)


def _check_training(facts: Facts, task: Task) -> Iterator[Finding]:
    """A mode arm has an answer of the start model to every training prompt."""
    split = facts.record.splits.get(TRAIN_GREEDY)
    if split is not None and "train" in task.card.splits:
        levels = facts.conditions.data.levels
        count = sum(row["level"] in levels for row in task.rows("train"))
        why = "training prompts at the levels of the conditions"
        yield from facts.differs(f"splits.{TRAIN_GREEDY}.n", split.n, count, why)


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
        answers = [ask(task, items[place.item]) for place in places]
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


def check_payable(run: Run, catalog: Catalog) -> Iterator[Finding]:
    """The item vectors that hold a score which their verifier cannot give.

    Tasks that the catalogue of the checkout has not in that version are left out.
    """
    record, task_name = run.record, run.record.task.name
    refs = {
        f"curve[{j}].items_ref": (point.items_ref, task_name)
        for j, point in enumerate(record.curve)
    }
    for name, split in record.splits.items():
        kind, _, other = name.partition("/")
        if kind == "retain" or name == AUDITED:
            continue
        task = other if kind == "transfer" else task_name
        sides = {"start_ref": split.start_ref, "end_ref": split.end_ref}
        refs |= {f"splits.{name}.{side}": (ref, task) for side, ref in sides.items() if ref}
    catalog = catalog_of(record, catalog)
    cards = {name: _card(record, name, catalog) for name in {task for _, task in refs.values()}}
    for field, (ref, task) in refs.items():
        if (card := cards[task]) is not None:
            yield from _check_vector(card, run, ref, field)
    if (card := cards.get(task_name)) is not None:
        yield from _check_means(card, run)


def _check_means(card: TaskCard, run: Run) -> Iterator[Finding]:
    """Where 0 and 1 alone are paid, an iteration's mean score is a whole number of completions."""
    if not _all_or_nothing(card) or card.verifier.reward_range != (0.0, 1.0):
        return
    if source_of(run.record.algo.config) in UNPAID:  # its scores are those of the curve
        return
    if paid_by_model(run.record.algo.config):
        return
    scores = run.record.health.get("score", [])
    completions = run.record.cost.get("completions", 0)
    if type(completions) is not int or not 0 <= completions < WHOLE_BELOW:  # the forms say so
        return
    rows = completions // max(1, len(scores))
    for i, score in enumerate(scores):
        right = (score or 0.0) * rows
        if not abs(right - np.round(right)) <= DIGITS * max(1.0, right):
            why = f"the verifier of '{card.name}' {card.version}, {rows} completions"
            yield finding_in(run, f"health.score[{i}]", score, "a share of them", why)


def _all_or_nothing(card: TaskCard) -> bool:
    return card.reward_model is None and not card.verifier.partial_credit


def _card(record: RunRecord, task: str, catalog: Catalog) -> TaskCard | None:
    """The card of a task at the digest that the record states; None where it is not here."""
    if task not in catalog.list("task"):
        return None
    card = load_task(task, tuple(map(str, catalog.extra))).card
    return card if card.digest == record.fingerprint.leaves.get(f"tasks.{task}.digest") else None


def _check_vector(card: TaskCard, run: Run, ref: str, field: str) -> Iterator[Finding]:
    scores = run.items(ref, field)
    low, high = card.verifier.reward_range
    why = f"the verifier of '{card.name}' {card.version}"
    if _all_or_nothing(card):
        wrong = scores[(scores != low) & (scores != high)]
        expected = f"{low:g} or {high:g}"
    else:
        wrong = scores[(scores < low) | (scores > high)]
        expected = f"{low:g} to {high:g}"
    if wrong.size:
        yield finding_in(run, ref, float(wrong.flat[0]), expected, why, ITEMS)
