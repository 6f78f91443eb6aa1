"""``crlbench leaderboard``: build the site of results, show it, export it, take entries back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from crlbench.base.wording import listed
from crlbench.commands import retract
from crlbench.commands.console import note, print_result
from crlbench.commands.flags import file_target, port
from crlbench.commands.steps import Steps
from crlbench.errors import OK, EnvironmentUnfit, UsageError, ValidationError, require_known

SHOWN = 5
"""Differences that a message lists."""
CACHE = "site"
"""Folder below CRLBENCH_HOME for what is kept of entries."""
ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?(?:/[A-Za-z0-9._~/-]*)?", re.ASCII)
TABLES = ("entries", "runs", "curves", "pairs", "designs")
TABLE_FORMATS = ("csv", "json", "parquet", "tex")

EXAMPLES = """\
examples:
  crlbench leaderboard build
  crlbench leaderboard serve
  crlbench leaderboard export --what runs --out runs.csv
  crlbench leaderboard retract BOARD/MODEL@REVISION/RECIPE --reason R --by @me

How to read, build and host the board: docs/site.md.
"""
BUILD_EXAMPLES = """\
examples:
  crlbench leaderboard build --out _site
  crlbench leaderboard build --url https://example.org/board/
  crlbench leaderboard build --source-url https://github.com/org/name
  crlbench leaderboard build --runs runs --out my-board
  crlbench leaderboard build --check
  crlbench leaderboard build --no-cache

What is computed of an entry is kept, and used again while its files and the code are the same.
Exit code 3: results contradict themselves, or --check finds a different site.
"""
SERVE_EXAMPLES = """\
examples:
  crlbench leaderboard serve
  crlbench leaderboard serve --port 8080 --results clone/leaderboard/results --out preview
"""
EXPORT_EXAMPLES = """\
examples:
  crlbench leaderboard export --out entries.csv
  crlbench leaderboard export --what curves --board mini-543da47d0c99 --out curves.parquet

