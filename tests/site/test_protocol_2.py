"""A site whose one board is of protocol CRL-2: built whole, from shelves and without them."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base import wording
from crlbench.catalog.find import Catalog
from crlbench.site.build import build
from crlbench.site.cache import Cache
from crlbench.site.reading import read_site
from crlbench.site.source import Site
from tests.site.simulated import REVISION, submit
from tests.support.simulate import Plan, write_board

TASKS = ("addition", "counting")
ENTRY = Plan(
    tasks=TASKS,
    board=TASKS,
    revision=REVISION,
    items=256,
    placebo=3,
    mode=3,
    stress=3,
    protocol="CRL-2",
    pass_draws=32,
    track_version=1,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crl2")
    strong = replace(ENTRY, model="tiny-qwen2", display_name="Tiny Qwen2", slope=2.2)
    write_board(root / "runs", ENTRY, strong)
    return submit(root / "runs", root / "results")


@pytest.fixture(scope="module")
def site(results: Path) -> Site:
    return read_site(results, Catalog())


@pytest.fixture(scope="module")
def files(site: Site) -> dict[str, bytes]:
    return dict(build(site))


def text_of(files: dict[str, bytes], path: str) -> str:
    plain = re.sub(r"<(svg|style|script)\b.*?</\1>", "", files[path].decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", plain))


def test_every_page_is_built_and_an_entry_says_all(site: Site, files: dict[str, bytes]) -> None:
    (board,) = site.boards
    entry = board.board.entries[0]
    (path,) = [p for p in files if p.endswith(f"{entry.model}/ppo/index.html")]
    text = text_of(files, path)
    for heading in ("What was known before?", "Taught: what did the labels bring?", "pass@k"):
        assert heading in text
    assert wording.number(entry.novelty.new) in text
    (page,) = [p for p in files if p.endswith(f"{entry.model}/ppo/addition.html")]
    curves = text_of(files, page)
    assert "paid for agreeing with the start" in curves and "three times the learning" in curves


def test_the_front_page_ranks_new_items(files: dict[str, bytes]) -> None:
    text = text_of(files, "index.html")
    assert "Λ_new" in text and "Known" in text and "Taught" in text
    assert "Protocol CRL-2" in text_of(files, "method.html")


def test_tables_have_the_parts(site: Site, files: dict[str, bytes]) -> None:
    (path,) = [p for p in files if p.endswith("entries.csv")]
    rows = [
        row
        for row in csv.DictReader(io.StringIO(files[path].decode()))
        if row["axis"] == "efficiency"
    ]
    by_name = {entry.name: entry for entry in site.boards[0].board.entries}
    assert len(rows) == 2
    for row in rows:
        entry = by_name[row["entry"]]
        parts = float(row["learned_known"]) + float(row["learned_new"])
        assert parts == pytest.approx(float(row["learned"]), abs=1e-9)
        assert float(row["new_items"]) == pytest.approx(float(row["value"]))
        assert float(row["taught"]) == pytest.approx(entry.mode.net.value)
        assert float(row["all_items"]) == pytest.approx(entry.lam.value)


def test_what_is_kept_of_an_entry_gives_the_same_site(
    results: Path, files: dict[str, bytes], tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache")
    for _ in range(2):  # made, and then read
        assert dict(build(read_site(results, Catalog(), cache=cache))) == files
