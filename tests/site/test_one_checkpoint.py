"""A board of protocol CRL-2 whose designs have one checkpoint each, as `mini` begins: what a reader
learns of who is first, and the false-discovery line of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from crlbench.base.wording import number
from crlbench.catalog.find import Catalog
from crlbench.disk.hashing import digest
from crlbench.site import architectures
from crlbench.site.build import build, write
from crlbench.site.design_standings import answer
from crlbench.site.pages import whole
from crlbench.site.reading import read_site
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict import discovery
from crlbench.verdict.axes import AXES, AXIS_WORDS
from tests.site.browser import Visitor
from tests.site.simulated import submit, text_of
from tests.support.simulate import Plan, write_board

pytestmark = pytest.mark.slow

SLOPES = {"tiny2-llama": 2.4, "tiny2-qwen2": 2.2, "tiny2-mistral": 0.4}
PLAN = Plan(
    items=192,
    placebo=3,
    mode=3,
    stress=3,
    protocol="CRL-2",
    pass_draws=32,
    track_version=1,
    checkpoint="i0o0",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = tmp_path_factory.mktemp("one")
    plans = [
        replace(PLAN, model=name, display_name=name, slope=slope, revision=digest(name)[:40])
        for name, slope in SLOPES.items()
    ]
    write_board(root / "runs", *plans)
    return read_site(submit(root / "runs", root / "results"), Catalog())


@pytest.fixture(scope="module")
def board(site: Site) -> StoredBoard:
    return site.boards[0]


@pytest.fixture(scope="module")
def files(site: Site) -> dict[str, bytes]:
    return dict(build(site))


def test_the_front_page_says_who_is_first_and_how_far_that_reaches(files: dict[str, bytes]) -> None:
    text = text_of(files, "index.html")
    unknown = "One checkpoint of each design was trained: whether the designs differ is not known."
    assert text.count(unknown) == 3, "on the first screen, in the tile, and where it is asked"
    assert "Not shown to be worse by more than 0.05: tiny2-qwen2." in text
    assert "On similar tasks that were not run, it is ahead of 1 of the 1 in lower tiers" in text
    assert "a difference comes from the model" not in text


def test_a_tie_of_all_says_how_many_pairs_differ(board: StoredBoard) -> None:
    found = board.board.rankings["ppo"]["efficiency"]
    designs = found.designs
    assert designs is not None
    tied = [replace(one, tier=1, worse=()) for one in found.ranking.standings]
    ranking = replace(found.ranking, standings=tuple(tied), anchors=found.ranking.anchors[:1])
    differing = sum(pair.call in ("better", "worse") for pair in designs.pairs)
    assert 0 < differing <= len(designs.pairs)
    claim, sentence = answer(replace(found, ranking=ranking))
    assert claim == "None clearly ahead"
    first = found.ranking.anchors[0]
    mine = [pair for pair in designs.pairs if first in (pair.first, pair.second)]
    ahead = [p for p in mine if p.call == ("worse" if p.first == first else "better")]
    stay = sum(pair.stays for pair in ahead)
    at_once = "With all pairs tested at once, no lead of more than 0.05 is shown."
    assert sentence.startswith(
        f"{at_once} By any amount, each pair taken alone, it is ahead of {len(ahead)} of the "
        f"{len(mine)} others: "
    )
    assert f"; {stay} of these stay at a false-discovery rate of 5" in sentence
    others = [
        replace(pair, call="undecided") if pair in mine else replace(pair, call="better")
        for pair in designs.pairs
    ]
    _, sentence = answer(
        replace(found, ranking=ranking, designs=replace(designs, pairs=tuple(others)))
    )
    assert sentence.endswith(f"and none of them with the highest. {at_once}")
    alike = [replace(pair, call="undecided") for pair in designs.pairs]
    claim, sentence = answer(
        replace(found, ranking=ranking, designs=replace(designs, pairs=tuple(alike)))
    )
    assert claim == f"All {len(tied)} tie"
    assert sentence == "No checkpoint is shown to be worse than the highest by more than 0.05."


def test_the_page_of_architectures_names_checkpoints_of_rows(site: Site) -> None:
    (page,) = whole(architectures.pages(site))
    (exhibit,) = page.data["exhibits"]
    _, _, who, sure = exhibit.answers[0]
    assert who == "tiny2-llama"
    assert sure.endswith("Not shown to be worse by more than 0.05: tiny2-qwen2.")
    assert [one.entry.slug for one in exhibit.designs if one.entry] == [*sorted(SLOPES)]


@pytest.fixture
def visit(chromium: Any, files: dict[str, bytes], tmp_path: Path) -> Iterator[Visitor]:
    write(files, tmp_path / "site")
    visitor = Visitor(chromium, {"file": f"{(tmp_path / 'site').as_uri()}/"})
    yield visitor
    visitor.close()
    assert visitor.problems == []


@pytest.mark.browser
@pytest.mark.parametrize("count", [2, 3])
def test_a_comparison_has_the_false_discovery_line_of_its_pairs(
    visit: Visitor, board: StoredBoard, count: int
) -> None:
    entries = board.board.entries[:count][::-1]  # the stored pairs are in the other order
    found = {
        (a.name, b.name): board.pairs.compare(a, b).axes for a, b in combinations(entries, 2)
    }
    shown = [pair for axes in found.values() for pair in axes.values()]
    tests = [discovery.Test(one.effect.value, one.error, one.df, one.call) for one in shown]
    marks, line = discovery.draw_line(tests, board.board.margin)
    keys = zip("abc", (f"{board.id}/{entry.name}" for entry in entries), strict=False)
    page = visit(f"compare.html#{'&'.join('='.join(key) for key in keys)}")
    page.wait_for_selector("[data-result][data-state=compared]")
    stay = line.differ_stay + line.equivalent_stay
    text = page.locator("[aria-labelledby=verdicts] > .note").inner_text()
    assert f"{line.tests} tests on this page" in text
    assert f"{stay} of {line.differ + line.equivalent} verdicts stay at 5 %" in text
    rates = iter(marks)
    expected = {axis: [] for axis in AXES}
    for axes in found.values():
        for axis in axes:
            q = next(rates).q
            expected[axis].append("–" if q is None else "< 0.001" if q < 0.001 else number(q))
    for axis in AXES:
        table = page.locator(f"[data-axis={axis}] > .scroll")
        heads = table.locator("thead th").all_inner_texts()
        rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
        assert [row[heads.index("q")] for row in rows] == expected[axis], AXIS_WORDS[axis]
