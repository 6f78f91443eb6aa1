"""Sites of simulated runs that were never packed or submitted: for tests of single pages."""

from __future__ import annotations

from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.site.pages import Page
from crlbench.site.render import Renderer
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from tests.support.simulate import Plan, write_board

REPLICATES = 200


def site_of(root: Path, *plans: Plan, write: bool = True) -> Site:
    """One board of the given entries, which stand there already unless they are written."""
    folder = write_board(root, *plans) if write else next(root.glob("mini-*"))
    runs = load_runs(folder)
    board = summarise_board(runs, REPLICATES)
    names = {f"{run.model}/{run.recipe}" for run in runs}
    stored = StoredBoard(
        id=folder.name,
        runs=runs,
        board=board,
        badges=dict.fromkeys(names),
        submitters=dict.fromkeys(names, "@someone"),
        track="current",
        dates=dict.fromkeys(names, "2026-01-01T00:00:00Z"),
    )
    return Site((stored,), Catalog())


def html(site: Site, page: Page) -> str:
    return Renderer(site).html(page).decode()
