"""Entries side by side in a notebook: what ``crlbench compare`` says, and learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.commands.compare import chosen_tasks, read_comparison, read_entries
from crlbench.errors import UsageError
from crlbench.notebook.call import options_of, with_path_errors
from crlbench.notebook.results import frame
from crlbench.pages.compare import render_cell, render_comparison
from crlbench.pages.compare_table import plain_comparison
from crlbench.pages.curves import Series, curve_sheet
from crlbench.pages.table import Column, Table, rows_of
from crlbench.site.tables import AXIS_COLUMN, DIFFERENCE, EFFECT, pick
from crlbench.verdict.compare import Comparison
from crlbench.verdict.compare_axis import BY_WORDS, Learning, learning

FLAGS = frozenset({"axis", "by", "force_unequal", "runs", "tasks"})

COLUMNS = (
    AXIS_COLUMN,
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
        by: the x-axis of curves: ``completions``, ``bytes``, ``updates``, ``flops``, ``labels`` or
            ``time`` (seconds).
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


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure that a notebook shows."""

    svg: str
    """An SVG document without scripts, fonts or outside references."""
    about: str
    """What it shows, in a line."""

    def save(self, path: str | Path) -> Path:
        """Write the SVG to a file and return its path."""
        target = Path(path)
        target.write_text(self.svg, encoding="utf-8")
        return target

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="max-width:56rem;color-scheme:light">{self.svg}</div>'

    def __repr__(self) -> str:
        return f"<{self.about}>"


@with_path_errors
def plot_curves(
    *entries: str | Path,
    runs: str | Path = "runs",
    tasks: str | Sequence[str] | None = None,
    by: str = "completions",
    force_unequal: bool = False,
) -> Figure:
    """Draw how stored entries learned: u of every seed thin, the mean bold, its interval shaded.

    u is the score from the floor that needs no skill (0) to the ceiling (1), on fresh items. The
    shaded interval is Student's 95 % interval of the mean over seeds, point by point; it is left
    out below three seeds. After a failure a run counts with 0, as a dotted line shows.

    Args:
        *entries: one or more names below ``runs``, or folders of entries, as
            :func:`crlbench.compare` takes them.
        runs: where names are looked for; ``"leaderboard/results"`` for submitted results.
        tasks: only these, a panel each; None for all.
        by: the x-axis: ``completions``, ``bytes``, ``updates``, ``flops``, ``labels`` or ``time``
            (seconds).
        force_unequal: draw entries of different conditions, under a watermark.

    Returns:
        An object that a notebook shows; ``svg`` is the figure's text and ``save(path)`` writes it.

    Raises:
        UsageError: no entry, or an unknown name.
        NotComparable: the entries were made under different conditions.
        ValidationError: a stored file is damaged, or ``by`` is time and a record has none.

    Example:
        >>> import crlbench
        >>> figure = crlbench.plot_curves("tiny-llama", "tiny-qwen2", runs="leaderboard/results")
        >>> figure.save("curves.svg")
    """
    if not entries:
        raise UsageError("plot_curves needs at least one entry: plot_curves('tiny-llama').")
    values = {"runs": runs, "tasks": tasks, "by": by, "force_unequal": force_unequal}
    options = options_of("compare", entries, values, FLAGS - {"axis"})
    contents = read_entries(options)
    curves = learning(contents, chosen_tasks(options), options.by, options.force_unequal)
    names = ", ".join(one.name for one in curves.entries)
    about = f"Learning curves of {names} on {', '.join(curves.tasks)}"
    return Figure(curve_sheet(_panels(curves), BY_WORDS[curves.by], curves.watermark), about)


def _panels(curves: Learning) -> dict[str, list[Series]]:
    return {
        task: [
            Series(one.key, one.name, one.tasks[task], index)
            for index, one in enumerate(curves.entries)
            if task in one.tasks
        ]
        for task in curves.tasks
    }
