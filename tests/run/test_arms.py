"""Mode, stress and wrong arms of a bundled model, really trained for a few iterations."""

from __future__ import annotations

import json
import shutil
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.arms import ARMS, RATES, STRESS_FACTOR, conditions_under, seeds_of
from crlbench.contract.conditions import Conditions, stated_conditions
from crlbench.contract.record_files import read_record
from crlbench.contract.records import RunRecord
from crlbench.errors import Interrupted
from crlbench.proof.replay import cell_of
from crlbench.run.execute import run_cell
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from tests.support.arm_runs import MODEL, TASK, TRACK

pytestmark = pytest.mark.slow


def record_of(entry: Path, arm: str, seed: int = 0) -> RunRecord:
    return read_record(entry / TASK / arm / f"seed-{seed:02d}" / "record.json", own=True)


def digests(entry: Path, arm: str) -> list[dict[str, Any]]:
    lines = (entry / TASK / arm / "seed-00" / "digests.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def vectors(entry: Path, arm: str, seed: int = 0) -> dict[str, np.ndarray]:
    with np.load(entry / TASK / arm / f"seed-{seed:02d}" / "items.npz") as archive:
        return {name: archive[name] for name in archive.files}


def test_control_arms_have_three_seeds_at_most() -> None:
    assert [seeds_of(arm, 10) for arm in ARMS] == [10, 3, 3, 3, 3]
    assert [seeds_of(arm, 2) for arm in ARMS] == [2, 2, 2, 2, 2]


def test_every_arm_is_planned_run_and_recorded(trained_arms: Path) -> None:
    plan = json.loads((trained_arms / "plan.json").read_text())
    assert plan["arms"] == {"real": 2, "placebo": 2, "mode": 2, "stress": 2, "wrong": 2}
    records = [record_of(trained_arms, arm, seed) for arm in ARMS for seed in (0, 1)]
    assert all(r.status.state == "completed" and r.protocol.name == "CRL-2" for r in records)
    assert len({r.fingerprint.hash for r in records}) == 1
    assert [r.splits["id"].end is None for r in records] == [False] * 2 + [True] * 8


def test_arms_begin_alike_and_part_by_their_rewards(trained_arms: Path) -> None:
    first = {arm: digests(trained_arms, arm)[0] for arm in ARMS}
    for name in ("prompts", "completions"):
        assert len({row[name] for row in first.values()}) == 1
    rewards = {arm: row["rewards"] for arm, row in first.items()}
    assert rewards["real"] == rewards["stress"]
    assert len({rewards[arm] for arm in ("real", "placebo", "mode", "wrong")}) == 4
    assert len({row["parameters"] for row in first.values()}) == 5


def test_the_mode_arm_is_paid_for_agreement_and_scored_by_the_verifier(trained_arms: Path) -> None:
    real, mode = record_of(trained_arms, "real").health, record_of(trained_arms, "mode").health
    assert mode["score"][0] == real["score"][0]
    assert mode["reward"] != mode["score"]
    assert all(float(64 * reward).is_integer() for reward in mode["reward"])
    greedy = vectors(trained_arms, "mode")["start/train_greedy"]
    assert greedy.shape[0] == 1 and 0.5 < greedy.mean() < 0.9


def test_the_wrong_arm_is_paid_for_wrong_answers_and_scored_by_the_verifier(
    trained_arms: Path,
) -> None:
    real, wrong = record_of(trained_arms, "real").health, record_of(trained_arms, "wrong").health
    assert wrong["score"][0] == real["score"][0] > 0
    assert all(0 < a and a + b <= 1 for a, b in zip(wrong["reward"], wrong["score"], strict=True))
    assert all(float(64 * reward).is_integer() for reward in wrong["reward"])


def test_the_stress_arm_learns_at_three_times_the_rate(trained_arms: Path) -> None:
    real, stress = (record_of(trained_arms, arm) for arm in ("real", "stress"))
    norms = [record.health["update_norm"][0] for record in (real, stress)]
    assert norms[1] / norms[0] == pytest.approx(STRESS_FACTOR, rel=0.15)
    leaves = [record.fingerprint.leaves for record in (real, stress)]
    assert leaves[0] == leaves[1]
    conditions = Conditions.model_validate(stated_conditions(leaves[0]))
    changed = conditions_under("stress", conditions)
    assert changed.optimization.learning_rate == pytest.approx(3e-4)
    ours, theirs = changed.optimization, conditions.optimization
    assert ours.value_learning_rate == pytest.approx(3 * theirs.value_learning_rate)
    rates = {name for name in type(ours).model_fields if "rate" in name}
    assert rates == {*RATES}  # a rate that is added must be decided on
    assert changed.model_copy(update={"optimization": conditions.optimization}) == conditions
    assert all(conditions_under(a, conditions) == conditions for a in ARMS if a != "stress")


def test_pass_at_k_is_what_the_draws_give(trained_arms: Path) -> None:
    record, stored = record_of(trained_arms, "real"), vectors(trained_arms, "real")
    assert set(record.pass_at_k) == {"id", "hard"}
    for split, n in (("id", 96), ("hard", 24)):
        for side in ("start", "end"):
            draws = stored[f"{side}/{split}_pass"]
            assert draws.shape == (32, n)
            counts = draws.sum(axis=0)
            for k, value in getattr(record.pass_at_k[split], side).items():
                chances = [1 - comb(32 - int(c), int(k)) / comb(32, int(k)) for c in counts]
                assert value == pytest.approx(np.mean(chances), rel=1e-12)
    assert record_of(trained_arms, "mode").pass_at_k["id"].end is None


def test_many_draws_are_others_than_those_of_the_start_score(trained_arms: Path) -> None:
    stored = vectors(trained_arms, "real")
    assert not np.array_equal(stored["start/id"], stored["start/id_pass"][:4])


def test_runs_of_an_entry_share_its_start(trained_arms: Path) -> None:
    starts = [
        {n: v for n, v in vectors(trained_arms, arm, seed).items() if n.startswith("start/")}
        for arm in ARMS
        for seed in (0, 1)
    ]
    for other in starts[1:]:
        for name in starts[0]:
            assert np.array_equal(starts[0][name], other[name])


def test_the_board_has_both_controls_and_lacks_seeds(trained_arms: Path) -> None:
    (entry,) = summarise_board(load_runs(trained_arms), 50).entries
    assert entry.standing == "preview" and entry.placebo.n == entry.mode.n == entry.wrong.n == 2
    lacks = [why.partition(" arm ")[0] for why in entry.why if " runs missing)" in why]
    assert lacks == [f"A rank needs 3 seeds of the {arm}" for arm in ("placebo", "mode")]
    assert "no three runs of the stress arm" in entry.axes["stability"].reason or (
        "rated on" in entry.axes["stability"].reason
    )
    assert entry.novelty.known + entry.novelty.new == pytest.approx(entry.efficiency.L, abs=1e-12)


def test_a_trust_region_has_no_stress_arm(
    arms_catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--track", TRACK, "--model", MODEL, "--out", str(tmp_path), "--recipe", "trpo"]
    command = ["--catalog", str(arms_catalog), "evaluate", *where, "--arm", "real,stress"]
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "--arm stress: recipe 'trpo' has no stress arm: the recipe takes trust-region" in said


def test_an_unknown_arm_is_named_with_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "--model", MODEL, "--arm", "coin", "--out", str(tmp_path)]) == 2
    assert "mode" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arm", ["mode", *(pytest.param(one, marks=pytest.mark.full) for one in ("stress", "wrong"))]
)
def test_an_interrupted_arm_ends_with_the_same_bits(
    trained_arms: Path, arms_catalog: Path, tmp_path: Path, arm: str
) -> None:
    """Also where the start's greedy answers have to be made again: nothing was learned by then."""
    whole, seen = record_of(trained_arms, arm), [0]
    cell = cell_of(whole, MODEL, [TASK], Catalog([str(arms_catalog)]), tmp_path, None)
    cell = cell.model_copy(update={"confined": False})

    def note(event: Any) -> None:
        if event.get("phase") == "train":
            seen.append(event["iteration"])

    with pytest.raises(Interrupted, match="after iteration 1 of 3"):
        run_cell(cell, note, lambda: seen[-1] >= 1)
    shutil.rmtree(cell.start_folder)
    seen[:] = [0]
    again = run_cell(cell, note, lambda: False)
    assert min(seen[1:]) == 2
    for name in ("items.npz", "policy.safetensors", "digests.jsonl"):
        assert again.files[name] == whole.files[name]
