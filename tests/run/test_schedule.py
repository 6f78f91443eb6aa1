"""The order of cells, by simulation: few workers, a clock of its own, and the best order known."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from crlbench import seeding
from crlbench.records import Cell
from crlbench.run.cost import cost
from crlbench.run.plan import Plan
from crlbench.run.schedule import Durations, Job, Queue

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
    while queue.waiting or running:
        while queue.waiting and len(running) < WORKERS:
            busy = [(cell, now - since) for _, _, since, cell in running]
            job = queue.take(busy, WORKERS)
            order.append(job.cell)
            heapq.heappush(running, (now + seconds[job.cell.task], len(order), now, job.cell))
        now, _, since, cell = heapq.heappop(running)
        queue.durations.timed(cell, now - since)
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


def test_what_a_cell_costs_follows_its_plain_data(plan_of: PlanOf) -> None:
    (cell,) = plan_of(tasks=("addition",), seeds=1).cells

    def changed(group: str, **leaves: Any) -> float:
        conditions = cell.conditions | {group: cell.conditions[group] | leaves}
        return cost(cell.model_copy(update={"conditions": conditions}))

    budget = cell.conditions["budget"]
    assert changed("budget", prompts=2 * budget["prompts"]) > 1.5 * cost(cell)
    assert changed("optimization", epochs=4) > 1.5 * cost(cell)
    assert changed("sampling", max_completion_bytes=4) < cost(cell)
    assert cost(cell.model_copy(update={"arm": "placebo"})) < cost(cell)
    assert cost(cell.model_copy(update={"model": "smollm2-135m-instruct"})) > 10 * cost(cell)
    longer = cell.model_copy(update={"task": "key-value"})
    assert cost(longer) > cost(cell)
    assert cost(cell.model_copy(update={"task": "no-such", "model": "no/such@1"})) > 0
