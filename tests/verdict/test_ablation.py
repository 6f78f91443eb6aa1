"""Studies: which runs are compared, what is said about them, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from crlbench.contract.study import Study
from crlbench.errors import UsageError, ValidationError
from crlbench.pages import words
from crlbench.pages.ablation_table import markdown_table, plain_table, terminal_table
from crlbench.pages.study import render_ablation
from crlbench.stats.intervals import task_balanced_iqm
from crlbench.verdict.ablation import Ablation, summarise_study
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.study_runs import read_study
from tests.support.simulate import Plan, Trial, hostile, rewrite, write_study

BASE = Plan(recipe="grpo", tasks=("addition", "counting"), items=32, shared=0.7)
FAST = replace(BASE, recipe="grpo+clip.high=0.28", slope=3.5)
SLOW = replace(BASE, recipe="grpo+normalize=none", slope=0.2, failed=(("counting", 3, 22),))
TWIN = replace(BASE, recipe="grpo+aggregate=token-mean")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trial = Trial(BASE, (FAST, SLOW, TWIN), name="parts", note="One part at a time.")
    return write_study(tmp_path_factory.mktemp("study"), trial)


@pytest.fixture(scope="module")
def ablation(folder: Path) -> Ablation:
    return summarise_study(folder, replicates=1000)


def test_a_study_of_protocol_2_compares_lambda_of_new_items(tmp_path: Path):
    base = replace(BASE, items=256, protocol="CRL-2", track_version=1)
    arm = replace(base, recipe="grpo+clip.high=0.28", slope=3.5)
    root = write_study(tmp_path, Trial(base, (arm,)))
    found = summarise_study(root, replicates=200)
    (comparison,) = found.comparisons
    boards = {
        board.entries[0].recipe: board.entries[0]
        for board in (summarise_board(load_runs(f), 200) for f in tmp_path.glob("mini-*/*"))
    }
    for one in (comparison.base, *comparison.arms):
        score = boards[one.recipe].axes["efficiency"]
        assert one.lam.value == pytest.approx(score.value, rel=1e-12)
        assert one.lam.value != pytest.approx(boards[one.recipe].lam.value, abs=1e-3)
        assert one.lam.interval.low == pytest.approx(score.interval.low, rel=1e-9)
        for task in one.tasks:
            assert task.arm == pytest.approx(score.by_task[task.task].value, rel=1e-12)
    assert json.loads(found.to_json())["new"] is True
    text = plain_table(found)
    assert "Λ_new" in text and "ΔΛ_new [95 %]" in text and "Λ:" not in text
    page = render_ablation(root, found)
    assert "<th scope=\"col\" class=\"n\">ΔΛ_new</th>" in page
    assert "Only the items count that the start model answers wrongly" in page


def test_a_saturated_task_has_no_effect_and_is_named(tmp_path: Path):
    base = replace(BASE, items=64, protocol="CRL-2", track_version=1)
    arm = replace(base, recipe="grpo+clip.high=0.28", slope=3.5)
    found = summarise_study(write_study(tmp_path, Trial(base, (arm,))), replicates=50)
    (comparison,) = found.comparisons
    assert comparison.base.lam.value is None and comparison.arms[0].effect is None
    assert any(note.startswith("Saturated, with fewer than 64 new") for note in comparison.notes)


def test_a_study_is_of_one_protocol(tmp_path: Path):
    base = replace(BASE, items=64, track_version=1)
    arm = replace(base, recipe="grpo+clip.high=0.28", protocol="CRL-2")
    with pytest.raises(ValidationError, match="several protocols"):
        summarise_study(write_study(tmp_path, Trial(base, (arm,))), replicates=50)


SMALL = replace(BASE, items=8, seeds=3)


def small(tmp_path: Path, *arms: Plan, **options) -> Path:
    cut = tuple(replace(arm, items=8, seeds=3) for arm in arms)
    return write_study(tmp_path, Trial(SMALL, cut, seeds=3, **options))


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_effects_are_differences_of_the_table_and_verdicts_follow(ablation: Ablation):
    (comparison,) = ablation.comparisons
    base, (fast, slow, twin) = comparison.base, comparison.arms
    for arm in comparison.arms:
        assert arm.effect.value == pytest.approx(arm.lam.value - base.lam.value)
        assert arm.effect.value == pytest.approx(np.mean([t.effect for t in arm.tasks]))
        for task in arm.tasks:
            assert task.effect == pytest.approx(task.arm - task.base)
        assert arm.effect.n == 5 and -1 <= arm.effect.correlation <= 1
    assert fast.effect.verdict == "better" and fast.effect.interval.low > 0
    assert slow.effect.verdict == "worse" and slow.effect.more_seeds is None
    assert twin.effect.verdict in ("undecided", "equivalent")
    assert sum(ablation.verdicts.values()) == 3 and ablation.waiting == 0
    assert base.effect is None and base.changes == ()
    change = fast.changes[0]
    assert (change.field, change.before, change.after) == ("clip.high", "grpo", "0.28")
    assert slow.failed == ("counting seed-03: kl_cap at iteration 22",)
    assert fast.dynamics["entropy"] < slow.dynamics["entropy"]


def test_the_base_has_the_numbers_of_its_own_report(ablation: Ablation, folder: Path):
    study = read_study(folder)
    runs = load_runs(folder / study.comparisons[0].base.run)
    entry = summarise_board(runs, replicates=1000).entries[0]
    base = ablation.comparisons[0].base
    assert base.lam.value == pytest.approx(entry.lam.value)
    assert (base.lam.interval, base.lam.n) == (entry.lam.interval, entry.lam.n)
    per_task = [[seed.lam for seed in task.seeds] for task in entry.tasks]
    assert base.lam.value == pytest.approx(task_balanced_iqm(per_task))
    assert (base.start, base.end) == pytest.approx((entry.start, entry.end))


def test_equal_studies_give_equal_json(ablation: Ablation, folder: Path):
    again = summarise_study(folder / "study.json", replicates=1000)
    assert again.to_json() == ablation.to_json()
    data = json.loads(ablation.to_json())
    assert data["comparisons"][0]["arms"][0]["effect"]["verdict"] == "better"


def test_an_arm_equal_to_its_base_is_equivalent(tmp_path: Path):
    study = small(tmp_path, BASE)
    arm = summarise_study(study, replicates=200).comparisons[0].arms[0]
    assert (arm.effect.value, arm.effect.verdict) == (0.0, "equivalent")
    assert arm.effect.correlation == pytest.approx(1.0)


def test_only_common_seeds_count_and_that_is_said(tmp_path: Path):
    study = small(tmp_path, FAST, TWIN)
    whole = summarise_study(study, replicates=200).comparisons[0]
    assert whole.notes == () and whole.seeds["addition"] == (0, 1, 2)
    folder = study / read_study(study).comparisons[0].arms[0].run
    shutil.rmtree(folder / "addition" / "real" / "seed-01")
    (comparison,) = summarise_study(study, replicates=200).comparisons
    assert comparison.seeds == {"addition": (0, 2), "counting": (0, 1, 2)}
    assert comparison.arms[0].missing == ("addition seed-01",)
    said = " ".join(comparison.notes)
    assert "only the seeds that all arms have" in said
    assert "(addition: seeds 0, 2; planned 3)" in said
    assert "1 of the planned runs is missing" in said
    for arm in comparison.arms:
        assert arm.effect.value == pytest.approx(arm.lam.value - comparison.base.lam.value)
        assert arm.effect.n == 2
    shutil.rmtree(folder / "addition")
    (comparison,) = summarise_study(study, replicates=200).comparisons
    assert "Left out, without a common seed: addition." in comparison.notes


def test_arms_that_have_not_run_wait_and_do_not_take_the_others_along(tmp_path: Path):
    study = small(tmp_path, FAST, TWIN)
    shutil.rmtree(study / read_study(study).comparisons[0].arms[1].run)
    ablation = summarise_study(study, replicates=200)
    fast, twin = ablation.comparisons[0].arms
    assert fast.effect.n == 3 and twin.effect is None and twin.lam.value is None
    assert ablation.waiting == 1
    notes = ablation.comparisons[0].notes
    assert any("Without a number so far: grpo+aggregate" in note for note in notes)
    assert "–" in plain_table(ablation)
    shutil.rmtree(study / read_study(study).comparisons[0].base.run)
    ablation = summarise_study(study, replicates=200)
    assert ablation.waiting == 2
    assert any("nothing to compare" in note for note in ablation.comparisons[0].notes)


def test_one_seed_decides_nothing(tmp_path: Path):
    few = [replace(plan, items=8, seeds=1) for plan in (BASE, FAST)]
    study = write_study(tmp_path, Trial(few[0], (few[1],), seeds=1))
    ablation = summarise_study(study, replicates=200)
    effect = ablation.comparisons[0].arms[0].effect
    assert (effect.interval, effect.verdict) == (None, "undecided")
    assert "≥ 2" in plain_table(ablation)


def test_sensitivity_of_a_grid(tmp_path: Path):
    arms = [replace(BASE, recipe=f"grpo+lr={i}", slope=s) for i, s in enumerate((0.2, 2))]
    study = small(tmp_path, *arms, grid=True)
    ablation = summarise_study(study, replicates=500)
    (comparison,) = ablation.comparisons
    found, areas = comparison.sensitivity, [arm.area for arm in comparison.arms]
    assert pytest.approx(1 - np.mean(areas) / comparison.base.area) == found.S
    assert found.interval.low < found.S < found.interval.high
    assert (found.worst, found.worst_area, found.arms) == ("grpo+lr=0", areas[0], 2)
    assert "Sensitivity S" in plain_table(ablation)


def test_shortened_runs_are_shown_as_such(tmp_path: Path):
    plans = [replace(p, items=8, seeds=1, partial=True) for p in (BASE, TWIN)]
    study = write_study(tmp_path, Trial(plans[0], (plans[1],), seeds=1))
    (comparison,) = summarise_study(study, replicates=200).comparisons
    assert comparison.notes[0].startswith("Shortened runs")
    assert comparison.arms[0].effect.value is not None


def test_a_run_that_is_not_the_planned_one_is_refused(tmp_path: Path):
    study = small(tmp_path, FAST)
    cell = study / read_study(study).comparisons[0].arms[0].run / "addition" / "real" / "seed-02"
    record = json.loads((cell / "record.json").read_text())
    rewrite(cell, algo=record["algo"] | {"name": "ppo"})
    with pytest.raises(ValidationError, match=r"record\.json: recipe: 'ppo', but study\.json asks"):
        summarise_study(study)


def test_studies_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(UsageError, match="no such file"):
        read_study(tmp_path)
    study = small(tmp_path, FAST)
    text = (study / "study.json").read_text()
    (study / "study.json").write_text(text.replace("A study", "Another"))
    with pytest.raises(ValidationError, match="id: does not belong to the content"):
        read_study(study)
    (study / "study.json").write_text('{"title": 3}')
    with pytest.raises(ValidationError, match=r"study\.json"):
        read_study(study)


def moved(study: Path, run: str) -> Path:
    """The same study with another folder for its base, sealed again."""
    data = json.loads((study / "study.json").read_text())
    data["comparisons"][0]["base"]["run"] = run
    (study / "study.json").write_text(Study.model_validate(data).identified().model_dump_json())
    return study


def test_absolute_run_folders_are_refused_and_empty_studies_say_so(tmp_path: Path):
    study = small(tmp_path, FAST)
    with pytest.raises(ValidationError, match="must be a path relative to the folder"):
        summarise_study(moved(study, "/etc"))
    for folder in tmp_path.glob("mini-*"):
        shutil.rmtree(folder)
    with pytest.raises(UsageError, match="none of its runs has finished yet"):
        summarise_study(moved(study, "../../nowhere"))


def rendered(ablation: Ablation, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))
    console.print(terminal_table(ablation))
    return console.export_text()


def test_tables_agree(ablation: Ablation):
    texts = plain_table(ablation), rendered(ablation, 130), markdown_table(ablation)
    fast = ablation.comparisons[0].arms[0]
    shown = words.difference(fast.effect)
    for text in texts:
        for expected in (shown, "▲ better", "▼ worse", "0.28", "±0.05"):
            assert expected in text.replace("\\", "")
        assert "at least one" in text and "failed" in text
    assert all(len(line) <= 80 for line in rendered(ablation).splitlines())
    assert "…" not in rendered(ablation)
    head = lines(texts[2])
    assert head[0].startswith("**parts: tiny-llama") and head[2].count("|") == 7


def test_strange_labels_do_no_harm_in_any_table(tmp_path: Path):
    plan = hostile(replace(BASE, items=8, seeds=1, recipe="a|b\x1b[31m*<img>"))
    study = write_study(tmp_path, Trial(replace(BASE, items=8, seeds=1), (plan,), seeds=1))
    ablation = summarise_study(study, replicates=100)
    markdown = markdown_table(ablation)
    assert "a\\|b" in markdown and "<img>" not in markdown and "\\*" in markdown
    for text in (plain_table(ablation), rendered(ablation), markdown):
        assert "\x1b[31m" not in text
