"""The worked examples of the method page are the numbers of the board."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlbench.base.wording import number
from crlbench.contract.conditions import fingerprint
from crlbench.site import method
from crlbench.site.pages import whole
from crlbench.site.source import Site
from crlbench.verdict.axes import AXES


@pytest.fixture(scope="module")
def shown(site: Site) -> Mapping[str, Any]:
    (page,) = whole(method.pages(site))
    return page.data


@pytest.fixture(scope="module")
def text(files: Mapping[str, bytes]) -> str:
    return files["method.html"].decode()


def test_every_section_has_its_anchor(text: str) -> None:
    for anchor in (*AXES, "score", "placebo", "intervals", "tiers", "verdicts", "fingerprint"):
        assert f'id="{anchor}"' in text
    for anchor in ("badges", "limits", "sources"):
        assert f'id="{anchor}"' in text


def test_the_steps_lead_to_the_headlines(shown: Mapping[str, Any]) -> None:
    assert shown["design"] is None, "no board of the newer protocol"
    entry, task = shown["entry"], shown["task"]
    x = shown["efficiency"]
    unit = (x["start"] - x["floor"]) / (x["ceiling"] - x["floor"])
    assert unit == pytest.approx(x["H"])
    assert x["E"] - x["H"] == pytest.approx(x["L"])
    assert x["L"] / x["room"] == pytest.approx(x["lam"])
    assert np.mean(x["middle"]) == pytest.approx(x["tasks"][task])
    assert np.mean(list(x["tasks"].values())) == pytest.approx(entry.axes["efficiency"].value)
    x = shown["stability"]
    parts = x["shares"]
    assert 1 - min(1, x["gmd"] / max(x["peak"], 0.1)) == pytest.approx(parts["dispersion"])
    assert x["kept"] == pytest.approx(parts["drawdown"])
    assert min(1, max(0, x["worst"]) / x["median"]) == pytest.approx(parts["risk"])
    assert 1 - (x["failures"] + 0.5) / (x["n"] + 1) == pytest.approx(parts["failure"])
    assert x["product"] ** 0.25 == pytest.approx(x["value"])
    assert np.mean(list(x["tasks"].values())) == pytest.approx(entry.axes["stability"].value)
    x = shown["generalization"]
    assert x["mean"] - x["corrected"] == pytest.approx(x["value"])
    assert np.mean(list(x["tasks"].values())) == pytest.approx(entry.axes["generalization"].value)


def test_ranks_follow_from_who_is_better_and_worse(shown: Mapping[str, Any]) -> None:
    own = shown["tiers"]["axes"]["efficiency"]
    standing = own["standing"]
    assert standing.ranks == (1 + len(standing.better), own["models"] - len(standing.worse))


def test_the_fingerprint_is_that_of_the_leaves(site: Site, shown: Mapping[str, Any]) -> None:
    x = shown["fingerprint"]
    assert x["hash"] == site.boards[0].board.fingerprint == fingerprint(site.boards[0].leaves)
    assert x["other_hash"] != x["hash"]


def test_the_page_shows_the_numbers(shown: Mapping[str, Any], text: str) -> None:
    assert "built-in" not in text and "None" not in re.sub(r"<[^>]+>", " ", text)
    for value in (shown["efficiency"]["value"], shown["stability"]["headline"]):
        assert number(value) in text
    assert shown["verdict"]["pair"].effect.verdict in text


def test_a_board_without_a_whole_entry_has_formulas_alone(site: Site) -> None:
    from crlbench.site.render import Renderer

    few = next(stored for stored in site.boards if stored.board.unranked or len(stored.runs) < 5)
    bare = replace(few, board=replace(few.board, entries=()))
    (page,) = whole(method.pages(replace(site, boards=(bare,))))
    text = Renderer(site).html(page).decode()
    assert page.data["entry"] is None and "The page has no example." in text
    assert text.count("<math") > 10
