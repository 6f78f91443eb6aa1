"""Episodes on the page: what was told, said and paid in every turn, before and after training."""

from __future__ import annotations

import html as markup
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.disk.names import EPISODES
from crlbench.errors import ValidationError
from crlbench.pages.page_episodes import (
    SHOWN_EPISODES,
    SHOWN_PARTS,
    SHOWN_TURNS,
    episode_panels,
)
from crlbench.pages.page_samples import sample_panels
from crlbench.pages.report import render_page
from crlbench.site import runs as run_pages
from crlbench.site.pages import whole
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import Runs, load_runs
from tests.pages.test_browser import SIZES, Visit
from tests.site.stored import html, site_of
from tests.support.chromium import barriers
from tests.support.episodes import LAST, STARTS, give_episodes, played, spoil
from tests.support.simulate import Plan, write_board

PLAN = Plan(seeds=2, items=16, tasks=("addition",))


def board(root: Path, *changes: Callable[[Any], object], plan: Plan = PLAN) -> Runs:
    folder = write_board(root, plan)
    give_episodes(folder, *changes)
    return load_runs(folder)


def page_of(runs: Runs) -> str:
    return render_page(runs, summarise_board(runs, replicates=50))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return board(tmp_path_factory.mktemp("episodes"))


def test_every_turn_is_that_of_the_stored_episode(runs: Runs) -> None:
    (panel,) = episode_panels(["addition"], [*runs])
    episodes = {(one["uid"], one["x"]): one for one in played()[0]}
    assert len(panel["pairs"]) == SHOWN_EPISODES < STARTS
    counts = f"{STARTS} scored higher after training, 0 lower, 0 the same"
    assert panel["moves"] == f"{STARTS} starts stored: {counts}"
    for pair in panel["pairs"]:
        for side, x in (("before", 0), ("after", LAST)):
            stored, shown = episodes[pair["start"], x], pair[side]
            assert shown["score"] == f"{stored['scores'][0]:.2f}" and shown["more"] == 0
            assert [one["said"] for one in shown["turns"]] == [t["said"] for t in stored["turns"]]
            faults = [t["fault"] and f"fault: {t['fault']}" for t in stored["turns"]]
            assert [";".join(one["notes"]) for one in shown["turns"]] == faults
            views = [t["observation"][-1]["content"] for t in stored["turns"]]
            assert [one["told"][-1] for one in shown["turns"]] == [("user", v) for v in views]
            # The rules are told in every turn, and stand above the turns.
            assert [len(one["told"]) for one in shown["turns"]] == [1] * len(views)
            assert pair["rules"] == [stored["turns"][0]["observation"][0]["content"]]


def test_the_page_shows_them_instead_of_transcripts(runs: Runs) -> None:
    assert sample_panels(["addition"], [*runs]) == []
    text = markup.unescape(page_of(runs))
    assert "Episodes, turn by turn" in text and "What it writes, before and after" not in text
    first = played()[0][0]["turns"][0]
    assert f"<pre>{first['said']}</pre>" in text and "fault: not in the range" in text
    assert f'<pre class="told">{first["observation"][1]["content"]}</pre>' in text
    assert all(sample["completion"] not in text for sample in played()[1])


def test_runs_without_episodes_show_samples(tmp_path: Path) -> None:
    runs = load_runs(write_board(tmp_path, PLAN))
    assert episode_panels(["addition"], [*runs]) == []
    assert "Episodes, turn by turn" not in page_of(runs)


def test_scripted_seats_and_payments_are_named(tmp_path: Path) -> None:
    def two_seats(episodes: list[Any]) -> None:
        for episode in episodes:
            episode["scores"] = [1.0, 0.0]
            for number, turn in enumerate(episode["turns"]):
                turn["paid"] = [0.25, 0.0]
                if number == 1:
                    turn |= {"seat": 1}
                    del turn["observation"], turn["tokens"]

    (panel,) = episode_panels(["addition"], [*board(tmp_path, two_seats)])
    turns = panel["pairs"][0]["before"]["turns"]
    assert [turn["who"] for turn in turns[:2]] == ["model, seat 0", "script, seat 1"]
    assert turns[1]["told"] == [] and "paid 0.25 to seat 0" in turns[0]["notes"]


