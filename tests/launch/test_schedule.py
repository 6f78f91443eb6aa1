"""The order of cells, by simulation: few workers, a clock of its own, and the best order known."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from crlbench import seeding
from crlbench.contract.conditions import Conditions
from crlbench.contract.records import Cell
from crlbench.disk.names import RECORD_NAME
from crlbench.launch.schedule import Durations, Job, Queue
from crlbench.run.cost import Workpiece, cost
from crlbench.run.needs import check_needs, folders_of, unable
from crlbench.run.plan import Plan, label

PlanOf = Callable[..., Plan]
WORKERS = 2
ROUNDS = 200


@pytest.fixture
def cells_of(plan_of: PlanOf) -> Callable[[dict[str, float], int], list[Cell]]:
    """Cells of invented tasks, the seeds in order."""
    (pattern,) = plan_of(tasks=("addition",), seeds=1).cells

    def build(tasks: Iterable[str], seeds: int) -> list[Cell]:
        return [
            pattern.model_copy(update={"task": task, "seed_index": seed})
            for seed in range(seeds)
            for task in tasks
        ]

    return build


def simulate(
    cells: list[Cell], seconds: dict[str, float], estimates: dict[str, float]
) -> tuple[float, list[Cell]]:
    """When the last cell ends, and the cells in the order in which they began."""
    queue = Queue([Job(cell) for cell in cells], Durations(lambda cell: estimates[cell.task]))
    now, running, order = 0.0, [], []
    while queue or running:
        while len(running) < WORKERS:
            busy = [(cell, now - since) for _, _, since, cell in running]
            job = queue.take(busy, WORKERS)
            if job is None:
                break
            order.append(job.cell)
            heapq.heappush(running, (now + seconds[job.cell.task], len(order), now, job.cell))
        now, _, since, cell = heapq.heappop(running)
        queue.durations.timed(cell, now - since)
        queue.ended(cell, "done")
    return now, order


def best_end(seconds: list[float]) -> float:
    """The earliest end of all on two workers, by trying every division."""
    sums = {0.0}
    for length in seconds:
        sums |= {found + length for found in sums}
    return min(max(found, sum(seconds) - found) for found in sums)


def lengths(number: int, tasks: int) -> dict[str, float]:
    """Seconds by task, from 1 to 10."""
    drawn = seeding.uniforms(number, tasks, "lengths")
    return {f"task-{i}": 1 + 9 * x for i, x in enumerate(drawn)}


@pytest.mark.parametrize(("tasks", "seeds"), [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_eight_jobs_on_two_workers_lose_under_5_percent(
    cells_of: Any, tasks: int, seeds: int
) -> None:
    for number in range(ROUNDS):
        seconds = lengths(number, tasks)
        cells = cells_of(seconds, seeds)
        end, order = simulate(cells, seconds, seconds)
        assert 1 - best_end([seconds[cell.task] for cell in cells]) / end < 0.05
        assert sorted(order, key=cells.index) == cells


@pytest.mark.parametrize("known", [True, False])
def test_a_grid_of_several_seeds_loses_under_5_percent_whatever_was_thought_first(
    cells_of: Any, known: bool
) -> None:
    for number in range(ROUNDS // 4):
        seconds = lengths(number, 4)
        cells = cells_of(seconds, 5)
        thought = seconds if known else dict.fromkeys(seconds, 1.0)
        end, _ = simulate(cells, seconds, thought)
        even = sum(seconds[cell.task] for cell in cells) / WORKERS
        assert 1 - even / end < 0.05


def test_first_seeds_come_first_until_the_end_is_near(cells_of: Any) -> None:
    kept = 0
    for number in range(ROUNDS // 4):
        seconds = lengths(number, 3)
        _, order = simulate(cells_of(seconds, 12), seconds, seconds)
        early = [cell.seed_index for cell in order[: 3 * 6]]
        kept += early == sorted(early)
        assert all(seed <= number // 3 + 1 for number, seed in enumerate(early))
    assert kept >= 0.9 * ROUNDS // 4


def test_a_long_cell_of_a_late_seed_does_not_begin_last(cells_of: Any) -> None:
    short, (long,) = cells_of(["short"], 8), cells_of(["long"], 1)
    cells = [*short, long.model_copy(update={"seed_index": 8})]
    end, order = simulate(cells, seconds := {"short": 1.0, "long": 8.0}, seconds)
    assert end == 8.0 and order.index(cells[-1]) == 1
    end, order = simulate(cells, seconds := {"short": 1.0, "long": 3.0}, seconds)
    assert end == 6.0 and 4 <= order.index(cells[-1]) < 8


def test_seen_seconds_take_over_and_scale_what_was_not_seen(cells_of: Any) -> None:
    a, b = cells_of(["a", "b"], 1)
    durations = Durations(lambda cell: {"a": 10.0, "b": 30.0}[cell.task])
    assert (durations.of(a), durations.of(b), durations.left(a, 4.0)) == (10.0, 30.0, 10.0)
    durations.timed(a, 2.0)
    durations.timed(a, 4.0)
    assert (durations.of(a), durations.of(b), durations.left(b, 4.0)) == (3.0, 9.0, 5.0)
    other = b.model_copy(update={"recipe": "other"})
    assert durations.of(other) == 9.0


def test_a_cell_whose_process_died_comes_first(cells_of: Any) -> None:
    cells = cells_of(["a", "b"], 2)
    queue = Queue([Job(cell) for cell in cells], Durations(lambda cell: 1.0))
    queue.waiting[-1].attempts = 1
    assert queue.take([], WORKERS).cell is cells[-1]
    assert queue.take([], WORKERS).cell is cells[0]


# -- needs ---------------------------------------------------------------------------------


@pytest.fixture
def chained(plan_of: PlanOf) -> Callable[[dict[str, tuple[str, ...]]], dict[str, Cell]]:
    """Cells by an invented name, each with the names of those that it needs."""
    (pattern,) = plan_of(tasks=("addition",), seeds=1).cells
    plan = Path(pattern.folder).parents[2]
    prefix = label(pattern).rsplit("/", 3)[0]

    def build(needs: dict[str, tuple[str, ...]]) -> dict[str, Cell]:
        return {
            name: pattern.model_copy(
                update={
                    "task": name,
                    "folder": str(plan / name / "real" / "seed-00"),
                    "needs": tuple(f"{prefix}/{other}/real/seed-00" for other in needed),
                }
            )
            for name, needed in needs.items()
        }

    return build


def queue_of(cells: Iterable[Cell], seconds: dict[str, float] | None = None) -> Queue:
    durations = Durations(lambda cell: (seconds or {}).get(cell.task, 1.0))
    return Queue([Job(cell) for cell in cells], durations)


def name_of(job: Job | None) -> str | None:
    return None if job is None else job.cell.task


def test_only_ready_cells_are_taken(chained: Any) -> None:
    cells = chained({"d": ("b", "c"), "c": ("a",), "b": ("a",), "a": ()})
    queue = queue_of(cells.values())
    assert name_of(queue.take([], 2)) == "a"
    assert queue.take([(cells["a"], 0.0)], 2) is None
    queue.ended(cells["a"], "done")
    assert {name_of(queue.take([], 2)), name_of(queue.take([], 2))} == {"b", "c"}
    queue.ended(cells["b"], "done")
    assert queue.take([(cells["c"], 0.0)], 2) is None and list(queue.blocked()) == []
    queue.ended(cells["c"], "done")
    assert name_of(queue.take([], 2)) == "d" and queue.waiting == []


def test_a_chain_weighs_with_all_that_is_left_of_it(chained: Any) -> None:
    """Its first cell is short; taken by its own length, it would begin last and end late."""
    cells = chained({"long": (), "middle": (), "first": (), "second": ("first",)})
    seconds = {"long": 5.0, "middle": 4.0, "first": 1.0, "second": 8.0}
    queue = queue_of(cells.values(), seconds)
    assert name_of(queue.take([], 2)) == "first"
    busy = [(cells["first"], 0.0)]
    assert name_of(queue.take(busy, 2)) == "long"
    queue.ended(cells["first"], "done")
    assert name_of(queue.take([(cells["long"], 0.0)], 2)) == "second"


def test_what_waits_for_a_running_cell_is_work_of_its_worker(chained: Any) -> None:
    """Two workers: one has a chain of 9 seconds in hand, so 6 and 3 are for the other one."""
    cells = chained({"six": (), "three": (), "first": (), "second": ("first",)})
    seconds = {"six": 6.0, "three": 3.0, "first": 1.0, "second": 8.0}
    queue = queue_of(cells.values(), seconds)
    assert queue._behind() == {cells["first"].folder: 8.0}
    assert name_of(queue.take([], 2)) == "first"
    assert queue._behind() == {cells["first"].folder: 8.0}


def test_what_waits_for_several_counts_once(chained: Any) -> None:
    cells = chained({"a": (), "b": (), "c": ("b", "a"), "d": ("c",), "e": ("d", "b")})
    queue = queue_of(cells.values(), {"c": 2.0, "d": 4.0, "e": 8.0})
    assert queue._behind() == {cells["b"].folder: 14.0}
    queue.take([], 1)
    queue.ended(cells["b"], "done")
    assert queue._behind() == {cells["a"].folder: 14.0}


def test_what_can_never_begin_leaves_the_queue_with_a_reason(chained: Any) -> None:
    cells = chained({"a": (), "b": ("a",), "c": ("b",), "d": ("c", "other"), "other": ()})
    queue = queue_of(cells.values())
    queue.take([], 2)
    queue.ended(cells["a"], "lost")
    outcomes = list(queue.blocked())
    assert [o.cell.task for o in outcomes] == ["b", "c", "d"]
    assert {(o.state, o.exit_code) for o in outcomes} == {("blocked", 8)}
    assert all(label(cells["a"]) in outcome.message for outcome in outcomes)
    assert "by way of" not in outcomes[0].message
    assert f"by way of {label(cells['c'])}" in outcomes[2].message
    assert [name_of(job) for job in queue.waiting] == ["other"]


def test_what_waits_for_an_interrupted_cell_leaves_without_an_outcome(chained: Any) -> None:
    cells = chained({"a": (), "b": ("a",), "c": ("b",)})
    queue = queue_of(cells.values())
    queue.take([], 2)
    queue.ended(cells["a"], "interrupted")
    assert list(queue.blocked()) == [] and queue.waiting == []


LONG = 2_000
SOON = 2.0
"""Seconds of processor time for a chain of LONG cells: several times what it takes."""


@pytest.mark.parametrize("forward", [True, False])
def test_a_long_chain_is_walked_soon(chained: Any, forward: bool) -> None:
    names = [f"{number:04}" for number in range(LONG)]
    cells = chained({name: tuple(names[i - 1 : i] if i else ()) for i, name in enumerate(names)})
    ordered = list(cells.values())[:: 1 if forward else -1]
    began = time.process_time()
    check_needs(ordered)
    assert unable(ordered) == {}
    queue, taken = queue_of(ordered), []
    while queue:
        assert list(queue.blocked()) == []
        job = queue.take([], 2)
        assert job is not None
        taken.append(job.cell.task)
        queue.durations.timed(job.cell, 1.0)
        queue.ended(job.cell, "done")
    assert taken == names
    assert time.process_time() - began < SOON


@pytest.mark.parametrize("forward", [True, False])
def test_a_long_chain_that_cannot_begin_is_given_up_soon(chained: Any, forward: bool) -> None:
    names = [f"{number:04}" for number in range(LONG)]
    cells = chained({name: tuple(names[i - 1 : i] if i else ()) for i, name in enumerate(names)})
    first, *others = cells.values()
    ordered = others[:: 1 if forward else -1]
    began = time.process_time()
    before = list(map(label, cells.values()))
    expected = zip([cell.folder for cell in others], before[:-1], strict=True)
    assert unable(ordered) == dict(expected)
    queue = queue_of(ordered)
    queue.ended(first, "lost")
    outcomes = list(queue.blocked())
    assert [outcome.cell.task for outcome in outcomes] == names[1:] and not queue
    assert all(f"it needs {before[0]}" in outcome.message for outcome in outcomes)
    assert time.process_time() - began < SOON


def test_what_cannot_run_follows_from_its_definition(chained: Any) -> None:
    """Against plain repetition: whatever lacks a need goes, until nothing goes any more."""
    for number in range(ROUNDS // 4):
        names = [f"{number}-{i}" for i in range(12)]
        draws = iter(seeding.uniforms(number, 200, "needs"))
        cells = chained(
            {name: tuple(n for n in names[:i] if next(draws) < 0.3) for i, name in enumerate(names)}
        )
        some = [cell for cell in cells.values() if next(draws) < 0.8]
        records = {cell.folder for cell in cells.values() if next(draws) < 0.2}
        for folder in records:
            Path(folder).mkdir(parents=True)
            (Path(folder) / RECORD_NAME).touch()
        lacking: dict[str, str] = {}
        while True:
            left = {cell.folder: cell for cell in some if cell.folder not in lacking}
            absent = {
                folder: next(name for name, f in folders_of(cell).items() if f not in met)
                for folder, cell in left.items()
                if not (met := left.keys() | records) >= {*folders_of(cell).values()}
            }
            if not absent:
                break
            lacking |= absent
        assert unable(some) == lacking


def test_chains_by_simulation_end_as_early_as_their_work_allows(chained: Any) -> None:
    """Chains of three on two workers: within 5 % of an even division, or of the longest chain."""
    for number in range(ROUNDS // 4):
        drawn = lengths(number, 12)
        names = list(drawn)
        needs = {name: tuple(names[i - 1 : i]) if i % 3 else () for i, name in enumerate(names)}
        cells = list(chained(needs).values())
        end, order = simulate(cells, drawn, drawn)
        for cell in cells:
            for folder in folders_of(cell).values():
                before = next(other for other in order if other.folder == folder)
                assert order.index(before) < order.index(cell)
        blocks = [sum(drawn[name] for name in names[i : i + 3]) for i in range(0, 12, 3)]
        assert end <= 1.05 * best_end(blocks)


def test_what_a_cell_costs_follows_its_plain_data(plan_of: PlanOf) -> None:
    (cell,) = plan_of(tasks=("addition",), seeds=1).cells

    def changed(group: str, **leaves: Any) -> float:
        conditions = cell.conditions | {group: cell.conditions[group] | leaves}
        return cost(cell.model_copy(update={"conditions": conditions}))

    budget = cell.conditions["budget"]
    assert changed("budget", prompts=2 * budget["prompts"]) > 1.5 * cost(cell)
    assert changed("optimization", epochs=4) > 1.5 * cost(cell)
    assert changed("sampling", max_completion_bytes=4) < cost(cell)
    placebo, mode = (cell.model_copy(update={"arm": arm}) for arm in ("placebo", "mode"))
    assert cost(placebo) < cost(cell)
    conditions = Conditions.model_validate(cell.conditions)
    work = Workpiece(cell.model, cell.task, cell.catalog, conditions)
    prompts = 2048  # of addition, which has no other levels than those that are trained on
    assert cost(mode) - cost(placebo) == pytest.approx(work.cost(0, prompts))
    assert cost(cell.model_copy(update={"model": "smollm2-135m-instruct"})) > 10 * cost(cell)
    longer = cell.model_copy(update={"task": "key-value"})
    assert cost(longer) > cost(cell)
    assert cost(cell.model_copy(update={"task": "no-such", "model": "no/such@1"})) > 0
