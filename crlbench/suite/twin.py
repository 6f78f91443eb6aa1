"""The twin of a frozen task: what its own code makes with a fresh salt, and nobody has published.

A model that was trained on the published items is better on them than on their twins; one that
was not is as good on both. Whoever asks chooses the salt, so that nobody can have trained on it.
"""

from __future__ import annotations

from crlbench.catalog import frozen
from crlbench.catalog.code import load_code
from crlbench.errors import UsageError
from crlbench.suite.external import split_rows

SPLITS = ("id", "hard")
"""What is made anew: the splits that a task is measured on."""
_FRESH = 1_000_000
"""Rows are drawn from the MAJOR version of a task, and no task will ever have this many."""


def twin_of(task: frozen.Task, salt: int) -> frozen.Task:
    """The task with other items in its evaluation splits; code, verifier and prompts' forms stay.

    Items whose key stands in any published split are left out, so that levels of few distinct items
    keep few or none. Keys that training may hold never come up: which keys are held out does not
    depend on the salt.

    Args:
        salt: 0 or more; the same salt makes the same items.

    Raises:
        UsageError: the task's items come from a dataset, which has no salt.
        ValidationError: the task's code was changed since it was frozen, or fails.
    """
    if task.card.source is not None:
        raise UsageError(
            f"task '{task.name}': its items come from a dataset and not from a generator, so that "
            "there is no fresh twin of it."
        )
    code = load_code(frozen.checked_code(task))
    code.CARD = {**code.CARD, "version": f"{_FRESH + salt}.0.0"}
    old_keys = {row["key"] for split in task.card.splits for row in task.rows(split)}
    rows_by_split = split_rows(code, only=[split for split in SPLITS if split in task.card.splits])
    fresh = {
        split: [row for row in rows if row["key"] not in old_keys]
        for split, rows in rows_by_split.items()
    }
    return task.with_rows(fresh)
