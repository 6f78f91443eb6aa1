"""Entries side by side: numbers, verdicts, refusals, and what every format says."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crlbench.errors import NotComparable, UsageError, ValidationError
from crlbench.pages import words
from crlbench.pages.compare import render_comparison
from crlbench.pages.compare_table import (
    bar,
    markdown_comparison,
    plain_comparison,
    sparkline,
    terminal_comparison,
)
from crlbench.pages.compare_words import CHECKPOINTS, amount, pair_notes
from crlbench.pages.table import escape
from crlbench.verdict.compare import Comparison, compare
from crlbench.verdict.compare_axis import Line, TaskView
from crlbench.verdict.compare_read import Loaded, read_entry
from crlbench.verdict.compare_unequal import Leaf, Unequal, lines
from crlbench.verdict.run_measures import measure
from tests.support.simulate import TASKS, Plan, hostile, rewrite, write_board, write_uneven

ITEMS = 32
VERDICTS = ("better", "worse", "equivalent", "undecided")
SLOW = Plan(items=ITEMS, slope=0.6, shared=0.5, placebo=3)
FAST = replace(SLOW, slope=2.4, model="tiny-qwen2", display_name="Tiny Qwen2")
SAME = replace(SLOW, model="tiny-mistral")


def write_entries(root: Path, *plans: Plan) -> list[Path]:
    """The recipe folder of each plan."""
    board = write_board(root, *plans)
    return [board / f"{plan.model}@00000000" / plan.recipe for plan in plans]


def read(folders: Sequence[Path]) -> list[Loaded]:
    return [read_entry(folder, replicates=400) for folder in folders]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A slow learner, a fast one, and one that learns as the slow one; placebo runs beside."""
    return write_entries(tmp_path_factory.mktemp("compare"), SLOW, FAST, SAME)


@pytest.fixture(scope="session")
def loaded(folders: list[Path]) -> list[Loaded]:
    return read(folders)


@pytest.fixture(scope="session")
def pair(loaded: list[Loaded]) -> Comparison:
    return compare(loaded[:2])


@pytest.fixture(scope="session")
def three(loaded: list[Loaded]) -> Comparison:
    return compare(loaded)


@pytest.fixture(scope="session")
def unequal(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Loaded]:
    """The slow learner, and a run under other conditions."""
    other = write_entries(tmp_path_factory.mktemp("other"), replace(FAST, items=16))
    return read([folders[0], *other])


def every_format(comparison: Comparison) -> dict[str, str]:
    return {
        "text": plain_comparison(comparison),
        "md": markdown_comparison(comparison),
        "json": comparison.to_json(),
        "html": render_comparison(comparison),
    }


# -- numbers -------------------------------------------------------------------------------


def texts_in_words(comparison: Comparison) -> list[str]:
    """Every format but JSON, which has numbers alone."""
    return [text for name, text in every_format(comparison).items() if name != "json"]


def trimmed(values: Sequence[float]) -> float:
    kept = sorted(values)[1:-1]
    return sum(kept) / len(kept)


def lams(one: Loaded) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in one.runs:
        if run.record.arm == "real":
            found.setdefault(run.record.task.name, []).append(measure(run, {}).lam)
    return found


def test_a_difference_is_that_of_the_headlines(pair: Comparison, loaded: list[Loaded]):
    a, b = (lams(one) for one in loaded[:2])
    found = pair.pairs[0].axes["efficiency"]
    by_task = {task: trimmed(b[task]) - trimmed(a[task]) for task in TASKS}
    assert {t: e.value for t, e in found.by_task.items()} == pytest.approx(by_task, abs=1e-12)
    assert found.effect.value == pytest.approx(np.mean(list(by_task.values())), abs=1e-12)
    for axis in pair.axes:
        for effect in (pair.pairs[0].axes[axis].effect, *pair.pairs[0].axes[axis].by_task.values()):
            assert effect.second - effect.first == pytest.approx(effect.value, abs=1e-12)
    heads = [side.axes["efficiency"].value for side in pair.sides]
    assert found.effect.value == pytest.approx(heads[1] - heads[0], abs=1e-12)
    inner, outer, wider = found.effect.inner, found.effect.interval, found.effect.wider
    assert wider.low <= outer.low <= inner.low <= found.effect.value <= inner.high <= outer.high


