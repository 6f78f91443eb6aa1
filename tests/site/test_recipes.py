"""The recipes board: what a recipe is measured against, at which learning rate, in which words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.algo import recipes as bundled
from crlbench.algo.recipe import to_config
from crlbench.base import wording
from crlbench.catalog.find import Catalog
from crlbench.site.article import rivals
from crlbench.site.build import build
from crlbench.site.effects import drawings
from crlbench.site.families import families
from crlbench.site.reading import read_site
from crlbench.site.recipes import Techniques, techniques_of
from crlbench.site.source import Site
from crlbench.site.techniques import base_of, changes, main_base, rate_words
from crlbench.stats.intervals import Interval
from crlbench.verdict.pairs import paired_axes
from tests.site.simulated import REVISION, TASKS, submit
from tests.support.simulate import Plan, write_board

pytestmark = pytest.mark.slow

FLIP = "grpo+clip=ppo-clip:high=0.28"
_PLAN = Plan(tasks=TASKS, board=TASKS, revision=REVISION, items=16, seeds=5, track_version=1)


def plan(recipe: str, slope: float, **more: object) -> Plan:
    config = to_config(bundled.load(recipe))
    return replace(_PLAN, recipe=recipe, config=config, slope=slope, **more)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Three recipes of one model, one of another, and two arms at another learning rate."""
    root = tmp_path_factory.mktemp("recipes")
    write_board(
        root / "runs",
        plan("ppo", 1.0),
        plan("grpo", 2.4),
        plan(FLIP, 2.5),
        plan("grpo", 2.0, model="tiny-qwen2", display_name="Tiny Qwen2"),
    )
    arm = {"learning_rate": 3e-5, "division": "open"}
    slow = plan("grpo", 0.5, seeds=3, failed=(("addition", 1, 2),), **arm)
    write_board(root / "runs", slow, plan("ppo", 3.0, seeds=3, **arm))
    write_board(root / "runs", plan("ppo", 1.0, items=12))
    return read_site(submit(root / "runs", root / "results"), Catalog())


@pytest.fixture(scope="module")
def board(site: Site) -> Techniques:
    return techniques_of(families(site)[0])


@pytest.fixture(scope="module")
def files(site: Site) -> Mapping[str, bytes]:
    return build(site)


def test_an_entry_is_set_against_the_recipe_that_it_is_measured_by(site: Site):
    stored = site.boards[0]
    entries = {entry.name: entry for entry in stored.board.entries}
    model = f"tiny-llama@{REVISION[:8]}"
    for recipe, base in [("grpo", "ppo"), (FLIP, "grpo")]:
        assert rivals(stored, entries[f"{model}/{recipe}"])[0].name == f"{model}/{base}"
    assert all(one.recipe == "ppo" for one in rivals(stored, entries[f"{model}/ppo"]))


def test_a_base_says_over_how_many_seeds_its_score_is(files: Mapping[str, bytes]):
    assert ", 5 seeds</span>" in files["recipes.html"].decode()


def test_a_board_of_several_recipes_leads_to_what_they_change(files: Mapping[str, bytes]):
    leading = [name for name, text in files.items() if b"Which recipe helps?</a>" in text]
    assert "index.html" in leading and "recipes.html" in files
    for name in leading:
        there = re.search(r'href="([./]*)recipes\.html">Which recipe helps', files[name].decode())
        assert there and there[1] == "../" * name.count("/")


def test_boards_that_differ_in_the_learning_rate_alone_are_one_family(site: Site):
    first, other = families(site)
    assert [*first.by_rate] == [3e-5, 1e-4] and first.rate == 1e-4
    assert first.home.board.division == "closed"
    assert [*other.by_rate] == [1e-4] and len(other.names) == 1


def test_recipes_are_measured_against_their_own_base(site: Site, board: Techniques):
    found = {row.recipe: group.base for group in board.groups for row in group.rows}
    assert found == {"grpo": "ppo", FLIP: "grpo"}
    entries = {entry.name: entry for entry in families(site)[0].home.board.entries}
    model = board.groups[0].rows[0].cells
    llama, qwen = sorted(model)
    for group in board.groups:
        row = group.rows[0]
        pair = paired_axes(entries[f"{llama}/{group.base}"], entries[f"{llama}/{row.recipe}"])
        for axis, effect in row.cells[llama].effects.items():
            assert effect.call == pair[axis].effect.verdict
            shown, computed = vars(effect.effect), vars(pair[axis].effect)
            assert shown | computed == {**shown, "verdict": effect.call}
    assert board.groups[0].rows[0].cells[llama].effects["efficiency"].call == "better"
    assert model[qwen].base is None and model[qwen].effects == {}


