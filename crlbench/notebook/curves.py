"""Learning curves of stored entries as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crlbench.commands.compare import chosen_tasks, read_entries
from crlbench.errors import UsageError
from crlbench.notebook.call import options_of, with_path_errors
from crlbench.pages.compare_figures import Series
from crlbench.pages.curve_sheet import curve_sheet
from crlbench.verdict.compare_axis import BY_WORDS
from crlbench.verdict.learning import Learning, learning

FLAGS = frozenset({"by", "force_unequal", "runs", "tasks"})


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
        by: the x-axis: ``completions``, ``bytes``, ``updates`` or ``time`` (seconds).
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
    flags = {"runs": runs, "tasks": tasks, "by": by, "force_unequal": force_unequal}
    options = options_of("compare", entries, flags, FLAGS)
    stored_entries = read_entries(options)
    curves = learning(stored_entries, chosen_tasks(options), options.by, options.force_unequal)
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
