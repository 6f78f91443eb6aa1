"""The order of cells: first seeds first, and every worker busy to the end.

How long a cell takes is estimated twice. Before anything of its kind has ended, from plain data:
how much text it decodes and learns from, and the size of its model. Then the mean duration of its
kind takes over, and it also says what a unit of the first estimate is worth for the kinds that
have not been seen.

What is compared should grow alike, so the first seeds come first, and among cells of one seed
the long ones. That order costs time only at the end, when a long cell begins last and the other
workers have nothing left. So a cell is taken in that order as long as the cells left after it,
the longest first, can still end at the earliest time that any order could reach, give or take
3 %. If no cell leaves that possible, the one that ends earliest is taken.

A cell that needs others is taken when these have ended well, and until then weighs with the cell
that it waits for.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crlbench.contract.records import Cell
from crlbench.run.launcher import EndState, Outcome
from crlbench.run.needs import End, block, folders_of
from crlbench.run.plan import label

SLACK = 0.03
"""Share of the whole by which keeping the seeds in order may delay the end."""


@dataclass(eq=False)
class Job:
    """A cell and how often it was begun."""

    cell: Cell
    attempts: int = 0
    place: int = 0
    """Its place in the queue."""


@dataclass
class Durations:
    """Estimates of how long cells take."""

    cost: Callable[[Cell], float]
    """Cost of a cell by plain data, in any unit, above 0."""
    _seen: dict[Hashable, list[float]] = field(default_factory=dict)
    """Seconds by kind."""
    _worth: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    """Seconds and costs of the cells that have ended, by what they have in common."""

    def timed(self, cell: Cell, seconds: float) -> None:
        """Take in that a cell was done in so many seconds."""
        self._seen.setdefault(_kind(cell), []).append(seconds)
        for common in _common(cell):
            total, cost = self._worth.get(common, (0.0, 0.0))
            self._worth[common] = (total + seconds, cost + self.cost(cell))

    def of(self, cell: Cell) -> float:
        """Seconds, or the cost itself as long as nothing has ended."""
        if seconds := self._seen.get(_kind(cell)):
            return sum(seconds) / len(seconds)
        total, cost = next(
            (self._worth[common] for common in _common(cell) if common in self._worth), (1.0, 1.0)
        )
        return self.cost(cell) * total / cost

    def left(self, cell: Cell, elapsed: float) -> float:
        """What a cell still needs after so many seconds; all of it while seconds are unknown."""
        return max(0.0, self.of(cell) - elapsed) if self._worth else self.of(cell)


def _kind(cell: Cell) -> Hashable:
    """What cells that take equally long share: all but the seed."""
    return cell.fingerprint, cell.model, cell.recipe, cell.task, cell.arm


def _common(cell: Cell) -> Iterator[Hashable]:
    """What cells may share whose costs compare, the closest first."""
    yield "recipe", cell.fingerprint, cell.model, cell.recipe
    yield "model", cell.model
    yield "all"


class Queue:
    """Waiting cells, of which those are ready whose needs have all ended well.

    What waits for a cell is looked at when that cell ends, and not at each step.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        durations: Durations,
        ends: Mapping[str, End] | None = None,
    ) -> None:
        """``ends``: how cells ended before this grid, by folder (:func:`stored_ends`)."""
        self.durations = durations
        self.ends = dict(ends or {})
        self._unmet: dict[Job, dict[str, str]] = {}
        """The waiting jobs in their order, each with its needs that have not ended well: names of
        cells by folder."""
        self._dependants: dict[str, list[Job]] = {}
        """The jobs that need a cell, by its folder."""
        self._ready: set[Job] = set()
        """Waiting jobs without an unmet need."""
        self._stuck: set[Job] = set()
        """Waiting jobs with a need that ended badly."""
        self._places = itertools.count()
        for job in jobs:
            self.put(job)

    @property
    def waiting(self) -> list[Job]:
        """The jobs that nobody has taken, in their order."""
        return list(self._unmet)

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return bool(self._unmet)

    def put(self, job: Job) -> None:
        """Let a job wait, behind all others."""
        needs = {folder: name for name, folder in folders_of(job.cell).items()}
        ends = {folder: end for folder in needs if (end := self.ends.get(folder)) is not None}
        unmet = {f: n for f, n in needs.items() if f not in ends or ends[f].state != "done"}
        job.place = next(self._places)
        self._unmet[job] = unmet
        for folder in unmet:
            self._dependants.setdefault(folder, []).append(job)
        if not unmet:
            self._ready.add(job)
        if any(end.state != "done" for end in ends.values()):
            self._stuck.add(job)

    def take(self, busy: Sequence[tuple[Cell, float]], workers: int) -> Job | None:
        """The job for a worker that is free, removed from those waiting; None if none is ready.

        Args:
            busy: What the other workers have in hand, and for how many seconds.
            workers: How many there are, or may be, with those that are free.
        """
        if not self._ready:
            return None
        ready = sorted(self._ready, key=lambda job: job.place)
        job = ready[0] if len(ready) == 1 else self._best(ready, busy, workers)
        self._remove(job)
        return job

    def ended(self, cell: Cell, state: EndState) -> None:
        """Take in how a cell ended."""
        self._note(cell.folder, End(state, label(cell)))

    def blocked(self) -> Iterator[Outcome]:
        """The outcomes of the cells that cannot begin any more, removed from those waiting.

        What waits for an interrupted cell is removed as well, and has no outcome.
        """
        while self._stuck:
            stuck = sorted(self._stuck, key=lambda job: job.place)
            for job, (name, end) in [(job, self._obstacle(job)) for job in stuck]:
                self._remove(job)
                self._note(job.cell.folder, end)
                if end.state != "interrupted":
                    yield block(job.cell, name, end)

    def _remove(self, job: Job) -> None:
        del self._unmet[job]
        self._ready.discard(job)
        self._stuck.discard(job)

    def _note(self, folder: str, end: End) -> None:
        """Take in how the cell of a folder ended, for all that wait for it."""
        self.ends[folder] = end
        for job in self._dependants.pop(folder, ()):
            unmet = self._unmet.get(job)
            if unmet is None:
                continue
            if end.state != "done":
                self._stuck.add(job)
                continue
            del unmet[folder]
            if not unmet:
                self._ready.add(job)

    def _obstacle(self, job: Job) -> tuple[str, End]:
        """The first need of a stuck job that ended badly, and how."""
        return next(
            (name, self.ends[folder])
            for folder, name in self._unmet[job].items()
            if folder in self.ends
        )

    def _best(self, ready: Sequence[Job], busy: Sequence[tuple[Cell, float]], workers: int) -> Job:
        """The job to begin among several that are ready; see :meth:`take`."""
        behind = self._behind()
        loads = [
            self.durations.left(cell, elapsed) + behind.get(cell.folder, 0.0)
            for cell, elapsed in busy
        ]
        lengths = {
            id(job): self.durations.of(job.cell) + behind.get(job.cell.folder, 0.0) for job in ready
        }
        return _choose(ready, lengths, loads + [0.0] * (workers - len(busy)))

    def _behind(self) -> dict[str, float]:
        """How long those take that wait for a cell, at first or second hand, by its folder.

        A chain weighs as a whole, as if one worker ran it to its end; a cell that waits for
        several counts behind the first of them.
        """
        roots = self._roots()
        seconds: dict[str, float] = {}
        for job, unmet in self._unmet.items():
            if unmet:
                root = roots[job.cell.folder]
                seconds[root] = seconds.get(root, 0.0) + self.durations.of(job.cell)
        return seconds

    def _roots(self) -> dict[str, str]:
        """Which cell must end first for one that waits, by folders: the first of its needs, or
        what that one waits for itself."""
        nearest = {j.cell.folder: next(iter(unmet)) for j, unmet in self._unmet.items() if unmet}
        roots: dict[str, str] = {}
        for folder in nearest:
            path, root = [], folder
            while root in nearest and root not in roots:
                path.append(root)
                root = nearest[root]
            roots |= dict.fromkeys(path, roots.get(root, root))
        return roots


