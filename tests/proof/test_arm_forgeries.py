"""Arms that are not what they say: each forgery is really made, resealed, and named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlbench import cli, seeding
from crlbench.stats.pass_at_k import pass_by_k
from tests.support import tampering
from tests.support.arm_runs import TASK, forge

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.fixture
def entry(trained_arms: Path, tmp_path: Path) -> Path:
    """A copy of the entry, to be changed."""
    place = tmp_path / "runs" / trained_arms.parents[1].name / trained_arms.parent.name
    return Path(shutil.copytree(trained_arms, place / trained_arms.name))


def verify(catalog: Path, result: Path, *extra: str) -> int:
    return cli.main(["--catalog", str(catalog), "verify", str(result), "-q", *extra])


def findings(
    catalog: Path, result: Path, capsys: pytest.CaptureFixture[str], *extra: str
) -> str:
    """What a result is refused for."""
    capsys.readouterr()
    assert verify(catalog, result, *(extra or ("--recompute-only",))) == 5
    return capsys.readouterr().out


def replayed(catalog: Path, result: Path, capsys: pytest.CaptureFixture[str]) -> str:
    return findings(catalog, result, capsys, "--updates", "1", "--seed-index", "0")


def pay_labels(reward: Any, *_: Any) -> Any:
    """The reward of the mode or the wrong arm, forged: what the labels pay."""
    return reward


def keep_rate(_: str, conditions: Any) -> Any:
    """The conditions of the stress arm, forged: those of the track."""
    return conditions


def test_an_honest_entry_is_proven_arm_by_arm(
    arms_catalog: Path, trained_arms: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(arms_catalog, trained_arms, "--updates", "1", "--seed-index", "0") == 0
    said = capsys.readouterr().out
    assert "recomputed: 10 runs" in said
    for arm in ("real", "placebo", "mode", "stress", "wrong"):
        assert f"{TASK}/{arm}/seed-00: 1 update" in said
    assert said.count("equal to the last bit") == 5


def test_a_mode_arm_that_was_paid_by_labels(
    arms_catalog: Path,
    entry: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = entry / TASK / "mode" / "seed-00"
    with monkeypatch.context() as patched:
        patched.setattr("crlbench.train.sampling.mode_reward", pay_labels)
        forge(run, arms_catalog, tmp_path / "forged")
    said = findings(arms_catalog, entry, capsys)
    assert "mode/seed-00/digests.jsonl: rewards: stored" in said
    assert "agreement is not the label" in said


def test_a_wrong_arm_that_was_paid_by_labels(
    arms_catalog: Path,
    entry: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = entry / TASK / "wrong" / "seed-00"
    with monkeypatch.context() as patched:
        patched.setattr("crlbench.train.sampling.wrong_reward", pay_labels)
        forge(run, arms_catalog, tmp_path / "forged")
    said = findings(arms_catalog, entry, capsys)
    assert "wrong/seed-00/digests.jsonl: rewards of iteration 1: stored" in said
    assert "pays nothing for a right one" in said


def test_a_wrong_arm_that_was_paid_for_other_wrong_answers(
    arms_catalog: Path,
    entry: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing stored contradicts it; a replay draws the answers again."""
    run = entry / TASK / "wrong" / "seed-00"
    with monkeypatch.context() as patched:
        patched.setattr("crlbench.run.wrong_answers.derive", lambda *path: seeding.derive(1, *path))
        forge(run, arms_catalog, tmp_path / "forged")
    assert verify(arms_catalog, entry, "--recompute-only") == 0
    assert "rewards" in replayed(arms_catalog, run, capsys)