def test_the_faster_learner_is_better_and_the_other_way_round_worse(loaded: list[Loaded]):
    there, back = (
        compare(order).pairs[0].axes["efficiency"] for order in (loaded[:2], loaded[1::-1])
    )
    assert (there.effect.call, back.effect.call) == ("better", "worse")
    assert back.effect.value == pytest.approx(-there.effect.value, abs=1e-12)
    assert back.effect.interval.low == pytest.approx(-there.effect.interval.high, abs=1e-9)


def test_probability_of_improvement_counts_all_pairs_of_runs(
    pair: Comparison, loaded: list[Loaded]
):
    a, b = (lams(one) for one in loaded[:2])
    wins = [np.mean([(y > x) + 0.5 * (y == x) for x in a[t] for y in b[t]]) for t in TASKS]
    assert pair.pairs[0].improvement == pytest.approx(np.mean(wins), abs=1e-12)


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_probability_of_improvement_needs_three_seeds(seeds: int, tmp_path: Path):
    """Of both entries: 1.00 from one seed of four tasks says next to nothing."""
    few = replace(FAST, seeds=seeds, placebo=0)
    found = compare(read(write_entries(tmp_path, SLOW, few)))
    chance, shown = found.pairs[0].improvement, plain_comparison(found)
    assert (chance is None) == (seeds < 3) == ("P(B > A) is not shown" in shown)
    assert (f"needs 3 seeds of every task in both entries; a task has {seeds}" in shown) == (
        seeds < 3
    )
    assert ("the chance that a run of B" in shown) == (seeds == 3)
    page = render_comparison(found)
    assert ("P(B &gt; A) is not shown" in page or "P(B > A) is not shown" in page) == (seeds < 3)


def test_fewer_than_four_tasks_have_no_interval_over_tasks(loaded: list[Loaded]):
    found = compare(loaded[:2], tasks=TASKS[:3], axes=("efficiency", "generalization"))
    assert all(one.effect.wider is None for one in found.pairs[0].axes.values())
    assert all(one.wider is None for one in found.sides[0].axes.values())
    said = "No interval over other tasks on sample efficiency, generalization: it needs 4 tasks."
    for name, text in every_format(found).items():
        assert name == "json" or said in " ".join(text.split()), name
    whole = compare(loaded[:2])
    assert whole.pairs[0].axes["efficiency"].effect.wider is not None
    text = plain_comparison(compare(loaded[:2], axes=("efficiency",)))
    assert "No interval over other tasks" not in text


def test_a_lead_that_one_task_turns_round_is_one_on_these_tasks_only(tmp_path: Path):
    """Better on the mean, as the seeds say, and not known to be so on other tasks."""
    turned = dict(zip(TASKS, (3.0, 3.0, 3.0, 0.1), strict=True))
    uneven = write_uneven(tmp_path, replace(FAST, placebo=0), turned)
    (slow,) = write_entries(tmp_path / "slow", replace(SLOW, slope=1.0, placebo=0))
    comparison = compare(read([slow, uneven]))
    (pair,) = comparison.pairs
    effect = pair.axes["efficiency"].effect
    assert effect.call == "better" and effect.wider.low < 0 < effect.wider.high
    said = "Shown on these tasks only: sample efficiency"
    assert any(note.startswith(said) for note in pair_notes(comparison, pair))
    for text in texts_in_words(comparison):
        assert said in re.sub(r"\s+", " ", text)


def test_a_lead_on_every_task_is_not_called_one_on_these_tasks_only(pair: Comparison):
    (one,) = pair.pairs
    effect = one.axes["efficiency"].effect
    assert effect.call == "better" and effect.wider.low > 0
    assert not any("sample efficiency. The" in note for note in pair_notes(pair, one))