def test_figures_of_effects_have_no_room_for_other_tasks(board: Techniques):
    cells = board.groups[0].rows[0].cells
    effects = next(cell.effects for cell in cells.values() if cell.effects)
    wide = {
        axis: replace(pair, effect=pair.effect and replace(pair.effect, wider=Interval(-9.0, 9.0)))
        for axis, pair in effects.items()
    }
    signs = board.stored.board.signs
    assert drawings([("one", wide)], signs) == drawings([("one", effects)], signs)


def test_what_a_recipe_changes_is_read_off_the_records(board: Techniques):
    rows = {row.recipe: row.changes for group in board.groups for row in group.rows}
    (one,) = rows[FLIP]
    assert (one.field, one.before, one.after) == ("clip.high", "0.2", "0.28")
    told = {c.field: c.after for c in rows["grpo"]}
    assert {"advantage", "aggregate", "critic", "kl", "normalize"} == told.keys()
    assert told["critic"] == "none" and told["kl"].startswith("KlInLoss(coefficient=0.04")


def test_the_best_learning_rate_is_the_highest_and_bears_no_verdict(board: Techniques):
    rows = {
        row.recipe: dict(zip(board.rates.rates, row.cells, strict=True)) for row in board.rates.rows
    }
    assert rows.keys() == {"grpo", "ppo"}
    assert rows["ppo"][3e-5].best and not rows["ppo"][1e-4].best
    assert rows["grpo"][1e-4].best and not rows["grpo"][1e-4].effects
    slow = rows["grpo"][3e-5].effects["efficiency"]
    assert slow.call == "preview" and slow.effect.value < 0


def test_a_learning_rate_says_how_many_of_its_runs_failed(
    board: Techniques, files: Mapping[str, bytes]
):
    cells = {
        (row.recipe, rate): cell
        for row in board.rates.rows
        for rate, cell in zip(board.rates.rates, row.cells, strict=True)
    }
    assert {key for key, cell in cells.items() if cell.failed} == {("grpo", 3e-5)}
    cell = cells["grpo", 3e-5]
    assert cell.failed == 1 and cell.runs == 3 * len(board.rates.rows[0].tasks)
    assert files["recipes.html"].decode().count(f"1 of {cell.runs} runs failed") == 1


def test_what_helps_most_says_against_what(board: Techniques, files: Mapping[str, bytes]):
    efficiency = board.answers[0]
    assert efficiency.helpful[0] == ("grpo", "ppo", "Tiny Llama")
    assert "better than ppo for Tiny Llama" in files["recipes.html"].decode()


def test_the_conclusion_is_about_whole_recipes(board: Techniques, files: Mapping[str, bytes]):
    (row,) = [row for row in board.groups[0].rows if row.recipe == "grpo"]
    (effect,) = [cell.effects["efficiency"] for cell in row.cells.values() if cell.effects]
    by = wording.number(effect.effect.value)
    assert (effect.call, board.sentence) == ("better", f"Better than ppo, by {by}: grpo.")
    assert FLIP not in [recipe for recipe, *_ in board.answers[0].helpful]
    text = files["recipes.html"].decode()
    assert board.sentence in text and "grpo, clip ppo-clip high 0.28" in text and FLIP in text


def test_a_rate_is_told_on_the_other_axes_too(
    site: Site, board: Techniques, files: Mapping[str, bytes]
):
    (row,) = [row for row in board.rates.rows if row.recipe == "ppo"]
    cells = dict(zip(board.rates.rates, row.cells, strict=True))
    own = families(site)[0].entries(row.model, "ppo")
    pair = paired_axes(own[1e-4], own[3e-5])["generalization"].effect
    assert cells[3e-5].effects["generalization"].effect.value == pair.value
    assert cells[1e-4].scores["stability"].value == own[1e-4].axes["stability"].value
    assert cells[3e-5].scores["stability"].value is None
    text = files["recipes.html"].decode()
    folded = text.split("Stability and generalization by learning rate")[1].split("</details>")[0]
    assert wording.number(own[3e-5].axes["generalization"].value) in folded
    assert f"{wording.number(pair.value, signed=True)} " in folded


def test_a_failed_run_is_told_with_its_model_where_there_are_several(tmp_path: Path):
    own = {"seeds": 3, "tasks": TASKS[:1], "board": TASKS[:1]}
    other = {"model": "tiny-qwen2", "display_name": "Tiny Qwen2"}
    arm = {"learning_rate": 3e-5, "division": "open"}
    broken = plan("ppo", 0.5, failed=((TASKS[0], 1, 2),), **own, **other, **arm)
    write_board(tmp_path / "runs", plan("ppo", 1.0, **own), plan("ppo", 1.0, **own, **other))
    write_board(tmp_path / "runs", plan("ppo", 0.5, **own, **arm), broken)
    results = read_site(submit(tmp_path / "runs", tmp_path / "results"), Catalog())
    (answer,) = techniques_of(families(results)[0]).rates.answers
    assert answer.endswith(" Runs that failed: ppo of tiny-qwen2 1 of 3.")


