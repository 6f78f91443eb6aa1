"""Entries side by side: paired differences and verdicts on every axis and task (``compare``).

:func:`compare` lays several entries that :func:`crlbench.verdict.compare_read.read_entry` read side
by side. Each entry's numbers are those of :mod:`crlbench.verdict.board`, from its own runs alone; a
pair is resampled with shared draws by :func:`crlbench.verdict.pairs.compare_pair`. Entries of
unequal conditions are refused, or, if forced, get differences under a watermark and no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from crlbench.base.added import added_field
from crlbench.base.parallel import on_one_thread
from crlbench.contract.conditions import PROTOCOL_NAME
from crlbench.errors import UsageError
from crlbench.verdict.axes import AXES, AXIS_SIGNS, MARGIN, Axis, AxisScore, score_of
from crlbench.verdict.census import Standing
from crlbench.verdict.compare_axis import By, TaskView, set_side_by_side, task_views
from crlbench.verdict.compare_read import Loaded
from crlbench.verdict.compare_unequal import Unequal, watermark
from crlbench.verdict.discovery import Discovery, Test, draw_line
from crlbench.verdict.entry import Control, Entry
from crlbench.verdict.pairs import Pair, compare_pair
from crlbench.verdict.plain_data import plain
from crlbench.verdict.protocols import RULES, Rules


@dataclass(frozen=True)
class Side:
    """One entry of a comparison."""

    key: str
    """A, B, ... in the order of the command."""
    name: str
    """``model/recipe``; two entries of a comparison may share it."""
    model: str
    display_name: str
    recipe: str
    plans: tuple[str, ...]
    """Hash of every plan that a run cites, in the order of the runs."""
    track: str
    track_version: int
    division: Literal["closed", "open"]
    fingerprint: str
    hardware: str | None
    standing: Standing
    why: tuple[str, ...]
    notes: tuple[str, ...]
    """How the seeds came to be, where a reader must know."""
    unranked: str | None
    """Why nothing on its board ranks."""
    n: int
    """Seeds of every task."""
    failed: tuple[str, ...]
    vanished: tuple[str, ...]
    missing: tuple[str, ...]
    absent: tuple[str, ...]
    axes: dict[Axis, AxisScore]
    """Over the compared tasks."""
    parts: dict[Axis, dict[str, float | None]]
    """What stability and generalization are made of, over all tasks of the entry."""
    tasks: dict[str, TaskView]
    """Learning over the chosen x-axis."""
    placebo: Control | None
    """Over all tasks of the entry."""

    decides: bool
    """Whether a verdict may lean on it."""
    mode: Control | None = added_field(None)
    """The arm that is paid for agreeing with the start model; over all tasks of the entry."""
    wrong: Control | None = added_field(None)
    """The arm that is paid for wrong answers; over all tasks of the entry."""
    protocol: str = added_field(PROTOCOL_NAME)

    @property
    def rules(self) -> Rules:
        """What its protocol decides."""
        return RULES[self.protocol]


@dataclass(frozen=True)
class Comparison:
    """Everything that the table, the page and the JSON say."""

    schema_version: Literal[1]
    axes: tuple[Axis, ...]
    by: By
    tasks: tuple[str, ...]
    chosen: bool
    """Whether the tasks were chosen by hand."""
    margin: float
    watermark: str | None
    """Why these entries are not comparable; every format shows it. None where they are."""
    unequal: tuple[Unequal, ...]
    sides: tuple[Side, ...]
    pairs: tuple[Pair, ...]
    crlbench: tuple[str, ...]
    bootstrap: dict[str, Any]
    line: Discovery | None = added_field(None)
    """The false-discovery line over all pairs and axes, under protocol CRL-2."""

    @property
    def signs(self) -> dict[Axis, str]:
        """The symbol of each compared axis; under two protocols, that of the first."""
        signs = {axis: {side.axes[axis].sign for side in self.sides} for axis in self.axes}
        return {a: s.pop() if len(s) == 1 else AXIS_SIGNS[a] for a, s in signs.items()}

    @property
    def rules(self) -> tuple[Rules, ...]:
        """Those of its protocols: of one, except where unequal entries were forced together."""
        return tuple(dict.fromkeys(side.rules for side in self.sides))

    def side(self, key: str) -> Side:
        """The entry that is called ``key`` here."""
        return next(side for side in self.sides if side.key == key)

    def to_json(self) -> str:
        """Canonical, indented JSON; floats in full precision."""
        return json.dumps(plain(self), indent=1, sort_keys=True, allow_nan=False) + "\n"


@on_one_thread
def compare(
    loaded: Sequence[Loaded],
    axes: Sequence[Axis] = AXES,
    tasks: Sequence[str] | None = None,
    by: By = "completions",
    force: bool = False,
    margin: float = MARGIN,
) -> Comparison:
    """Entries side by side, in the order given.

    Args:
        tasks: only these; None for all that any entry has.
        by: the x-axis of curves, areas and times to threshold. The axes stay in completions.
        force: go on where conditions or hardware are unequal, without a verdict.

    Raises:
        UsageError: fewer than two entries, the same one twice, or an unknown task.
        NotComparable: unequal conditions and no ``force``; or wall time of unequal hardware.
        ValidationError: ``by`` is time and a record does not say how long it took.
    """
    if len(loaded) < 2:
        raise UsageError("compare needs at least two entries: crlbench compare A B.")
    by_letter, names, differing_entries = set_side_by_side(loaded, tasks, by, force)
    sides = tuple(_side(key, one, axes, names, tasks is not None, by) for key, one in by_letter)
    pairs = tuple(
        compare_pair(one.entry, other.entry, axes, margin, names, (a, b), bool(differing_entries))
        for (a, one), (b, other) in combinations(by_letter, 2)
    )
    pairs, line = _with_line(pairs, margin)
    return Comparison(
        schema_version=1,
        axes=tuple(axes),
        by=by,
        tasks=names,
        chosen=tasks is not None,
        margin=margin,
        watermark=watermark(differing_entries),
        unequal=differing_entries,
        sides=sides,
        pairs=pairs,
        crlbench=tuple(sorted({r.record.crlbench.version for one in loaded for r in one.runs})),
        bootstrap=loaded[0].board.bootstrap,
        line=line,
    )


def _with_line(pairs: tuple[Pair, ...], margin: float) -> tuple[tuple[Pair, ...], Discovery | None]:
    """The pairs with the rate at which each verdict stays; as they are under protocol CRL-1."""
    shown = [one for pair in pairs for one in pair.axes.values()]
    if all(one.error is None for one in shown):
        return pairs, None
    tests = [
        Test(one.effect.value if one.effect else None, one.error, one.df, one.call) for one in shown
    ]
    marks, line = draw_line(tests, margin)
    rates = {id(one): mark.q for one, mark in zip(shown, marks, strict=True)}
    marked = [
        replace(pair, axes={a: replace(one, q=rates[id(one)]) for a, one in pair.axes.items()})
        for pair in pairs
    ]
    return tuple(marked), line


def _side(
    key: str, one: Loaded, axes: Sequence[Axis], tasks: Sequence[str], chosen: bool, by: By
) -> Side:
    entry, board = one.entry, one.board
    return Side(
        key=key,
        name=entry.name,
        model=entry.model,
        display_name=entry.display_name,
        recipe=entry.recipe,
        plans=tuple(dict.fromkeys(run.record.plan_hash for run in one.runs)),
        track=board.track,
        track_version=board.track_version,
        division=board.division,
        fingerprint=board.fingerprint,
        hardware=board.hardware,
        standing=entry.standing,
        why=entry.why,
        decides=entry.decides,
        notes=entry.notes,
        unranked=board.unranked,
        n=entry.n,
        failed=entry.failed,
        vanished=entry.vanished,
        missing=entry.missing,
        absent=entry.absent,
        axes={a: score_on(entry, a, tasks) if chosen else entry.axes[a] for a in axes},
        parts={axis: _parts(entry, axis) for axis in axes if axis != "efficiency"},
        tasks=task_views(one, tasks, by) if "efficiency" in axes else {},
        placebo=entry.placebo,
        mode=entry.mode,
        wrong=entry.wrong,
        protocol=board.rules.name,
    )


def score_on(entry: Entry, axis: Axis, tasks: Sequence[str]) -> AxisScore:
    """The mean over some of an entry's tasks: it stands beside a difference, and is no headline."""
    score, evidence = entry.axes[axis], entry.evidence
    names = [task for task in tasks if task in evidence.tasks]
    if axis == "stability":
        names = [task for task in names if task in entry.stability.rated]
    parts = {name: evidence.replicates(axis, name) for name in names}
    if not parts or any(part is None for part in parts.values()):
        reason = score.reason or "It has no number on the chosen tasks."
        return replace(
            score, value=None, interval=None, wider=None, by_task={}, reason=reason, silence=None
        )
    return score_of(axis, parts, evidence)


def _parts(entry: Entry, axis: Axis) -> dict[str, float | None]:
    """What a headline is made of."""
    if axis == "stability":
        model = entry.stability
        task_ratings = [model.tasks[name] for name in model.rated]
        shares = [task.shares for task in task_ratings if task.shares is not None]
        names = list(shares[0]) if shares else []
        parts: dict[str, float | None] = {
            name: float(np.mean([share[name] for share in shares])) for name in names
        }
        return parts | {"rated_tasks": float(len(task_ratings))}
    general = entry.generalization.model
    return {f"lambda_{name}": value for name, value in general.parts.items()} | {
        "forgetting": general.forgetting,
        "memorisation": general.memorisation,
        "audit_gap": general.audit_gap,
    }