def test_between_models_every_verdict_is_one_between_two_checkpoints(pair: Comparison):
    for text in texts_in_words(pair):
        plain = re.sub(r"\s+", " ", text)
        assert CHECKPOINTS in plain
        assert "on a task drawn at random" not in plain


def test_a_third_entry_changes_nothing_between_two(pair: Comparison, three: Comparison):
    assert three.pairs[0] == pair.pairs[0]
    assert [(p.first, p.second) for p in three.pairs] == [("A", "B"), ("A", "C"), ("B", "C")]


def test_chosen_tasks_have_their_own_mean(loaded: list[Loaded]):
    found = compare(loaded[:2], tasks=("counting", "addition"))
    scores = found.sides[0].axes["efficiency"]
    assert found.tasks == ("addition", "counting") and set(scores.by_task) == set(found.tasks)
    whole = loaded[0].entry.axes["efficiency"].by_task
    assert scores.value == pytest.approx(np.mean([whole[t].value for t in found.tasks]), abs=1e-12)
    effect = found.pairs[0].axes["efficiency"].effect
    assert effect.value == pytest.approx(found.sides[1].axes["efficiency"].value - scores.value)
    assert "Only addition, counting: chosen tasks are no board" in plain_comparison(found)


def test_one_axis_says_nothing_of_the_others(loaded: list[Loaded]):
    found = compare(loaded[:2], axes=("generalization",))
    assert list(found.pairs[0].axes) == ["generalization"] == list(found.sides[0].axes)
    text = plain_comparison(found)
    assert "Gen" in text and "Sample efficiency" not in text and "E = H + L" not in text
    assert found.pairs[0].improvement is None and '<h2 id="learning"' not in render_comparison(
        found
    )


def test_placebo_runs_stand_beside(pair: Comparison):
    control = pair.sides[1].placebo
    assert control.n == 3 and control.net.value is not None
    text = plain_comparison(pair)
    assert "Λ placebo" in text and words.value(control.lam) in text


# -- standing ------------------------------------------------------------------------------


def test_a_preview_has_differences_and_no_verdict(tmp_path: Path):
    found = compare(read(write_entries(tmp_path, replace(SLOW, seeds=3), replace(FAST, seeds=3))))
    effects = [one.effect for one in found.pairs[0].axes.values() if one.effect is not None]
    assert effects and {effect.call for effect in effects} == {"preview"}
    assert all(isinstance(effect.value, float) for effect in effects)
    by_task = [e for one in found.pairs[0].axes.values() for e in one.by_task.values()]
    assert {effect.more_seeds for effect in (*effects, *by_task)} == {None}
    for text in every_format(found).values():
        assert "preview" in text
    assert "A preview, not a verdict" in plain_comparison(found)
    assert not re.search(r"[▲▼■]", plain_comparison(found))


def test_one_preview_makes_the_pair_one(tmp_path: Path, loaded: list[Loaded]):
    (few,) = read(write_entries(tmp_path, replace(FAST, seeds=2)))
    effect = compare([loaded[0], few]).pairs[0].axes["efficiency"].effect
    assert effect.call == "preview" and effect.n == 2


def test_naming_all_tasks_changes_no_number(loaded: list[Loaded]):
    plain_axes, named = (
        compare(loaded[:2], **more).sides[0].axes for more in ({}, {"tasks": TASKS})
    )
    for axis, score in plain_axes.items():
        assert (named[axis].value, named[axis].interval) == (score.value, score.interval)
        assert (named[axis].wider, named[axis].by_task) == (score.wider, score.by_task)


def test_a_verdict_on_a_pair_needs_no_placebo_arm(tmp_path: Path, loaded: list[Loaded]):
    (other,) = read(write_entries(tmp_path, replace(FAST, placebo=0)))
    found = compare([loaded[0], other])
    effect = found.pairs[0].axes["efficiency"].effect
    assert effect.call == "better" and found.sides[1].standing == "preview"


