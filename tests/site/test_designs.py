"""A site whose board has designs of several pretrainings."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from crlbench.base import wording
from crlbench.catalog.find import Catalog
from crlbench.pages import design_words as say
from crlbench.pages import words
from crlbench.pages.page_axes import _unplaced
from crlbench.site import architectures, compare, method_designs
from crlbench.site import models as models_module
from crlbench.site.article import nearest
from crlbench.site.build import build, write
from crlbench.site.cache import Cache
from crlbench.site.design_standings import in_the_mean, of_designs
from crlbench.site.designs import has_designs
from crlbench.site.effects import design_effect
from crlbench.site.pages import designs_path, entry_path, whole
from crlbench.site.reading import read_site
from crlbench.site.source import Site
from crlbench.site.standings import standings
from crlbench.site.tables import tabulate_pairs
from crlbench.verdict.axes import AXES
from tests.site.browser import Visitor, recompute
from tests.site.simulated import submit, text_of
from tests.support.chromium import ANY, barriers
from tests.support.designs import INDEPENDENT, write_designs

pytestmark = pytest.mark.slow

DESIGNS = {
    "tiny-llama": (2.4, INDEPENDENT),
    "tiny-qwen2": (1.1, INDEPENDENT),
    "tiny-gemma": (1.4, ("i0o0",)),
}
SEVERAL = 2
"""Designs with three checkpoints."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("designs")
    write_designs(root / "runs", DESIGNS)
    return submit(root / "runs", root / "results")


@pytest.fixture(scope="module")
def site(results: Path) -> Site:
    return read_site(results, Catalog())


@pytest.fixture(scope="module")
def files(site: Site) -> dict[str, bytes]:
    return dict(build(site))


