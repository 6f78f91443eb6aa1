"""A real browser on a built site: Debian's Chromium, from disk and from a server, under guard.

A visit fails its test when a page logs, throws, opens a dialog, lacks a file, or asks for
anything outside of the site.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCHEMES = ("light", "dark")
WIDTHS = (360, 1280)
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
        self._given_up: list[tuple[str, Any, Any]] = []

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
        page.set_default_timeout(10_000)
        base = self.bases[over]
        page.on("console", lambda message: self._note(path, message.text))
        page.on("pageerror", lambda error: self._note(path, str(error)))
        page.on("dialog", lambda dialog: (self._note(path, "a dialog"), dialog.dismiss()))
        page.on("requestfailed", lambda asked: self._failed(path, page, asked))
        page.on("response", lambda answer: self._answered(path, answer))
        page.on("request", lambda asked: self._asked(path, base, page, asked))
        page.goto(base + path)
        return page

    def _note(self, path: str, what: str) -> None:
        self.problems.append(f"{path}: {what}")

    def _failed(self, path: str, page: Any, asked: Any) -> None:
        if asked.failure == "net::ERR_ABORTED":
            self._given_up.append((path, page, asked))
        else:
            self._note(path, f"failed: {asked.url} ({asked.failure})")

    def _answered(self, path: str, answer: Any) -> None:
        if answer.status >= 400:
            self._note(path, f"{answer.status}: {answer.url}")

    def _asked(self, path: str, base: str, page: Any, asked: Any) -> None:
        self._documents[page] += asked.is_navigation_request()
        self._asked_by[asked] = self._documents[page]
        url = asked.url
        if not url.startswith((base, "data:", "blob:")) and not url.endswith("/favicon.ico"):
            self._note(path, f"asked for {url}")

    def close(self) -> None:
        # A page that is left gives up what it still loads; one that stays has no reason to.
        for path, page, asked in self._given_up:
            if self._asked_by[asked] == self._documents[page]:
                self._note(path, f"given up: {asked.url}")
        self._given_up.clear()
        for context in self._contexts:
            context.close()


def opened(page: Any) -> Any:
    """The page with everything unfolded that folds, and laid out where it is not in view."""
    page.evaluate("""
        document.querySelectorAll('details').forEach(d => { d.open = true; });
        document.querySelectorAll('main *')
            .forEach(e => { e.style.contentVisibility = 'visible'; });
    """)
    return page