def test_failed_and_vanished_runs_are_named(tmp_path: Path, loaded: list[Loaded]):
    plan = replace(FAST, failed=(("counting", 3, 22),))
    (folder,) = write_entries(tmp_path, plan)
    shutil.rmtree(folder / "addition" / "real" / "seed-01")
    found = compare([loaded[0], *read([folder])], by="bytes")
    side = found.sides[1]
    assert side.vanished == ("addition seed-01",) and "counting seed-03" in side.failed[0]
    for text in every_format(found).values():
        assert "addition seed-01" in text and "counting seed-03" in text
    lines_of = {line.seed: line for line in side.tasks["addition"].lines}
    assert lines_of[1].state == "vanished" and set(lines_of[1].u) == {0.0}


def test_every_plan_that_runs_cite_is_named(tmp_path: Path):
    (folder, other) = write_entries(tmp_path, replace(SLOW, seeds=2), replace(FAST, seeds=2))
    one, two = read([folder, other])
    run = one.runs.runs[-1]
    changed = replace(run, record=run.record.model_copy(update={"plan_hash": "f" * 64}))
    runs = replace(one.runs, runs=(*one.runs.runs[:-1], changed))
    found = compare([replace(one, runs=runs), two])
    assert found.sides[0].plans == (one.runs.runs[0].record.plan_hash, "f" * 64)
    assert len(found.sides[1].plans) == 1
    page = render_comparison(found)
    assert all(plan[:12] in page for side in found.sides for plan in side.plans)


# -- unequal conditions --------------------------------------------------------------------


def test_unequal_conditions_are_refused_with_both_values(unequal: list[Loaded]):
    with pytest.raises(NotComparable) as caught:
        compare(unequal)
    message = str(caught.value)
    assert caught.value.exit_code == 4 and "--force-unequal" in message
    assert "conditions.evaluation.curve_items: 32 / 16" in message
    assert "conditions.evaluation.end_items: 32 / 16" in message
    for one in unequal:
        assert f"{one.entry.name} ({one.board.fingerprint})" in message


def test_by_force_there_is_a_watermark_everywhere_and_no_verdict(unequal: list[Loaded]):
    found = compare(unequal, force=True)
    assert found.watermark.startswith("NOT COMPARABLE: A and B")
    assert found.pairs[0].axes["efficiency"].effect.value > 0
    formats = every_format(found)
    for name, text in formats.items():
        assert "NOT COMPARABLE" in text, name
        spoken = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
        assert not any(re.search(rf"\b{verdict}\b", spoken) for verdict in VERDICTS), name
        assert (
            "conditions.evaluation.curve_items".replace("_", r"\_" if name == "md" else "_") in text
        )
    assert formats["text"].count("NOT COMPARABLE") == 2 and formats["md"].count("> **NOT") == 2
    assert json.loads(formats["json"])["watermark"] == found.watermark
    assert 'class="banner"' in formats["html"] and 'class="watermarked"' in formats["html"]
    assert not re.search(r"[▲▼■○◇]", "".join(formats.values()))


def test_equal_entries_have_no_watermark(pair: Comparison):
    for text in every_format(pair).values():
        assert not re.search(r"NOT COMPARABLE: |class=\"banner\"", text)
    assert json.loads(pair.to_json())["watermark"] is None


def test_many_leaves_are_counted_beyond_a_screenful():
    leaves = tuple(Leaf(f"leaf.{i:03d}", i, None) for i in range(90))
    names = ("one/ppo", "two\x1b/ppo")
    told = lines([Unequal("A", k, names, ("a", "b"), leaves) for k in ("B", "C")])
    assert told[0] == "A one/ppo (a) and B two\\u001b/ppo (b):"
    assert len(told) <= 25 and "  leaf.000: 0 / (absent)" in told
    assert "  70 more leaves" in told and "  90 more leaves" in told
    long = lines([Unequal("A", "B", names, ("a", "b"), (Leaf("x", "y" * 99, "\u202e"),))])
    assert len(long[1]) < 60 and "\\u202e" in long[1]


def on_hardware(root: Path, name: str) -> Path:
    (folder,) = write_entries(root, FAST)
    for path in folder.rglob("record.json"):
        environment = json.loads(path.read_text())["environment"]
        rewrite(path.parent, environment=environment | {"hardware_class": name})
    return folder


