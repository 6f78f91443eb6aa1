"""``crlbench ablate``: what it refuses, what it plans, and a small study for real."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.algo import recipes
from crlbench.catalog.find import Catalog
from crlbench.commands.design import Design, design
from crlbench.commands.job import cards_of, choose, plan_of
from crlbench.commands.settings import Settings, resolve
from crlbench.commands.study_file import read_study_file, star, study_of
from crlbench.contract.study import STUDY_NAME, Study
from crlbench.errors import CrlbenchError, UsageError, ValidationError
from crlbench.run.archive import open_board
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.session import opened, survey
from tests.algo.test_user_recipes import MEDIAN
from tests.algo.test_user_recipes import write as write_recipe
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import SHORT, terse

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "docs" / "studies"
BASE = ["ablate", "--model", "tiny-llama", "--tasks", "addition"]
FLIP = ["--flip", "aggregate=token-mean"]


def designed(*arguments: str) -> Design:
    """What ``ablate`` would run, with nothing written."""
    options = cli.parse(["ablate", *arguments])
    settings, conditions = resolve(options)
    study, settings = study_of(options, settings)
    catalog = Catalog(options.catalog)
    opened = open_board(catalog, settings.track, settings.tasks)
    cards = cards_of(study.models, catalog)
    return design(study, cards, opened, conditions, settings)


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ablate", *FLIP], "ablate needs --model"),
        (BASE, "has nothing to compare grpo with: give at least one --flip"),
        ([*BASE, "--base", "grop", *FLIP], "unknown recipe 'grop'. Did you mean grpo"),
        ([*BASE, "--flip", "agg=token-mean"], "unknown axis 'agg'. Did you mean aggregate"),
        ([*BASE, "--flip", "aggregate=token"], "Did you mean token-mean"),
        ([*BASE, "--flip", "clip.hi=1"], "unknown field of PpoClip 'hi'. Did you mean high"),
        ([*BASE, "--flip", "critic=none"], "changes nothing: grpo already has critic = none"),
        ([*BASE, *FLIP, "--flip", "aggregate=TokenMean"], "aggregate=token-mean is given twice"),
        ([*BASE, "--base", "lite-ppo", "--flip", "kl.coefficient=0.1"],
         "NoKl has no field 'coefficient'. Name another part"),
        ([*BASE, "--flip", "clip.high=0.3", "--flip", "clip=ppo-clip:high=0.3"],
         "clip=ppo-clip:high=0.3 is the same as clip.high=0.3"),
        ([*BASE, "--versus", "grpo"], "grpo is the same as grpo"),
        ([*BASE, "--flip", "advantage=gae"], "Gae needs a critic"),
        ([*BASE, *FLIP, "--set", "budget.completions=1"], "GroupMean compares the completions"),
        ([*BASE, *FLIP, "--set", "budget.completion=1"], "Did you mean budget.completions"),
        ([*BASE, "--grid", "start"], "--grid start: must be star"),
        ([*BASE, "--grid", "star", "--set", "budget.prompts=4", "--set", "budget.completions=2"],
         "no multiple of a group"),
        ([*BASE, *FLIP, "--only", "x"], "--only belongs to --study"),
        ([*BASE, *FLIP, "--study", "x.toml"], "leave out --flip"),
        ([*BASE, *FLIP, "--seeds", "0"], "at least 1"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert expected in captured.err and "Traceback" not in captured.err
    assert captured.out == "" and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_evaluate_refuses_a_group_of_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["evaluate", "--model", "tiny-llama", "--recipe", "grpo"]
    assert cli.main([*wanted, "--set", "budget.completions=1"]) == 2
    assert "budget.completions is 1" in capsys.readouterr().err


def test_the_main_flags_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["ablate", "--help"])
    text = capsys.readouterr().out
    first, rest = text[text.index("options:") :].split("Advanced:")
    shown = [line.split()[0] for line in first.splitlines() if line.startswith("  --")]
    main = "--model --base --flip --versus --grid --study --tasks --seeds --out --dry-run"
    assert shown == main.split()
    assert all(flag in rest for flag in ("--track", "--only", "--jobs", "--set", "--fresh"))


# -- plans ---------------------------------------------------------------------------------


def test_a_recipe_to_compare_with_may_have_flips_with_several_fields() -> None:
    name = "grpo+clip=ppo-clip:high=0.3,low=0.1"
    found = designed("--model", "tiny-llama", "--versus", name, "--seeds", "1")
    assert [arm.recipe for arm in found.study.comparisons[0].arms] == [name]


def test_arms_are_the_very_plans_of_evaluate() -> None:
    found = designed("--model", "tiny-llama", *FLIP, "--versus", "ppo", "--seeds", "2")
    catalog = Catalog()
    board, tasks, _ = make_board(catalog, load_track(catalog, "mini"), Request())
    (model,) = cards_of(["tiny-llama"], catalog).items()
    names = ["grpo", "grpo+aggregate=token-mean", "ppo"]
    for plan, name in zip(found.plans, names, strict=True):
        mine = plan_of(board, model, choose(name, catalog), tasks, Settings(seeds=2), catalog)
        assert (plan.hash, plan.folder, plan.cells) == (mine.hash, mine.folder, mine.cells)
    (comparison,) = found.study.comparisons
    assert [arm.kind for arm in comparison.arms] == ["flip", "versus"]
    for arm, name in zip((comparison.base, *comparison.arms), names, strict=True):
        folder = Path(os.path.normpath(found.folder / arm.run))
        assert folder == Path("runs") / board.folder / folder.parts[-2] / name
    assert [c.field for c in comparison.arms[0].changes] == ["aggregate"]


def test_an_arm_that_a_study_has_by_another_name_runs_once() -> None:
    found = designed("--study", str(STUDIES / "tricks-or-traps.toml"), "--model", "tiny-llama",
                     "--only", "medium", "--only", "loss aggregation", "--only", "Lite PPO")
    aggregation, lite = found.study.comparisons
    assert aggregation.base.run == lite.arms[0].run
    assert len(found.plans) == 4 and len({plan.folder for plan in found.plans}) == 4


def test_the_star_varies_one_thing_at_a_time() -> None:
    conditions = load_track(Catalog(), "mini").conditions
    points = {name: star(recipes.load(name), conditions) for name in ("grpo", "lite-ppo")}
    shared = ["learning rate x1/3", "learning rate x3", "clip 0.1", "clip 0.3", "group 4",
              "group 16", "temperature 0.7", "temperature 1.2"]
    assert [point.name for point in points["lite-ppo"]] == shared
    kl = {point.name: point.flip for point in points["grpo"] if "KL" in point.name}
    assert kl == {"KL coefficient x1/4": "kl.coefficient.value=0.01",
                  "KL coefficient x4": "kl.coefficient.value=0.16"}
    assert not [p for p in star(recipes.load("reinforce"), conditions) if "clip" in p.name]


@pytest.mark.slow
def test_points_of_a_grid_have_boards_of_their_own() -> None:
    found = designed(*BASE[1:], "--grid", "star")
    (comparison,) = found.study.comparisons
    assert comparison.grid and comparison.seeds == 3
    by_label = {arm.label: arm for arm in comparison.arms}
    group = by_label["group 4"]
    assert {(c.field, c.before, c.after) for c in group.changes} == {
        ("budget.completions", "8", "4"), ("budget.prompts", "32", "64")
    }
    assert group.recipe == "grpo" and group.fingerprint != comparison.base.fingerprint
    assert by_label["clip 0.1"].fingerprint == comparison.base.fingerprint
    assert len({arm.run for arm in (comparison.base, *comparison.arms)}) == 11


@pytest.mark.slow
def test_a_grid_beside_flips_is_a_comparison_of_its_own(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('[[arm]]\nname = "two passes"\nset = { "optimization.epochs" = 2 }\n'
                    '[[arm]]\nname = "both"\nset.optimization.epochs = 2\nflip = "clip.high=0.3"\n')
    found = designed(*BASE[1:], *FLIP, "--grid", str(grid), "--seeds", "1")
    plain, sensitivity = found.study.comparisons
    assert (plain.grid, sensitivity.grid, sensitivity.name) == (False, True, "grpo, sensitivity")
    assert [c.field for c in sensitivity.arms[1].changes] == ["clip.high", "optimization.epochs"]
    assert sensitivity.arms[1].recipe == "grpo+clip.high=0.3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ('name = "x"', "'x' changes nothing. Give it set or flip"),
        ('name = "x"\nset = { "optimization.epochs" = 1 }', "'x' changes nothing: the base has"),
        ('nam = "x"', "arm.0.nam"),
        ('name = "x"\nset = { "optimization.epoch" = 2 }', "Did you mean optimization.epochs"),
    ],
)
def test_a_bad_point_of_a_grid_is_named(tmp_path: Path, arm: str, message: str) -> None:
    (tmp_path / "grid.toml").write_text(f"[[arm]]\n{arm}\n")
    with pytest.raises(CrlbenchError, match=message):
        designed(*BASE[1:], "--grid", str(tmp_path / "grid.toml"))


def test_the_first_seeds_of_all_arms_come_first() -> None:
    found = designed(*BASE[1:], *FLIP, "--versus", "dapo", "--seeds", "3", "--out", "nowhere")
    order = [(cell.seed_index, cell.recipe) for cell in survey(found.plans).missing]
    names = ["grpo", "grpo+aggregate=token-mean", "dapo"]
    assert order == [(seed, name) for seed in range(3) for name in names]


@pytest.mark.slow
def test_a_narrow_plan_replaces_no_wider_one(tmp_path: Path) -> None:
    def hold(*arguments: str) -> dict:
        plans = designed("--model", "tiny-llama", *FLIP, "--out", str(tmp_path), *arguments).plans
        with opened(plans, "test", fresh=False, shard=None):
            return json.loads(plans[0].path.read_text())

    wide = hold("--seeds", "4")
    assert hold("--seeds", "2", "--tasks", "addition") == wide
    assert hold("--seeds", "5")["arms"] == {"real": 5}


# -- study files ---------------------------------------------------------------------------


@pytest.mark.slow
def test_tricks_or_traps_needs_few_recipes() -> None:
    found = designed("--study", str(STUDIES / "tricks-or-traps.toml"))
    assert len({plan.body["recipe"]["name"] for plan in found.plans}) <= 11
    names = {comparison.name for comparison in found.study.comparisons}
    assert len(names) == 7 and {c.model for c in found.study.comparisons} == {
        "tiny-llama", "tiny-llama-sft"
    }
    evaluation = found.plans[0].cells[0].conditions["evaluation"]
    assert (evaluation["curve_every"], evaluation["end_items"], evaluation["end_draws"]) == (
        4, 64, 4
    )
    for comparison in found.study.comparisons:
        if comparison.name in ("clip-higher", "overlong filtering", "loss aggregation"):
            assert {len({c.field for c in arm.changes}) for arm in comparison.arms} == {1}
    assert {c.setting for c in found.study.comparisons} == {
        "easy (data.levels = [1])", "medium (data.levels = [1, 2])", "hard (data.levels = [2])",
        "tight (data.levels = [1, 2], sampling.max_completion_bytes = 2)",
    }


@pytest.mark.slow
def test_sensitivity_is_three_stars() -> None:
    found = designed("--study", str(STUDIES / "sensitivity.toml"))
    assert [(c.name, c.grid, c.seeds) for c in found.study.comparisons] == [
        (name, True, 3) for name in ("lite-ppo", "grpo", "dapo")
    ]


def test_the_study_of_chains_has_eight_contenders_that_run_once() -> None:
    found = designed("--study", str(STUDIES / "ppo-dpo.toml"))
    assert sorted(plan.body["recipe"]["name"] for plan in found.plans) == [
        "bon", "iterative-dpo", "online-dpo", "rlhf", "rlhf+policy.recipe=grpo", "rlvr",
        "sft-dpo", "sft-only",
    ]
    assert {len(plan.cells) for plan in found.plans} == {4 * 5}
    assert len({plan.body["fingerprint"] for plan in found.plans}) == 1


@pytest.mark.slow
def test_the_study_of_turns_changes_one_part_at_a_time() -> None:
    found = designed("--study", str(STUDIES / "step-token.toml"))
    parts = {c.name: {change.field for arm in c.arms for change in arm.changes}
             for c in found.study.comparisons}  # fmt: skip
    assert parts == {
        "step-token": {"advantage"}, "step-ppo": {"advantage", "normalize"}, "weight": {"aggregate"}
    }
    assert sum(len(plan.cells) for plan in found.plans) == 5 * 10
    assert {cell.task for plan in found.plans for cell in plan.cells} == {"relay-sum"}
    assert len({plan.body["fingerprint"] for plan in found.plans}) == 1


@pytest.mark.slow
def test_a_study_can_be_narrowed_and_widened() -> None:
    study = ["--study", str(STUDIES / "tricks-or-traps.toml")]
    narrow = designed(*study, "--only", "clip-higher", "--only", "easy", "--model", "tiny-llama",
                      "--seeds", "2", "--tasks", "addition,counting",
                      "--set", "evaluation.end_items=32")
    (comparison,) = narrow.study.comparisons
    assert (comparison.name, comparison.seeds) == ("clip-higher", 2)
    assert comparison.tasks == ["addition", "counting"]
    assert narrow.plans[0].cells[0].conditions["evaluation"]["end_items"] == 32
    other = designed(*study, "--only", "clip-higher", "--only", "easy", "--model", "tiny-qwen2")
    assert {c.model for c in other.study.comparisons} == {"tiny-qwen2"}
    with pytest.raises(UsageError, match="unknown comparison or setting 'eazy'. Did you mean easy"):
        designed(*study, "--only", "eazy")
    with pytest.raises(UsageError, match="nothing is left to compare"):
        designed(*study, "--only", "clip-higher", "--only", "hard")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 'x'\n", "title: Field required"),
        ("title = 'x'\nseeds = 0\n[[comparison]]\nname='a'\nbase='grpo'\n", "seeds"),
        ("title = 'x'\n[[comparison]]\nname='a'\nbase='grpo'\nflip=[]\n",
         "unknown field of comparison.0 'flip'. Did you mean flips"),
        ("title = 'x'\nabot = 'y'\n[[comparison]]\nname='a'\nbase='grpo'\n",
         "unknown field 'abot'. Did you mean about"),
        ("title = 'x'\n[[comparison]]\nname='a'\nbase='grpo'\ngrid='stars'\n",
         "comparison.0.grid: must be \"star\" or tables"),
        ("title = 'x'\n[[comparison]]\nname='a'\nbase='grpo'\ngrid=[{name='b',sets={}}]\n",
         "unknown field of comparison.0.grid.0 'sets'. Did you mean set"),
        ("title = 'x'\n[[comparison]]\nname='a'\nbase='grpo'\nsettings=['easy']\n",
         "comparison 'a': unknown setting 'easy'"),
        ("title = 'x'\n" + 2 * "[[comparison]]\nname='a'\nbase='grpo'\n", "'a' is there twice"),
        ("title =\n", "not valid TOML|TOML"),
    ],
)
def test_mistakes_of_a_study_file_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(ValidationError, match=message) as error:
        read_study_file(path)
    assert str(path) in str(error.value)
    assert "at least 1 item" not in str(error.value)


# -- for real ------------------------------------------------------------------------------


def command(verb: str, model: Path, out: Path, *extra: str) -> list[str]:
    pairs = [part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")]
    return [verb, "--model", str(model), "--tasks", "addition", "--out", str(out), *pairs, *extra]


@pytest.mark.slow
def test_a_small_study_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = terse(write_checkpoint(tmp_path / "very-tiny"))
    out = tmp_path / "runs"
    assert cli.main(command("evaluate", model, out, "--recipe", "grpo", "--seeds", "2", "-q")) == 0
    (first, *_) = sorted(out.rglob("record.json"))
    before = first.read_bytes()
    arms = ["--seeds", "2", *FLIP, "--flip", "clip.high=0.28", "--versus", "dapo"]
    capsys.readouterr()
    assert cli.main(command("ablate", model, out, *arms)) == 0
    captured = capsys.readouterr()
    assert "8 runs, 2 done before, 6 to run" in captured.err
    assert first.read_bytes() == before
    assert len([*out.rglob("record.json")]) == 8
    (home,) = (out / "ablations").iterdir()
    names = {"study.json", "ablation.json", "ablation.md", "ablation.html"}
    assert {path.name for path in home.iterdir()} == names
    study = Study.model_validate_json((home / STUDY_NAME).read_text())
    assert study.id == home.name == study.identified().id
    for arm in study.comparisons[0].arms:
        assert len([*(home / arm.run).rglob("record.json")]) == 2
    assert "aggregate=token-mean" in captured.out and "dapo" in captured.out
    assert captured.out.splitlines()[-1] == str(home / "ablation.html")

    pages = {path: path.read_bytes() for path in home.iterdir()}
    assert cli.main(command("ablate", model, out, *arms, "--json")) == 0
    captured = capsys.readouterr()
    assert "0 to run" in captured.err and json.loads(captured.out)["comparisons"]
    assert {path: path.read_bytes() for path in home.iterdir()} == pages

    shutil.move(out, tmp_path / "moved")
    moved = tmp_path / "moved" / "ablations" / home.name
    (moved / "ablation.html").unlink()
    assert cli.main(["report", str(moved)]) == 0
    assert capsys.readouterr().out.strip() == str(moved / "ablation.html")
    assert (moved / "ablation.html").read_bytes() == pages[home / "ablation.html"]


@pytest.mark.slow
def test_out_of_time_is_incomplete_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = terse(write_checkpoint(tmp_path / "very-tiny"))
    wanted = command("ablate", model, tmp_path / "runs", "--seeds", "1", *FLIP)
    assert cli.main([*wanted, "--max-hours", "0.0000001"]) == 8
    assert "0 of 2 runs done; the same command continues" in capsys.readouterr().err
    assert cli.main(wanted) == 0


@pytest.mark.slow
def test_a_recipe_of_ones_own_with_a_part_of_its_own_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recipe(tmp_path, "group_median.py", MEDIAN)
    model = terse(write_checkpoint(tmp_path / "very-tiny"))
    mine = ["--catalog", str(tmp_path), "--seeds", "1", "-q"]
    wanted = command("evaluate", model, tmp_path / "runs", "--recipe", "group-median", *mine)
    assert cli.main(wanted) == 0
    (path,) = (tmp_path / "runs").rglob("record.json")
    algo = json.loads(path.read_text())["algo"]
    assert algo["config"]["advantage"] == {"part": "GroupMedian", "scale": 1.0}
    assert len(algo["recipe_sha256"]) == 64
    edited = MEDIAN.replace("median()", "mean()")
    write_recipe(tmp_path, "group_median.py", edited)
    assert cli.main(wanted) == 3
    assert "another version of this recipe" in capsys.readouterr().err
    write_recipe(tmp_path, "group_median.py", MEDIAN)
    flip = ["--base", "group-median", "--flip", "advantage.scale=2"]
    assert cli.main(command("ablate", model, tmp_path / "runs", *flip, *mine)) == 0
