"""The worked example of protocol CRL-2: from the seeds of one task to the place of a design."""

from __future__ import annotations

from typing import Any

from crlbench.pages import design_words as say
from crlbench.site.design_standings import axis_designs, lines
from crlbench.site.source import StoredBoard
from crlbench.stats.intervals import TRIM
from crlbench.stats.novelty import Novelty
from crlbench.verdict.axes import AXES
from crlbench.verdict.entry import Entry


def example(stored: StoredBoard) -> dict[str, Any] | None:
    """The first row of a board, its first checkpoint and one of its tasks; None where no row of
    the board has all that the formulas take."""
    recipe = stored.recipes[0]
    designs = axis_designs(stored.board, recipe, AXES[0])
    ranking = stored.board.rankings[recipe][AXES[0]].ranking
    if designs is None or not ranking.anchors:
        return None
    row = designs.row(ranking.anchors[0])
    entry = next(one for one in stored.entries(recipe) if one.name == row.first.entry)
    task = _task(entry)
    if task is None:
        return None
    return {
        "stored": stored,
        "recipe": recipe,
        "entry": entry,
        "task": task,
        **_of_task(entry, task),
        "row": row,
        "counted": [one for one in row.checkpoints if one.counts],
        "value": entry.axes[AXES[0]].value,
        "taught": None if entry.mode is None else entry.mode.net,
        "mode": None if entry.mode is None else entry.mode.lam,
        "standing": ranking.standing(row.name),
        "models": len(ranking.standings),
        "lines": [say.tier_rule(designs), *lines(designs)],
    }


def _task(entry: Entry) -> str | None:
    """Its first task of which the strict items are enough, else the first with a Λ_new."""
    parts = {} if entry.novelty is None else entry.novelty.tasks
    new = [name for name, part in sorted(parts.items()) if part.lam_new is not None]
    strict = [name for name in new if parts[name].lam_strict is not None]
    return next(iter((*strict, *new)), None)


def _of_task(entry: Entry, task: str) -> dict[str, Any]:
    """E and its parts, Λ_new of every seed, and what 32 draws reach."""
    assert entry.novelty is not None
    part: Novelty = entry.novelty.tasks[task]
    measures = entry.evidence.tasks[task].measures
    seeds = sorted(part.seeds)
    cut = int(TRIM * len(seeds))
    reached = [one for one in entry.novelty.passes.get(task, ()) if one.split == "id" and one.end]
    return {
        "part": part,
        "E": sum(one.E for one in measures) / len(measures),
        "H": sum(one.H for one in measures) / len(measures),
        "seeds": seeds,
        "cut": cut,
        "tasks": {name: one.value for name, one in entry.axes[AXES[0]].by_task.items()},
        "reached": [(k, one.start[k], one.end[k]) for one in reached for k in [max(one.start)]],
    }