def test_other_hardware_is_refused_and_never_compared_by_time(tmp_path: Path, loaded: list[Loaded]):
    both = [loaded[0], *read([on_hardware(tmp_path, "H200")])]
    with pytest.raises(NotComparable, match=r"environment\.hardware_class: cpu / H200"):
        compare(both)
    forced = compare(both, force=True)
    assert "different hardware" in forced.watermark
    with pytest.raises(NotComparable, match="wall time compares nothing"):
        compare(both, force=True, by="time")


# -- the x-axis ----------------------------------------------------------------------------


def test_bytes_and_updates_change_the_curves_and_no_verdict(loaded: list[Loaded], pair: Comparison):
    for by, factor in (("bytes", 9.0), ("updates", 1 / 64)):
        found = compare(loaded[:2], by=by)
        assert found.pairs == pair.pairs
        for task, view in found.sides[0].tasks.items():
            usual = pair.sides[0].tasks[task]
            assert view.total == pytest.approx(factor * usual.total)
            assert view.E == pytest.approx(usual.E) and view.L == pytest.approx(view.E - view.H)
            means = [[a.restricted_mean for a in one.arrivals] for one in (view, usual)]
            assert means[0] == pytest.approx([factor * mean for mean in means[1]])


def clocked(folder: Path, rate: float) -> Path:
    """Wall seconds for every evaluation of a folder's runs; no digest covers them."""
    for path in folder.rglob("record.json"):
        content = json.loads(path.read_text())
        content["volatile"]["wall_s"] = [0.25 + rate * point["x"] for point in content["curve"]]
        path.write_text(json.dumps(content))
    return folder


def test_time_is_read_from_the_wall_clock_and_marked(tmp_path: Path):
    plan = replace(FAST, failed=(("counting", 3, 22),))
    folders = write_entries(tmp_path, SLOW, plan)
    shutil.rmtree(folders[1] / "addition" / "real" / "seed-01")
    both = read([clocked(folders[0], 0.01), clocked(folders[1], 0.02)])
    usual, found = compare(both), compare(both, by="time")
    assert found.pairs == usual.pairs
    for side, plain, rate in zip(found.sides, usual.sides, (0.01, 0.02), strict=True):
        for task, view in side.tasks.items():
            assert view.total == pytest.approx(rate * plain.tasks[task].total)
            assert view.E == pytest.approx(plain.tasks[task].E)
            for line, other in zip(view.lines, plain.tasks[task].lines, strict=True):
                assert line.x == pytest.approx([rate * x for x in other.x])
    for name, text in every_format(found).items():
        if name != "json":
            assert "NOT REPRODUCIBLE" in text
    assert json.loads(found.to_json())["by"] == "time"


def test_without_a_wall_clock_there_is_no_time(loaded: list[Loaded]):
    with pytest.raises(ValidationError, match=r"record\.json: volatile\.wall_s: must be 21 rising"):
        compare(loaded[:2], by="time")


# -- refusals ------------------------------------------------------------------------------


def test_what_is_no_comparison_is_refused(
    loaded: list[Loaded], folders: list[Path], tmp_path: Path
):
    with pytest.raises(UsageError, match="at least two entries"):
        compare(loaded[:1])
    with pytest.raises(UsageError, match="given twice"):
        compare([loaded[0], loaded[0]])
    with pytest.raises(UsageError, match="Did you mean addition"):
        compare(loaded[:2], tasks=("adition",))
    with pytest.raises(UsageError, match="holds 3 entries") as caught:
        read_entry(folders[0].parents[1])
    assert str(folders[1]) in str(caught.value)
    for part in ("addition", "addition/real", "addition/real/seed-00"):
        with pytest.raises(UsageError, match=r"a part of an entry.*: give .*/ppo$"):
            read_entry(folders[0] / part)
    (alone,) = write_entries(tmp_path, replace(SLOW, arm="placebo", seeds=2))
    with pytest.raises(UsageError, match="no run of the real arm"):
        read_entry(alone)


