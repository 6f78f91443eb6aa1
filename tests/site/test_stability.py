"""The stability lab and the transfer page: numbers of the report, entry by entry."""

from __future__ import annotations

import pytest

from crlbench.pages.page_stability import LABELS
from crlbench.site import stability, transfer
from crlbench.site.pages import whole
from crlbench.site.source import Site
from crlbench.stats.stability import PARTS


def test_every_entry_stands_with_its_shares_and_failures(site: Site):
    (page,) = whole(stability.pages(site))
    rows = {row.name: row for lab in page.data["boards"][0] for row in lab.rows}
    board = site.boards[0].board
    assert {entry.name for entry in board.entries if entry.stability.tasks} <= rows.keys()
    for entry in board.entries:
        rated = [entry.stability.tasks[name].shares for name in entry.stability.rated]
        if rated:
            means = [sum(share[part] for share in rated) / len(rated) for part in PARTS]
            assert [*rows[entry.name].shares.values()] == pytest.approx(means)
    failed = {name: dict(row.failures) for name, row in rows.items() if row.failures}
    assert [*failed.values()] == [{"kl_cap": 1}]


def test_shares_are_named_so_that_higher_is_better(site: Site):
    (page,) = whole(stability.pages(site))
    assert [name for name, _ in page.data["parts"]] == [
        "Seeds alike",
        "Gain kept",
        "Worst to median",
        "No failure",
    ]
    entries = [entry for entry in site.boards[0].board.entries if "counting" in entry.task_names]
    shares = [
        (bool(entry.failed), LABELS[part], entry.stability.tasks["counting"].shares[part])
        for entry in entries
        for part in PARTS
        if entry.n == 5
    ]
    sound, failing = (
        [share for failed, name, share in shares if failed == bad and name == "No failure"]
        for bad in (False, True)
    )
    assert max(failing) < min(sound)


def test_the_mean_over_models_comes_first(site: Site):
    (page,) = whole(transfer.pages(site))
    mean, *single = page.data["boards"][0][0].matrices
    assert mean.key == "all" and len(single) > 1
    for row, (task, cells) in enumerate(mean.rows):
        for column, cell in enumerate(cells):
            each = [one.rows[row][1][column].lam.value for one in single]
            assert cell.lam.value == pytest.approx(sum(each) / len(each))
            assert cell.own == (task == mean.columns[column])
