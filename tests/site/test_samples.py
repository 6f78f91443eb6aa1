"""The sample viewer: every stored completion is there once, in scripts of bounded size."""

from __future__ import annotations

import html as markup
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crlbench.base import wording
from crlbench.site import samples
from crlbench.site.pages import File, Page
from crlbench.site.source import Site
from crlbench.verdict.runs import Run
from tests.site.browser import WAYS, Guest, Visitor
from tests.site.conftest import Made
from tests.site.simulated import ATTACK
from tests.site.stored import html, site_of
from tests.support.chromium import barriers
from tests.support.simulate import Plan, hostile

TASKS = ("addition", "counting")
PLAN = Plan(tasks=TASKS, board=TASKS, items=16, placebo=3, failed=(("counting", 3, 22),))
browser = pytest.mark.browser


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return site_of(tmp_path_factory.mktemp("samples"), PLAN)


def parts(site: Site) -> tuple[Page, list[File]]:
    stored = site.boards[0]
    page, *files = samples.entry_parts(stored, stored.board.entries[0])
    assert isinstance(page, Page)
    return page, [file for file in files if isinstance(file, File)]


def content(file: File) -> dict[str, Any]:
    """What a script assigns."""
    return json.loads(file.content.decode().split("] = ")[-1].removesuffix(";\n"))


def shown(page: Page, files: list[File]) -> Counter[tuple[Any, ...]]:
    """Every completion that the page can show: arm, task, seed, item, moment, score and text."""
    by_path = {file.path: content(file) for file in files}
    found: Counter[tuple[Any, ...]] = Counter()
    for task in json.loads(page.data["index"]):
        for name, _ in task["files"]:
            for number, item, *cells in by_path[name]["rows"]:
                run, texts = task["runs"][number], by_path[name]["items"][item]
                for x, cell in zip(run["moments"], cells, strict=True):
                    where = (run["arm"], task["task"], run["seed"], *texts, x)
                    found.update([] if cell is None else [(*where, *cell)])
    return found


def stored(runs: tuple[Run, ...]) -> Counter[tuple[Any, ...]]:
    """The same, as the runs have it."""

    def text(content: str) -> str:
        return wording.visible(content.strip("\n"))

    return Counter(
        (run.arm, run.task, run.record.seed.index, one.uid, text(one.prompt), text(one.answer))
        + (one.x, one.score, text(one.completion))
        for run in runs
        for one in run.samples()
    )


def test_every_stored_completion_is_there_once(small: Site) -> None:
    page, files = parts(small)
    found = shown(page, files)
    assert found == stored(small.boards[0].runs.runs)
    assert {one[0] for one in found} == {"real", "placebo"} and max(found.values()) == 1
    assert page.data["left_out"] == 0 and page.data["runs"] == len(small.boards[0].runs.runs)