# -- formats -------------------------------------------------------------------------------


def test_equal_comparisons_give_equal_bytes(folders: list[Path], pair: Comparison):
    again = compare(read(folders[:2]))
    assert every_format(again) == every_format(pair)


def test_every_format_has_the_verdicts_and_the_numbers(three: Comparison):
    formats = every_format(three)
    for found in three.pairs:
        for one in found.axes.values():
            if one.effect is None:
                continue
            digits = words.value(one.effect).lstrip("−")
            assert all(digits in formats[name] for name in ("text", "md", "html"))
            assert all(one.effect.call in text for text in formats.values())
    data = json.loads(formats["json"])
    assert [side["key"] for side in data["sides"]] == ["A", "B", "C"]
    assert data["pairs"][0]["axes"]["efficiency"]["effect"]["call"] == "better"
    assert "drawn" not in data["sides"][0]["axes"]["efficiency"]


def test_the_terminal_shows_what_the_pipe_shows(three: Comparison):
    from rich.console import Console

    for width in (80, 130):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        console.print(terminal_comparison(three, width))
        text = console.file.getvalue()
        assert re.search(r"list-ops +−?0\.\d{2} +−?0\.\d{2} +[+−]0\.\d{2} \[", text)
    assert "▲ better" in text and "B tiny-qwen2/ppo against A tiny-llama/ppo" in text
    assert "\x1b[" not in plain_comparison(three)


def test_notes_stand_apart_from_tables_one_block_an_entry(tmp_path: Path):
    few = write_entries(tmp_path, replace(SLOW, seeds=2), replace(FAST, seeds=3))
    text = plain_comparison(compare(read(few)))
    blocks = text.split("\n\n")
    for letter, seeds in (("A", 2), ("B", 3)):
        block = next(b for b in blocks if b.startswith(f"  {letter} ") and "seeds, preview" in b)
        assert f"{seeds} seeds" in block
        assert all(line.startswith("  ") and len(line) <= 100 for line in block.splitlines())


def test_strangers_names_are_harmless_in_every_format(tmp_path: Path):
    plan = hostile(replace(SLOW, seeds=2, tasks=("addition",), recipe="<b>|*x*\x1b[31m"))
    found = compare(read(write_entries(tmp_path, plan, replace(plan, model="other"))))
    formats = every_format(found)
    assert "<b>|" not in formats["html"] and "<script" not in formats["html"]
    assert "\x1b" not in formats["text"] and "\u202e" not in formats["html"]
    assert "<b>" not in formats["md"] and r"\*x\*" in formats["md"]
    assert escape("a\\|b") == "a\\\\\\|b"


def view(E: float | None, H: float, points: Sequence[tuple[float, float]] = ()) -> TaskView:
    xs, us = tuple(p[0] for p in points), tuple(p[1] for p in points)
    line = Line(0, "completed", len(points), xs, us)
    learned = None if E is None else E - H
    return TaskView(1, E, H, learned, False, None, (), (line,) if points else ())


def test_bars_of_characters_add_up():
    assert bar(view(0.5, 0.2), 1.0, 10) == "░░███"
    assert bar(view(0.2, 0.5), 1.0, 10) == "░░×××"
    assert bar(view(-0.1, -0.2), 1.0, 10) == "" and bar(view(None, 0.1), 1.0) == "–"


def test_amounts_are_as_exact_as_they_need_to_be():
    assert [amount(v) for v in (None, 64.0, 2.34, 512.6, 10240.0)] == [
        "–",
        "64",
        "2.3",
        "513",
        "10,240",
    ]


def test_a_sparkline_stands_on_the_common_axis():
    rising = view(0.5, 0.0, ((0.0, 0.0), (10.0, 1.0))).mean
    assert sparkline(rising, 10.0, 1.0, 5) == "▁▃▅▆█"
    assert sparkline(rising, 20.0, 1.0, 5) == "▁▅█"
    assert sparkline([], 10.0, 1.0) == "–"
    assert sparkline([(0.0, -1.0), (10.0, 0.0)], 10.0, 0.0, 3) == "▁▁▁"
