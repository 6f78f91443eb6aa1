"""Can the verifiers of a record's tasks pay the scores that it stores?

A task whose verifier gives no partial credit pays 0 or 1, and every verifier stays within its
range. Both stand in the task's frozen card.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crlbench.catalog.find import Catalog
from crlbench.contract.records import WHOLE_BELOW, RunRecord
from crlbench.contract.task_card import TaskCard
from crlbench.contract.verification import Finding
from crlbench.disk.names import ITEMS
from crlbench.proof.facts import finding_in
from crlbench.run.archive import catalog_of
from crlbench.run.subject import load_task
from crlbench.verdict.runs import Run

AUDITED = "id_audit"
DIGITS = 1e-6
"""Relative rounding that the digits of a stored figure leave open."""

def unpayable(run: Run, catalog: Catalog) -> Iterator[Finding]:
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
