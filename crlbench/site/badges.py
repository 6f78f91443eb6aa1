"""Badges: a picture that says where an entry ranks, and what to copy to show it.

A badge states track, version, recipe and the ranks that the data do not exclude. An entry without
a rank has none.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from crlbench.base import wording
from crlbench.pages import svg
from crlbench.pages.page_axes import rank_words
from crlbench.pages.table import escape as escape_markdown
from crlbench.site.pages import address, badge_path, entry_path
from crlbench.site.source import StoredBoard
from crlbench.verdict.entry import Entry

UNKNOWN = "https://example.org/"
"""Stands in what is copied for the address of a site that does not know its own."""
CHARACTER, PADDING, HEIGHT = 6.6, 8, 22
"""Width of a character at 11 pixels, room beside a text, height of a badge, in pixels."""


class Snippet(NamedTuple):
    """What is copied to show a badge elsewhere."""

    markdown: str
    html: str


def badge_words(stored: StoredBoard, entry: Entry) -> tuple[str, str] | None:
    """What a badge says: the board, and the ranks; None for an entry that has no rank itself."""
    ranking = stored.board.rankings[entry.recipe]["efficiency"].ranking
    standing = ranking.standing(entry.name)
    if standing is None or standing.model != entry.name or not entry.ranks:
        return None
    archived = "" if stored.later is None else " (archived)"
    provisional = "provisional " if entry.standing == "provisional" else ""
    place = f"{provisional}{rank_words(standing.ranks)} of {len(ranking.standings)}"
    sign = stored.board.signs["efficiency"]
    return f"crlbench {stored.label}, {entry.recipe}{archived}", f"{place} by {sign}"


def draw_badge(board: str, ranks: str) -> bytes:
    """A badge: the board on the left, the ranks on the right."""
    left, right = (CHARACTER * len(one) + 2 * PADDING for one in (board, ranks))
    name = svg.clean(f"{board}: {ranks}")
    drawn = svg.element(
        "svg",
        svg.element("title", name),
        svg.element("rect", width=left + right, height=HEIGHT, rx=4, fill="#1b1f24"),
        svg.element("path", d=_right_half(left, left + right), fill="#0067a8"),
        *(
            svg.text(start + width / 2, 15, one, textLength=width - 2 * PADDING)
            for start, width, one in ((0, left, board), (left, right, ranks))
        ),
        xmlns="http://www.w3.org/2000/svg",
        width=left + right,
        height=HEIGHT,
        role="img",
        fill="#ffffff",
        font_family="Verdana,DejaVu Sans,sans-serif",
        font_size=11,
        text_anchor="middle",
    )
    return f"{drawn}\n".encode()


def _right_half(start: float, end: float) -> str:
    """A rectangle that is round at its right."""
    x, y = svg.num(end - 4), HEIGHT
    return f"M{svg.num(start)} 0H{x}a4 4 0 0 1 4 4V{y - 4}a4 4 0 0 1 -4 4H{svg.num(start)}z"


def badge_snippet(stored: StoredBoard, entry: Entry, url: str) -> Snippet | None:
    """What shows the badge of an entry and leads to its page; None where it has no badge."""
    if badge_words(stored, entry) is None:
        return None
    root = url or UNKNOWN
    image = f"{root}{address(badge_path(stored.id, entry.model, entry.recipe))}"
    page = f"{root}{address(entry_path(stored.id, entry.model, entry.recipe))}"
    # A badge follows the board; what is copied must not state a rank of today.
    label = f"Rank on crlbench, {stored.label}"
    return Snippet(
        f"[![{escape_markdown(label)}]({image})]({page})",
        f'<a href="{page}"><img src="{image}" alt="{attribute(label)}"></a>',
    )


def attribute(content: str) -> str:
    """Text inside of the quotes of an attribute, on one line."""
    return escape(wording.clean(content))
