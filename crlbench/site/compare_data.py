"""What the page of a comparison reads in the browser: an index, and the numbers of each entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from operator import itemgetter
from typing import Any
from urllib.parse import quote

import numpy as np

from crlbench.base.wording import visible
from crlbench.site.compare_pairs import Pairs
from crlbench.site.design_standings import row_of
from crlbench.site.designs import has_designs
from crlbench.site.embedded import literal, object_of, script, script_of
from crlbench.site.pages import File, designs_path, entry_data_path, entry_path, items_path
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.false_discovery import difference_p, equivalence_p
from crlbench.stats.intervals import Interval
from crlbench.verdict.compare_axis import mean_curve
from crlbench.verdict.compare_unequal import SHOWN, unequal
from crlbench.verdict.efficiency import TaskEfficiency, arrivals
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import Effect, Pair, PairAxis
from crlbench.verdict.task_runs import CURVE_AXES

INDEX = "data/compare.js"
KEPT = "comparison"
"""What is drawn of an entry by itself, among the files that are kept of it."""
DIGITS = 6
"""Decimals that are written."""


def data_files(site: Site, pairs: Mapping[str, Pairs]) -> Iterator[File]:
    """The index, and a file for each entry.

    Args:
        site: of all boards.
        pairs: the compared pairs of each board, by its id.
    """
    yield File(INDEX, _index(site))
    for stored in site.boards:
        yield from _entries(stored, pairs[stored.id])


def _index(site: Site) -> bytes:
    """Boards, what sets them apart, and entries with the addresses of what belongs to them."""
    boards = {
        stored.id: {
            "title": stored.title,
            "fingerprint": stored.board.fingerprint,
            "margin": stored.board.margin,
        }
        for stored in site.boards
    }
    entries = [
        {
            "key": f"{stored.id}/{entry.name}",
            "board": stored.id,
            "name": entry.name,
            "display_name": visible(entry.full_name, 60),
            "recipe": entry.recipe,
            **_design(stored, entry),
            "page": quote(entry_path(stored.id, entry.model, entry.recipe), safe="/@"),
            "data": quote(entry_data_path(stored.id, entry.model, entry.recipe), safe="/@"),
            "items": quote(items_path(stored.id, entry.model, entry.recipe), safe="/@")
            if entry.lam.value is not None
            else None,
        }
        for stored in site.boards
        for recipe in stored.recipes
        for entry in stored.entries(recipe)
    ]
    return script("compare", {"boards": boards, "entries": entries, "unequal": _unequal(site)})


def _design(stored: StoredBoard, entry: Entry) -> dict[str, str]:
    """The page of designs, of an entry that is one of several checkpoints of its design."""
    row = row_of(stored.board.rankings[entry.recipe]["efficiency"], entry)
    several = row is not None and len(row.checkpoints) > 1
    if not (several and has_designs(stored, entry.recipe)):
        return {}
    return {"designs": quote(designs_path(stored.id, entry.recipe), safe="/@")}


def _unequal(site: Site) -> dict[str, dict[str, Any]]:
    """By a board and a later one: in how many conditions they differ, and the first of these."""
    boards = [(one.id, one.board, one.leaves) for one in site.boards if one.board.entries]
    differing: dict[str, dict[str, Any]] = {}
    for i in range(len(boards)):
        for one in unequal(boards[i:]):
            leaves = sorted(map(astuple, one.leaves), key=itemgetter(0))
            about = {"count": len(leaves), "leaves": leaves[:SHOWN]}
            differing.setdefault(one.first, {})[one.second] = about
    return differing


def _entries(stored: StoredBoard, pairs: Pairs) -> Iterator[File]:
    """The file of every entry, as a script and as JSON; a pair stands with its first entry."""
    by_first: dict[str, dict[str, str]] = {}
    for (first, second), pair in pairs.items():
        by_first.setdefault(first, {})[second] = literal(_plain_pair(pair, stored.board.margin))
    for entry in stored.board.entries:
        shelf = stored.shelves.get(entry.name)
        texts = own_texts(entry) if shelf is None else dict(shelf.files(KEPT))
        own = {name: content.decode() for name, content in texts.items()}
        text = object_of(own | {"pairs": object_of(by_first.get(entry.name, {}))})
        where = (stored.id, entry.model, entry.recipe)
        key = f"{stored.id}/{entry.name}"
        yield File(entry_data_path(*where), script_of("entries", text, key))
        yield File(entry_data_path(*where, kind="json"), f"{text}\n".encode())


def own_texts(entry: Entry) -> dict[str, bytes]:
    """What is drawn of an entry by itself, value by value, as it is written."""
    return {name: literal(value).encode() for name, value in entry_data(entry).items()}


def _plain_pair(pair: Pair, margin: float) -> dict[str, Any]:
    """A pair as plain data, as the page reads it."""
    return {axis: _plain_axis(found, margin) for axis, found in pair.axes.items()}


def _plain_axis(pair: PairAxis, margin: float) -> dict[str, Any]:
    effect = pair.effect
    return {
        "effect": effect and _plain_effect(effect) | {"wider": ends(effect.wider)},
        "tasks": {task: _plain_effect(one) for task, one in pair.by_task.items()},
        "left_out": list(pair.left_out),
        "reason": pair.reason,
        **_chances(pair, margin),
    }


def _chances(pair: PairAxis, margin: float) -> dict[str, list[float]]:
    """The p-values of no difference and of equivalence, of which the page draws its
    false-discovery line; nothing under protocol CRL-1."""
    if pair.effect is None or pair.error is None or pair.df is None:
        return {}
    where = np.array([pair.effect.value]), np.array([pair.error]), pair.df
    p = np.concatenate([difference_p(*where), equivalence_p(*where, margin)])
    return {"p": [float(f"{one:.{DIGITS}g}") for one in p]} if np.isfinite(p).all() else {}


def _plain_effect(effect: Effect) -> dict[str, Any]:
    return {
        "value": rounded(effect.value),
        "interval": ends(effect.interval),
        "inner": ends(effect.inner),
        "call": effect.call,
        "r": rounded(effect.correlation),
        "more": effect.more_seeds,
        "n": effect.n,
    }


def entry_data(entry: Entry) -> dict[str, Any]:
    """What the page draws of an entry by itself; only what JSON knows.

    Where Λ_new or Λ_F ranks, its symbol is stated, and Λ over all items and completions, which a
    reader can recompute.
    """
    scores = {
        axis: {
            "value": score.value,
            "interval": exact(score.interval),
            "wider": ends(score.wider),
            "n": score.n,
            "reason": score.reason,
            **({"sign": score.sign} if score.new or score.charged else {}),
        }
        for axis, score in entry.axes.items()
    }
    tasks = {name: _task(task) for name, task in sorted(entry.efficiency.tasks.items())}
    whole = {"lam": {"value": entry.lam.value, "interval": exact(entry.lam.interval)}}
    first = entry.axes["efficiency"]
    return {"axes": scores, "tasks": tasks, **(whole if first.new or first.charged else {})}


def _task(task: TaskEfficiency) -> dict[str, Any]:
    curves = [
        {
            "seed": curve.seed,
            "state": curve.state,
            "measured": curve.measured,
            "u": [round(u, 4) for u in curve.u],
            "x": {axis: [round(x, 1) for x in curve.x[axis]] for axis in CURVE_AXES},
        }
        for curve in task.curves
    ]
    means = {
        axis: mean_curve([(curve["x"][axis], curve["u"]) for curve in curves])
        for axis in CURVE_AXES
    }
    mean = {
        "u": [u for _, u in means[CURVE_AXES[0]]],
        "x": {axis: [x for x, _ in points] for axis, points in means.items()},
    }
    return {
        "n": task.n,
        "lambda": rounded(task.lam.value),
        "interval": ends(task.lam.interval),
        "E": rounded(task.E),
        "H": rounded(task.H),
        "L": rounded(task.L),
        "curves": curves,
        "mean": mean,
        "arrivals": {axis: _arrivals(task, axis) for axis in CURVE_AXES},
    }


def _arrivals(task: TaskEfficiency, axis: str) -> list[dict[str, Any]]:
    """Per threshold how many seeds arrive, and the mean of what they had spent by then."""
    return [
        {
            "tau": one.tau,
            "arrived": one.arrived,
            "n": one.n,
            "mean": round(one.restricted_mean, 1),
        }
        for one in arrivals(task.curves, axis)
    ]


def exact(interval: Interval | None) -> list[float] | None:
    """Both ends of an interval."""
    return None if interval is None else [interval.low, interval.high]


def ends(interval: Interval | None) -> list[float] | None:
    """The same, as it is written."""
    return None if interval is None else [round(end, DIGITS) for end in exact(interval)]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
