"""Tables of what the simulations of protocol CRL-2 found, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from crlbench.verdict.axes import AXIS_SIGNS, NEW_SIGN

from .arms import MANY_BOARDS, MANY_ITEMS, true_new, true_taught
from .engine import Columns
from .protocol2 import true_variances
from .rows import Part, Row
from .tables import upper_bound

Found = tuple[Row, Columns]
Table = tuple[Sequence[str], list[Sequence[str]], str, str]
"""Head and rows, and what is said before and after them."""

SIGNS = {
    "new intervals": NEW_SIGN,
    "stress intervals": AXIS_SIGNS["stability"],
    "gen intervals": AXIS_SIGNS["generalization"],
    "taught intervals": "Λ(mode), Taught",
}
POWER = 0.80
TARGET = "Target: 93 to 98; 2,000 boards leave an error of 1."


def axes(found: list[Found]) -> Table:
    head = ("axis", "board", "tasks", "n", "boards", "one entry", "difference", "bias")
    head += ("better or worse", "bound")
    lines = []
    for row, columns in found:
        world, wins = row.world, columns["better or worse"]
        values, gaps = columns["value"], columns["difference"]
        first, second = values.mean(), (values + gaps).mean()
        if row.kind == "new intervals":
            first, second = true_new(world, min(MANY_BOARDS, len(values)))
        if row.kind == "taught intervals":
            first, second = true_taught(world)
        gap = 0.0 if world.entries[0] == world.entries[1] else second - first
        hits = [
            (columns[f"{name}low"] <= true) & (true <= columns[f"{name}high"])
            for name, true in (("", first), ("difference ", gap))
        ]
        known = row.kind in ("new intervals", "taught intervals")
        bias = f"{values.mean() - first:+.4f}" if known else "–"
        place = (str(world.tasks), str(world.seeds - world.stress), _boards(columns))
        errors = ("–", "–")
        if world.entries[0] == world.entries[1]:
            errors = (f"{wins.mean():.3f}", f"{upper_bound(wins):.3f}")
        lines.append((SIGNS[row.kind], row.what, *place, *map(_percent, hits), bias, *errors))
    before = (
        "Coverage of 95 % intervals, in %, on boards that are answered item by item; n calm seeds. "
        f"{TARGET} Λ_new is compared with boards of {MANY_ITEMS:,} items, Λ(mode) and Taught with "
        "the truth without the noise of items, Stab and Gen with the mean of their own estimates. "
        "The stress arm has three runs, whose seeds spread twice as far, and the mode arm three. "
        "Taught stands under *difference*. Last columns: how often equal models get a verdict "
        "of a difference, or equal arms a Taught that excludes 0, and its upper bound."
    )
    return head, lines, before, ""


def tasks(found: list[Found]) -> Table:
    head = ("board", "tasks", "boards")
    for name in ("entry", "difference"):
        head += (name, f"{name}, Student's t", f"{name}, CRL-1")
    lines = []
    for row, columns in found:
        cells = [
            _percent(columns[f"{name}{kind}"])
            for name in ("entry", "difference")
            for kind in (": hit", ", Student's", ", CRL-1")
        ]
        lines.append((row.what, str(row.scene.tasks), _boards(columns), *cells))
    before = f"Coverage of the 95 % interval over tasks, in %; 5 seeds. {TARGET}"
    return head, lines, before, ""


def effects(found: list[Found]) -> Table:
    head = ("board", "tasks", "n", "boards", "false separation", "bound", "false tier")
    head += ("in two tiers and equivalent", "found", "without margin: false", "bound", "found")
    lines = []
    for row, columns in found:
        scene = row.scene or row.world
        alone, plain = (columns[f"{name}: false separation"] for name in ("margin", "no margin"))
        cells = (
            f"{alone.mean():.3f}",
            f"{upper_bound(alone):.3f}",
            f"{columns['margin: false tier'].mean():.3f}",
            f"{columns['in two tiers and equivalent'].mean():.3f}",
            _mean(columns.get("margin: found")),
            f"{plain.mean():.3f}",
            f"{upper_bound(plain):.3f}",
            _mean(columns.get("no margin: found")),
        )
        lines.append((row.what, str(scene.tasks), str(scene.seeds), _boards(columns), *cells))
    before = (
        "Probability that some pair is separated wrongly at .05, with its upper bound (target: "
        "below .07), and share of the right separations that are found. The margin is .05; without "
        "margin the hypothesis is no difference."
    )
    return head, lines, before, ""


def discovery(found: list[Found]) -> Table:
    head = ("board", "tasks", "n", "boards", "verdicts", "false share", "any false")
    head += ("verdicts that stay", "false share", "any false")
    lines = []
    for row, columns in found:
        cells = []
        for name in ("alone", "line"):
            cells += [
                f"{columns[f'{name}: verdicts'].mean():.1f}",
                f"{columns[f'{name}: false share'].mean():.3f}",
                f"{columns[f'{name}: any false'].mean():.3f}",
            ]
        place = (str(row.scene.tasks), str(row.scene.seeds), _boards(columns))
        lines.append((row.what, *place, *cells))
    before = "28 pairs, 56 hypotheses. Target of the false share with the line: .05."
    return head, lines, before, ""


def ranks(found: list[Found]) -> Table:
    head = ("board", "tasks", "boards", "a true rank left out", "bound", "ranks in an interval")
    head += ("pairs found",)
    lines = []
    for row, columns in found:
        wrong = columns["a true rank left out"]
        line = (row.what, str(row.scene.tasks), _boards(columns), f"{wrong.mean():.3f}")
        width = f"{columns['ranks in an interval'].mean():.1f} of {len(row.scene.designs)}"
        lines.append((*line, f"{upper_bound(wrong):.3f}", width, _mean(columns.get("found"))))
    before = "Rank intervals with tasks resampled. Target of the bound: .07."
    return head, lines, before, ""


KINDS = ("mean", "difference", "pooled difference")


def designs(found: list[Found]) -> Table:
    head = ("checkpoints, board", "tasks", "boards")
    head += tuple(f"{kind}{where}" for kind in KINDS for where in ("", ", other tasks"))
    head += ("warned", "bias")
    lines = []
    for row, columns in found:
        cells = [
            _percent(columns.get(f"{kind}{where}: hit"))
            for kind in KINDS
            for where in ("", ", wider")
        ]
        cells.append(_percent(columns.get("warned")))
        biases = [columns[name] for name in columns if name.startswith("error of")]
        worst = max(biases, key=lambda column: abs(column.mean()))
        cells.append(f"{worst.mean():+.4f}")
        lines.append((row.what, str(row.scene.tasks), _boards(columns), *cells))
    before = (
        "Coverage of 95 % intervals on these tasks and over other tasks, in %; differences with a "
        f"warning that checkpoints vary more, in %; bias below .01. {TARGET} Eight designs or two; "
        "a difference is that of two. The mean of crossed checkpoints (3 x 2) and the pooled "
        "difference take their variance from all eight. Shares of the checkpoints' variance in "
        "brackets: each its own, a third each from initialisation, order and both, or all from the "
        "order. One checkpoint: of it alone."
    )
    return head, lines, before, "– is refused."


def components(found: list[Found]) -> Table:
    names = [name for name in true_variances(found[0][0].scene)]
    head = ("board", "tasks", "boards", *names)
    lines = []
    for row, columns in found:
        truth = true_variances(row.scene)
        cells = []
        for name in names:
            if f"{name}: variance" not in columns:
                cells.append("–")
                continue
            variance, true = columns[f"{name}: variance"].mean(), truth[name]
            hits = _percent(columns[f"{name}: hit"])
            cells.append(f"{hits}; {1e4 * variance:.1f} ({1e4 * true:.1f})")
        lines.append((row.what, str(row.scene.tasks), _boards(columns), *cells))
    before = (
        "Eight designs, 3 x 2 checkpoints where nothing else is said, 3 seeds: coverage of the "
        "95 % profile interval, in %; mean estimate of the variance and, in brackets, the truth, "
        "in 1e-4. A dash: checkpoints that are independent do not tell the term. "
        f"{TARGET}"
    )
    return head, lines, before, ""


def precision(found: list[Found]) -> Table:
    head = ("what", "tasks", "n", "boards", "half-width, one", "half-width, difference")
    head += ("detectable difference", "one, other tasks", "difference, other tasks")
    head += ("detectable, other tasks",)
    lines = []
    for row, columns in found:
        place = (str(row.scene.tasks), str(row.scene.seeds), _boards(columns))
        if row.kind == "task intervals":
            cells = ("–", "–", "–", *_widths(columns, "entry", "difference"))
        elif row.kind == "seed intervals":
            cells = (*_widths(columns, "mean", "difference"), "–", "–", "–")
        else:
            wide = _widths(columns, "mean, wider", "difference, wider")
            cells = (*_widths(columns, "mean", "difference"), *wide)
        lines.append((row.what, *place, *cells))
        if "pooled difference: half" in columns:
            wide = _widths(columns, "mean, wider", "pooled difference, wider")
            cells = (*_widths(columns, "mean", "pooled difference"), *wide)
            lines.append((f"{row.what}, pooled", *place, *cells))
    before = (
        "Median half-widths of 95 % intervals, and the difference that excludes 0 with a "
        f"probability of {POWER:.0%}. Pooled: the difference takes its variance from eight designs."
    )
    return head, lines, before, ""


def _widths(columns: Columns, one: str, two: str) -> tuple[str, str, str]:
    """Half-width of one and of a difference, and the detectable difference.

    Intervals move with the estimate: a difference that is d higher has both ends d higher. So its
    low end lies above 0 on the share of boards whose low end was less than d below the truth.
    """
    halves = [columns.get(f"{name}: half") for name in (one, two)]
    widths = ["–" if half is None else f"{np.nanmedian(half):.3f}" for half in halves]
    below = columns.get(f"{two}: below")
    found = "–" if below is None else f"{np.nanquantile(below, POWER):.3f}"
    return widths[0], widths[1], found


def _boards(columns: Columns) -> str:
    return str(len(next(iter(columns.values()))))


def _mean(column: np.ndarray | None) -> str:
    return "–" if column is None else f"{column.mean():.2f}"


def _percent(hits: np.ndarray | None) -> str:
    """``95.1``; a dash where no board has an interval."""
    known = np.zeros(0) if hits is None else hits[np.isfinite(hits)]
    return f"{100 * known.mean():.1f}" if len(known) else "–"


TABLES_2: dict[Part, tuple[str, Callable[[list[Found]], Table]]] = {
    "axes": ("New items, and stability under stress", axes),
    "tasks": ("Intervals over tasks", tasks),
    "effects": ("Minimum-effect tiers", effects),
    "discovery": ("The false-discovery line", discovery),
    "ranks": ("Rank intervals with tasks resampled", ranks),
    "designs": ("Designs of several checkpoints", designs),
    "components": ("Variance components", components),
    "precision": ("How precise a board is", precision),
}
