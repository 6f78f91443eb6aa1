"""Rows of designs on a board of protocol CRL-2: their numbers by plain NumPy from the stored
vectors, what they rank by, and what another entry leaves as it is."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from crlbench.pages import design_words as say
from crlbench.seeding import derive
from crlbench.stats.nulls import ROOT_SEED
from crlbench.stats.variance_components import components_of_designs
from crlbench.verdict.axes import AXES
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.design_ranking import AxisDesigns, draw_lines, rank_designs
from crlbench.verdict.design_rows import design_rows, group_entries
from crlbench.verdict.load import load_runs
from tests.support.designs import (
    ALONE,
    CROSSED,
    DESIGNS,
    INDEPENDENT,
    entry_of,
    write_designs,
)
from tests.support.simulate import RETAIN, TASKS, Plan, write_board

FLOOR, HARD_FLOOR = 0.03, 0.01
EXACT = {"rel": 1e-12, "abs": 1e-12}
REPLICATES = 200
LEARNED = ("efficiency", "generalization")
"""Axes that need no stress arm."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_designs(tmp_path_factory.mktemp("designs"))


@pytest.fixture(scope="module")
def board(folder: Path) -> Board:
    return summarise_board(load_runs(folder), REPLICATES)


@pytest.fixture(scope="module")
def three_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two designs with three independent pretrainings each, all of them stressed."""
    designs = {f"design-{n}": (1.2 + 0.8 * n, INDEPENDENT) for n in range(2)}
    return write_designs(tmp_path_factory.mktemp("three"), designs, stressed=True)


@pytest.fixture(scope="module")
def three(three_folder: Path) -> Board:
    return summarise_board(load_runs(three_folder), REPLICATES)


def designs_of(board: Board, axis: str) -> AxisDesigns:
    found = board.rankings["ppo"][axis].designs
    assert found is not None
    return found


# -- the stored vectors, once more ----------------------------------------------------------------


def cells(folder: Path, entry: str, task: str, arm: str = "real") -> list[dict[str, np.ndarray]]:
    """The vectors of every seed of an entry on a task."""
    paths = sorted((folder / entry / task / arm).glob("seed-*/items.npz"))
    found = []
    for path in paths:
        with np.load(path) as archive:
            found.append({name: archive[name].astype(float) for name in archive.files})
    return found


def u(score: Any, floor: float = FLOOR) -> Any:
    return (score - floor) / (1 - floor)


def points(found: dict[str, np.ndarray]) -> np.ndarray:
    """The curve in u, item by item."""
    xs = sorted(int(n.split("/")[1]) for n in found if n.startswith("curve/"))
    return np.stack([u(found[f"curve/{x}"]) for x in xs])


def lams(seeds: list[dict[str, np.ndarray]]) -> list[float]:
    """Λ_new of every seed of a task."""
    new = seeds[0]["start/id_greedy"][0] == 0
    values = []
    for found in seeds:
        rows = points(found)[:, new].mean(axis=1)
        area = (rows[1:] + rows[:-1]).sum() / 2 / (len(rows) - 1)
        head = float(u(found["start/id"][:, new]).mean())
        values.append((area - head) / max(1 - head, 0.2))
    return values


def trimmed(values: list[float]) -> float:
    cut = len(values) // 4
    return float(np.mean(sorted(values)[cut : len(values) - cut]))


def share(found: dict[str, np.ndarray], split: str) -> float:
    floor = HARD_FLOOR if split == "hard" else FLOOR
    before = float(u(found[f"start/{split}"].mean(), floor))
    return (float(u(found[f"end/{split}"].mean(), floor)) - before) / max(1 - before, 0.2)


def forgotten(found: dict[str, np.ndarray], task: str, seed: int) -> float:
    total = 0.0
    for member, floor in RETAIN.items():
        before, after = (found[f"{end}/retain/{member}"][0] for end in ("start", "end"))
        change = (before - after) / (1 - floor)
        stream = derive(ROOT_SEED, "swap", task, seed, len(change))
        coins = np.random.Generator(np.random.PCG64(stream)).integers(0, 2, (200, len(change)))
        expected = np.mean([abs(np.mean((2 * row - 1) * change)) for row in coins]) / 2
        total += max(0.0, float(change.mean())) - expected
    return total / len(RETAIN)


def gen(seeds: list[dict[str, np.ndarray]], task: str) -> float:
    values = []
    for seed, found in enumerate(seeds):
        transfer = np.mean([share(found, f"transfer/{o}") for o in TASKS if o != task])
        parts = (share(found, "hard"), share(found, "format"), transfer)
        values.append(np.mean(parts) - forgotten(found, task, seed))
    return float(np.mean(values))


def drop(curve: np.ndarray) -> float:
    smooth = [np.mean(curve[max(0, j - 1) : j + 2]) for j in range(len(curve))]
    return max(max(smooth[: j + 1]) - smooth[j] for j in range(len(curve)))


def pooled(y: np.ndarray) -> np.ndarray:
    """Pooling adjacent violators."""
    pools: list[list[float]] = []
    for value in y:
        pools.append([float(value), 1])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, m), (b, n) = pools[-2], pools[-1]
            pools[-2:] = [[(a * m + b * n) / (m + n), m + n]]
    return np.concatenate([np.full(int(n), value) for value, n in pools])


def expected_drop(items: np.ndarray, key: str, seed: int) -> float:
    count_points, count = items.shape
    steps = [np.var(items[j + 1] - items[j], ddof=1) / (2 * count) for j in range(count_points - 1)]
    near = [
        [steps[p] for p in range(max(0, j - 3), min(count_points - 1, j + 3))]
        for j in range(count_points)
    ]
    noise = np.sqrt([np.mean(row) for row in near])
    stream = derive(ROOT_SEED, "curve", key, seed, count_points)
    draws = np.random.Generator(np.random.PCG64(stream)).standard_normal((2, 200, count_points))
    drawn = pooled(items.mean(axis=1)) + noise * draws[0]
    redrawn = np.array([pooled(row) for row in drawn]) + noise * draws[1]
    return float(2 * np.mean([drop(c) for c in drawn]) - np.mean([drop(c) for c in redrawn]))


def shares(seeds: list[dict[str, np.ndarray]], key: str) -> np.ndarray:
    """Dispersion, drawdown and failure of one arm without a failed run."""
    ends, peaks, drops = [], [], []
    for seed, found in enumerate(seeds):
        items = points(found)
        curve = items.mean(axis=1)
        head = float(u(found["start/id"].mean()))
        ends.append(float(curve[-3:].mean()))
        peaks.append(max(np.mean(curve[max(0, j - 1) : j + 2]) for j in range(len(curve))) - head)
        drops.append(max(0.0, drop(curve) - expected_drop(items, key, seed)))
    gaps = [abs(a - b) for a, b in combinations(ends, 2)]
    kept = [1 - min(1, d / max(g, 0.1)) for d, g in zip(drops, peaks, strict=True)]
    return np.array([1 - min(1, np.mean(gaps) / max(np.mean(peaks), 0.1)), np.mean(kept), 1.0])


def stab(folder: Path, entry: str, task: str) -> float:
    calm = shares(cells(folder, entry, task), task)
    stress = shares(cells(folder, entry, task, "stress"), f"{task}/stress")
    return float(((calm + stress) / 2).prod() ** (1 / 3))


def folders(folder: Path, model: str) -> list[str]:
    """The entries of a design."""
    return [f"{path.name}/ppo" for path in sorted(folder.glob(f"{model}@*"))]


# -- rows -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_row_is_a_design_with_its_checkpoints(board: Board) -> None:
    for axis in LEARNED:
        rows = {row.name: row for row in designs_of(board, axis).rows}
        assert set(rows) == {f"{model}/ppo" for model in DESIGNS}
        for model, (_, labels) in DESIGNS.items():
            row = rows[f"{model}/ppo"]
            assert tuple(one.label for one in row.checkpoints) == labels
            assert row.counted == len(labels) and all(one.counts for one in row.checkpoints)
            for one in row.checkpoints:
                entry = board.entry(one.entry)
                assert one.value == entry.axes[axis].value
                tasks = len(entry.axes[axis].by_task)
                assert one.runs == tasks * (5 if one.label == "i0o0" else 3)


@pytest.mark.slow
def test_the_value_of_a_design_follows_from_the_vectors(folder: Path, board: Board) -> None:
    for model in DESIGNS:
        entries = folders(folder, model)
        lam = np.mean(
            [np.mean([trimmed(lams(cells(folder, e, t))) for t in TASKS]) for e in entries]
        )
        row = designs_of(board, "efficiency").row(f"{model}/ppo")
        assert row.score.value == pytest.approx(float(lam), **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["design-0", pytest.param("design-1", marks=pytest.mark.full)]
)
def test_all_three_axes_follow_from_the_vectors(
    three_folder: Path, three: Board, model: str
) -> None:
    entries = folders(three_folder, model)
    read = {e: {t: cells(three_folder, e, t) for t in TASKS} for e in entries}
    lam = [np.mean([trimmed(lams(read[e][t])) for t in TASKS]) for e in entries]
    row = designs_of(three, "efficiency").row(f"{model}/ppo")
    assert row.score.value == pytest.approx(float(np.mean(lam)), **EXACT)
    row = designs_of(three, "generalization").row(f"{model}/ppo")
    assert row.counted == 3
    expected = np.mean([np.mean([gen(read[e][t], t) for t in TASKS]) for e in entries])
    assert row.score.value == pytest.approx(float(expected), **EXACT)
    values = []
    for name in entries:
        rated = three.entry(name).stability.rated
        assert rated
        values.append(np.mean([stab(three_folder, name, task) for task in rated]))
    row = designs_of(three, "stability").row(f"{model}/ppo")
    assert row.counted == 3
    assert row.score.value == pytest.approx(float(np.mean(values)), **EXACT)


@pytest.mark.slow
def test_stability_counts_checkpoints_with_a_stress_arm(board: Board) -> None:
    designs = designs_of(board, "stability")
    assert designs.kind == "checkpoints" and all(row.counted == 1 for row in designs.rows)
    assert len(board.rankings["ppo"]["stability"].ranking.standings) == len(DESIGNS)
    first, *others = designs.row("tiny-llama/ppo").checkpoints
    assert first.counts and not any(one.counts for one in others)
    assert all(one.why for one in others)


@pytest.mark.slow
def test_one_checkpoint_says_so_and_ranks_beside_no_design(board: Board) -> None:
    for axis in LEARNED:
        designs = designs_of(board, axis)
        row = designs.row(f"{ALONE}/ppo")
        assert row.alone and row.about == "one checkpoint (i0o0)"
        assert row.score == board.entry(row.checkpoints[0].entry).axes[axis]
        ranking = board.rankings["ppo"][axis]
        assert designs.kind == "designs" and ranking.ranking.standing(row.name) is None
        assert row.name in ranking.left_out
        assert all(row.name not in (pair.first, pair.second) for pair in designs.pairs)


@pytest.mark.slow
def test_the_interval_is_students_over_checkpoints_and_items(three: Board) -> None:
    for row in designs_of(three, "efficiency").rows:
        scores = [three.entry(one.entry).axes["efficiency"] for one in row.checkpoints]
        values = np.array([score.value for score in scores])
        between = values.var(ddof=1) / 3
        items = np.mean([score.spread[2] for score in scores], axis=0).var()
        # Checkpoints and items each with a quantile of their own (Banerjee 1960).
        quantiles = student.ppf(0.975, 2), norm.ppf(0.975)
        half = math.sqrt(quantiles[0] ** 2 * between + quantiles[1] ** 2 * items)
        found = row.score.interval
        expected = (values.mean() - half, values.mean() + half)
        assert (found.low, found.high) == pytest.approx(expected, rel=1e-6)
        assert row.score.wider.low <= found.low and row.score.wider.high >= found.high


@pytest.mark.slow
def test_three_by_two_of_four_designs_have_intervals_and_tiers(board: Board) -> None:
    designs = designs_of(board, "efficiency")
    assert {row.about for row in designs.rows if not row.alone} == {"the design"}
    assert all(row.score.interval is not None for row in designs.rows)
    standings = board.rankings["ppo"]["efficiency"].ranking.standings
    assert [s.estimate for s in standings] == sorted((s.estimate for s in standings), reverse=True)
    assert standings[0].model == "tiny-llama/ppo" and standings[0].tier == 1
    # Every checkpoint of a design stands where its design does.
    ranking = board.rankings["ppo"]["efficiency"].ranking
    for one in designs.row("tiny-llama/ppo").checkpoints:
        assert ranking.standing(one.entry) == standings[0]


@pytest.mark.slow
def test_crossed_checkpoints_of_few_designs_have_no_interval(tmp_path: Path) -> None:
    two = {model: DESIGNS[model] for model in list(DESIGNS)[:2]}
    board = summarise_board(load_runs(write_designs(tmp_path, two)), 50)
    designs = designs_of(board, "efficiency")
    for row in designs.rows:
        assert row.score.value is not None and row.score.interval is None
        assert "designs" in row.score.silence
    (pair,) = designs.pairs
    assert pair.call is None and pair.reason
    (first, second) = board.rankings["ppo"]["efficiency"].ranking.standings
    assert first.tier == second.tier == 1 and second.uncompared == (first.model,)


@pytest.mark.slow
def test_another_design_moves_no_number_of_the_others(
    folder: Path, board: Board, tmp_path: Path
) -> None:
    fewer = {model: of for model, of in DESIGNS.items() if model != "tiny-qwen2"}
    less = summarise_board(load_runs(write_designs(tmp_path, fewer)), REPLICATES)
    for entry in less.entries:
        assert entry.summary() == board.entry(entry.name).summary()
        assert {a: s.value for a, s in entry.axes.items()} == {
            a: s.value for a, s in board.entry(entry.name).axes.items()
        }
    for axis in AXES:
        for row in designs_of(less, axis).rows:
            same = designs_of(board, axis).row(row.name)
            assert (row.score.value, row.checkpoints) == (same.score.value, same.checkpoints)
            assert row.score.by_task == same.score.by_task


def test_the_line_is_that_of_benjamini_and_yekutieli(three: Board) -> None:
    shown = [pair for axis in AXES for pair in designs_of(three, axis).pairs]
    tests = []
    for pair in shown:
        if pair.error is None:
            continue
        for name, distance, sides in (
            ("differ", abs(pair.value), 2),
            ("equivalent", three.margin - abs(pair.value), 1),
        ):
            p = sides * student.sf(distance / pair.error, pair.df)
            tests.append((p, pair, name))
    tests.sort(key=lambda test: test[0])
    m = len(tests)
    harmonic = sum(1 / k for k in range(1, m + 1))
    best = 1.0
    rates: dict[tuple[int, str], float] = {}
    for place in range(m, 0, -1):
        p, pair, name = tests[place - 1]
        best = min(best, p * m * harmonic / place)
        rates[id(pair), name] = best
    line = designs_of(three, "efficiency").line
    assert line.tests == m and all(designs_of(three, axis).line == line for axis in AXES)
    called = [pair for pair in shown if pair.call not in (None, "undecided")]
    assert called
    for pair in called:
        kind = "equivalent" if pair.call == "equivalent" else "differ"
        assert pair.q == pytest.approx(rates[id(pair), kind], rel=1e-9)
        assert pair.stays == (pair.q <= 0.05)
    assert line.differ_stay + line.equivalent_stay == sum(pair.stays for pair in called)


@pytest.mark.slow
def test_components_are_those_of_the_table_of_runs(folder: Path, board: Board) -> None:
    models = [model for model in DESIGNS if model != ALONE]
    table = []
    for model in models:
        by_label = {
            one.label: one.entry
            for one in designs_of(board, "efficiency").row(f"{model}/ppo").checkpoints
        }
        table.append([[lams(cells(folder, by_label[c], t))[:3] for t in TASKS] for c in CROSSED])
    pairs = [(int(label[1]), int(label[3])) for label in CROSSED]
    expected = components_of_designs(np.array(table), *zip(*pairs, strict=True))
    spread = designs_of(board, "efficiency").spread
    assert (spread.designs, spread.checkpoints, spread.tasks, spread.seeds) == (4, 24, 4, 3)
    for part in spread.parts:
        assert part.sd == pytest.approx(expected[part.term].spread, rel=1e-6, abs=1e-9)
    variance = {part.term: part.sd**2 for part in spread.parts}
    mine = sum(
        variance[term] for term in variance if term.startswith("design:") and "task" not in term
    )
    assert spread.share == pytest.approx(mine / (mine + variance["design"]), rel=1e-9)
    assert spread.share_low <= spread.share <= spread.share_high


@pytest.mark.slow
def test_the_axes_are_correlated_over_rows(board: Board) -> None:
    """The design of one checkpoint is no row of the others."""
    assert {pair.n for pair in board.correlations["ppo"]} == {len(DESIGNS) - 1}


def test_boards_of_the_first_protocol_have_no_rows_of_designs(tmp_path: Path) -> None:
    plan = Plan(items=16, seeds=2)
    board = summarise_board(load_runs(write_board(tmp_path, plan)), 50)
    assert all(found.designs is None for found in board.rankings["ppo"].values())
    found = json.loads(board.to_json())
    assert not {"checkpoint", "is_whole"} & set(found["entries"][0])
    named = found["rankings"]["ppo"]["efficiency"]
    assert set(named) == {"axis", "recipe", "ranking", "left_out", "survival"}
    assert "members" not in named["ranking"]


# -- tiers over random boards ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))]
)
def test_no_pair_is_in_two_tiers_and_equivalent(seed: int) -> None:
    draw = np.random.Generator(np.random.PCG64(seed))
    items = draw.normal(0, 0.004, 50)
    levels = draw.choice([0.0, 0.02, 0.06, 0.2], size=5).cumsum()
    entries = [
        entry_of(f"model-{d}", label, level + draw.normal(0, 0.03, 4) * draw.random(), items)
        for d, level in enumerate(levels)
        for label in CROSSED
    ]
    found = rank_designs("efficiency", entries, None)
    (designs,) = draw_lines([found.designs])
    tier = {s.model: s.tier for s in found.ranking.standings}
    assert len(tier) == 5
    estimates = [s.estimate for s in found.ranking.standings]
    assert estimates == sorted(estimates, reverse=True)
    for pair in designs.pairs:
        if pair.call == "equivalent":
            assert tier[pair.first] == tier[pair.second]
    for standing in found.ranking.standings:
        for other in standing.worse:
            pair = next(p for p in designs.pairs if {p.first, p.second} == {standing.model, other})
            assert abs(pair.value) > 0.05 and pair.call in ("better", "worse")


# -- entries that come later ----------------------------------------------------------------------

NO_ITEMS = np.zeros(50)


def pretrained(model: str, label: str, tasks: int = 4, **details: Any) -> Any:
    shift = 0.02 * int(label[1])
    return entry_of(model, label, np.linspace(0.2, 0.5, tasks) + shift, NO_ITEMS, **details)


@pytest.mark.parametrize(
    ("later", "label"),
    [({}, "i0o0"), ({"is_whole": False}, "i0o0"), ({"began": None}, "i0o0"), ({}, "i00o0")],
    ids=["whole", "not whole", "of no time", "numbered with a zero before"],
)
def test_a_second_entry_of_a_checkpoint_displaces_none(later: dict[str, Any], label: str) -> None:
    entries = [pretrained("a", one, began=100.0) for one in INDEPENDENT]
    entries += [pretrained("b", one, began=100.0) for one in INDEPENDENT]
    details = {"began": 200.0, "revision": "00000000"} | later
    second = entry_of("a", label, np.full(4, 0.9), NO_ITEMS, **details)
    assert second.name < entries[0].name
    before = design_rows("efficiency", group_entries(entries))
    after = {row.name: row for row in design_rows("efficiency", group_entries([*entries, second]))}
    for row in before:
        assert after[row.name].score.value == row.score.value
        assert after[row.name].score.interval == row.score.interval
        assert after[row.name].checkpoints == row.checkpoints
    assert after[second.name].alone


def test_an_entry_that_counts_takes_the_place_of_one_that_does_not() -> None:
    entries = [pretrained("a", one, began=100.0, is_whole=one != "i0o0") for one in INDEPENDENT]
    again = pretrained("a", "i0o0", began=200.0, revision="00000000")
    (row, other) = design_rows("efficiency", group_entries([*entries, again]))
    assert row.counted == 3 and row.checkpoints[0].entry == again.name
    assert other.name == entries[0].name and other.alone


def test_a_design_on_other_tasks_leaves_independent_checkpoints_their_intervals() -> None:
    entries = [pretrained(model, one) for model in "ab" for one in INDEPENDENT]
    fewer = [pretrained("c", one, tasks=3) for one in INDEPENDENT]
    before = design_rows("efficiency", group_entries(entries))
    after = design_rows("efficiency", group_entries([*entries, *fewer]))
    assert all(row.score.wider is not None for row in before)
    assert [row.score for row in after[:2]] == [row.score for row in before]
    assert after[2].score.interval is not None and after[2].score.wider is None


def test_a_crossed_design_on_other_tasks_leaves_the_others_an_interval_over_tasks() -> None:
    entries = [pretrained(model, one) for model in "abcd" for one in CROSSED]
    fewer = [pretrained("e", one, tasks=3) for one in CROSSED]
    alone = design_rows("efficiency", group_entries(entries))
    beside = design_rows("efficiency", group_entries([*entries, *fewer]))
    assert all(row.score.wider is not None for row in alone)
    assert all(row.score.wider is not None for row in beside[:4])
    assert beside[4].score.interval is not None and beside[4].score.wider is None


@pytest.mark.parametrize("label", ["i2o0", "i0o2", "i1o0"])
def test_a_checkpoint_that_comes_later_and_fits_none_displaces_none(label: str) -> None:
    entries = [pretrained(model, one, began=100.0) for model in "ab" for one in INDEPENDENT]
    later = pretrained("b", label, began=200.0)
    before = design_rows("efficiency", group_entries(entries))
    after = design_rows("efficiency", group_entries([*entries, later]))
    assert [row.score for row in after] == [row.score for row in before]
    (left_out,) = [one for one in after[1].checkpoints if not one.counts]
    assert left_out.label == label and "nor does it complete a crossing" in left_out.why


def level(model: str, labels: tuple[str, ...], value: float, spread: float = 0.002) -> list[Any]:
    tasks = value + np.array([0.01, -0.01, 0.005, -0.005])
    return [entry_of(model, one, tasks + spread * n, NO_ITEMS) for n, one in enumerate(labels)]


@pytest.mark.slow
@pytest.mark.full
def test_a_row_that_cannot_be_compared_takes_no_tier_from_the_others() -> None:
    sound = [e for d in range(4) for e in level(f"model-{d}", INDEPENDENT, 0.9 - 0.2 * d)]
    alone = rank_designs("efficiency", sound, None).ranking
    assert [one.tier for one in alone.standings] == [1, 2, 3, 4]
    crossed = level("model-9", ("i0o0", "i0o1", "i1o0", "i1o1"), 0.05)
    beside = rank_designs("efficiency", [*sound, *crossed], None)
    assert [one.tier for one in beside.ranking.standings] == [1, 2, 3, 4]
    assert beside.left_out == ("model-9/ppo",)
    assert all("model-9/ppo" not in (pair.first, pair.second) for pair in beside.designs.pairs)
    remarks = [*say.silences(beside.designs)]
    assert len(remarks) == 1 and "known from 4 designs with the same crossing on" in remarks[0]


def test_further_checkpoints_of_few_rows_take_no_rank_from_the_others(tmp_path: Path) -> None:
    """Half of the rows are no most: each row is ranked by the checkpoint with the control arms."""
    slopes = {"tiny-llama": 2.4, "tiny-qwen2": 1.6, "tiny-mistral": 1.0, "tiny-phi": 0.6}
    single = {name: (slope, ("i0o0",)) for name, slope in slopes.items()}
    few = single | {n: (slopes[n], INDEPENDENT) for n in ("tiny-llama", "tiny-phi")}
    boards = [
        summarise_board(load_runs(write_designs(tmp_path / str(n), designs)), REPLICATES)
        for n, designs in enumerate((single, few))
    ]
    for axis in AXES:
        before, after = (board.rankings["ppo"][axis] for board in boards)
        assert after.ranking.standings == before.ranking.standings
        assert after.designs.kind == "checkpoints"
    row = boards[1].rankings["ppo"]["efficiency"].designs.row("tiny-llama/ppo")
    assert [one.label for one in row.checkpoints if one.counts] == ["i0o0"]
    assert row.checkpoints[1].why == (
        "i0o0 stands for the design, since most others have one."
    )


def test_the_designs_that_a_track_names_decide_what_is_ranked() -> None:
    named = [e for d in range(2) for e in level(f"model-{d}", INDEPENDENT, 0.9 - 0.2 * d)]
    others = [e for d in range(5) for e in level(f"other-{d}", ("i0o0",), 0.1)]
    declared = ("model-0", "model-1", "model-2")
    found = rank_designs("efficiency", [*named, *others], None, declared)
    assert found.designs.kind == "designs"
    assert [one.model for one in found.ranking.standings] == ["model-0/ppo", "model-1/ppo"]


@pytest.mark.parametrize(("spread", "ranks"), [(0.001, (1, 1)), (0.3, (1, 2))])
def test_ranks_over_other_tasks_are_of_designs(spread: float, ranks: tuple[int, int]) -> None:
    """The designs differ alike on every task; whether their checkpoints do decides."""
    entries = level("model-0", INDEPENDENT, 0.5, spread) + level("model-1", INDEPENDENT, 0.1)
    found = rank_designs("efficiency", entries, None).designs.task_ranks
    assert found is not None and found.ranks["model-0/ppo"] == ranks