def _choose(ready: Sequence[Job], lengths: dict[int, float], loads: list[float]) -> Job:
    """The cell to begin; one whose process died comes before all others.

    Args:
        ready: What may begin, at least one.
        lengths: How long each takes with what waits for it, by ``id`` of the job.
        loads: When each worker is free.
    """
    again = next((job for job in ready if job.attempts), None)
    if again is not None:
        return again
    order = sorted(ready, key=lambda j: (j.cell.seed_index, -lengths[id(j)]))
    rest = sorted(lengths.values(), reverse=True)
    latest = (1 + SLACK) * earliest_end(rest, loads)
    best: tuple[float, Job] | None = None
    lengths_tried: set[float] = set()
    for job in order:
        length = lengths[id(job)]
        if length in lengths_tried:
            continue
        lengths_tried.add(length)
        end = end_after(length, rest, loads)
        if end <= latest:
            return job
        if best is None or end < best[0]:
            best = end, job
    assert best is not None
    return best[1]


def earliest_end(lengths: Sequence[float], loads: Sequence[float]) -> float:
    """No order of these cells ends before: all work divided evenly, the longest cell alone."""
    even = (sum(lengths) + sum(loads)) / len(loads)
    return max(even, min(loads) + max(lengths), max(loads))


def end_after(first: float, lengths: Sequence[float], loads: Sequence[float]) -> float:
    """When all ends if ``first`` begins now and the others follow, the longest first.

    Args:
        first: One of ``lengths``.
        lengths: Of all waiting cells, descending.
        loads: When each worker is free.
    """
    heap = list(loads)
    heapq.heapify(heap)
    heapq.heapreplace(heap, heap[0] + first)
    passed = False
    for length in lengths:
        if length == first and not passed:
            passed = True
        else:
            heapq.heapreplace(heap, heap[0] + length)
    return max(heap)
