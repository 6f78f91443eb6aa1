"""What other pages may show of the boards: addresses, boards for an iframe, and badges of ranks.

A recipe without a ranking has no board to embed, and an entry without a rank no badge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crlbench.site import published
from crlbench.site.badges import UNKNOWN, attribute, badge_words, draw_badge
from crlbench.site.pages import File, Page, address, badge_path, embed_path, entry_path
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.tiers import Standing
from crlbench.verdict.axes import AxisScore
from crlbench.verdict.design_rows import group_entries

SHARE = "share.html"
FRAME_HEIGHT = 420
"""Pixels of an embedded board before it scrolls."""


@dataclass(frozen=True)
class Ranked:
    """A ranked row of a board, an entry or a design."""

    anchor: str
    display_name: str
    standing: Standing
    score: AxisScore
    path: str
    """The page of the entry, of a design that of its first checkpoint."""


def pages(site: Site) -> Iterator[Page | File]:
    """The page of addresses and snippets, boards for an iframe, and badges."""
    boards = []
    for stored in site.boards:
        for recipe in stored.recipes:
            rows = ranked_rows(stored, recipe)
            if rows:
                page = _embedded(stored, recipe, rows)
                boards.append((stored, recipe, page.path, frame(site.url, page.path, page.title)))
                yield page
        for entry in stored.board.entries:
            if (words := badge_words(stored, entry)) is not None:
                yield File(badge_path(stored.id, entry.model, entry.recipe), draw_badge(*words))
    yield Page(
        path=SHARE,
        template="share.html.j2",
        title="Share: JSON addresses, embedded boards and badges",
        about="Stable addresses of every board, model, task and entry as JSON, boards for an "
        "iframe, and badges of ranks.",
        data={
            "url": site.url,
            "unknown": UNKNOWN,
            "index": published.INDEX,
            "documents": [
                (kind.capitalize(), found) for kind, found in published.addresses(site).items()
            ],
            "boards": boards,
            "badges": [
                (stored, entry, badge_path(stored.id, entry.model, entry.recipe))
                for stored in site.boards
                for entry in stored.board.entries
                if badge_words(stored, entry) is not None
            ],
        },
        section="data",
    )


def ranked_rows(stored: StoredBoard, recipe: str) -> list[Ranked]:
    """The ranked rows of a recipe by sample efficiency, by tier, then by estimate."""
    found = stored.board.rankings[recipe]["efficiency"]
    groups = {group.name: group for group in group_entries(stored.entries(recipe))}
    order = sorted(found.ranking.standings, key=lambda one: (one.tier, -one.estimate, one.model))
    rows = []
    for standing in order:
        group = groups[standing.model]
        entry = group.whole[0]
        score = entry.axes["efficiency"]
        if found.designs is not None:
            score = found.designs.row(standing.model).score
        path = entry_path(stored.id, entry.model, entry.recipe)
        anchor = standing.model.partition("/")[0]
        rows.append(Ranked(anchor, group.display_name, standing, score, path))
    return rows


def _embedded(stored: StoredBoard, recipe: str, rows: list[Ranked]) -> Page:
    return Page(
        path=embed_path(stored.id, recipe),
        template="embed.html.j2",
        title=f"{stored.label}, {recipe}",
        about=f"Ranks of sample efficiency on {stored.label} with {recipe}.",
        data={
            "stored": stored,
            "recipe": recipe,
            "rows": rows,
            "sign": stored.board.signs["efficiency"],
            "others": len(group_entries(stored.entries(recipe))) - len(rows),
        },
    )


def frame(url: str, path: str, title: str) -> str:
    """The HTML that embeds a board."""
    source, name = (attribute(one) for one in (f"{url or UNKNOWN}{address(path)}", title))
    return (
        f'<iframe src="{source}" title="crlbench: {name}" width="100%" height="{FRAME_HEIGHT}" '
        'loading="lazy"></iframe>'
    )
