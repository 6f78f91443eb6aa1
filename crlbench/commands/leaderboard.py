"""``crlbench leaderboard``: build the public site of stored results, look at it, take its data."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from crlbench.commands.console import note, out, out_json
from crlbench.errors import OK, UsageError, ValidationError, unknown_name

SHOWN = 5
"""Differences that a message lists."""
ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?(?:/[A-Za-z0-9._~/-]*)?", re.ASCII)


def leaderboard(options: Namespace) -> int:
    """One of the actions."""
    return ACTIONS[options.action](options)


def build(options: Namespace) -> int:
    """Write the site of all stored results, or compare what stands with what it would be."""
    from crlbench.site import build as site
    from crlbench.site.repository import Repository

    folder = Path(options.out)
    url, source = _address("--url", options.url), _address("--source-url", options.source_url)
    repository = Repository(source.rstrip("/")) if source else None
    if not options.check:
        site.require_replaceable(folder)
    files = site.build(_site(options, url, repository))
    if options.check:
        return _checked(site.differences(files, folder), folder)
    site.write(files, folder)
    page = folder / "index.html"
    out_json({"site": str(page), "files": len(files)}) if options.json else out(str(page))
    if not options.url:
        note(options, "Without --url: no sitemap, and the feed and 404.html know no address.")
    return OK


def _site(options: Namespace, url: str = "", repository: Any = None) -> Any:
    from crlbench.catalog.find import Catalog
    from crlbench.site.source import read_site

    return read_site(_results(options), Catalog(options.catalog), url, repository)


def _results(options: Namespace) -> Path:
    from crlbench.verdict.resources import leaderboard_folder

    return Path(options.results) if options.results else leaderboard_folder() / "results"


def _address(option: str, url: str | None) -> str:
    """An address that ends in ``/``; empty for none."""
    if url is None:
        return ""
    if not ADDRESS.fullmatch(url):
        raise UsageError(f"{option} {url}: give the whole address: https://example.org/board/")
    return url.rstrip("/") + "/"


def _checked(found: list[str], folder: Path) -> int:
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise ValidationError(
            f"{folder}: is not what would be built: {'; '.join(found[:SHOWN])}{more}. "
            "Run the command without --check."
        )
    return OK


def serve(options: Namespace) -> int:
    """Show the site on this machine until Ctrl-C; built first where that is needed."""
    from crlbench.site import build as site
    from crlbench.site.serve import HOST, server

    folder = Path(options.out)
    with server(folder, options.port) as listening:
        if _outdated(folder, _results(options)):
            site.require_replaceable(folder)
            note(options, f"Building {folder} ...")
            site.write(site.build(_site(options)), folder)
        url = f"http://{HOST}:{listening.server_port}/"
        if options.json:
            out_json({"url": url, "site": str(folder)})
        else:
            out(url)
        note(options, "Ctrl-C stops it.")
        _until_stopped(listening)
    return OK


def _until_stopped(listening: Any) -> None:
    import sys

    sys.stdout.flush()
    try:
        listening.serve_forever()
    except KeyboardInterrupt:
        pass


def _outdated(folder: Path, results: Path) -> bool:
    """Whether there is no site, or something that it is made of is younger."""
    from crlbench.site.build import MARKER
    from crlbench.verdict.resources import leaderboard_folder

    marker = folder / MARKER
    if not marker.is_file():
        return True
    sources = (results, leaderboard_folder() / "templates", leaderboard_folder() / "static")
    made = marker.stat().st_mtime
    return any(path.stat().st_mtime > made for root in sources for path in _within(root))


def _within(root: Path) -> Iterator[Path]:
    yield root
    yield from root.rglob("*")


def export(options: Namespace) -> int:
    """Write one table of the stored results to a file."""
    from crlbench.run.store import write_bytes
    from crlbench.site.formats import TABLES, table_file

    form, target = _format(options), Path(options.out)
    if target.is_dir():
        raise UsageError(f"--out {options.out}: is a folder; give the name of a file.")
    boards = _chosen(options.board, _site(options).boards)
    content = table_file(TABLES[options.what], boards, form)
    write_bytes(target, content)
    out_json({"table": str(target)}) if options.json else out(str(target))
    return OK


def _format(options: Namespace) -> str:
    """What was asked for, or what the name of the file says."""
    from crlbench.site.formats import WRITERS

    named = Path(options.out).suffix.lower().removeprefix(".")
    if options.format is not None:
        return options.format
    if named not in WRITERS:
        raise UsageError(
            f"--out {options.out}: its ending says no format; give --format "
            f"{', '.join(WRITERS)}, or end the name in one of them."
        )
    return named


def _chosen(names: list[str] | None, boards: Iterable[Any]) -> list[Any]:
    """The boards of these names, or of tracks by version, in the order of the site."""
    known = {(b.id, f"{b.board.track}@{b.board.track_version}"): b for b in boards}
    every = dict.fromkeys(chain(*known))
    for name in names or ():
        if name not in every:
            raise unknown_name("board", name, every)
    return [board for own, board in known.items() if not names or {*own} & {*names}]


ACTIONS = {"build": build, "serve": serve, "export": export}
