"""The live page over http: two addresses, for this machine alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from crlbench.site.serve import HOST, refused_port

Pages = Mapping[str, Callable[[], str]]
"""What makes the page of each address."""


class _Handler(BaseHTTPRequestHandler):
    """Serves the pages and nothing else: no address becomes the name of a file.

    Another host name than this machine's is refused: a page elsewhere, whose name leads here,
    could read the runs through the browser.
    """

    timeout = 30

    def __init__(self, pages: Pages, turn: threading.Lock, *given: Any) -> None:
        self._pages = pages
        self._turn = turn
        super().__init__(*given)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def _answer(self, with_content: bool) -> None:
        _, port = self.server.server_address[:2]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        make = self._pages.get(self.path)
        if make is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with self._turn:
            content = make().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is nothing to tell."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def server(pages: Pages, port: int | None) -> ThreadingHTTPServer:
    """A server of some pages that listens already; its port is ``server_port``.

    Args:
        port: None for any free one.

    Raises:
        EnvironmentUnfit: the port that was asked for cannot be had.
    """
    try:
        return _Server((HOST, port or 0), partial(_Handler, pages, threading.Lock()))
    except OSError as error:
        raise refused_port(port, error) from None