def test_a_mode_arm_that_was_paid_by_labels_and_hides_it(
    arms_catalog: Path,
    entry: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It states that the start is right on all training prompts; a replay asks the start."""
    run = entry / TASK / "mode" / "seed-00"
    with monkeypatch.context() as patched:
        patched.setattr("crlbench.train.sampling.mode_reward", pay_labels)
        forge(run, arms_catalog, tmp_path / "forged")
    for seed in ("seed-00", "seed-01"):
        cell = entry / TASK / "mode" / seed
        tampering.edit_items(cell, lambda v: v["start/train_greedy"].fill(1))
        tampering.edit_record(cell, lambda r: r["splits"]["train_greedy"].update(start=1.0))
    assert verify(arms_catalog, entry, "--recompute-only") == 0
    said = replayed(arms_catalog, run, capsys)
    assert "before the first update: items of start/train_greedy" in said


@pytest.mark.parametrize("seeds", [("seed-00",), ("seed-00", "seed-01")])
def test_greedy_answers_that_were_changed(
    arms_catalog: Path,
    entry: Path,
    seeds: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One item moves from known to new; in one run, and in all runs alike."""

    def flip(vectors: dict[str, np.ndarray]) -> None:
        known = int(np.flatnonzero(vectors["start/id_greedy"][0])[0])
        vectors["start/id_greedy"][0, known] = 0

    def lower(record: dict[str, Any]) -> None:
        record["splits"]["id_greedy"]["start"] -= 1 / 96

    for run in [run for seed in seeds for run in (entry / TASK).glob(f"*/{seed}")]:
        tampering.edit_items(run, flip)
        tampering.edit_record(run, lower)
    if seeds == ("seed-00",):
        said = findings(arms_catalog, entry, capsys)
        assert "record.json: splits.id_greedy.start: stored" in said
        assert "1 of 96 items are others than in" in said
        return
    assert verify(arms_catalog, entry, "--recompute-only") == 0
    said = replayed(arms_catalog, entry / TASK / "real" / "seed-00", capsys)
    assert "before the first update: items of start/id_greedy, 1 of 96" in said


def move_right_answers(vectors: dict[str, np.ndarray], name: str) -> None:
    """Half of the right answers to new items become right answers to known ones: every mean stays.

    More would contradict the other draws of the start.
    """
    known = vectors["start/id_greedy"][0, 32:] > 0
    for row in vectors[f"start/{name}"][:, 32:]:  # beyond the completions that are stored to read
        right, wrong = np.flatnonzero(~known & (row > 0)), np.flatnonzero(known & (row == 0))
        count = min(len(right), len(wrong)) // 2
        row[right[:count]], row[wrong[:count]] = 0, 1


@pytest.mark.parametrize("name", ["id", "id_pass"])
def test_right_answers_that_moved_from_new_items_to_known_ones(
    arms_catalog: Path, entry: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In all runs alike: Λ_new or the strict set becomes another, and no mean does."""
    for run in (entry / TASK).glob("*/seed-*"):
        draws: dict[str, np.ndarray] = {}

        def move(vectors: dict[str, np.ndarray], kept: dict[str, np.ndarray] = draws) -> None:
            move_right_answers(vectors, name)
            kept.update(vectors)

        def state(record: dict[str, Any], kept: dict[str, np.ndarray] = draws) -> None:
            bounds = record["task"]["floor"], record["task"]["ceiling"]
            by_k = pass_by_k(kept["start/id_pass"], *bounds)
            record["pass_at_k"]["id"]["start"] = by_k

        tampering.edit_items(run, move)
        tampering.edit_record(run, state)
    assert verify(arms_catalog, entry, "--recompute-only") == 0
    said = replayed(arms_catalog, entry / TASK / "real" / "seed-00", capsys)
    assert f"before the first update: items of start/{name}, " in said


def test_a_stress_arm_at_the_rate_of_the_track(
    arms_catalog: Path,
    entry: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = entry / TASK / "stress" / "seed-00"
    with monkeypatch.context() as patched:
        patched.setattr("crlbench.run.learners.conditions_under", keep_rate)
        forge(run, arms_catalog, tmp_path / "forged")
    said = findings(arms_catalog, entry, capsys)
    assert "stress/seed-00/digests.jsonl: parameters of iteration 1: stored" in said
    assert "learns at a third of a stress run's rate" in said
    said = replayed(arms_catalog, run, capsys)  # without its real run beside it
    assert "MISMATCH" in said and "update 1: losses[1]" in said  # the second step met other weights


def test_a_stress_arm_at_hardly_more_than_the_rate(
    arms_catalog: Path,
    entry: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("crlbench.contract.arms.STRESS_FACTOR", 1.1)
        forge(entry / TASK / "stress" / "seed-01", arms_catalog, tmp_path / "forged")
    said = findings(arms_catalog, entry, capsys)
    assert "stress/seed-01/record.json: health.update_norm: stored 1." in said


def test_pass_at_k_that_contradicts_its_draws(
    arms_catalog: Path, entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = entry / TASK / "real" / "seed-01"
    tampering.edit_record(run, lambda r: r["pass_at_k"]["hard"]["end"].update({"8": 0.99}))
    said = findings(arms_catalog, entry, capsys)
    assert "real/seed-01/record.json: pass_at_k.hard.end: stored" in said
    assert "the draws end/hard_pass" in said


def test_draws_that_were_changed(
    arms_catalog: Path, entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = entry / TASK / "real" / "seed-00"
    tampering.edit_items(run, lambda v: v["end/id_pass"].fill(1))
    assert "splits.id_pass.end" in findings(arms_catalog, entry, capsys)


def test_a_record_without_its_pass_at_k(
    arms_catalog: Path, entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = entry / TASK / "real" / "seed-00"
    tampering.edit_record(run, lambda r: r.pop("pass_at_k"))
    assert "pass_at_k: stored [], expected ['hard', 'id']" in findings(arms_catalog, entry, capsys)


def test_an_arm_of_another_name(
    arms_catalog: Path, entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A placebo run that is handed in as a mode run has no answers of the start model."""
    run = entry / TASK / "mode" / "seed-00"
    coin = entry / TASK / "placebo" / "seed-00"
    for path in coin.iterdir():
        shutil.copyfile(path, run / path.name)
    tampering.edit_record(run, lambda r: r.update(arm="mode"))
    said = findings(arms_catalog, entry, capsys)
    assert "mode/seed-00/record.json: splits: stored" in said
    assert "config.toml: arm: stored placebo, expected mode" in said
