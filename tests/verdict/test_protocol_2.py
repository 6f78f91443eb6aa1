"""A board of protocol CRL-2: its numbers by plain NumPy from the stored vectors, what it ranks by,
and what its entries need."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest

from crlbench.algo.step import TrustRegion
from crlbench.contract.arms import TRUST_REGION
from crlbench.disk.names import EPISODES
from crlbench.errors import ValidationError
from crlbench.pages.board_table import placebo_sentence
from crlbench.verdict.board import Board, Entry, summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.pairs import paired_axes
from crlbench.verdict.task_summary import task_replicates
from crlbench.verdict.transfers import transfer_replicates
from tests.support.simulate import TASKS, Plan, replace_items, rewrite, write_board

ITEMS, FLOOR, HARD_FLOOR = 256, 0.03, 0.01
B = 40 * 256
ENTRY = Plan(
    items=ITEMS, placebo=3, mode=3, stress=3, protocol="CRL-2", pass_draws=32, track_version=1
)
SLOW = replace(ENTRY, model="tiny-qwen2", display_name="Tiny Qwen2", slope=0.6)
FAILED = ("counting", 1, 22)
WEAK = replace(ENTRY, model="b", display_name="B", slope=0.9, stress_failed=(FAILED,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_board(tmp_path_factory.mktemp("crl2"), ENTRY, SLOW, WEAK)


@pytest.fixture(scope="module")
def board(folder: Path) -> Board:
    return summarise_board(load_runs(folder), replicates=300)


@pytest.fixture(scope="module")
def entry(board: Board) -> Entry:
    return board.entry("tiny-llama/ppo")


def vectors(
    folder: Path, task: str, seed: int, arm: str = "real", model: str = "tiny-llama"
) -> dict[str, np.ndarray]:
    path = next(folder.rglob(f"{model}@00000000/ppo/{task}/{arm}/seed-{seed:02d}/items.npz"))
    with np.load(path) as archive:
        return {name: archive[name].astype(float) for name in archive.files}


def u(score: np.ndarray, floor: float = FLOOR) -> np.ndarray:
    return (score - floor) / (1 - floor)


def points(found: dict[str, np.ndarray]) -> np.ndarray:
    """(21, N) the curve in u, item by item."""
    xs = sorted(int(n.split("/")[1]) for n in found if n.startswith("curve/"))
    return np.stack([u(found[f"curve/{x}"]) for x in xs])


def trimmed(values: list[float]) -> float:
    cut = len(values) // 4
    return float(np.mean(sorted(values)[cut : len(values) - cut]))


def lam_of(found: dict[str, np.ndarray], items: np.ndarray) -> float:
    rows = points(found)[:, items].mean(axis=1)
    area = sum((a + b) / 2 for a, b in zip(rows, rows[1:], strict=False)) / (len(rows) - 1)
    head = float(u(found["start/id"][:, items]).mean())
    return (area - head) / max(1 - head, 0.2)


def new_items(folder: Path, task: str) -> np.ndarray:
    return vectors(folder, task, 0)["start/id_greedy"][0] == 0


@pytest.mark.slow
def test_lam_new_ranks(folder: Path, entry: Entry) -> None:
    by_task = {
        task: trimmed(
            [lam_of(vectors(folder, task, i), new_items(folder, task)) for i in range(5)]
        )
        for task in TASKS
    }
    score = entry.axes["efficiency"]
    assert {t: e.value for t, e in score.by_task.items()} == pytest.approx(by_task, rel=1e-12)
    assert score.value == pytest.approx(np.mean(list(by_task.values())), rel=1e-12)
    assert score.value == pytest.approx(entry.novelty.lam_new, rel=1e-12)
    assert score.interval.low < score.value < score.interval.high
    assert entry.standing == "provisional"


def test_lam_over_all_items_stands_beside_it(folder: Path, entry: Entry) -> None:
    every = np.ones(ITEMS, dtype=bool)
    by_task = [trimmed([lam_of(vectors(folder, t, i), every) for i in range(5)]) for t in TASKS]
    assert entry.lam.value == pytest.approx(np.mean(by_task), rel=1e-12)
    assert entry.novelty.lam == entry.lam
    assert entry.lam.value != pytest.approx(entry.axes["efficiency"].value, abs=1e-3)


def test_the_parts_of_l_add_up(folder: Path, entry: Entry) -> None:
    known = new = 0.0
    for task in TASKS:
        is_new = new_items(folder, task)
        for i in range(5):
            found = vectors(folder, task, i)
            rows = points(found)
            area = (rows[1:] + rows[:-1]).sum(axis=0) / 2 / (len(rows) - 1)
            learned = area - u(found["start/id"]).mean(axis=0)
            known += learned[~is_new].sum() / ITEMS / 20
            new += learned[is_new].sum() / ITEMS / 20
    novelty = entry.novelty
    assert (novelty.known, novelty.new) == pytest.approx((known, new), rel=1e-10)
    assert novelty.known + novelty.new == pytest.approx(entry.efficiency.L, abs=1e-12)
    assert entry.efficiency.E == pytest.approx(entry.efficiency.H + known + new, abs=1e-12)
    assert novelty.known_share == pytest.approx(known / (known + new), rel=1e-10)


def test_the_strict_set_leaves_second_choices_out(folder: Path, entry: Entry) -> None:
    shares, lams = [], []
    for task in TASKS:
        is_new = new_items(folder, task)
        right = vectors(folder, task, 0)["start/id_pass"].sum(axis=0)
        shares.append(float((is_new & (right >= 2)).mean()))
        strict = is_new & (right < 2)
        assert entry.novelty.tasks[task].strict_items == strict.sum()
        if strict.sum() >= 64:
            lams.append(trimmed([lam_of(vectors(folder, task, i), strict) for i in range(5)]))
            assert entry.novelty.tasks[task].lam_strict == pytest.approx(lams[-1], rel=1e-12)
    assert entry.novelty.second_share == pytest.approx(np.mean(shares), rel=1e-12)


def test_pass_at_k_is_the_closed_form(folder: Path, entry: Entry) -> None:
    for task in TASKS:
        for found in entry.novelty.passes[task]:
            name = f"{found.split}_pass"
            start = vectors(folder, task, 0)[f"start/{name}"].sum(axis=0)
            ends = [vectors(folder, task, i)[f"end/{name}"].sum(axis=0) for i in range(5)]
            for k in (1, 4, 8, 32):
                def chance(counts: np.ndarray, k: int = k) -> float:
                    return float(
                        np.mean([1 - comb(32 - int(c), k) / comb(32, k) for c in counts])
                    )

                assert found.start[k] == pytest.approx(chance(start), rel=1e-12)
                assert found.end[k] == pytest.approx(np.mean([*map(chance, ends)]), rel=1e-12)
    assert {f.split for f in entry.novelty.passes["addition"]} == {"id", "hard"}


def test_a_failed_run_has_no_right_answer_at_its_end(tmp_path: Path) -> None:
    """As L counts it: a mean over those that survive would rise with every failure."""
    plan = replace(ENTRY, failed=(("addition", 1, 22), ("addition", 3, 10)), tasks=TASKS[:2])
    folder = write_board(tmp_path, plan)
    (found,) = summarise_board(load_runs(folder), 50).entries
    for part in found.novelty.passes["addition"]:
        whole = [vectors(folder, "addition", i) for i in range(5)]
        name = f"end/{part.split}_pass"
        ends = [one[name] for one in whole if name in one]
        assert len(ends) == 3  # of those that survived
        for k in (1, 32):
            solved = [1 - comb(32 - int(c), k) / comb(32, k) for e in ends for c in e.sum(axis=0)]
            assert part.end[k] == pytest.approx(sum(solved) / ITEMS / 5, rel=1e-12)
    everything = replace(plan, failed=tuple(("addition", i, 22) for i in range(5)))
    (found,) = summarise_board(load_runs(write_board(tmp_path / "all", everything)), 50).entries
    assert {k for part in found.novelty.passes["addition"] for k in part.end.values()} == {0.0}


def test_a_run_that_fails_early_learned_nothing_new(tmp_path: Path) -> None:
    """A start below the floor is worth no more once its run failed: Λ_new and L_new agree, and the
    parts still add up."""
    plan = replace(ENTRY, tasks=TASKS[:2], failed=tuple(("addition", i, 1) for i in range(5)))
    folder = write_board(tmp_path, plan)
    for cell in folder.rglob("addition/*/seed-*"):
        found = dict(np.load(cell / "items.npz"))
        is_new = found["start/id_greedy"][0] == 0
        kept = {name: found[name] * ~is_new for name in ("start/id", "curve/0")}
        replace_items(cell, start__id=kept["start/id"], curve__0=kept["curve/0"])
        record = json.loads((cell / "record.json").read_text())
        record["splits"]["id"]["start"] = float(kept["start/id"].mean())
        record["curve"][0]["score"] = float(kept["curve/0"].mean())
        rewrite(cell, splits=record["splits"], curve=record["curve"])
    (entry,) = summarise_board(load_runs(folder), 50).entries
    part = entry.novelty.tasks["addition"]
    assert part.lam_new == pytest.approx(0, abs=0.01) and part.new == pytest.approx(0, abs=0.01)
    learned = entry.efficiency.tasks["addition"].L
    assert part.known + part.new == pytest.approx(learned, abs=1e-12)
    share = part.new_items / ITEMS
    seeds = [lam * (1 + FLOOR / (1 - FLOOR)) * share for lam in part.seeds]
    assert part.new == pytest.approx(np.mean(seeds), abs=1e-12)


def test_what_labels_taught_is_real_minus_mode_over_all_items(folder: Path, entry: Entry) -> None:
    every = np.ones(ITEMS, dtype=bool)
    real, mode = (
        np.mean([trimmed([lam_of(vectors(folder, t, i, a), every) for i in range(n)])
                 for t in TASKS])
        for a, n in (("real", 5), ("mode", 3))
    )
    assert entry.mode.lam.value == pytest.approx(mode, rel=1e-12)
    assert entry.mode.net.value == pytest.approx(real - mode, rel=1e-12)
    assert entry.mode.net.interval is not None


@pytest.mark.parametrize(("protocol", "rule"), [("CRL-1", "percentile"), ("CRL-2", "variance")])
def test_every_interval_is_of_its_protocol(
    tmp_path: Path, board: Board, protocol: str, rule: str
) -> None:
    if protocol == "CRL-1":
        board = summarise_board(load_runs(write_board(tmp_path, Plan(placebo=3))), replicates=50)
    (evidence, *_) = (entry.evidence for entry in board.entries if entry.arm == "real")
    for task in evidence.tasks:
        parts = [evidence.replicates(axis, task) for axis in ("efficiency", "generalization")]
        parts += [evidence.whole_replicates(task), *vars(task_replicates(evidence, task)).values()]
        assert {part.rule for part in parts} == {rule} and len(parts) == 6
        stability = evidence.replicates("stability", task)
        assert stability is None or stability.rule == "shares"
    transfers = transfer_replicates(board.entries[0]).values()
    assert {part.rule for part in transfers} == {rule}


def test_a_placebo_that_lost_is_shown_and_not_subtracted(folder: Path, board: Board) -> None:
    every = np.ones(ITEMS, dtype=bool)
    for found in board.entries:
        lam = np.mean(
            [
                trimmed([lam_of(vectors(folder, t, i, "placebo", found.model), every)
                         for i in range(3)])
                for t in TASKS
            ]
        )
        assert found.placebo.lam.value == pytest.approx(lam, rel=1e-12)
        assert (found.placebo.net.value is None) == (lam < 0)
        said = placebo_sentence(found.placebo)
        assert said.endswith(". The placebo's Λ is below 0, and a loss is not subtracted.") == (
            lam < 0
        )
        assert ("net Λ*" in said) == (lam >= 0)
    values = [found.placebo.lam.value for found in board.entries]
    assert min(values) < 0 < max(values)  # both cases stand on this board


def stability_by_hand(folder: Path, task: str, arm: str, n: int, model: str) -> list[list[float]]:
    """F, peak G and raw drawdown of every seed."""
    rows = []
    for i in range(n):
        found = vectors(folder, task, i, arm, model)
        curve = points(found).mean(axis=1)
        curve = np.concatenate([curve, np.zeros(21 - len(curve))])
        smooth = [curve[max(0, j - 1) : j + 2].mean() for j in range(21)]
        head = float(u(found["start/id"]).mean())
        rows.append([curve[-3:].mean(), max(smooth) - head])
    return rows


def test_stability_rests_on_both_arms(folder: Path, board: Board) -> None:
    weak = board.entry("b/ppo")
    task = weak.stability.tasks["counting"]
    assert (task.stress.runs, task.stress.failures) == (8, 1)
    assert task.stress.stress["failure"] == pytest.approx(2 / 3)
    assert task.stress.shares["failure"] == pytest.approx((1 + 2 / 3) / 2)
    assert set(task.shares) == {"dispersion", "drawdown", "failure"}
    for arm, n, found in (("real", 5, task.stress.calm), ("stress", 3, task.stress.stress)):
        rows = stability_by_hand(folder, "counting", arm, n, "b")
        gmd = np.mean([abs(a[0] - b[0]) for a, b in combinations(rows, 2)])
        peak = np.mean([row[1] for row in rows])
        expected = 1 - min(1, gmd / max(peak, 0.1))
        assert found["dispersion"] == pytest.approx(expected, rel=1e-9)
    value = np.prod([(task.stress.calm[p] + task.stress.stress[p]) / 2 for p in task.shares])
    assert task.value == pytest.approx(value ** (1 / 3), rel=1e-12)
    assert weak.axes["stability"].value == pytest.approx(
        np.mean([weak.stability.tasks[t].value for t in weak.stability.rated]), rel=1e-12
    )


def test_generalization_holds_no_id(folder: Path, entry: Entry) -> None:
    values = []
    for runs in entry.generalization.runs.values():
        for run in runs:
            parts = (run.hard, run.format, run.transfer)
            values.append(np.mean(parts) - run.forgetting.corrected)
            assert run.value == pytest.approx(values[-1], rel=1e-12)
    assert entry.axes["generalization"].value == pytest.approx(np.mean(values), rel=1e-12)


def test_all_three_axes_rank(board: Board) -> None:
    for axis, ranking in board.rankings["ppo"].items():
        assert ranking.ranking.reason is None, axis
        assert {s.model for s in ranking.ranking.standings} == {e.name for e in board.entries}
    assert board.rankings["ppo"]["generalization"].survival is not None
    improved = board.improvement["ppo"]
    assert len(improved.names) == 3
    assert [(c.first, c.second, c.n) for c in board.correlations["ppo"]] == [
        ("efficiency", "stability", 3),
        ("efficiency", "generalization", 3),
        ("stability", "generalization", 3),
    ]
    assert json.loads(board.to_json())["entries"][0]["mode"]["lam"]["value"] is not None


@pytest.mark.parametrize("arm", ["placebo", "mode"])
def test_a_rank_needs_three_seeds_of_each_control(tmp_path: Path, arm: str) -> None:
    plan = replace(ENTRY, items=128, **{arm: 2})
    (found,) = summarise_board(load_runs(write_board(tmp_path, plan)), 50).entries
    assert found.standing == "preview"
    (why,) = found.why
    assert why.startswith(f"A rank needs 3 seeds of the {arm} arm (")


@pytest.mark.parametrize("seeds", [0, 2])
def test_without_three_stress_runs_only_stab_lacks(tmp_path: Path, seeds: int) -> None:
    plan = replace(ENTRY, stress=seeds)
    (found,) = summarise_board(load_runs(write_board(tmp_path, plan)), 50).entries
    assert found.standing == "provisional"
    score = found.axes["stability"]
    assert score.value is None and "no three runs of the stress arm" in score.reason
    assert found.axes["efficiency"].value is not None


def test_shortened_stress_runs_are_no_part_of_stability(tmp_path: Path) -> None:
    folder = write_board(tmp_path, ENTRY)
    for cell in folder.rglob("counting/stress/seed-*"):
        status = json.loads((cell / "record.json").read_text())["status"]
        rewrite(cell, status=status | {"state": "partial"})
    (found,) = summarise_board(load_runs(folder), 50).entries
    assert found.stability.tasks["counting"].stress is None
    assert found.stability.tasks["addition"].stress is not None
    score = found.axes["stability"]
    assert score.value is None and "the stress arm on counting (--arm stress)" in score.reason


def test_a_recipe_without_a_stress_arm_is_not_told_to_run_it(tmp_path: Path) -> None:
    step = {"step": {"part": TRUST_REGION, "max_kl": 0.01}}
    plan = replace(ENTRY, stress=0, recipe="trpo", config=step)
    (found,) = summarise_board(load_runs(write_board(tmp_path, plan)), 50).entries
    reason = found.axes["stability"].reason
    assert "--arm" not in reason and "trust-region steps, whose size no learning rate" in reason
    assert TrustRegion.__name__ == TRUST_REGION


def test_few_new_items_are_saturated_and_do_not_rank(tmp_path: Path) -> None:
    plan = replace(ENTRY, items=64)
    (found,) = summarise_board(load_runs(write_board(tmp_path, plan)), 50).entries
    score = found.axes["efficiency"]
    assert score.value is None and score.reason.startswith("saturated: a task needs 64 new items")
    assert found.novelty.saturated == TASKS and found.lam.value is not None


def test_a_start_that_is_right_everywhere_leaves_nothing_new(tmp_path: Path) -> None:
    folder = write_board(tmp_path, replace(ENTRY, placebo=0, mode=0, stress=0))
    for cell in folder.rglob("seed-*"):
        splits = json.loads((cell / "record.json").read_text())["splits"]
        splits["id_greedy"]["start"] = 1.0
        replace_items(cell, start__id_greedy=np.ones((1, ITEMS), dtype=np.uint8))
        rewrite(cell, splits=splits)
    (found,) = summarise_board(load_runs(folder), 50).entries
    assert found.novelty.new == 0 and found.novelty.known_share == 1
    assert "addition (0)" in found.axes["efficiency"].reason


def test_entries_of_two_protocols_have_no_difference(board: Board, tmp_path: Path) -> None:
    old = replace(ENTRY, mode=0, stress=0, protocol="CRL-1", pass_draws=0)
    other = summarise_board(load_runs(write_board(tmp_path, old)), replicates=300)
    for pair in paired_axes(other.entries[0], board.entry("tiny-llama/ppo")).values():
        assert pair.effect is None and pair.wider is None and not pair.by_task
        assert "different protocols" in pair.reason
    same = paired_axes(board.entry("tiny-qwen2/ppo"), board.entry("tiny-llama/ppo"))
    assert all(pair.effect is not None for pair in same.values())


def test_a_protocol_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    folder = write_board(tmp_path, replace(ENTRY, protocol="CRL-9", items=16))
    with pytest.raises(ValidationError, match="protocol 'CRL-9' is none"):
        summarise_board(load_runs(folder), 50)


def test_episodes_rank_without_the_mode_arm(tmp_path: Path) -> None:
    """An episode has no greedy answer to agree with; one answer has, and its arm is asked for."""
    base = write_board(tmp_path, replace(ENTRY, items=32, mode=0, pass_draws=0))
    (entry,) = summarise_board(load_runs(base), replicates=100).entries
    assert entry.standing == "preview"
    assert any("seeds of the mode arm" in why for why in entry.why)
    for record in sorted(base.rglob("record.json")):
        files = json.loads(record.read_text())["files"]
        rewrite(record.parent, files=files | {EPISODES: {"sha256": "0" * 64, "bytes": 1}})
    board = summarise_board(load_runs(base), replicates=100)
    (entry,) = board.entries
    assert board.rules.arms == ("real", "placebo", "stress")
    assert entry.standing == "provisional", entry.why
    shutil.rmtree(next(base.rglob("placebo")))
    (entry,) = summarise_board(load_runs(base), replicates=100).entries
    assert entry.standing == "preview"
    assert any("seeds of the placebo arm" in why for why in entry.why)