def test_calls_of_tools_are_shown(tmp_path: Path) -> None:
    def calling(episodes: list[Any]) -> None:
        for episode in episodes:
            calls = [{"name": "get", "arguments": {"key": "a"}}]
            said = {"text": "get a", "calls": calls, "malformed": "not JSON", "cut": False}
            episode["turns"][0]["said"] = said

    (panel,) = episode_panels(["addition"], [*board(tmp_path, calling)])
    turn = panel["pairs"][0]["after"]["turns"][0]
    assert turn["said"] == "get a" and turn["calls"] == ['get({"key": "a"})']
    assert turn["notes"][0] == "malformed: not JSON"


def test_long_episodes_say_what_is_left_out(tmp_path: Path) -> None:
    (panel,) = episode_panels(["addition"], [*board(tmp_path, spoil)])
    side = panel["pairs"][0]["before"]
    assert len(side["turns"]) == SHOWN_TURNS
    turn = side["turns"][0]
    assert len(turn["told"]) == len(turn["calls"]) == SHOWN_PARTS
    assert len(turn["notes"]) == SHOWN_PARTS + 3
    assert side["more"] == 9 * len(played()[0][0]["turns"]) - SHOWN_TURNS > 0


BROKEN: dict[str, tuple[Callable[[Any], object], str]] = {
    "a turn that is no object": (lambda e: e[1].update(turns=["x"]), "turns.0"),
    "a field more": (lambda e: e[1].update(more=1), "more"),
    "no text": (lambda e: e[1]["turns"][0].update(said=5), "turns.0.said"),
    "a payment of text": (lambda e: e[1]["turns"][0].update(paid=["<b>"]), "turns.0.paid.0"),
    "an observation of another form": (
        lambda e: e[1]["turns"][0].update(observation=[{"role": "user"}]),
        "turns.0.observation.0.content",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_episode_is_refused_by_its_line_and_field(tmp_path: Path, name: str) -> None:
    change, field = BROKEN[name]
    found = board(tmp_path, change)
    with pytest.raises(ValidationError, match=re.escape(EPISODES)) as error:
        episode_panels(["addition"], [*found])
    assert f"line 2: {field}" in str(error.value)


def test_the_site_shows_them_too_and_texts_of_strangers_stay_text(tmp_path: Path) -> None:
    board(tmp_path, spoil)
    site = site_of(tmp_path, write=False)
    (text,) = [html(site, found) for found in whole(run_pages.pages(site))]
    assert "Episodes, turn by turn" in text and "more turns" in text
    assert "<script>alert" not in text and "<img src=x" not in text
    assert "\u202e" not in text and "{{ 7*7 }}" in text


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("hostile", [False, True])
def test_a_browser_shows_them_at_every_width(chromium, runs: Runs, tmp_path: Path, hostile: bool):
    path = tmp_path / "report.html"
    path.write_text(page_of(board(tmp_path, spoil) if hostile else runs), encoding="utf-8")
    with Visit(chromium, path, min(SIZES.values()), "light") as visit:
        visit.open_details()
        for width in SIZES.values():
            visit.page.set_viewport_size({"width": width, "height": 800})
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        turns = visit.page.locator(".episode").first.locator(".turns").first.locator("li")
        stored = played()[0][0]["turns"]
        assert turns.count() == (SHOWN_TURNS if hostile else len(stored))
        assert turns.first.is_visible() and "Turn 1" in turns.first.inner_text()
        if not hostile:
            assert [pre.split("\n") for pre in turns.nth(1).locator("pre").all_inner_texts()] == [
                [stored[1]["observation"][1]["content"]], [stored[1]["said"]]
            ]  # fmt: skip
            assert barriers(visit.page) == []
        assert visit.problems == [] and set(visit.requests) <= {visit.own, "data:,"}
