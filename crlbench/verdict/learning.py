"""How one or several entries learned, over one axis: curves without a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from crlbench.verdict.compare import check_entries, compared_tasks, task_views
from crlbench.verdict.compare_axis import By, TaskView
from crlbench.verdict.compare_read import Loaded
from crlbench.verdict.compare_unequal import refuse, unequal, watermark


@dataclass(frozen=True)
class Learned:
    """One entry's curves."""

    key: str
    """A, B, ... in the order given."""
    name: str
    """``model/recipe``."""
    tasks: dict[str, TaskView]


@dataclass(frozen=True)
class Learning:
    """Curves of entries over one axis."""

    by: By
    tasks: tuple[str, ...]
    entries: tuple[Learned, ...]
    watermark: str | None
    """Why these entries are not comparable; None where they are."""


def learning(
    loaded: Sequence[Loaded],
    tasks: Sequence[str] | None = None,
    by: By = "completions",
    force: bool = False,
) -> Learning:
    """The curves of entries, in the order given.

    Args:
        tasks: only these; None for all that any entry has.
        by: the x-axis.
        force: go on where conditions are unequal, under a watermark.

    Raises:
        UsageError: the same entry twice, or an unknown task.
        NotComparable: unequal conditions and no ``force``; or wall time of unequal hardware.
        ValidationError: ``by`` is time and a record does not say how long it took.
    """
    check_entries(loaded)
    keyed = list(zip(ascii_uppercase, loaded, strict=False))
    found = tuple(unequal([(key, one.board, one.leaves) for key, one in keyed]))
    if found:
        refuse(found, force=force, by=by)
    names = compared_tasks(loaded, tasks)
    entries = tuple(Learned(k, one.entry.name, task_views(one, names, by)) for k, one in keyed)
    return Learning(by, names, entries, watermark(found))
