"""Prompts of the catalogue's tasks, on which a new model's frame is tried."""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.catalog.find import Catalog
from crlbench.catalog.rows import Message
from crlbench.errors import CrlbenchError

SPLITS = ("id", "hard")
ROWS = 16
"""Prompts of each split; a run compares all that it renders."""


def task_prompts() -> Iterator[list[Message]]:
    """The first prompts of every task whose rows are on this machine."""
    catalog = Catalog()
    for name in catalog.list("task"):
        try:
            task = catalog.open_task(name)
            rows = [task.rows(split)[:ROWS] for split in SPLITS if split in task.card.splits]
        except CrlbenchError:  # a draft, or rows that were not fetched
            continue
        yield from (row["messages"] for part in rows for row in part)