@pytest.fixture(scope="module")
def folder(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built") / "site"
    write(files, place)
    return place


def test_a_row_of_the_board_is_a_design(site: Site, files: dict[str, bytes]) -> None:
    text, page = text_of(files, "index.html"), files["index.html"].decode()
    assert page.count('<tr role="row" data-name=') == 3 * len(DESIGNS)
    # Stab has one checkpoint of each, as the others have no stress arm.
    assert text.count("1 of 3 checkpoints") == SEVERAL and "one checkpoint" in text
    assert text.count("3 checkpoints") - text.count("design has 3 checkpoints") == 3 * SEVERAL
    designs = site.boards[0].board.rankings["ppo"]["efficiency"].designs
    for row in designs.rows:
        assert words.value(row.score) in text
        for one in row.checkpoints:
            assert f"{one.label}</a> {words.value(one)}" in page
            assert f"{one.runs} runs" in text
    assert "which says nothing of its design, and has no tier" in text
    assert "false-discovery rate of 5" in text and "Ranks over other tasks" in text


def test_a_design_without_a_rank_is_named_with_the_reason(site: Site) -> None:
    (stored,) = site.boards
    found = stored.board.rankings["ppo"]["efficiency"]
    said = of_designs(found.designs)
    assert said.endswith("Tiny Gemma counts with one checkpoint and has no rank.")
    row = found.designs.row("tiny-llama/ppo")
    first, *others = row.checkpoints
    saturated = [replace(one, counts=False, why="saturated.") for one in others]
    alone = replace(row, checkpoints=(first, *saturated), counted=1)
    rows = tuple(alone if one is row else one for one in found.designs.rows)
    entry = next(one for one in stored.board.entries if one.name == first.entry)
    said = _unplaced(entry, replace(found, designs=replace(found.designs, rows=rows)))
    assert said == (
        "No rank among designs: only i0o0 of 3 checkpoints counts. i1o1: saturated. "
        "i2o2: saturated."
    )


def test_the_page_of_designs_says_how_much_is_pretraining(
    site: Site, files: dict[str, bytes]
) -> None:
    (board,) = site.boards
    assert has_designs(board, "ppo")
    path = designs_path(board.id, "ppo")
    text = text_of(files, path)
    spread = board.board.rankings["ppo"]["efficiency"].designs.spread
    assert list(say.spread(spread))[0].replace("\u00a0", " ") in text
    spreads = [board.board.rankings["ppo"][axis].designs.spread for axis in AXES]
    told = sum(found.reason is None and found.share is not None for found in spreads)
    assert text.count("of the variance between single checkpoints") == told
    for part in spread.parts:
        assert part.words in text and words.measured(part.sd, part.interval) in text
    for axis in AXES:
        for pair in board.board.rankings["ppo"][axis].designs.pairs:
            assert f"{pair.second} − {pair.first}" in text
    assert path in files["index.html"].decode()


def test_a_share_that_may_be_anything_is_not_given(site: Site) -> None:
    found = site.boards[0].board.rankings["ppo"]["efficiency"].designs.spread
    narrow, _, *_ = say.spread(replace(found, share=0.3, share_low=0.2, share_high=0.5))
    assert narrow.startswith("Pretraining is 30") and "20" in narrow and "50" in narrow
    wide, by_task, *_ = say.spread(replace(found, share=0.3, share_low=0.0, share_high=1.0))
    assert wide.startswith("What share of the variance") and "is not known" in wide
    assert "30" not in wide
    sds = {part.term: part.sd for part in found.parts}
    again = sds["design:checkpoint"] ** 2 + sds["design:checkpoint:task"] ** 2
    apart = sds["design"] ** 2 + sds["design:task"] ** 2
    assert f"two designs differ by {wording.number(apart**0.5)} (sd)" in by_task
    assert f"pretrainings of one design by {wording.number(again**0.5)}" in by_task


def test_ranks_over_tasks_name_the_tasks_that_they_leave_out(site: Site) -> None:
    designs = site.boards[0].board.rankings["ppo"]["generalization"].designs
    assert f"take these {designs.task_ranks.tasks} as a sample" in say.over_tasks(designs)
    name = next(iter(designs.task_ranks.ranks))
    row = designs.row(name)
    task, *left = row.score.by_task
    score = replace(row.score, by_task={one: row.score.by_task[one] for one in left})
    rows = tuple(replace(one, score=score) if one is row else one for one in designs.rows)
    fewer = replace(designs.task_ranks, tasks=len(left))
    said = say.over_tasks(replace(designs, rows=rows, task_ranks=fewer))
    assert f"the {len(left)} on which all rows have a number (not {task}) as a sample" in said


def test_a_row_says_of_which_checkpoints_its_cells_are(
    site: Site, files: dict[str, bytes]
) -> None:
    shown = standings(site.boards[0], "ppo")
    panel = shown.panels[0]
    rows = {row.name: row for row in (*panel.rows, *panel.unranked)}
    row = rows["tiny-llama/ppo"]
    assert row.cells["seeds"].text == "3 to 5" and rows["tiny-gemma/ppo"].cells["seeds"].text == "5"
    assert row.cells["placebo"].text.endswith(" (i0o0)") and row.compared == ""
    assert row.checked.endswith("/ppo") and site.boards[0].board.entry(row.checked).ranks
    text = text_of(files, "index.html")
    assert "checkpoint i0o0, from the stored scores of its completions" in text


def test_a_row_is_proven_as_far_as_its_least_proven_checkpoint(site: Site) -> None:
    (stored,) = site.boards
    names = [entry.name for entry in stored.board.entries if entry.slug == "tiny-llama"]
    for badges, told in (
        (("replayed", "reproduced", "replayed"), "replayed"),
        (("replayed", None, "replayed"), "not verified yet"),
    ):
        known = dict(zip(names, badges, strict=True))
        other = replace(stored, badges=stored.badges | known)
        rows = {row.name: row for row in standings(other, "ppo").panels[0].rows}
        assert rows["tiny-llama/ppo"].facets.badge == told


def test_stability_is_told_of_the_checkpoints_that_have_it(
    site: Site, files: dict[str, bytes]
) -> None:
    (stored,) = site.boards
    assert "Stab is about one checkpoint of each." in text_of(files, "index.html")
    (path,) = [name for name in files if name.endswith("entries.csv")]
    rows = list(csv.DictReader(io.StringIO(files[path].decode())))
    of = {(row["entry"], row["axis"]): row for row in rows}
    for entry in stored.board.entries:
        row = of[entry.name, "stability"]
        assert row["checkpoint"] == entry.checkpoint
        assert (row["tier"] != "") == (row["value"] != "") == entry.ranks
        assert row["tier"] or (row["leads"] == "false" and row["unranked"])


def test_checkpoints_of_a_design_are_neither_models_nor_rivals(
    site: Site, files: dict[str, bytes]
) -> None:
    assert "all 3 models, one checkpoint of each" in text_of(files, "transfer.html")
    (stored,) = site.boards
    for entry in stored.board.entries:
        assert entry.slug not in {other.slug for other in nearest(stored, entry)}


def test_pages_of_checkpoints_name_each_by_its_label_and_designs_do_not(
    site: Site, files: dict[str, bytes]
) -> None:
    (stored,) = site.boards
    names = [entry.full_name for entry in stored.entries("ppo")]
    assert names == ["Tiny Gemma i0o0"] + [
        f"Tiny {name} {label}" for name in ("Llama", "Qwen2") for label in INDEPENDENT
    ]
    # Drop-downs and tables, by model and then by label.
    for path in ("transfer.html", "data/compare.js"):
        places = [files[path].decode().index(name) for name in names]
        assert places == sorted(places)
    assert all(name in text_of(files, "stability.html") for name in names)
    assert "Tiny Llama i0o0 with ppo" in text_of(files, entry_path(stored.id, *_first(site)))
    (page,) = [one for one in whole(compare.pages(site)) if one.path == compare.ALL_ENTRIES]
    efficiency, stability, _ = page.data["groups"][0].matrices
    assert {row.label for row in efficiency.rows} == {"Tiny Llama", "Tiny Qwen2"}
    assert {row.label for row in stability.rows} == {
        f"Tiny {name} i0o0" for name in ("Gemma", "Llama", "Qwen2")
    }
    for row in stability.rows:
        assert row.entry.ranks and row.score.value == row.entry.axes["stability"].value


def _first(site: Site) -> tuple[str, str]:
    (stored,) = site.boards
    entry = next(one for one in stored.entries("ppo") if one.full_name == "Tiny Llama i0o0")
    return entry.model, entry.recipe


def test_transfer_without_intervals_says_so_and_counts_nothing(files: dict[str, bytes]) -> None:
    text = text_of(files, "transfer.html")
    silent = "From 3 seeds no interval is made, so no pair of tasks is said to help or to hurt."
    assert text.count(silent) == sum(len(labels) - 1 for _, labels in DESIGNS.values())
    counted = re.findall(r"Of \d+ pairs? of different tasks, \d+ helps? and \d+ hurts?", text)
    assert len(counted) == 1 + len(DESIGNS)


def test_the_numbers_of_a_row_are_of_the_checkpoints_of_its_score(site: Site) -> None:
    (stored,) = site.boards
    found = stored.board.rankings["ppo"]["efficiency"]
    row = found.designs.row("tiny-llama/ppo")
    known = {entry.name: entry for entry in stored.board.entries}
    unit = [known[one.entry] for one in row.checkpoints]
    assert in_the_mean(stored.board, unit) == unit
    first, *others = row.checkpoints
    alone = replace(row, checkpoints=(first, *(replace(one, counts=False) for one in others)))
    rows = tuple(alone if one is row else one for one in found.designs.rows)
    efficiency = replace(found, designs=replace(found.designs, rows=rows))
    rankings = {"ppo": stored.board.rankings["ppo"] | {"efficiency": efficiency}}
    assert in_the_mean(replace(stored.board, rankings=rankings), unit) == [known[first.entry]]


def test_the_method_leads_from_seeds_to_the_place_of_a_design(
    site: Site, files: dict[str, bytes]
) -> None:
    (stored,) = site.boards
    x = method_designs.example(stored)
    part, row = x["part"], x["row"]
    assert row.name == stored.board.rankings["ppo"]["efficiency"].ranking.anchors[0]
    assert x["E"] == pytest.approx(x["H"] + part.known + part.new)
    middle = x["seeds"][x["cut"] : len(x["seeds"]) - x["cut"]]
    assert fmean(middle) == pytest.approx(part.lam_new)
    assert x["tasks"][x["task"]] == pytest.approx(part.lam_new)
    assert fmean(x["tasks"].values()) == pytest.approx(x["value"])
    assert fmean(one.value for one in x["counted"]) == pytest.approx(row.score.value)
    assert x["entry"].lam.value - x["mode"].value == pytest.approx(x["taught"].value)
    text = text_of(files, "method.html")
    assert f"{part.new_items} of {part.items} items are new" in text
    assert f"{row.score.value:.3f}" in text and "no such arm" not in text
    assert 'href="method.html#crl2"' in files["index.html"].decode()


def test_pairs_with_a_preview_have_no_verdict(site: Site) -> None:
    decides = {entry.name: entry.decides for entry in site.boards[0].board.entries}
    exported = csv.DictReader(io.StringIO(tabulate_pairs(site.boards).to_csv().decode()))
    rows = [row for row in exported if row["difference"]]
    assert {decides[row["a"]] and decides[row["b"]] for row in rows} == {True, False}
    for row in rows:
        is_preview = not (decides[row["a"]] and decides[row["b"]])
        assert (row["verdict"] == "preview") == is_preview


def test_a_model_page_leads_with_the_checkpoint_that_has_the_control_arms(
    site: Site, files: dict[str, bytes]
) -> None:
    text = text_of(files, "models/tiny-llama.html")
    assert "Other checkpoints" in text and "Other recipes" not in text
    assert text.index("ppo, i0o0") < text.index("Other checkpoints") < text.index("ppo, i1o1")
    assert "The entry in the catalogue has changed" in text, "made-up records have other digests"
    row = site.boards[0].board.rankings["ppo"]["efficiency"].designs.row("tiny-llama/ppo")
    assert f"Its design: {words.estimate(row.score)}, tier 1 of " in text
    index = text_of(files, "models/index.html")
    assert f"{words.value(row.score)}, tier 1 (3 checkpoints)" in index


def test_runs_of_every_checkpoint_of_a_card_are_of_the_card() -> None:
    catalog = Catalog()
    found = models_module.digests_of_cards(catalog, "tiny2-llama")
    labels = catalog.load_model("tiny2-llama").checkpoints
    assert found == {
        catalog.load_model(name).digest
        for name in ("tiny2-llama", *(f"tiny2-llama@{label}" for label in labels))
    }
    assert len(found) == 1 + len(labels) > 1


def test_architectures_are_compared_over_their_checkpoints(
    site: Site, files: dict[str, bytes]
) -> None:
    text = text_of(files, "architectures.html")
    assert "so they allow for other pretrainings: every ranked design has 3 checkpoints." in text
    assert "One pretrained checkpoint each" not in text and "not run yet" in text
    (page,) = whole(architectures.pages(site))
    (exhibit,) = page.data["exhibits"]
    ran = {one.animal.slug: one for one in exhibit.designs if one.entry}
    assert ran.keys() == DESIGNS.keys()
    for axis in AXES:
        designs = site.boards[0].board.rankings["ppo"][axis].designs
        for slug, one in ran.items():
            assert one.scores[axis].value == designs.row(f"{slug}/ppo").score.value
    assert ran["tiny-llama"].checkpoints == "3 checkpoints" and not ran["tiny-gemma"].checkpoints
    (contrast,) = [one for one in exhibit.contrasts if one.key == "designs"]
    base = contrast.base
    leader = site.boards[0].board.rankings["ppo"]["efficiency"].ranking.anchors[0]
    assert leader == f"{base.animal.slug}/ppo" and not exhibit.with_others
    for slug, effects in contrast.effects.items():
        pair = effects["efficiency"]
        if "tiny-gemma" in (slug, base.animal.slug):
            assert pair.effect is None and pair.reason == "one of the two has no rank"
            continue
        first, second = (one.scores["efficiency"].value for one in (base, ran[slug]))
        assert pair.effect.value == pytest.approx(second - first)
        assert pair.effect.interval.low < pair.effect.value < pair.effect.interval.high
        assert (pair.call == "better") == (pair.effect.interval.low > 0)
        assert (pair.call == "worse") == (pair.effect.interval.high < 0)


@pytest.mark.parametrize("turned", [False, True])
def test_a_difference_of_designs_is_the_same_from_both_sides(site: Site, turned: bool) -> None:
    designs = site.boards[0].board.rankings["ppo"]["efficiency"].designs
    (pair,) = designs.pairs
    rows = [designs.row(pair.first), designs.row(pair.second)]
    effect = design_effect(designs, *(reversed(rows) if turned else rows)).effect
    sign = -1 if turned else 1
    assert effect.value == sign * pair.value
    ends = sorted((sign * pair.interval.low, sign * pair.interval.high))
    assert [effect.interval.low, effect.interval.high] == ends
    other = {"better": "worse", "worse": "better"}
    assert effect.call == (other.get(pair.call, pair.call) if turned else pair.call)


def test_every_link_of_both_pages_leads_somewhere(site: Site, files: dict[str, bytes]) -> None:
    (board,) = site.boards
    for path in ("index.html", designs_path(board.id, "ppo")):
        up = "../" * path.count("/")
        for link in re.findall(r'href="([^"#:]+)', files[path].decode()):
            assert link.removeprefix(up).replace("%40", "@") in files, link


def test_the_table_has_a_row_for_each_design_and_axis(site: Site, files: dict[str, bytes]) -> None:
    (path,) = [name for name in files if name.endswith("designs.csv")]
    rows = list(csv.DictReader(io.StringIO(files[path].decode())))
    assert len(rows) == len(DESIGNS) * len(AXES)
    assert {column for column in rows[0] if not any(row[column] for row in rows)} == set()
    for row in rows:
        designs = site.boards[0].board.rankings["ppo"][row["axis"]].designs
        assert float(row["value"]) == pytest.approx(designs.row(row["design"]).score.value)
        ranked = row["axis"] == "stability" or row["design"] != "tiny-gemma/ppo"
        assert (row["tier"] != "") == ranked


@pytest.mark.full
def test_what_is_kept_of_entries_gives_the_same_site(
    results: Path, files: dict[str, bytes], tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache")
    for _ in range(2):  # made, and then read
        assert dict(build(read_site(results, Catalog(), cache=cache))) == files


@pytest.fixture
def visit(chromium: Any, folder: Path) -> Iterator[Visitor]:
    visitor = Visitor(chromium, {"file": f"{folder.as_uri()}/"})
    yield visitor
    visitor.close()
    assert visitor.problems == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
def test_rows_open_and_nothing_hangs_over(visit: Visitor, site: Site, width: int) -> None:
    for path in ("index.html", designs_path(site.boards[0].id, "ppo")):
        page = visit(path, width=width)
        for summary in page.locator("main details > summary").all():
            if summary.is_visible():
                summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_text("i2o2", exact=True).first.is_visible()


@pytest.mark.browser
def test_a_comparison_of_checkpoints_leads_to_that_of_designs(visit: Visitor, site: Site) -> None:
    (stored,) = site.boards
    ranked = [entry for entry in stored.entries("ppo") if entry.ranks]
    keys = zip("ab", (f"{stored.id}/{one.name}" for one in ranked), strict=False)
    page = visit(f"compare.html#{'&'.join('='.join(key) for key in keys)}")
    page.wait_for_selector("[data-result][data-state=compared]")
    said = page.locator("[data-reach]")
    assert "Each entry is one pretraining, so a verdict says nothing of its design." in (
        said.inner_text()
    )
    assert said.locator("a").get_attribute("href") == designs_path(stored.id, "ppo")
    assert page.locator("[data-left-out]").count() == 0, "all have a number on all tasks"


@pytest.mark.browser
def test_a_comparison_names_the_tasks_that_a_difference_leaves_out(
    chromium: Any, site: Site, files: dict[str, bytes], tmp_path: Path
) -> None:
    (stored,) = site.boards
    a, b = [entry for entry in stored.entries("ppo") if entry.ranks][:2]
    changed = {
        path: content.replace(b'"left_out":[]', b'"left_out":["chains"]')
        if path.endswith(".js")
        else content
        for path, content in files.items()
    }
    assert changed != files
    write(changed, tmp_path / "site")
    visitor = Visitor(chromium, {"file": f"{(tmp_path / 'site').as_uri()}/"})
    page = visitor(f"compare.html#a={stored.id}/{a.name}&b={stored.id}/{b.name}")
    page.wait_for_selector("[data-result][data-state=compared]")
    said = page.locator("[data-axis=efficiency] [data-left-out=chains]").inner_text()
    assert said == (
        f"{b.full_name} against {a.full_name}: without chains, where one of the two has no number."
    )
    visitor.close()


@pytest.mark.browser
def test_lambda_recomputed_in_the_browser_has_the_interval_of_the_protocol(
    visit: Visitor, site: Site
) -> None:
    """Student's, of checkpoints with five seeds and with three."""
    (stored,) = site.boards
    seeds = set()
    for entry in stored.entries("ppo")[:3]:
        page = visit(entry_path(stored.id, entry.model, entry.recipe))
        outcome, _, found = recompute(page, f"{stored.id}/{entry.name}")
        assert outcome == "equal" and found["value"] == pytest.approx(entry.lam.value, abs=1e-12)
        published = [entry.lam.interval.low, entry.lam.interval.high]
        assert found["interval"] == pytest.approx(published, abs=1e-6)
        seeds.add(entry.lam.n)
    assert seeds == {3, 5}


@pytest.mark.browser
def test_rows_are_counted_as_designs(visit: Visitor) -> None:
    page = visit("index.html")
    count = page.locator("[data-count]")
    assert count.inner_text() == "3 designs"
    page.get_by_label("Name").fill("qwen2")
    assert count.inner_text() == "1 of 3 designs; tiers and ranks are those of the whole board"
    page.get_by_label("Name").fill("nothing of that name")
    assert count.inner_text() == "No design matches."


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_accessibility_checker_finds_nothing(
    visit: Visitor, site: Site, width: int, scheme: str
) -> None:
    for path in ("index.html", designs_path(site.boards[0].id, "ppo")):
        assert barriers(visit(path, width=width, scheme=scheme), ANY) == []
