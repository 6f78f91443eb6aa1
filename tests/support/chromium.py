"""Debian's Chromium, driven by Playwright.

Without either, tests are skipped with the reason, or fail where ``CRLBENCH_REQUIRE_BROWSER=1``
says that they must run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    # Each window would load two pages of the browser's own, for suggestions below an address that
    # nobody types: half of what a window costs.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup",
]


def unavailable(reason: str) -> None:
    """Skip, or fail where a browser is required."""
    if os.environ.get("CRLBENCH_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason}, and CRLBENCH_REQUIRE_BROWSER=1 asks for it")
    pytest.skip(reason)


@contextmanager
def launched() -> Iterator[Any]:
    """Chromium, or a reason why not."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("playwright is not installed")
    executable = shutil.which("chromium")
    if executable is None:
        unavailable("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


SERIOUS = ("serious", "critical")
ANY = ("minor", "moderate", *SERIOUS)
"""What axe-core calls the weight of a barrier."""


def barriers(page: Any, impacts: Collection[str] = SERIOUS) -> list[tuple[str, list[str]]]:
    """What axe-core finds on a page: the rule, and some of the elements.

    Args:
        impacts: how heavy the barriers are that count.
    """
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        unavailable("axe-playwright-python is not installed")
    # It would fetch the styles again, which the policy of the page forbids; and it would list
    # every element that kept a rule, which takes a third of its time.
    options = {"preload": False, "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response["violations"]
    counted = [rule for rule in found if rule["impact"] in impacts]
    return [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in counted]
