"""The pages of designs: their checkpoints, pairs, and how much of a difference is pretraining."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from crlbench.base.wording import number
from crlbench.disk.hashing import digest
from crlbench.pages.design_panel import design_panel
from crlbench.pages.page_axes import correlations
from crlbench.site.design_standings import incomplete
from crlbench.site.pages import Keyed, Made, Page, board_path, designs_path
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.axes import AXES


def pages(site: Site) -> Iterator[Made]:
    """A page for each recipe with two rows or more on a board of protocol CRL-2."""
    for stored in site.boards:
        for recipe in stored.recipes:
            if not has_designs(stored, recipe):
                continue
            key = stored.key_of(recipe)
            given = ["designs", site.surroundings, stored.id, stored.title, recipe]
            given += [stored.board.unranked, key]
            yield Keyed(
                digest(given) if key and site.surroundings else "",
                partial(_page, stored, recipe),
            )


def has_designs(stored: StoredBoard, recipe: str) -> bool:
    """Whether a recipe of a board has a page of designs."""
    designs = stored.board.rankings[recipe]["efficiency"].designs
    return designs is not None and len(designs.rows) > 1


def _page(stored: StoredBoard, recipe: str) -> Iterator[Page]:
    board = stored.board
    rankings = board.rankings[recipe]
    yield Page(
        path=designs_path(stored.id, recipe),
        template="designs.html.j2",
        title=f"Designs and their pretrainings: {stored.title}, {recipe}",
        about="How much of the difference between designs is pretraining: variance components, "
        "every checkpoint and every pair of designs.",
        data={
            "id": stored.id,
            "title": f"{stored.title}, {recipe}",
            "board": board_path(stored.id, recipe),
            "panels": [design_panel(rankings[axis], board.signs[axis]) for axis in AXES],
            "alike": correlations(board, recipe),
            "incomplete": incomplete(board, recipe),
            "margin": number(board.margin, 2),
        },
        section="board",
    )