def test_a_script_is_bounded_and_rows_go_on_in_the_next(
    small: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, whole = parts(small)
    most = max(len(file.content) for file in whole) // 3
    monkeypatch.setattr(samples, "PART_BYTES", most)
    page, files = parts(small)
    assert len(files) > len(whole)
    # What surrounds the rows of a script is no part of its bound.
    assert max(len(file.content) for file in files) < most + 250
    assert shown(page, files) == shown(one, whole)
    for task in json.loads(page.data["index"]):
        holding = [
            {number for number, *_ in content(file)["rows"]}
            for name, _ in task["files"]
            for file in files
            if file.path == name
        ]
        for number, run in enumerate(task["runs"]):
            assert run["parts"] == [i for i, runs in enumerate(holding) if number in runs]


def test_what_is_too_much_is_left_out_and_said(
    small: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, files = parts(small)
    most = sum(len(file.content) for file in files) // 2
    monkeypatch.setattr(samples, "MOST", most)
    page, fewer = parts(small)
    assert sum(len(file.content) for file in fewer) < most + 250 * len(fewer)
    assert 0 < page.data["left_out"] == whole.data["runs"] - page.data["runs"]
    assert f"{page.data['left_out']} later runs are left out" in html(small, page)
    assert shown(page, fewer) < shown(whole, files)
    monkeypatch.setattr(samples, "MOST", 10)
    board = small.boards[0]
    assert list(samples.entry_parts(board, board.board.entries[0])) == []


def test_texts_of_strangers_stay_text(tmp_path: Path) -> None:
    site = site_of(tmp_path, hostile(replace(PLAN, seeds=2, placebo=0, failed=())))
    page, files = parts(site)
    text = html(site, page)
    assert "<script>alert" not in text and "<img src=x" not in text
    for file in files:
        assert b"<" not in file.content and file.content.isascii()
        assert "\u202e" not in json.dumps(content(file), ensure_ascii=False)


def test_pages_of_results_lead_there(files: Mapping[str, bytes], small: Site) -> None:
    board = next(path for path in files if path.startswith("samples/mini-")).split("/")[1]
    paths = sorted(path for path in files if path.startswith(f"samples/{board}/"))
    assert paths
    for path in paths:
        folder = path.removeprefix("samples/").removesuffix(".html")
        entry = files[f"runs/{folder}/index.html"].decode()
        run = files[f"runs/{folder}/addition.html"].decode()
        assert f'href="../../../../{path}"' in markup.unescape(entry)
        assert f'href="../../../../{path}#task=addition"' in markup.unescape(run)


# -- in a browser --------------------------------------------------------------------------


def of_llama(site: Site, files: Mapping[str, bytes]) -> tuple[str, tuple[Run, ...]]:
    """The page of a simulated entry, and its runs."""
    board = site.boards[0]
    entry = next(one for one in board.board.entries if one.recipe == "ppo" and one.n == 5)
    path = samples.samples_path(board.id, entry.model, entry.recipe)
    assert path in files
    return path, board.by_entry[entry.name]


def pick(page: Any, name: str) -> Any:
    """A control of the form."""
    return page.locator(f"[data-viewer] [name={name}]")


def ends(runs: tuple[Run, ...], task: str, seed: int) -> list[tuple[float, float]]:
    """Scores of each item before and after, of a seed of the real arm."""
    (run,) = (r for r in runs if (r.arm, r.task, r.record.seed.index) == ("real", task, seed))
    by_uid: dict[str, list[float]] = {}
    for sample in run.samples():
        by_uid.setdefault(sample.uid, []).append(sample.score)
    return [(scores[0], scores[-1]) for scores in by_uid.values()]


@pytest.mark.slow
@browser
@pytest.mark.parametrize("over", WAYS)
def test_it_shows_one_page_of_a_seed(
    visit: Visitor, site: Site, files: Mapping[str, bytes], over: str
) -> None:
    path, runs = of_llama(site, files)
    page = visit(path, over=over)
    page.locator("[data-samples] .sample").first.wait_for()
    scores = ends(runs, "addition", 0)
    assert page.locator("[data-samples] .sample").count() == min(10, len(scores))
    rights = [sum(pair[side] >= 1 for pair in scores) for side in (0, 1)]
    said = page.locator("[data-message]").inner_text()
    assert said == (
        f"{len(scores)} prompts: {rights[0]} right before training, {rights[1]} after."
    )


@browser
def test_filters_count_as_the_stored_scores(
    visit: Visitor, site: Site, files: Mapping[str, bytes]
) -> None:
    path, runs = of_llama(site, files)
    page = visit(path)
    pick(page, "task").select_option("counting")
    pick(page, "run").select_option("real 1")
    scores = ends(runs, "counting", 1)
    seen = set()
    for before in ("right", "wrong"):
        for after in ("right", "wrong"):
            pick(page, "before").select_option(before)
            pick(page, "after").select_option(after)
            wanted = sum(
                (a >= 1) == (before == "right") and (b >= 1) == (after == "right")
                for a, b in scores
            )
            page.wait_for_function(
                "n => Number(document.querySelector('[data-rows]').dataset.found) === n", arg=wanted
            )
            seen.add(wanted)
            visible = page.locator("[data-samples] .sample:visible")
            assert visible.count() == min(wanted, 10)
            assert visible.locator(".right").count() == min(wanted, 10) * (
                (before == "right") + (after == "right")
            )
    assert len(seen) > 1
    assert "task=counting&run=real+1&before=wrong&after=wrong" in page.url


@browser
def test_pages_turn_and_an_address_brings_back_what_was_seen(
    visit: Visitor, site: Site, files: Mapping[str, bytes]
) -> None:
    path, runs = of_llama(site, files)
    page = visit(f"{path}#task=addition&run=all")
    real = [run for run in runs if run.task == "addition"]
    total = sum(len({sample.uid for sample in run.samples()}) for run in real)
    last = -(-total // 10)
    page.get_by_text(f"Page 1 of {last}", exact=True).wait_for()
    assert page.get_by_role("button", name="Back").is_disabled()
    heads = page.locator("[data-samples] h3").all_inner_texts()
    page.get_by_role("button", name="Next").click()
    page.get_by_text(f"Page 2 of {last}", exact=True).wait_for()
    after = page.locator("[data-samples] h3").all_inner_texts()
    assert not {*heads} & {*after}
    again = visit(f"{path}#{page.url.partition('#')[2]}")
    again.get_by_text(f"Page 2 of {last}", exact=True).wait_for()
    assert again.locator("[data-samples] h3").all_inner_texts() == after
    uid = pick(again, "item").locator("option").nth(2).get_attribute("value")
    pick(again, "item").select_option(uid)
    again.wait_for_function(
        "n => Number(document.querySelector('[data-rows]').dataset.found) === n", arg=len(real)
    )
    pick(again, "show").select_option("after")
    again.wait_for_function("location.hash.includes('show=after')")
    asked = again.locator("[data-samples] .tag", has_text="After")
    controls = again.get_by_text("The final model was not asked: the run is a control")
    assert 0 < asked.count() < len(real) == asked.count() + controls.count()
    assert again.locator("[data-samples] .tag", has_text="Before").count() == 0


@browser
def test_a_run_that_failed_has_no_end(
    visit: Visitor, site: Site, files: Mapping[str, bytes]
) -> None:
    board = site.boards[0]
    (run,) = (run for run in board.runs if run.status.state == "failed" and run.arm == "real")
    path = samples.samples_path(board.id, run.model, run.recipe)
    seed = run.record.seed.index
    page = visit(f"{path}#task={run.task}&run=real+{seed}")
    said = page.get_by_text("The final model was not asked: the run failed")
    said.first.wait_for()
    moments = {sample.x for sample in run.samples()}
    assert len(moments) == 1
    pick(page, "after").select_option("right")
    page.get_by_text(re.compile("^0 of ")).wait_for()


@browser
@pytest.mark.parametrize("where", ["", "#task=nothing&run=real+99&page=999&before=x&item=y"])
def test_an_address_that_names_nothing_shows_the_first(
    visit: Visitor, site: Site, files: Mapping[str, bytes], where: str
) -> None:
    path, _ = of_llama(site, files)
    page = visit(path + where)
    page.locator("[data-samples] .sample").first.wait_for()
    assert pick(page, "task").input_value() == "addition"
    assert pick(page, "run").input_value() == "real 0"
    assert pick(page, "item").input_value() == ""


@browser
def test_without_scripts_the_page_says_where_completions_are(
    look: Guest, site: Site, files: Mapping[str, bytes]
) -> None:
    path, _ = of_llama(site, files)
    page = look(path, scripts=False)
    links = page.locator("noscript a").all()
    assert links and page.locator("[data-viewer]").is_hidden()


@browser
def test_what_strangers_wrote_runs_nothing_once_it_is_shown(
    visit_strange: Visitor, strange: Made
) -> None:
    path = strange.kinds["samples.html.j2"].path
    page = visit_strange(path)
    page.locator("[data-samples] .sample").first.wait_for()
    assert page.evaluate("window.hacked") is None
    shown_text = page.locator("[data-samples]").inner_text()
    assert ATTACK.partition("\u202e")[0] in shown_text and "\u202e" not in shown_text
    assert page.locator("[data-samples] :is(img, script)").count() == 0
    pick(page, "find").fill("</script>")
    page.wait_for_function("document.querySelector('[data-rows]').dataset.found > 0")


@browser
def test_a_long_text_is_cut_until_the_rest_is_asked_for(
    visit: Visitor, site: Site, files: Mapping[str, bytes]
) -> None:
    path, _ = of_llama(site, files)
    page = visit(path)
    page.locator("[data-samples] .sample").first.wait_for()
    page.evaluate("""
        const rows = Object.values(crlbench.samples)[0].rows;
        rows[0][2] = [0, "x".repeat(5000)];
    """)
    pick(page, "show").select_option("before")
    button = page.get_by_role("button", name="Show all 5,000 characters")
    button.wait_for()
    shown_text = page.locator("[data-samples] .sample").first.locator(".wrong pre")
    assert len(shown_text.inner_text()) == 2000
    button.click()
    assert len(shown_text.inner_text()) == 5000


@pytest.mark.slow
@browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_filled_page_is_accessible(
    look: Guest, site: Site, files: Mapping[str, bytes], width: int, scheme: str
) -> None:
    path, _ = of_llama(site, files)
    page = look(f"{path}#run=all", width=width, scheme=scheme)
    page.get_by_text("Page 1 of", exact=False).first.wait_for()
    assert barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
