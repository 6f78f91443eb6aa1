"""The present board of mini as it is stored: its headline by plain sums from the stored answers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from crlbench.verdict.board import summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

BOARD = Path(__file__).parents[2] / "leaderboard" / "results" / "mini-a8d2d33fcaa9"
FEWEST = 64
"""New items that a task needs."""


def lam_new(run: Run) -> float | None:
    """Λ_new of one run; None for too few new items."""
    floor, ceiling = run.record.task.floor, run.record.task.ceiling
    greedy, start = (run.split_items(name, end=False) for name in ("id_greedy", "id"))
    new = greedy[0] < ceiling
    if new.sum() < FEWEST:
        return None
    head = (start[:, new].mean() - floor) / (ceiling - floor)
    # From a failure on nothing is solved, or as little as at the start.
    points = np.full(21, min(0.0, head))
    curve = run.curve_items()[:, new].mean(axis=1)
    points[: len(curve)] = (curve - floor) / (ceiling - floor)
    area = sum((a + b) / 2 for a, b in zip(points, points[1:], strict=False)) / 20
    return float((area - head) / max(1 - head, 0.2))


def trimmed(values: list[float]) -> float:
    cut = len(values) // 4
    return float(np.mean(sorted(values)[cut : len(values) - cut]))


@pytest.mark.slow
def test_the_headline_of_every_design_by_plain_sums() -> None:
    runs = load_runs(BOARD, "used")
    seeds: dict[tuple[str | None, str], dict[str, list[float | None]]] = defaultdict(dict)
    for run in runs.runs:
        if run.arm == "real" and run.recipe == "ppo":
            subject = run.record.subject
            tasks = seeds[subject.slug, subject.checkpoint]
            tasks.setdefault(run.task, []).append(lam_new(run))
    designs = summarise_board(runs, replicates=50).rankings["ppo"]["efficiency"].designs
    assert designs is not None and len(designs.rows) == 8
    for row in designs.rows:
        values = []
        for checkpoint in row.checkpoints:
            tasks = seeds[row.display_name, checkpoint.label]
            assert len(tasks) == 8
            if any(None in found for found in tasks.values()):
                assert checkpoint.value is None
                continue
            values.append(float(np.mean([trimmed(found) for found in tasks.values()])))
            assert checkpoint.value == pytest.approx(values[-1], abs=1e-12)
        assert len(values) == (1 if row.display_name == "tiny2-gemma" else 3)
        assert row.score.value == pytest.approx(np.mean(values), abs=1e-12)


DRAWS = 2000


def learned_items(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(N,) what each item adds to the area and to the start, in u, and whether it is new."""
    floor, ceiling = run.record.task.floor, run.record.task.ceiling
    greedy, start = (run.split_items(name, end=False) for name in ("id_greedy", "id"))
    curve = (run.curve_items() - floor) / (ceiling - floor)
    weights = np.full(21, 1 / 20)
    weights[[0, -1]] /= 2
    head = (start.mean(axis=0) - floor) / (ceiling - floor)
    return weights @ curve, head, greedy[0] < ceiling


def under(times: np.ndarray, runs: list[Run]) -> np.ndarray:
    """(n, R) Λ_new of the seeds of a task where items count so many (R, N) times."""
    rows = []
    for run in runs:
        area, head, new = learned_items(run)
        shares = times[:, new] / times[:, new].sum(axis=1, keepdims=True)
        heads = shares @ head[new]
        rows.append((shares @ area[new] - heads) / np.maximum(1 - heads, 0.2))
    return np.array(rows)


@pytest.mark.slow
def test_the_interval_of_a_checkpoint_with_three_seeds_by_a_bootstrap_of_its_own() -> None:
    """Student's, of the sample variance of the seeds and of what items bring to the mean."""
    runs = load_runs(BOARD, "used")
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in runs.runs:
        subject = run.record.subject
        if (run.arm, subject.slug, subject.checkpoint) == ("real", "tiny2-phi", "i1o1"):
            by_task[run.task].append(run)
    generator, tasks = np.random.default_rng(3), len(by_task)
    shares, both, items, values = [], 0.0, 0.0, []
    for group in by_task.values():
        assert len(group) == 3 and all(run.record.status.state == "completed" for run in group)
        count = len(learned_items(group[0])[0])
        lams = np.array([lam_new(run) for run in group])
        values.append(lams.mean())
        shares.append(lams.var(ddof=1) / 3 / tasks**2)
        times = generator.multinomial(count, np.full(count, 1 / count), DRAWS)
        drawn = under(times, group)
        seeds = generator.integers(0, 3, (3, DRAWS))
        items += drawn.mean(axis=0).var() / tasks**2
        both += np.take_along_axis(drawn, seeds, axis=0).mean(axis=0).var() / tasks**2
    # Items have I + N, both S + N of a bootstrap + I + 2 N; N counts with the seeds.
    noise = both - items - sum(shares) * 2 / 3
    variance = sum(shares) + items - noise
    df = variance**2 / sum(share**2 / 2 for share in shares)
    half = t.ppf(0.975, df) * np.sqrt(variance)
    board = summarise_board(runs, replicates=DRAWS)
    (entry,) = [one for one in board.entries if is_of(one, "tiny2-phi", "i1o1")]
    found = entry.axes["efficiency"]
    assert found.value == pytest.approx(np.mean(values), abs=1e-12)
    assert (found.interval.high + found.interval.low) / 2 == pytest.approx(found.value)
    assert (found.interval.high - found.interval.low) / 2 == pytest.approx(half, rel=0.05)


def is_of(entry: Entry, model: str, checkpoint: str) -> bool:
    return entry.model.startswith(f"{model}@") and entry.checkpoint == checkpoint