What the columns mean: data.html of the site. Exit code 6: Parquet needs the extra parquet.
"""


def add_flags(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    for name, action in ACTIONS.items():
        command = actions.add_parser(
            name,
            help=action.summary,
            description=action.about,
            allow_abbrev=False,
            epilog=action.examples,
            formatter_class=RawDescriptionHelpFormatter,
        )
        command.add_argument("--results", metavar="DIR",
            help="the folder of results (leaderboard/results)")
        action.add_flags(command)


def run(options: Namespace) -> int:
    """One of the actions."""
    return ACTIONS[options.action].run(options)


def _build_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", metavar="DIR", default="_site", help="folder for the site (_site)")
    add("--url", metavar="URL",
        help="address of the site, https://...: for the sitemap, the feed and 404.html")
    add("--source-url", metavar="URL",
        help="the repository of the results, https://...: pages link to it (git's origin)")
    add("--runs", metavar="DIR", action="append",
        help="show your own finished runs below DIR beside the results, marked, never ranked "
        "(repeatable)")
    add("--check", action="store_true",
        help="write nothing; exit code 3 if the stored site differs from a new one")
    add("--cache", metavar="DIR",
        help="folder for what is kept of entries ($CRLBENCH_HOME/site)")
    add("--no-cache", action="store_true", help="compute everything, and keep nothing")


def _serve_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--port", metavar="N", type=port, help="a port of 127.0.0.1 (8000, or any free one)")
    add("--out", metavar="DIR", default="_site", help="the folder of the site (_site)")


def _export_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--what", metavar="W", choices=TABLES, default="entries",
        help=f"{', '.join(TABLES)} (entries)")
    add("--format", metavar="F", choices=TABLE_FORMATS,
        help=f"{', '.join(TABLE_FORMATS)} (by the name of --out)")
    add("--out", metavar="FILE", required=True, help="file of the table")
    add("--board", metavar="NAME", action="append",
        help="only this board: track-fingerprint, or those of track@version (repeatable; all)")


def build(options: Namespace) -> int:
    """Write the site of all stored results, or compare what stands with what it would be."""
    from crlbench.site import build as site
    from crlbench.site.repository import Repository

    folder = Path(options.out)
    url, source = _address("--url", options.url), _address("--source-url", options.source_url)
    if options.runs and (url or source):
        flag = "--url" if url else "--source-url"
        raise UsageError(
            f"--runs shows runs that nobody submitted, and {flag} is for a site that others see. "
            "Give one of the two."
        )
    source = source or ("" if options.runs else _remote(_results(options)))
    repository = Repository(source.rstrip("/")) if source else None
    if options.cache and options.no_cache:
        raise UsageError("--cache names a folder, and --no-cache wants none. Give one of the two.")
    if not options.check:
        site.require_replaceable(folder)
    with _beside(options) as (folder_of_all, own), Steps(options) as steps:
        results = _site(options, steps, url, repository, folder_of_all, own)
        make = site.compare if options.check else site.publish
        files = make(results, folder, advance=partial(steps.show, "making pages"))
    if options.check:
        if files:
            raise ValidationError(
                f"{folder}: differs from a new site: {listed(files, SHOWN, '; ')}. "
                "Run the command without --check."
            )
        return OK
    page = folder / "index.html"
    print_result(options, {"site": str(page), "files": len(files)}, [str(page)])
    if options.runs:
        note(options, f"Your runs on it: {', '.join(sorted(own))}.")
        return OK
    if not options.url:
        note(options, "Without --url: no sitemap, and the feed and 404.html know no address.")
    if repository is None:
        note(options, "Without --source-url or a remote origin in git: no link to the repository.")
    return OK


def _beside(options: Namespace) -> AbstractContextManager[tuple[Path, frozenset[str]]]:
    """The folder of results, with the own runs of ``--runs`` where there are any."""
    if not options.runs:
        return nullcontext((_results(options), frozenset()))
    from crlbench.commands.own_results import with_own

    return with_own(_results(options), [*map(Path, options.runs)], partial(note, options))


def _remote(results: Path) -> str:
    """The address of the repository that holds the results, from git's remote ``origin``; empty
    where there is none, or it is no public address."""
    command = ["git", "-C", str(results), "config", "--get", "remote.origin.url"]
    try:
        found = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    except OSError:  # no git, or no such folder
        return ""
    url = found.stdout.strip().removesuffix(".git")
    if secure := re.fullmatch(r"(?:ssh://)?git@([A-Za-z0-9.-]+)[:/](.+)", url):
        url = f"https://{secure[1]}/{secure[2]}"
    return url if url.startswith("https://") and ADDRESS.fullmatch(url) else ""


def _site(
    options: Namespace,
    steps: Steps,
    url: str = "",
    repository: Any = None,
    results: Path | None = None,
    own: frozenset[str] = frozenset(),
) -> Any:
    from crlbench.catalog.find import Catalog
    from crlbench.site.reading import read_site

    return read_site(
        results or _results(options),
        Catalog(options.catalog),
        url,
        repository,
        _cache(options),
        partial(steps.show, "reading entries"),
        own,
        partial(note, options),
    )


def _cache(options: Namespace) -> Any:
    """Where what is kept of entries lies; None for a folder that goes with the command."""
    from crlbench.site.cache import Cache, SparedCache, TemporaryCache

    if getattr(options, "no_cache", False):
        return TemporaryCache(_temporary(options))
    if place := getattr(options, "cache", None):
        _require_apart(f"--cache {place}", Path(place), options)
        return Cache(Path(place))
    if options.home is not None:
        place = options.home / CACHE
        _require_apart(f"{place}: the folder of what is kept", place, options)
    spare = TemporaryCache(_temporary(options))
    if options.home is None:
        return spare
    try:
        return SparedCache(options.home / CACHE, spare, partial(note, options))
    except EnvironmentUnfit:  # a home that cannot be written to
        return spare


def _temporary(options: Namespace) -> Path | None:
    """Where temporary files lie: where the output will, if that can be written to already."""
    above = Path(options.out).absolute().parent
    writes = not getattr(options, "check", False)
    return above if writes and above.is_dir() and os.access(above, os.W_OK) else None


def _require_apart(name: str, cache: Path, options: Namespace) -> None:
    """Refuse a cache that stands in the site or in the results, or has one of them inside."""
    place = cache.resolve()
    for what, other in (("--out", Path(options.out)), ("the results", _results(options))):
        whole = other.resolve()
        if place == whole or place in whole.parents or whole in place.parents:
            raise UsageError(
                f"{name} and {what} ({other}): one is the other, or inside of it. Name a folder "
                "that is apart from both."
            )


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


def serve(options: Namespace) -> int:
    """Show the site on this machine until Ctrl-C; built first where that is needed."""
    from crlbench.site import build as site
    from crlbench.site.serve import HOST, server

    folder = Path(options.out)
    with server(folder, options.port) as listening:
        if _is_outdated(folder, _results(options)):
            site.require_replaceable(folder)
            note(options, f"Building {folder} ...")
            with Steps(options) as steps:
                results = _site(options, steps)
                site.publish(results, folder, advance=partial(steps.show, "making pages"))
        url = f"http://{HOST}:{listening.server_port}/"
        print_result(options, {"url": url, "site": str(folder)}, [url])
        note(options, "Ctrl-C stops it.")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            listening.serve_forever()
    return OK


def _is_outdated(folder: Path, results: Path) -> bool:
    """Whether there is no site, or something that it is made of is younger."""
    from crlbench.site.build import MARKER
    from crlbench.verdict.resources import leaderboard_folder

    marker = folder / MARKER
    if not marker.is_file():
        return True
    sources = (results, leaderboard_folder() / "templates", leaderboard_folder() / "static")
    built = marker.stat().st_mtime
    files = (path for root in sources for path in (root, *root.rglob("*")))
    return any(path.stat().st_mtime > built for path in files)


def export(options: Namespace) -> int:
    """Write one table of the stored results to a file."""
    from crlbench.run.store import write_bytes
    from crlbench.site import formats

    form, target = _format(options), file_target("--out", options.out)
    with Steps(options) as steps:
        boards = _choose(options.board, _site(options, steps).boards)
        write_bytes(target, formats.WRITERS[form](formats.TABLES[options.what](boards)))
    print_result(options, {"table": str(target)}, [str(target)])
    return OK


def _format(options: Namespace) -> str:
    """What was asked for, or what the name of the file says."""
    from crlbench.site.formats import WRITERS

    ending = Path(options.out).suffix.lower().removeprefix(".")
    if options.format is not None:
        return options.format
    if ending not in WRITERS:
        raise UsageError(
            f"--out {options.out}: its ending says no format; give --format "
            f"{', '.join(WRITERS)}, or end the name in one of them."
        )
    return ending


def _choose(names: list[str] | None, boards: Iterable[Any]) -> list[Any]:
    """The boards of these names, or of tracks by version, in the order of the site."""
    by_forms = {(b.id, f"{b.board.track}@{b.board.track_version}"): b for b in boards}
    every = dict.fromkeys(chain(*by_forms))
    for name in names or ():
        require_known("board", name, every)
    return [board for forms, board in by_forms.items() if not names or {*forms} & {*names}]


class Action(NamedTuple):
    """One of the things that can be done with the board."""

    summary: str
    about: str
    examples: str
    add_flags: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


ACTIONS = {
    "build": Action(
        "write the site of all stored results",
        "Write the site of all stored results: static pages that need no server.",
        BUILD_EXAMPLES,
        _build_flags,
        build,
    ),
    "serve": Action(
        "show the site on this machine",
        "Show the site on this machine until Ctrl-C. It is built first if there is none, or "
        "if results are newer.",
        SERVE_EXAMPLES,
        _serve_flags,
        serve,
    ),
    "export": Action(
        "write the results as one table",
        "Write the results as one table: a row per entry and axis, run, evaluation, or pair.",
        EXPORT_EXAMPLES,
        _export_flags,
        export,
    ),
    "retract": Action(
        "take an entry back, in public",
        "Take an entry back: add a line to leaderboard/retractions.jsonl. The entry stays "
        "readable and does not rank. For personal data its files are removed, and the line "
        "keeps their digest.",
        retract.EXAMPLES,
        retract.add_flags,
        lambda options: retract.run(options, _results(options)),
    ),
}
