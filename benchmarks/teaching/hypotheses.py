"""The four hypotheses of the study, as rules from records to a verdict.

They were written before the first run; docs/studies/teach-or-elicit.md says them in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crlbench.stats.pass_at_k import pass_at_k
from teaching.design import Design, Start
from teaching.estimates import ALPHA, Contrast, contrast, learned, learned_new, passed
from teaching.records import CellScores, StartRecords, StartScores

Records = Mapping[Start, StartRecords]
Call = Literal["holds", "refuted", "undecided", "not tested"]
SHARE = 0.9
"""H1: of L, at least this much comes without labels."""
LEAST_LEARNED = 0.02
"""H1: a mean L below it is too little to be divided."""
LATENT = 0.1
"""H2: pass@64 minus greedy accuracy at the start, from which on there is something to teach."""
SMALL = 0.01
"""H2 and H4: an area in u below it does not matter."""
SMALL_PASS = 0.02
"""H3: a rise of pass@64 below it does not matter."""
DRAWS = 64
EARLY = "noise 0, early"
"""H3: the group in which pass@64 should rise."""


@dataclass(frozen=True)
class Line:
    """One contrast of a hypothesis."""

    label: str
    contrast: Contrast
    call: Call


@dataclass(frozen=True)
class Verdict:
    """What the records say of a hypothesis."""

    name: str
    claim: str
    call: Call
    lines: tuple[Line, ...]
    note: str = ""


Value = Callable[[StartRecords, str, int], np.ndarray]
"""(N,) of one start, task and seed."""


def values_of(
    records: Records, design: Design, units: Sequence[tuple[Start, str]], value: Value
) -> Contrast:
    """A contrast over units, each a start and a task."""
    rows: dict[str, list[np.ndarray]] = {}
    for start, task in units:
        found = [value(records[start], task, seed) for seed in range(design.seeds)]
        rows.setdefault(task, []).append(np.stack(found))
    return contrast(rows)


def _of_arm(
    arm: str, measure: Callable[[StartScores, CellScores], np.ndarray]
) -> Value:
    return lambda records, task, seed: measure(
        records.starts[task], records.cells[task, arm, seed]
    )


def _units(records: Records, design: Design, noise: float) -> list[tuple[Start, str]]:
    return [(s, t) for s in sorted(records) if s.noise == noise for t in design.tasks]


def _minus(one: Value, other: Value, factor: float = 1.0) -> Value:
    return lambda *where: one(*where) - factor * other(*where)


def elicited(records: Records, design: Design) -> Verdict:
    """H1: where the corpus is noisy, agreement with itself brings nine tenths of L."""
    noisy = [noise for noise in design.noises if noise >= 0.1]
    real, mode = _of_arm("real", learned), _of_arm("mode", learned)
    lines = []
    for noise in noisy:
        units = _units(records, design, noise)
        found = values_of(records, design, units, _minus(mode, real, SHARE))
        whole = values_of(records, design, units, real).estimate
        share = values_of(records, design, units, mode).estimate / whole if whole else np.nan
        call = _above(found, 0.0, 0.0, len(noisy))
        if whole < LEAST_LEARNED:
            call = "not tested"
        label = f"noise {noise}: L(mode) - 0.9 L, where L(mode) / L = {share:.2f}"
        lines.append(Line(label, found, call))
    claim = "At noise of 0.1 and more, L(mode) is at least 0.9 L."
    return Verdict("H1", claim, _all(lines), tuple(lines))


def taught(records: Records, design: Design) -> Verdict:
    """H2: labels bring something new only where the start could already find the answer."""
    real, mode = _of_arm("real", learned_new), _of_arm("mode", learned_new)
    gap = {
        (start, task): latent(records[start].starts[task])
        for start in sorted(records)
        for task in design.tasks
    }
    few = [unit for unit, value in gap.items() if value < LATENT]
    many = [unit for unit in gap if unit not in few]
    lines = []
    if len(few) >= 4 and len({task for _, task in few}) >= 2:
        found = values_of(records, design, few, _minus(real, mode))
        lines.append(Line(f"{len(few)} starts and tasks with less", found, _below(found, SMALL, 1)))
        for start, task in few:
            found = values_of(records, design, [(start, task)], _minus(real, mode))
            if found.these(ALPHA / len(few)).low > SMALL:
                lines.append(Line(f"{start.name} {task}", found, "refuted"))
    call = _all(lines) if lines else "not tested"
    if many:
        found = values_of(records, design, many, _minus(real, mode))
        lines.append(Line(f"{len(many)} starts and tasks with more", found, "not tested"))
    claim = "L_new - L_new(mode) is below 0.01 where pass@64 - greedy is below 0.1 at the start."
    note = f"{len(few)} of {len(gap)} starts and tasks have pass@64 - greedy below 0.1."
    return Verdict("H2", claim, call, tuple(lines), note)


def latent(start: StartScores) -> float:
    """pass@64 minus greedy accuracy of a start on ID items."""
    return float(pass_at_k(start.passes["id"], DRAWS, DRAWS).mean() - start.greedy.mean())


def widened(records: Records, design: Design) -> Verdict:
    """H3: pass@64 rises only where the corpus has no wrong answers, early in pretraining."""
    rise = _of_arm("real", lambda start, cell: passed(start, cell, DRAWS, DRAWS))
    clean = _units(records, design, 0.0)
    groups = {
        EARLY: [unit for unit in clean if unit[0].updates in design.early],
        "noise 0, late": [unit for unit in clean if unit[0].updates not in design.early],
    }
    groups |= {f"noise {q}": _units(records, design, q) for q in design.noises if q >= 0.1}
    groups = {label: units for label, units in groups.items() if units}
    lines = []
    for label, units in groups.items():
        found = values_of(records, design, units, rise)
        if label == EARLY:
            call = _above(found, 0.0, SMALL_PASS, 1)
        else:
            call = _below(found, SMALL_PASS, len(groups.keys() - {EARLY}))
        lines.append(Line(label, found, call))
    claim = "pass@64 rises at noise 0 and early, and by less than 0.02 everywhere else."
    call = _all(lines) if EARLY in groups else "not tested"
    return Verdict("H3", claim, call, tuple(lines))


def spurious(records: Records, design: Design) -> Verdict:
    """H4: neither a coin nor wrong answers raise the score."""
    lines, count = [], 2 * len(design.noises)
    for arm in ("placebo", "wrong"):
        for noise in design.noises:
            units = _units(records, design, noise)
            found = values_of(records, design, units, _of_arm(arm, learned))
            lines.append(Line(f"{arm}, noise {noise}", found, _below(found, SMALL, count)))
    claim = "L of the placebo arm and of the wrong arm is below 0.01 at every noise."
    return Verdict("H4", claim, _all(lines), tuple(lines))


def judge(records: Records, design: Design) -> list[Verdict]:
    """All hypotheses, in their order."""
    return [rule(records, design) for rule in (elicited, taught, widened, spurious)]


def _above(found: Contrast, bound: float, small: float, tests: int) -> Call:
    """Holds where the 95 % interval lies above the bound; refuted where it surely lies at or below
    ``small``, one of several tests."""
    if found.these().low > bound:
        return "holds"
    return "refuted" if found.these(ALPHA / tests).high < max(bound, small) else "undecided"


def _below(found: Contrast, bound: float, tests: int) -> Call:
    """Holds where the 95 % interval lies below the bound; refuted where it surely lies above."""
    if found.these().high < bound:
        return "holds"
    return "refuted" if found.these(ALPHA / tests).low > bound else "undecided"


def _all(lines: Sequence[Line]) -> Call:
    """A hypothesis holds where every line does, and is refuted where one is."""
    calls = {line.call for line in lines}
    for call in ("refuted", "undecided", "not tested"):
        if call in calls:
            return call  # type: ignore[return-value]
    return "holds"
