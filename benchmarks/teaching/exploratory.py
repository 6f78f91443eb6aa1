"""What the rules of the study do not ask: arms by noise, and pass@64 by task.

These tables were chosen after the results were seen, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean

import numpy as np

from crlbench.base.wording import number
from crlbench.stats.intervals import Interval
from teaching.design import Design, Start
from teaching.estimates import Contrast, learned, learned_new, passed
from teaching.hypotheses import DRAWS, Records, Value, values_of
from teaching.records import CellScores, StartRecords, StartScores

Unit = tuple[Start, str]
Measure = Callable[[StartScores, CellScores], np.ndarray]


def exploratory(records: Records, design: Design) -> Iterator[str]:
    """Lines of Markdown."""
    yield "## Not asked by a rule"
    yield ""
    yield "Chosen after the results were seen. Means over all starts of a noise and all tasks, with"
    yield "the interval for these tasks. Failed: runs of the real, mode, placebo and wrong arm."
    yield ""
    head = ("noise", "sampled", "greedy, start → end", "L", "L(mode)", "L_new(mode)")
    head += ("L - L(mode)", "similar tasks, 95 %", "failed")
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for noise in design.noises:
        yield _noise_row(records, design, noise)
    yield ""
    yield "Rise of pass@64 in the real arm, by task, and the floor of the task: what one constant"
    yield "answer gets."
    yield ""
    tasks = [f"{task} (floor {number(_floor(records, task), 2)})" for task in design.tasks]
    yield f"| noise | {' | '.join(tasks)} |"
    yield "|" + "---|" * (1 + len(tasks))
    for noise in design.noises:
        rises = [_rise(records, design, noise, task) for task in design.tasks]
        yield f"| {noise} | {' | '.join(map(_told, rises))} |"


def _noise_row(records: Records, design: Design, noise: float) -> str:
    kept = [found for start, found in records.items() if start.noise == noise]
    starts = [found.starts[task] for found in kept for task in design.tasks]
    cells = [cell for found in kept for cell in found.cells.values()]
    real = [cell for cell in cells if cell.key[1] == "real"]
    ends = [0.0 if cell.greedy is None else float(cell.greedy.mean()) for cell in real]
    greedy = fmean(float(one.greedy.mean()) for one in starts), fmean(ends)
    sampled = fmean(float(one.draws.mean()) for one in starts)
    units = _units(records, design, noise)
    own, mode = _value("real", learned), _value("mode", learned)
    parts = (own, mode, _value("mode", learned_new), _less(own, mode))
    areas = [values_of(records, design, units, one) for one in parts]
    failed = [sum(c.state == "failed" and c.key[1] == arm for c in cells) for arm in design.arms]
    both = " → ".join(number(one, 2) for one in greedy)
    told = " | ".join((*map(_told, areas), span(areas[-1].others())))
    return f"| {noise} | {number(sampled, 2)} | {both} | {told} | {', '.join(map(str, failed))} |"


def _rise(records: Records, design: Design, noise: float, task: str) -> Contrast:
    units = [unit for unit in _units(records, design, noise) if unit[1] == task]
    value = _value("real", lambda start, cell: passed(start, cell, DRAWS, DRAWS))
    return values_of(records, design, units, value)


def _units(records: Records, design: Design, noise: float) -> list[Unit]:
    return [(s, task) for s in sorted(records) if s.noise == noise for task in design.tasks]


def _value(arm: str, measure: Measure) -> Value:
    def value(kept: StartRecords, task: str, seed: int) -> np.ndarray:
        return measure(kept.starts[task], kept.cells[task, arm, seed])

    return value


def _less(one: Value, other: Value) -> Value:
    return lambda *where: one(*where) - other(*where)


def _floor(records: Records, task: str) -> float:
    return next(iter(records.values())).starts[task].floor


def _told(found: Contrast) -> str:
    """``+0.06 [+0.05, +0.08]``"""
    return f"{number(found.estimate, signed=True)} {span(found.these())}"


def span(interval: Interval | None) -> str:
    """``[+0.05, +0.08]``; a dash for none."""
    if interval is None:
        return "–"
    low, high = (number(end, signed=True) for end in (interval.low, interval.high))
    return f"[{low}, {high}]"
