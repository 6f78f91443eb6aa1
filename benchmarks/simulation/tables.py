"""Tables of what the simulations found, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill

import numpy as np
from scipy.stats import beta

from crlbench.stats.intervals import plain_mean, trimmed_mean
from crlbench.stats.tiers import ALPHA

from .engine import Columns
from .rows import SIGNS, Part, Row
from .setting import RETAIN_ITEMS
from .truth import expected

Found = tuple[Row, Columns]
Plain = tuple[Sequence[str], list[Sequence[str]]]
Table = Plain | tuple[Sequence[str], list[Sequence[str]], str, str]
"""Head and rows, and what is said before and after them."""

BIASES = (
    "drawdown, corrected",
    "drawdown, corrected and floored",
    "drawdown, raw",
    "dispersion, corrected",
    "first crossing",
)
WIDTH = 119
"""Characters of a line of text, as in the documents."""


def share(hits: np.ndarray) -> tuple[float, float, float]:
    """A share with its Clopper-Pearson interval of 95 %."""
    count, n = int(np.sum(hits)), len(hits)
    low = float(beta.ppf(0.025, count, n - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, n - count)) if count < n else 1.0
    return count / n, low, high


def upper_bound(hits: np.ndarray) -> float:
    """What the true share is below, with 95 % confidence (Clopper-Pearson, one-sided)."""
    count, n = int(np.sum(hits)), len(hits)
    return float(beta.ppf(0.95, count + 1, n - count)) if count < n else 1.0


def truths(row: Row, columns: Columns) -> tuple[float, float]:
    """What the interval of the first entry and that of the difference should cover.

    The expectation of the headline at this number of seeds. Stab, and Gen with failed runs, have
    none in closed form: the mean over the simulated boards stands for it.
    """
    world = row.world
    closed = world.axis == "efficiency" or not any(entry.failures for entry in world.entries)
    if world.axis == "stability" or not closed:
        first, second = (float(columns[name].mean()) for name in ("value", "difference"))
    else:
        location = trimmed_mean if world.axis == "efficiency" else plain_mean
        a, b = expected(world, location)[:2]
        first, second = a, b - a
    if world.entries[0] == world.entries[1]:
        second = 0.0
    return first, second


def covered(row: Row, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """(boards,) whether the interval of one entry, and of the difference, holds the truth."""
    one, two = truths(row, columns)
    return (
        (columns["low"] <= one) & (one <= columns["high"]),
        (columns["difference low"] <= two) & (two <= columns["difference high"]),
    )


def false_wins(columns: Columns, alpha: float = ALPHA) -> np.ndarray:
    """(boards,) whether some pair of equal entries was told apart."""
    return columns["smallest p"] <= alpha


def told_apart(columns: Columns) -> np.ndarray:
    """(boards,) whether the verdict on a pair was better or worse."""
    return columns["better"] + columns["worse"] > 0


def coverage(found: list[Found]) -> Table:
    head = ("axis", "track's grid", "tasks", "n", "boards", "one entry", "difference")
    lines = []
    for row, columns in found:
        one, two = covered(row, columns)
        lines.append((*_place(row), str(len(one)), _share(one), _share(two)))
    return head, lines


def tiers(found: list[Found]) -> Table:
    levels = (0.05, *([ALPHA] if ALPHA != 0.05 else []))
    head = ("axis", "track's grid", "tasks", "n", "board", "boards")
    head += tuple(f"error at {a:g}" for a in levels) + ("upper bound",)
    lines = []
    for row, columns in found:
        rates = [f"{false_wins(columns, a).mean():.3f}" for a in levels]
        bound = f"{upper_bound(false_wins(columns)):.3f}"
        lines.append((*_place(row), row.what, _boards(columns), *rates, bound))
    return head, lines


def aa(found: list[Found]) -> Table:
    head = ("axis", "n", "boards", "asked by", "false wins", "upper bound")
    lines = []
    for row, columns in found:
        tested = row.kind == "wins"
        hits = false_wins(columns) if tested else told_apart(columns)
        asked = f"tiers at {ALPHA:g}" if tested else "verdict"
        bound = f"{upper_bound(hits):.3f}"
        line = (SIGNS[row.world.axis], str(row.world.seeds), str(len(hits)), asked)
        lines.append((*line, f"{hits.mean():.3f}", bound))
    return head, lines


def bias(found: list[Found]) -> Table:
    """A row a curve and a column a statistic; forgetting stands below in a sentence."""
    head = ("grid, runs that are", *BIASES)
    curves = [(row, columns) for row, columns in found if row.kind == "nulls"]
    lines = [
        (_curve(row), *(_mean(columns.get(name)) for name in BIASES)) for row, columns in curves
    ]
    runs = sorted({len(column) for _, columns in curves for column in columns.values()})
    before = (
        f"Mean (standard error) of {' or '.join(f'{n:,}' for n in runs)} runs each; points x items "
        "of the curve, and what the true mean does. First crossing in shares of the budget. The "
        "target is .01."
    )
    after = [
        f"Forgetting of one member of {RETAIN_ITEMS} items: raw "
        f"{_mean(columns['forgetting, raw'])}, corrected {_mean(columns['forgetting, corrected'])}."
        for row, columns in found
        if row.kind == "forgetting"
    ]
    return head, lines, before if curves else "", "\n".join(after)


def _curve(row: Row) -> str:
    return f"{row.grid.points} x {row.grid.items}, {row.what}"


def _mean(column: np.ndarray | None) -> str:
    """``+0.0023 (0.0004)``: mean and standard error; a dash where no run has a number."""
    values = np.zeros(0) if column is None else column[np.isfinite(column)]
    if not len(values):
        return "–"
    return f"{values.mean():+.4f} ({values.std() / np.sqrt(len(values)):.4f})"


def power(found: list[Found]) -> Table:
    head = ("axis", "board", "n", "boards", f"pairs found at {ALPHA:g}", "false wins")
    lines = []
    for row, columns in found:
        hit = columns[f"found at {ALPHA:g}"].mean()
        wrong = f"{false_wins(columns).mean():.3f}"
        line = (SIGNS[row.world.axis], row.what, str(row.world.seeds), _boards(columns))
        lines.append((*line, f"{hit:.2f}", wrong))
    return head, lines


def robustness(found: list[Found]) -> Table:
    head = ("axis", "board", "n", "boards", "one entry", "difference", "error of tiers", "bound")
    by_board: dict[tuple[str, str], dict[str, Found]] = {}
    for row, columns in found:
        by_board.setdefault((row.world.axis, row.what), {})[row.kind] = (row, columns)
    lines = []
    for (axis, what), kinds in by_board.items():
        row, columns = kinds["intervals"]
        one, two = covered(row, columns)
        wrong = false_wins(kinds["wins"][1])
        line = (SIGNS[axis], what, str(row.world.seeds), str(len(one)), _share(one), _share(two))
        lines.append((*line, f"{wrong.mean():.3f}", f"{upper_bound(wrong):.3f}"))
    return head, lines


def _place(row: Row) -> tuple[str, ...]:
    world = row.world
    return SIGNS[world.axis], world.grid.name, str(world.tasks), str(world.seeds)


def _boards(columns: Columns) -> str:
    return str(len(columns["smallest p"]))


def _share(hits: np.ndarray) -> str:
    value, low, high = share(hits)
    return f"{100 * value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


Maker = tuple[str, Callable[[list[Found]], Table]]
TABLES: dict[Part, Maker] = {
    "coverage": ("Coverage of nominal 95 % intervals", coverage),
    "tiers": ("Family-wise error of tiers", tiers),
    "aa": ("False wins of a model against itself", aa),
    "bias": ("Bias where nothing falls and nothing is forgotten", bias),
    "power": ("Power of the test behind the tiers", power),
    "robustness": ("Where assumptions fail", robustness),
}


def markdown(part: Part, found: list[Found], known: Mapping[Part, Maker] = TABLES) -> str:
    """One table under its heading, with what is said around it."""
    title, make = known[part]
    head, lines, *around = make(found)
    before, after = around or ("", "")
    rows = [head, ["---"] * len(head), *lines]
    drawn = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    parts = (f"### {title}", fill(before, WIDTH), drawn if lines else "", fill(after, WIDTH))
    return "\n\n".join(part for part in parts if part) + "\n"
