"""A real browser on a built site: Debian's Chromium, from disk and from a server, under guard.

A visit fails its test when a page logs, throws, opens a dialog, lacks a file, or asks for
anything outside of the site.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WAYS = ("file", "http", "below")
"""From disk, from the root of a server, from a folder of a server as Pages serves it."""
BELOW = "/a/b"
"""The folder of a server."""


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder below a prefix and nothing beside it."""

    def __init__(self, *args: Any, prefix: str, **options: Any) -> None:
        self.prefix = prefix
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        if self.path.startswith(f"{self.prefix}/"):
            self.path = self.path.removeprefix(self.prefix)
            super().do_GET()
        else:
            self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def served(folder: Path, prefix: str = "") -> Iterator[str]:
    """The address, with a slash at its end, under which a folder is served."""
    handler = partial(_Handler, directory=str(folder), prefix=prefix)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Visitor:
    """Opens pages of a site and keeps what goes wrong on them."""

    def __init__(self, browser: Any, bases: dict[str, str]) -> None:
        """``bases``: for each way the address of the site's root."""
        self.browser = browser
        self.bases = bases
        self.problems: list[str] = []
        self._contexts: list[Any] = []
        self._documents: Counter[Any] = Counter()
        self._asked_by: dict[Any, int] = {}
        self._given_up: list[tuple[Any, Any]] = []
        self._paths: dict[Any, str] = {}

    def __call__(
        self,
        path: str = "index.html",
        over: str = "file",
        width: int = 1280,
        scheme: str = "light",
        scripts: bool = True,
        **options: Any,
    ) -> Any:
        """A Playwright page, loaded. ``path`` may carry a hash; ``options`` go to the context."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            java_script_enabled=scripts,
            reduced_motion="reduce",
            **options,
        )
        self._contexts.append(context)
        page = context.new_page()
        # A window that is used again loads as a new one does.
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.set_default_timeout(10_000)
        page.set_default_navigation_timeout(60_000)
        base = self.bases[over]
        page.on("console", lambda message: self._note(page, message.text))
        page.on("pageerror", lambda error: self._note(page, str(error)))
        page.on("dialog", lambda dialog: (self._note(page, "a dialog"), dialog.dismiss()))
        page.on("requestfailed", lambda asked: self._failed(page, asked))
        page.on("response", lambda answer: self._answered(page, answer))
        page.on("request", lambda asked: self._asked(base, page, asked))
        self._go(page, over, path)
        return page

    def _go(self, page: Any, over: str, path: str) -> None:
        self._paths[page] = path
        page.goto(self.bases[over] + path)

    def _note(self, page: Any, what: str) -> None:
        self.problems.append(f"{self._paths[page]}: {what}")

    def _failed(self, page: Any, asked: Any) -> None:
        if asked.failure == "net::ERR_ABORTED":
            self._given_up.append((page, asked))
        else:
            self._note(page, f"failed: {asked.url} ({asked.failure})")

    def _answered(self, page: Any, answer: Any) -> None:
        if answer.status >= 400:
            self._note(page, f"{answer.status}: {answer.url}")

    def _asked(self, base: str, page: Any, asked: Any) -> None:
        self._documents[page] += asked.is_navigation_request()
        self._asked_by[asked] = self._documents[page]
        url = asked.url
        if not url.startswith((base, "data:", "blob:")) and not url.endswith("/favicon.ico"):
            self._note(page, f"asked for {url}")

    def settle(self) -> None:
        """Judge what was given up: a page that is left does so, one that stays has no reason to."""
        for page, asked in self._given_up:
            if self._asked_by[asked] == self._documents[page]:
                self._note(page, f"given up: {asked.url}")
        self._given_up.clear()

    def found(self) -> list[str]:
        """What went wrong since the last time that this was asked."""
        self.settle()
        problems, self.problems = self.problems, []
        return problems

    def close(self) -> None:
        self.settle()
        for context in self._contexts:
            context.close()


class Regular(Visitor):
    """Opens pages anew in windows that earlier tests have left: a window costs more than a page."""

    def __init__(self, browser: Any, bases: dict[str, str]) -> None:
        super().__init__(browser, bases)
        self._used: list[tuple[str, Any]] = []
        self._left: dict[str, list[Any]] = {}

    def __call__(
        self,
        path: str = "index.html",
        over: str = "file",
        width: int = 1280,
        scheme: str = "light",
        scripts: bool = True,
        **options: Any,
    ) -> Any:
        """The page, loaded, in a window that nothing else of this test uses."""
        window = repr((over, scheme, scripts, sorted(options.items())))
        if left := self._left.get(window):
            page = left.pop()
            page.set_viewport_size({"width": width, "height": 800})
            self._go(page, over, path)
        else:
            page = super().__call__(path, over, width, scheme, scripts, **options)
        self._used.append((window, page))
        return page

    def leave(self) -> None:
        """Empty the windows of a test, so that the next finds nothing of it there."""
        self.settle()
        for window, page in self._used:
            if page.is_closed() or page.context.pages != [page]:
                page.context.close()
                continue
            page.evaluate("localStorage.clear(); sessionStorage.clear();")
            page.mouse.move(0, 0)
            page.goto("about:blank")
            self._left.setdefault(window, []).append(page)
        self._used.clear()
        # Leaving gives up what was still loading.
        self._given_up.clear()


class Guest(Visitor):
    """Opens every page once in a window of its kind, for tests that only look at it."""

    def __init__(self, browser: Any, bases: dict[str, str]) -> None:
        super().__init__(browser, bases)
        self._windows: dict[tuple[object, ...], Any] = {}

    def __call__(
        self,
        path: str = "index.html",
        over: str = "file",
        width: int = 1280,
        scheme: str = "light",
        scripts: bool = True,
        **options: Any,
    ) -> Any:
        """The page as it was left, in the size that is asked for."""
        window = (over, width, scheme, scripts, *sorted(options.items()))
        page = self._windows.get(window)
        if page is None:
            page = super().__call__(path, over, width, scheme, scripts, **options)
            self._windows[window] = page
        page.set_viewport_size({"width": width, "height": 800})
        if self._paths[page] != path:
            self.settle()
            self._go(page, over, path)
        return page


def opened(page: Any) -> Any:
    """The page with everything unfolded that folds, and laid out where it is not in view."""
    page.evaluate("""
        document.querySelectorAll('details').forEach(d => { d.open = true; });
        document.querySelectorAll('main *')
            .forEach(e => { e.style.contentVisibility = 'visible'; });
    """)
    return page


SHIFT = """new Promise(found => { let sum = 0;
    new PerformanceObserver(list => list.getEntries().forEach(one => { sum += one.value; }))
        .observe({type: 'layout-shift', buffered: true});
    requestAnimationFrame(() => requestAnimationFrame(() => found(sum))); })"""
"""Sum of the layout shifts of a page so far: shares of the window that moved."""


def length(page: Any) -> int:
    """Height of the whole page in CSS pixels, laid out where it is not in view."""
    return int(page.evaluate("""
        document.querySelectorAll('main *')
            .forEach(e => { e.style.contentVisibility = 'visible'; });
        document.documentElement.scrollHeight
    """))


def recompute(page: Any, name: str) -> tuple[str, str, dict[str, Any]]:
    """Press the button that computes Λ of an entry again; outcome, words and numbers."""
    own = f".recompute[data-key='{name}']"
    page.locator(own).get_by_role("button").press("Enter")
    page.wait_for_selector(f"{own}[data-outcome]", timeout=60_000)
    outcome, found = (page.locator(own).get_attribute(f"data-{n}") for n in ("outcome", "found"))
    return outcome, page.locator(f"{own} output").inner_text(), json.loads(found or "{}")
