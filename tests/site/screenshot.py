"""The README's picture of the leaderboard: ``python -m tests.site.screenshot [FILE]``.

Builds the site from the committed results and takes what a wide screen shows of it first.
``python -m tests.site.screenshot --card`` makes the picture of shared links, which has no numbers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from crlbench.catalog.find import Catalog
from crlbench.site.build import build, write
from crlbench.site.reading import read_site
from crlbench.verdict.resources import leaderboard_folder
from tests.site.browser import Visitor
from tests.support.chromium import launched

PICTURE = Path("docs/images/leaderboard.png")
WIDTH, HEIGHT = 1280, 1160
COLOURS = 256
CARD = Path("leaderboard/static/social.png")
CARD_SIZE = (1200, 630)
CARD_HTML = """<body style="margin:0;height:630px;background:#0f1216;color:#e8eaee;
font-family:'DejaVu Sans',sans-serif;display:flex;flex-direction:column;justify-content:center;
padding:0 90px;box-sizing:border-box"><svg viewBox="0 0 24 24" width="150" height="150"
style="color:#6dbff3"><path d="M2 21C8 21 8 5 22 4V11C12 12 12 21 2 21Z" fill="currentColor"
opacity=".3"/><path d="M2 21C9 20 9 8 22 7.5" fill="none" stroke="currentColor" stroke-width="2.4"
stroke-linecap="round"/></svg><p style="font-size:84px;font-weight:700;margin:20px 0 10px">crlbench
</p><p style="font-size:38px;line-height:1.35;margin:0;color:#a2abb8">How language models learn
under reinforcement learning: how fast, how reliably, how far.</p></body>"""


def take(results: Path, picture: Path) -> None:
    """Build, open, take.

    Raises:
        RuntimeError: the page logged or asked for something.
    """
    with tempfile.TemporaryDirectory() as place, launched() as browser:
        site = Path(place, "site")
        write(build(read_site(results, Catalog())), site)
        visitor = Visitor(browser, {"file": f"{site.as_uri()}/"})
        page = visitor(width=WIDTH)
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        page.screenshot(path=picture)
        visitor.close()
    shrink(picture)
    if visitor.problems:
        raise RuntimeError("; ".join(visitor.problems))


def shrink(picture: Path) -> None:
    """256 colours: a page has few, and the file takes a third."""
    with Image.open(picture) as whole:
        small = whole.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def draw_card(picture: Path) -> None:
    """The picture that a shared link shows."""
    with launched() as browser:
        width, height = CARD_SIZE
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_content(CARD_HTML)
        page.screenshot(path=picture)


if __name__ == "__main__" and sys.argv[1:2] == ["--card"]:
    draw_card(Path(sys.argv[2]) if sys.argv[2:] else CARD)
elif __name__ == "__main__":
    take(leaderboard_folder() / "results", Path(sys.argv[1]) if sys.argv[1:] else PICTURE)
