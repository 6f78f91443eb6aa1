"""The page: whole, escaped, self-contained, reproducible."""

from __future__ import annotations

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from crlbench.contract.dynamics import UPDATE_STATS
from crlbench.pages import words
from crlbench.pages.report import render_page
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import Runs, load_runs
from tests.support.simulate import Plan, hostile, write_board

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Checks that tags are balanced and ids unique, and collects what a browser would load."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        if tag != "a":
            self.loads += [found[k] for k in ("src", "href", "data", "action") if k in found]
        assert not [name for name in found if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    return reader


def page_of(tmp_path: Path, *plans: Plan) -> str:
    runs = load_runs(write_board(tmp_path, *plans))
    return render_page(runs, summarise_board(runs, replicates=200))


@pytest.fixture(scope="module")
def page(five_runs: Runs, five_summary: Board) -> str:
    return render_page(five_runs, five_summary)


def test_structure(page: str):
    reader = read(page)
    assert page.startswith("<!doctype html>")
    assert reader.tags.count("h1") == 1 and "main" in reader.tags
    assert "script" not in reader.tags and "img" not in reader.tags
    assert reader.tags.count("table") == reader.tags.count("thead")
    assert "caption" in reader.tags


def test_nothing_is_loaded_from_anywhere(page: str):
    assert read(page).loads == ["data:,"]
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page) == []
    assert "@import" not in page and "url(" not in page
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:;" in page


def test_every_number_of_the_headline_table_stands_there(page: str, five_summary: Board):
    text = " ".join(read(page).text)
    entry = five_summary.entries[0]
    for task in entry.tasks:
        spans = [words.span(one.interval) for one in (task.lam, task.gain)]
        values = [words.value(task.lam), words.value(task.gain, signed=True)]
        for shown in (f"{task.start:.2f}", f"{task.end:.2f}", *values, *spans):
            assert shown in text
    assert words.value(entry.lam) in text
    assert five_summary.fingerprint in text
    assert "counting seed-03: kl_cap at iteration 22" in text


def test_every_seed_of_every_task_is_drawn(page: str):
    for index in range(5):
        assert page.count(f"<title>tiny-llama ppo, seed {index}</title>") == 4


def test_splits_health_samples_conditions_and_command(page: str):
    text = " ".join(read(page).text)
    for expected in (
        "HARD",
        "FORMAT",
        "TRAIN-fixed",
        "→ list-ops",
        "Entropy",
        "KL to the reference",
        "times its running median (alarm above 10)",
        "17 + 25 =",
        "Before",
        "After",
        "conditions.budget.prompts",
        "packages.torch",
        "How to read this page",
        "E = H + L",
    ):
        assert expected in text, expected
    assert "crlbench evaluate --model tiny-llama --track mini --recipe ppo --seeds 5" in text


def test_all_dynamics_and_the_clipped_tokens_are_there_with_their_meaning(page: str):
    text = " ".join(read(page).text)
    for name in ("clip_low", "ratio_p99", "ess", "update_cosine", "group_variance", "length_right"):
        assert name in text and UPDATE_STATS[name] in text
    assert "value_loss" not in text  # no value in any iteration
    tokens = text[text.index("held back most often") :]
    assert "42" in tokens and "␣\\n" in tokens
    assert re.search(r">25</td>.*>45</td>", page)  # summed over the five seeds


def test_changed_conditions_are_part_of_the_command(page: str):
    assert "--set evaluation.curve_items=64 --set evaluation.end_items=64" in page


def test_equal_records_give_equal_bytes(tmp_path: Path):
    plan = Plan(seeds=2, items=16, tasks=("addition",))
    one, two = page_of(tmp_path / "one", plan), page_of(tmp_path / "two", plan)
    assert one == two
    record = next((tmp_path / "two").rglob("record.json"))
    data = json.loads(record.read_text())
    other = {"wall_s": [9.0], "peak_memory_bytes": 5e9, "attempts": [{"host": "elsewhere"}]}
    record.write_text(json.dumps(data | {"volatile": other}))
    runs = load_runs(tmp_path / "two")
    again = render_page(runs, summarise_board(runs, replicates=200))
    assert again != one and unvarying(again) == unvarying(one)


def unvarying(html: str) -> str:
    """The page without what it marks as varying."""
    return re.sub(r'<(td|th|span)[^>]*class="(?:n )?varies"[^>]*>.*?</\1>', "", html)


def test_strangers_texts_are_escaped_everywhere(tmp_path: Path):
    plan = hostile(Plan(seeds=2, items=16, recipe="<b>ppo</b>", model="<i>tiny</i>"))
    html = page_of(tmp_path, plan)
    reader = read(html)
    assert "script" not in reader.tags and "img" not in reader.tags
    assert "i" in reader.tags and "<i>" not in html  # the keys of the bars have a class
    assert "<b>ppo" not in html and "<i>tiny" not in html and "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "{{ 7*7 }}" in html and "\u202e" not in html
    assert "\x00" not in html


def test_one_seed_of_one_task(tmp_path: Path):
    text = " ".join(read(page_of(tmp_path, Plan(seeds=1, items=16, tasks=("addition",)))).text)
    assert "Preview: one seed, so no interval" in text
    assert "[" not in re.sub(r"\[low.*", "", text.split("Learning curves")[0])


def test_several_entries(tmp_path: Path):
    plans = Plan(seeds=2, items=16), Plan(model="tiny-qwen2", display_name="Q", seeds=2, items=16)
    html = page_of(tmp_path, *plans)
    read(html)
    assert "2 entries on mini" in html
    assert html.count("crlbench evaluate --model") == 2


def test_placebo_and_smoke_runs_have_pages(tmp_path: Path):
    placebo = page_of(tmp_path / "p", Plan(arm="placebo", seeds=3, items=16))
    assert "content-free" in placebo and "Does it generalize" not in placebo
    assert "--arm placebo" in placebo
    tasks = ("addition", "counting")
    smoke = page_of(tmp_path / "s", Plan(seeds=1, items=32, tasks=tasks, partial=True))
    assert "Shortened" in smoke and "--recipe ppo --smoke" in smoke
    read(placebo), read(smoke)


def test_the_page_stays_small(page: str):
    assert len(gzip.compress(page.encode())) < 100_000