def test_a_rate_is_answered_against_the_boards_and_against_the_base(
    board: Techniques, files: Mapping[str, bytes]
):
    (told,) = board.rates.answers
    assert told == (
        "At 3e-5, against the same recipe at 1e-4: Λ 2 preview; Gen 2 preview. "
        "Against ppo at this rate: Λ 1 preview; Gen 1 preview. "
        "Runs that failed: grpo 1 of 6."
    )
    assert board.rates.absent == (FLIP,)
    cells = {row.recipe: row.cells for row in board.rates.rows}
    assert not any(cell.bases for cell in cells["ppo"])
    beside = cells["grpo"][board.rates.rates.index(3e-5)].bases["efficiency"]
    assert beside.effect.value < 0 and beside.effect.interval.high < 0
    text = files["recipes.html"].decode()
    assert f"At the board’s rate alone: {FLIP}." in text
    assert text.count("against ppo") >= 2 and 'href="#' in text.split("Is it the learning rate?")[0]


def test_the_pages_say_it(files: Mapping[str, bytes]):
    text = files["recipes.html"].decode()
    assert "measured against <b>ppo</b>" in text and "no ppo to compare with" in text
    assert "3e-5" in text and "best" in text and "3 comparisons an axis" in text
    own = next(c.decode() for n, c in files.items() if n.startswith("recipes/"))
    assert f'id="efficiency-{FLIP}"' in own and "against grpo" in own


def test_a_model_leads_to_its_recipes_where_they_have_a_page(files: Mapping[str, bytes]):
    paths = [name for name in files if name.startswith("recipes/")]
    assert len(paths) == 1 and "/tiny-llama@" in paths[0]
    assert f'href="../{paths[0]}"' in files["models/tiny-llama.html"].decode()
    assert "recipes/" not in files["models/tiny-qwen2.html"].decode()


def test_paths_are_file_names_on_windows_too(files: Mapping[str, bytes]):
    """Without its forbidden characters and endings, and different whatever their case."""
    assert any("grpo+clip=ppo-clip@high=0.28" in name for name in files)
    for name in files:
        for part in name.split("/"):
            assert not re.search(r'[<>:"\\|?*\x00-\x1f]', part) and part[-1] not in ". ", name
    assert len({name.casefold() for name in files}) == len(files)


def test_one_recipe_is_nothing_to_compare(site: Site):
    alone = replace(site, boards=tuple(b for b in site.boards if len(b.recipes) == 1))
    assert len(alone.boards) == 1
    text = build(alone)["recipes.html"].decode()
    assert "Nothing to compare yet" in text and "<table" not in text


@pytest.mark.parametrize(
    ("recipe", "base"),
    [
        ("ppo", None),
        ("dapo", "ppo"),
        (FLIP, "grpo"),
        (f"{FLIP}+kl=none", FLIP),
        ("grpo+kl.coefficient.value=1e+20", "grpo"),
        ("rloo+kl=none", "ppo"),
    ],
)
def test_a_flip_is_measured_against_what_it_flips(recipe: str, base: str | None):
    assert base_of(recipe, ["ppo", "grpo", FLIP, "dapo"], "ppo") == base


def test_the_main_base_is_one_that_can_be_compared():
    assert main_base([("a", "ppo"), ("b", "grpo"), ("b", "rloo")]) == "grpo"
    assert main_base([("a", "ppo"), ("a", "grpo")]) == "ppo"
    assert main_base([("a", "x"), ("a", "y"), ("b", "y"), ("b", "z")]) == "y"
    assert main_base([("a", "ppo"), ("b", "grpo")]) is None


def test_equal_configurations_change_nothing():
    config = to_config(bundled.load("dapo"))
    assert changes(config, config | {"name": "another"}) == ()


@pytest.mark.parametrize(
    ("rate", "text"), [(1e-4, "1e-4"), (3e-5, "3e-5"), (1e-4 / 3, "3.33e-5"), (0.001, "1e-3")]
)
def test_learning_rates_are_short(rate: float, text: str):
    assert rate_words(rate) == text


def test_a_board_says_what_was_changed_of_its_track(site: Site, files: Mapping[str, bytes]):
    for stored in site.boards:
        slow = stored.leaves["conditions.optimization.learning_rate"] == 3e-5
        assert (stored.changed.get("optimization.learning_rate") == "3e-5") == slow
        page = files[f"boards/{stored.id}/{stored.recipes[0]}.html"].decode()
        assert (page.count("optimization.learning_rate = 3e-5") == 1) == slow
        assert f"<h1>{stored.title}: {stored.recipes[0]}</h1>" in page
        older = replace(stored, board=replace(stored.board, track_version=0))
        assert older.changed == {} and older.title == "mini v0", "not told by another version"
    assert len({stored.title for stored in site.boards}) == len(site.boards)
