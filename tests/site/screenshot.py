"""The README's picture of the leaderboard: ``python -m tests.site.screenshot [FILE]``.

Builds the site from the committed results and takes what a wide screen shows of it first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.site.build import build, write
from crlbench.site.reading import read_site
from crlbench.verdict.resources import leaderboard_folder
from tests.site.browser import Visitor
from tests.support.chromium import launched

PICTURE = Path("docs/images/leaderboard.png")
WIDTH, HEIGHT = 1280, 1160


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
    if visitor.problems:
        raise RuntimeError("; ".join(visitor.problems))


if __name__ == "__main__":
    take(leaderboard_folder() / "results", Path(sys.argv[1]) if sys.argv[1:] else PICTURE)
