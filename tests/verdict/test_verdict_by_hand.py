"""Every headline number from the stored vectors, by plain NumPy that shares nothing with the
package.

Only the names of random draws are taken from the package (they are part of the definition of E_0
and of the expected forgetting); what is drawn is done here again, and so is everything else.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from crlbench.seeding import derive
from crlbench.stats.nulls import ROOT_SEED
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import load_runs
from tests.support.simulate import RETAIN, Plan, write_board

FAILED = ("counting", 3, 22)
"""Task, seed and iteration of the run that fails."""
ROWS = 256
B = 40 * ROWS
FLOOR, HARD_FLOOR = 0.03, 0.01
TASKS = ("addition", "counting", "key-value", "list-ops")
EXACT = {"rel": 1e-12, "abs": 1e-12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    real = Plan(failed=(FAILED,), hacked=0.2)
    root = tmp_path_factory.mktemp("hand")
    write_board(root, real)
    return write_board(root, Plan(arm="placebo", seeds=3))


@pytest.fixture(scope="module")
def board(folder: Path) -> Board:
    # The plan of the placebo arm stands where that of the real one stood.
    plan = next(folder.rglob("plan.json"))
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"arms": {"real": 5, "placebo": 3}}))
    return summarise_board(load_runs(folder), replicates=200)


def vectors(folder: Path, task: str, seed: int, arm: str = "real") -> dict[str, np.ndarray]:
    path = next(folder.rglob(f"{task}/{arm}/seed-{seed:02d}/items.npz"))
    with np.load(path) as archive:
        return {name: archive[name].astype(float) for name in archive.files}


def u_of(score, floor=FLOOR):
    return (score - floor) / (1.0 - floor)


def curve(found: dict[str, np.ndarray], failed_at: int | None = None) -> np.ndarray:
    """(21, N) u of every item; only what was measured."""
    rows = [u_of(found[f"curve/{x}"]) for x in range(0, B + 1, 2 * ROWS) if f"curve/{x}" in found]
    if failed_at is not None:
        rows = [row for j, row in enumerate(rows) if 2 * j <= failed_at]
    return np.array(rows)


def whole(found: dict[str, np.ndarray], failed_at: int | None = None) -> np.ndarray:
    """(21,) u, 0 from a failure on."""
    measured = curve(found, failed_at).mean(axis=1)
    return np.concatenate([measured, np.zeros(21 - len(measured))])


def failed_at(task: str, seed: int) -> int | None:
    return FAILED[2] if (task, seed) == FAILED[:2] else None


def runs(folder: Path, task: str) -> list[tuple[dict[str, np.ndarray], int | None, int]]:
    return [(vectors(folder, task, i), failed_at(task, i), i) for i in range(5)]


def lam(found: dict[str, np.ndarray], at: int | None = None) -> float:
    u, x = whole(found, at), np.arange(21) / 20
    area = sum((x[j + 1] - x[j]) * (u[j] + u[j + 1]) / 2 for j in range(20))
    head = float(u_of(found["start/id"].mean()))
    return (area - head) / max(1 - head, 0.2)


def iqm(values: list[float]) -> float:
    """Of five: the lowest and the highest are dropped; of three: none."""
    kept = sorted(values)[len(values) // 4 : len(values) - len(values) // 4]
    return sum(kept) / len(kept)


def test_lambda_and_its_parts(folder: Path, board: Board):
    (entry,) = board.entries
    per_task = {t: [lam(found, at) for found, at, _ in runs(folder, t)] for t in TASKS}
    expected = sum(iqm(values) for values in per_task.values()) / 4
    assert entry.axes["efficiency"].value == pytest.approx(expected, **EXACT)
    pooled = sorted(v for values in per_task.values() for v in values)[5:15]
    beside = entry.efficiency
    assert beside.pooled_iqm == pytest.approx(sum(pooled) / 10, **EXACT)
    means = sorted(sum(values) / 5 for values in per_task.values())
    assert beside.mean == pytest.approx(sum(means) / 4, **EXACT)
    assert beside.median == pytest.approx((means[1] + means[2]) / 2, **EXACT)
    areas = {
        t: [float(np.trapezoid(whole(f, at), dx=1 / 20)) for f, at, _ in runs(folder, t)]
        for t in TASKS
    }
    heads = [float(u_of(vectors(folder, t, 0)["start/id"].mean())) for t in TASKS]
    total = float(np.mean([np.mean(a) for a in areas.values()]))
    assert beside.E == pytest.approx(total, **EXACT)
    assert beside.H == pytest.approx(sum(heads) / 4, **EXACT)
    assert beside.L == pytest.approx(total - sum(heads) / 4, **EXACT)
    gap = 1 - float(np.mean([np.mean([min(a, 1) for a in t]) for t in areas.values()]))
    assert beside.optimality_gap == pytest.approx(gap, **EXACT)


def test_samples_to_threshold(folder: Path, board: Board):
    (entry,) = board.entries
    for task in TASKS:
        for arrival in entry.efficiency.tasks[task].arrivals["completions"]:
            times = []
            for found, at, _ in runs(folder, task):
                above = whole(found, at) >= arrival.tau - 1e-12
                hits = [j for j in range(1, 21) if above[j] and above[j - 1]]
                times.append(hits[0] * 2 * ROWS if hits else math.inf)
            assert arrival.arrived == sum(t <= B for t in times)
            expected = sum(min(t, B) for t in times) / 5
            assert arrival.restricted_mean == pytest.approx(expected, **EXACT)


def pav(y: np.ndarray) -> np.ndarray:
    """Pooling adjacent violators."""
    pools: list[list[float]] = []
    for value in y:
        pools.append([float(value), 1])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, m), (b, n) = pools[-2], pools[-1]
            pools[-2:] = [[(a * m + b * n) / (m + n), m + n]]
    return np.concatenate([np.full(int(n), value) for value, n in pools])


def drop(u: np.ndarray) -> float:
    smooth = [np.mean(u[max(0, j - 1) : j + 2]) for j in range(len(u))]
    return max(max(smooth[: j + 1]) - smooth[j] for j in range(len(u)))


def expected_drop(items: np.ndarray, task: str, seed: int) -> float:
    points, count = items.shape
    pairs = [np.var(items[j + 1] - items[j], ddof=1) / (2 * count) for j in range(points - 1)]
    near = [[pairs[p] for p in range(max(0, j - 3), min(points - 1, j + 3))] for j in range(points)]
    noise = np.sqrt([np.mean(row) for row in near])
    stream = derive(ROOT_SEED, "curve", task, seed, points)
    draws = np.random.Generator(np.random.PCG64(stream)).standard_normal((2, 200, points))
    fit = pav(items.mean(axis=1))
    drawn = fit + noise * draws[0]
    redrawn = np.array([pav(row) for row in drawn]) + noise * draws[1]
    return 2 * np.mean([drop(u) for u in drawn]) - np.mean([drop(u) for u in redrawn])


def test_stability(folder: Path, board: Board):
    (entry,) = board.entries
    found = {}
    for task in TASKS:
        ends, heads, peaks, drops, failures = [], [], [], [], 0
        for run, at, seed in runs(folder, task):
            u = whole(run, at)
            head = float(u_of(run["start/id"].mean()))
            ends.append(float(u[-3:].mean()))
            heads.append(head)
            peaks.append(max(float(np.mean(u[max(0, j - 1) : j + 2])) for j in range(21)) - head)
            drops.append(max(0.0, drop(u) - expected_drop(curve(run, at), task, seed)))
            failures += at is not None
        gains = sorted(f - h for f, h in zip(ends, heads, strict=True))
        pairs = [abs(ends[i] - ends[j]) for i in range(5) for j in range(i)]
        parts = [
            1 - min(1, np.mean(pairs) / max(np.mean(peaks), 0.1)),
            np.mean([1 - min(1, d / max(g, 0.1)) for d, g in zip(drops, peaks, strict=True)]),
            min(1, max(0, (gains[0] + gains[1]) / 2) / gains[2]),
            1 - (failures + 0.5) / 6,
        ]
        own = entry.stability.tasks[task]
        assert list(own.shares.values()) == pytest.approx(parts, **EXACT)
        if own.rating == "rated":
            found[task] = math.prod(parts) ** 0.25
    assert entry.stability.rated == tuple(found) and len(found) >= 2
    assert entry.axes["stability"].value == pytest.approx(sum(found.values()) / len(found), **EXACT)


def share(found: dict[str, np.ndarray], split: str, failed: bool) -> float:
    floor = HARD_FLOOR if split == "hard" else FLOOR
    before = float(u_of(found[f"start/{split}"].mean(), floor))
    after = min(0.0, before) if failed else float(u_of(found[f"end/{split}"].mean(), floor))
    return (after - before) / max(1 - before, 0.2)


def forgotten(found: dict[str, np.ndarray], task: str, seed: int, failed: bool) -> float:
    total = 0.0
    for member, floor in RETAIN.items():
        before = (found[f"start/retain/{member}"][0] - floor) / (1 - floor)
        if failed:
            total += max(0.0, float(before.mean()))
            continue
        change = before - (found[f"end/retain/{member}"][0] - floor) / (1 - floor)
        stream = derive(ROOT_SEED, "swap", task, seed, len(change))
        coins = np.random.Generator(np.random.PCG64(stream)).integers(0, 2, (200, len(change)))
        expected = np.mean([abs(np.mean((2 * row - 1) * change)) for row in coins]) / 2
        total += max(0.0, float(change.mean())) - expected
    return total / len(RETAIN)


def test_generalization(folder: Path, board: Board):
    (entry,) = board.entries
    by_task = []
    for task in TASKS:
        values = []
        for found, at, seed in runs(folder, task):
            bad = at is not None
            transfer = np.mean([share(found, f"transfer/{o}", bad) for o in TASKS if o != task])
            parts = [share(found, split, bad) for split in ("id", "hard", "format")]
            values.append((sum(parts) + transfer) / 4 - forgotten(found, task, seed, bad))
        by_task.append(sum(values) / 5)
    assert entry.axes["generalization"].value == pytest.approx(sum(by_task) / 4, **EXACT)
    audited = vectors(folder, "addition", 0)
    gap = float(audited["end/id"].mean() - audited["end/id_audit"].mean()) / (1 - FLOOR)
    assert entry.generalization.runs["addition"][0].audit_gap == pytest.approx(gap, **EXACT)


def test_the_placebo_arm(folder: Path, board: Board):
    (entry,) = board.entries
    per_task = [[lam(vectors(folder, t, i, "placebo")) for i in range(3)] for t in TASKS]
    expected = sum(iqm(values) for values in per_task) / 4
    assert entry.placebo.lam.value == pytest.approx(expected, **EXACT)
    net = entry.axes["efficiency"].value - expected
    assert entry.placebo.net.value == pytest.approx(net, **EXACT)
    assert entry.placebo.elicitation == (expected > entry.axes["efficiency"].value / 4)


def test_an_interval(folder: Path, board: Board):
    """The interval of Λ once more, with the draws that the bootstrap names."""
    (entry,) = board.entries
    root, count = board.bootstrap["seed"], board.bootstrap["replicates"]
    both, seeds, items = [], [], []
    for task in TASKS:
        index = np.random.Generator(np.random.PCG64(derive(root, task, "seeds", 5))).integers(
            0, 5, size=(count, 5)
        )
        drawn = np.random.Generator(np.random.PCG64(derive(root, task, "items", 64))).integers(
            0, 64, size=(count, 64)
        )
        rows = []
        for found, at, _ in runs(folder, task):
            measured = curve(found, at)
            weights = np.array([0.5, *[1.0] * 19, 0.5])[: len(measured)] / 20
            head = u_of(found["start/id"].mean(axis=0))
            rows.append((weights @ measured - head, head))
        under = np.array(
            [
                [learned[i].mean() / max(1 - head[i].mean(), 0.2) for learned, head in rows]
                for i in drawn
            ]
        )
        plain = [lam(found, at) for found, at, _ in runs(folder, task)]
        both.append([iqm(list(under[r, index[r]])) for r in range(count)])
        seeds.append([iqm([plain[i] for i in index[r]]) for r in range(count)])
        items.append([iqm(list(row)) for row in under])
    both, seeds, items = (np.mean(x, axis=0) for x in (both, seeds, items))
    value = entry.axes["efficiency"].value
    noise = max(0.0, both.var() - seeds.var() - items.var())
    kept = (seeds.var() + max(0.0, items.var() - noise)) / both.var()
    moved = value + math.sqrt(min(1.0, kept)) * (both - value)
    # Student's t with 16 degrees of freedom at 97.5 %: 2.1199; the normal tail beyond it.
    tail = 0.5 * math.erfc(2.1199052992210112 * math.sqrt(5 / 4) / math.sqrt(2))
    low, high = np.quantile(moved, [tail, 1 - tail])
    found = entry.axes["efficiency"].interval
    # Items are weighed in single precision.
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
