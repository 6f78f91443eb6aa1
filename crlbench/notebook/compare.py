"""Entries side by side in a notebook: what ``crlbench compare`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.commands.compare import read_comparison
from crlbench.notebook.call import options_of, with_path_errors
from crlbench.notebook.frames import frame
from crlbench.pages.compare import render_cell, render_comparison
from crlbench.pages.compare_table import plain_comparison
from crlbench.pages.table import Column, Table, rows_of
from crlbench.site.tables import DIFFERENCE, EFFECT, pick
from crlbench.verdict.compare import Comparison

FLAGS = frozenset({"axis", "by", "force_unequal", "runs", "tasks"})

COLUMNS = (
    Column("axis", "text", "efficiency (Λ), stability (Stab) or generalization (Gen)"),
    Column("task", "text", "all: the mean over the compared tasks"),
    Column("a", "text", "entry, model@revision/recipe"),
    Column("b", "text", "the other one"),
    Column("a_value", "number", "of a, over the compared tasks and seeds", "first"),
    Column("b_value", "number", "of b", "second"),
    *DIFFERENCE,
    Column("verdict", "text", "b is better, equivalent, worse, undecided, or preview", "call"),
    Column("correlation", "number", "achieved between the pairs of seeds"),
    Column("more_seeds", "whole", "that would likely settle what is undecided"),
    Column("seeds", "whole", "of every task that was compared", "n"),
    Column("reason", "text", "why there is no difference"),
)


@dataclass(frozen=True, repr=False)
class SideBySide:
    """Entries side by side; a notebook shows its pairs as tables with figures."""

    comparison: Comparison
    """Everything that ``crlbench compare`` computes, as data."""

    def to_frame(self) -> Any:
        """One row per pair, axis and task; task ``all`` is the mean over the compared tasks.

        Returns:
            A ``pandas.DataFrame`` of shape (pairs · axes · (1 + tasks), 18), less the tasks
            that an axis was not compared on. Values and differences are in units of the axis,
            on which 1 is the best; ``frame.attrs["about"]`` says what each column means.

        Raises:
            EnvironmentUnfit: pandas is not installed.
        """
        rows = list(rows_of(COLUMNS, _differences(self.comparison)))
        return frame(Table(COLUMNS, rows, name="compare"))

    def to_json(self) -> str:
        """What ``crlbench compare --format json`` prints."""
        return self.comparison.to_json()

    def to_html(self) -> str:
        """The whole page that ``crlbench compare --format html`` writes."""
        return render_comparison(self.comparison)

    def _repr_html_(self) -> str:
        return render_cell(self.comparison)

    def __repr__(self) -> str:
        return plain_comparison(self.comparison).rstrip()


@with_path_errors
def compare(
    *entries: str | Path,
    runs: str | Path = "runs",
    axis: str = "all",
    tasks: str | Sequence[str] | None = None,
    by: str = "completions",
    force_unequal: bool = False,
) -> SideBySide:
    """Lay stored entries side by side, with paired verdicts, as ``crlbench compare`` does.

    Args:
        *entries: two or more names (``"tiny-llama"``, ``"tiny-llama/grpo"``, ``"mini@1/..."``)
            below ``runs``, or folders of entries.
        runs: where names are looked for; ``"leaderboard/results"`` for submitted results.
        axis: ``all``, ``efficiency``, ``stability`` or ``generalization``.
        tasks: only these; None for all.
        by: the x-axis of curves: ``completions``, ``bytes``, ``updates`` or ``time`` (seconds).
        force_unequal: differences without a verdict where conditions differ.

    Returns:
        An object that a notebook shows as tables; ``to_frame()``, ``to_json()`` and
        ``to_html()`` give it to programs, and ``str()`` is the command's text.

    Raises:
        UsageError: fewer than two entries, or an unknown name.
        NotComparable: the entries were made under different conditions.
        ValidationError: a stored file is damaged.

    Example:
        >>> import crlbench
        >>> comparison = crlbench.compare("tiny-llama", "tiny-qwen2", runs="leaderboard/results")
        >>> comparison.to_frame().query("task == 'all'")[["axis", "difference", "verdict"]]
    """
    flags = {"runs": runs, "axis": axis, "tasks": tasks, "by": by, "force_unequal": force_unequal}
    return SideBySide(read_comparison(options_of("compare", entries, flags, FLAGS)))


def _differences(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for pair in comparison.pairs:
        sides = {"a": comparison.side(pair.first).name, "b": comparison.side(pair.second).name}
        for axis, contrast in pair.axes.items():
            for task, effect in {"all": contrast.effect, **contrast.by_task}.items():
                numbers = pick(effect, *EFFECT, "first", "second", "wider", "call")
                yield {**numbers, **sides, "axis": axis, "task": task, "reason": contrast.reason}
