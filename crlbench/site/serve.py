"""A look at a built site: its files over http, for this machine alone."""

from __future__ import annotations

import errno
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath

from crlbench.errors import EnvironmentUnfit

HOST = "127.0.0.1"
PORT = 8000
"""Default port, if it is free."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".csv": "text/csv; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".xml": "application/xml",
    ".txt": "text/plain; charset=utf-8",
    ".cff": "text/plain; charset=utf-8",
    ".bib": "text/plain; charset=utf-8",
}
"""Types by ending, whatever the tables of the machine say."""
MISSING = "404.html"


class _Handler(SimpleHTTPRequestHandler):
    """Files with their types, never from a cache; no listings; the site's own page for a miss."""

    def guess_type(self, path: str) -> str:
        name = PurePosixPath(path).name
        if name == "feed.xml":
            return "application/atom+xml"
        return TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def list_directory(self, path: str) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory, MISSING)
        if code != HTTPStatus.NOT_FOUND or not page.is_file():
            super().send_error(code, message, explain)
            return
        content = page.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", TYPES[".html"])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


def server(folder: Path, port: int | None = None) -> ThreadingHTTPServer:
    """A server of a folder that listens already; its port is ``server_port``.

    Args:
        port: None for :data:`PORT` or, where that is taken, any free one.

    Raises:
        EnvironmentUnfit: the port that was asked for cannot be had.
    """
    handler = partial(_Handler, directory=str(folder))
    try:
        return ThreadingHTTPServer((HOST, PORT if port is None else port), handler)
    except OSError as error:
        if port is None:
            return ThreadingHTTPServer((HOST, 0), handler)
        raise refused_port(port, error) from None


def refused_port(port: int | None, error: OSError) -> EnvironmentUnfit:
    """What to say where a port cannot be had."""
    why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror}"
    return EnvironmentUnfit(
        f"--port {port}: {why}. Name another one, or leave it away to get a free one."
    )
