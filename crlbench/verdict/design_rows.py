"""Rows of a board of protocol CRL-2: a design over its checkpoints, or one checkpoint alone.

A checkpoint is an entry, and its numbers are a function of its own runs. The value of a design is
the mean over its checkpoints. So a further design moves no value, and no number of a checkpoint.
What it may move is the interval of a design with crossed checkpoints, whose variance is pooled over
the designs of a board (:mod:`crlbench.stats.designs`), as it moves tiers and ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from crlbench.stats.checkpoints import LABEL, Layout, most_regular, read_layout
from crlbench.stats.designs import Design, design_mean
from crlbench.stats.intervals import Interval
from crlbench.stats.resampling import mean_rows
from crlbench.verdict.axes import LIMITS, Axis, AxisScore, Estimate
from crlbench.verdict.entry import Entry

ALONE = "one checkpoint"
"""What a row says that no sentence on a design may rest on."""


@dataclass(frozen=True)
class CheckpointScore:
    """One entry of a row on one axis."""

    entry: str
    label: str
    """Like ``i1o0``; empty where the model states none."""
    value: float | None
    interval: Interval | None
    """95 %, over its seeds and items alone."""
    n: int
    """Seeds of every task."""
    runs: int
    """Runs of the real arm that count, over all tasks."""
    counts: bool
    """Whether it is in the mean of the row."""
    why: str
    """Why it is not; empty where it is."""


@dataclass(frozen=True)
class DesignRow:
    """One row of a board on one axis."""

    name: str
    """``design/recipe``; of a checkpoint without a label the name of its entry."""
    display_name: str
    about: str
    """What the interval is about."""
    score: AxisScore
    """Mean over the checkpoints that count."""
    checkpoints: tuple[CheckpointScore, ...]
    """By label."""
    counted: int
    """Checkpoints in the mean."""
    ranks: bool
    """Whether the row takes part in a ranking."""
    warning: str | None
    """That its checkpoints vary more than those of the other designs; None where they do not."""

    @property
    def first(self) -> CheckpointScore:
        """The first checkpoint in the mean, or the first of all where none is."""
        return max(self.checkpoints, key=lambda one: one.counts)

    @property
    def alone(self) -> bool:
        """Whether it is about one checkpoint, so that it says nothing of a design."""
        return self.counted < 2


@dataclass(frozen=True)
class Group:
    """The entries of a row."""

    name: str
    entries: tuple[Entry, ...]
    """By label, then by name."""
    represented: bool = False
    """Whether one checkpoint, which has the control arms, stands for all."""

    @property
    def display_name(self) -> str:
        """Name of the design for people."""
        return self.entries[0].design_name

    @property
    def whole(self) -> tuple[Entry, ...]:
        """Those that count; all of them where none does."""
        return tuple(entry for entry in self.entries if entry.is_whole) or self.entries

    @property
    def ranks(self) -> bool:
        """Whether one checkpoint has all that a rank needs, control arms among it."""
        return any(entry.ranks for entry in self.entries)


def group_entries(entries: Sequence[Entry]) -> tuple[Group, ...]:
    """The rows of the entries of one recipe, by name.

    Checkpoints of one model share a row. A second entry of a checkpoint, whose weights were made
    again on another class of machine, has a row of its own, as an entry without a label has. Of two
    that count the one that was run first stays in the row, so that no entry that is added later
    moves the design.
    """
    designs: dict[str, dict[tuple[int, ...], list[Entry]]] = {}
    others = []
    for entry in sorted(entries, key=lambda one: one.name):
        label = entry.checkpoint
        if not ranks_new(entry) or label is None or not LABEL.fullmatch(label):
            others.append(entry)
            continue
        of_design = designs.setdefault(f"{entry.slug}/{entry.recipe}", {})
        of_design.setdefault(_numbers(label), []).append(entry)
    groups = []
    for name, by_number in designs.items():
        members = []
        for number in sorted(by_number):
            first, *again = _by_age(by_number[number])
            members.append(first)
            others += again
        groups.append(Group(name, tuple(members)))
    groups += [Group(entry.name, (entry,)) for entry in others]
    return tuple(sorted(groups, key=lambda group: group.name))


def _by_age(entries: Sequence[Entry]) -> list[Entry]:
    """Entries of one checkpoint: those that count first, and among them by when they were run."""
    if len(entries) == 1:
        return list(entries)
    return sorted(entries, key=lambda entry: (not entry.is_whole, _began(entry), entry.name))


def _began(entry: Entry) -> float:
    """Seconds at which the first attempt of its runs started; endless where no record says."""
    starts = []
    for of_task in entry.evidence.tasks.values():
        for run in of_task.runs:
            attempts = run.record.volatile.get("attempts")
            for attempt in attempts if isinstance(attempts, list) else ():
                start = attempt.get("start") if isinstance(attempt, dict) else None
                if isinstance(start, int | float):
                    starts.append(float(start))
    return min(starts, default=math.inf)


def ranks_new(entry: Entry) -> bool:
    """Whether an entry is under protocol CRL-2, whose boards have rows of designs."""
    return entry.axes["efficiency"].new


def _numbers(label: str) -> tuple[int, ...]:
    match = LABEL.fullmatch(label)
    assert match is not None
    return tuple(map(int, match.groups()))


def design_rows(axis: Axis, groups: Sequence[Group]) -> tuple[DesignRow, ...]:
    """The rows of an axis, in the order of their groups."""
    designs = {group.name: design_of(axis, group) for group in groups}
    pool = [group for group in groups if group.ranks and designs[group.name] is not None]
    return tuple(_row(axis, group, pool) for group in groups)


def counting(axis: Axis, group: Group) -> tuple[Entry, ...]:
    """The entries that are in the mean of a row, by label.

    Of checkpoints that do not hang together, those that do and were run first.
    """
    found = [entry for entry in group.whole if entry.axes[axis].value is not None]
    if len(found) < 2:
        return tuple(found)
    if group.represented:
        return (next((entry for entry in found if entry.ranks), found[0]),)
    by_age = sorted(found, key=lambda entry: (_began(entry), _numbers(entry.checkpoint or "")))
    kept = most_regular(tuple(entry.checkpoint or "" for entry in by_age))
    names = {by_age[at].name for at in kept}
    return tuple(entry for entry in found if entry.name in names)


def design_of(axis: Axis, group: Group, tasks: Sequence[str] | None = None) -> Design | None:
    """The checkpoints of a row as numbers; None for fewer than two, or without a common task.

    Args:
        tasks: only these, which all of them have; None: all that all of them have.
    """
    entries = counting(axis, group)
    if len(entries) < 2:
        return None
    scores = [entry.axes[axis] for entry in entries]
    names = common_tasks(scores) if tasks is None else tuple(tasks)
    if not names:
        return None
    values = [[score.by_task[task].value for task in names] for score in scores]
    return Design(
        name=group.name,
        labels=tuple(entry.checkpoint or "" for entry in entries),
        tasks=names,
        # A number of each checkpoint and task: checkpoints may have different numbers of seeds.
        seeds=np.array(values, dtype=np.float64)[:, :, None],
        location=mean_rows,
        items=_items(scores),
    )


def common_tasks(scores: Sequence[AxisScore]) -> tuple[str, ...]:
    """Tasks that count in all of some scores, by name."""
    return tuple(sorted(set.intersection(*(set(score.by_task) for score in scores))))


def _items(scores: Sequence[AxisScore]) -> np.ndarray | None:
    """(R,) mean over checkpoints under each draw of items, which all of them share."""
    if scores[0].axis == "stability":
        return None
    spreads = [score.spread for score in scores]
    if any(spread is None for spread in spreads):
        return None
    return np.mean([spread[2] for spread in spreads], axis=0)


def _row(axis: Axis, group: Group, pool: Sequence[Group]) -> DesignRow:
    counted, warning = counting(axis, group), None
    about, score = _alone(group, counted, axis)
    if len(counted) > 1:
        others = [one for one in pool if one is not group]
        about, warning, score = _over_checkpoints(axis, group, others)
    return DesignRow(
        name=group.name,
        display_name=group.display_name,
        about=about,
        score=score,
        checkpoints=tuple(_checkpoints(axis, group, counted)),
        counted=len(counted),
        ranks=group.ranks,
        warning=warning,
    )


def _alone(group: Group, counted: Sequence[Entry], axis: Axis) -> tuple[str, AxisScore]:
    entry = (counted or group.whole)[0]
    label = "" if entry.checkpoint is None else f" ({entry.checkpoint})"
    return ALONE + label, _bare(entry.axes[axis])


def _bare(score: AxisScore) -> AxisScore:
    """The score without its replicates, which the entry keeps."""
    names = [one.name for one in fields(AxisScore) if one.name not in ("drawn", "spread")]
    return AxisScore(**{name: getattr(score, name) for name in names}, drawn=None, spread=None)


def _over_checkpoints(
    axis: Axis, group: Group, others: Sequence[Group]
) -> tuple[str, str | None, AxisScore]:
    """What the mean over two checkpoints or more is about, its warning, and the mean."""
    scores = [entry.axes[axis] for entry in counting(axis, group)]
    design, n = design_of(axis, group), min(score.n for score in scores)
    by_task = {}
    if design is not None:
        by_task = {
            task: Estimate(float(mean), None, n)
            for task, mean in zip(design.tasks, design.task_means, strict=True)
        }
    beside = [_on_counted_tasks(axis, other) for other in _pooled(axis, group, others)]
    found = design_mean(_on_counted_tasks(axis, group), beside)
    interval = None if found.interval is None else within(found.interval, LIMITS[axis])
    return (
        found.about,
        found.warning,
        AxisScore(
            axis=axis,
            value=found.value,
            interval=interval,
            wider=None if found.wider is None else within(found.wider, LIMITS[axis]),
            n=n,
            by_task=by_task,
            reason=None,
            silence=None if found.reason is None else f"{found.reason}.",
            drawn=None,
            spread=None,
            new=scores[0].new,
        ),
    )


def _pooled(axis: Axis, group: Group, others: Sequence[Group]) -> list[Group]:
    """The rows whose checkpoints say how those of a row vary: no others move its intervals."""
    own = _layout(axis, group)
    if own.plan != "crossed":
        return []
    return [other for other in others if _layout(axis, other).crossing == own.crossing]


def _layout(axis: Axis, group: Group) -> Layout:
    return read_layout([entry.checkpoint or "" for entry in counting(axis, group)])


def _on_counted_tasks(axis: Axis, group: Group) -> Design:
    """The checkpoints of a row on the tasks that count.

    Where a task counts for some checkpoints only, each has its headline as if that were one task.
    """
    entries = counting(axis, group)
    design = design_of(axis, group)
    if design is not None and all(
        set(entry.axes[axis].by_task) == set(design.tasks) for entry in entries
    ):
        return design
    values = np.array([[[entry.axes[axis].value]] for entry in entries], dtype=np.float64)
    labels = tuple(entry.checkpoint or "" for entry in entries)
    return Design(group.name, labels, ("its tasks",), values, mean_rows)


def within(interval: Interval, bounds: tuple[float, float]) -> Interval:
    """What of an interval a number can be."""
    low, high = (min(max(end, bounds[0]), bounds[1]) for end in (interval.low, interval.high))
    return Interval(low, high, interval.level)


def _checkpoints(axis: Axis, group: Group, counted: Sequence[Entry]) -> Iterator[CheckpointScore]:
    names = {entry.name for entry in counted}
    for entry in group.entries:
        score, counts = entry.axes[axis], entry.name in names
        runs = sum(one.n for one in score.by_task.values())
        yield CheckpointScore(
            entry=entry.name,
            label=entry.checkpoint or "",
            value=score.value,
            interval=score.interval,
            n=score.n,
            runs=runs or entry.n * len(entry.task_names),
            counts=counts,
            why="" if counts else (score.reason or _why(entry, group, counted)),
        )


def _why(entry: Entry, group: Group, counted: Sequence[Entry]) -> str:
    if all(entry is not one for one in group.whole):
        return " ".join(entry.why) or "its runs are not complete."
    if group.represented:
        return f"{counted[0].checkpoint} stands for the design, since most others have one."
    return (
        "it is neither independent of the others, which were run first, nor does it complete a "
        "crossing of them."
    )
