"""``crlbench add``: the files of a new entry, ready to be changed."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

from crlbench.catalog import BUNDLED, Catalog
from crlbench.commands.console import out, out_json
from crlbench.errors import OK, UsageError
from crlbench.suite.scaffold import Scaffold, check_name, write


def add(options: Namespace) -> int:
    """Write a working task and its tests, and say what to type next."""
    check_name(options.name)
    catalog = Catalog(options.catalog)
    known = catalog.entries("task")
    if options.name in known:
        raise UsageError(
            f"task '{options.name}' exists already in {known[options.name].path}; choose another"
            " name."
        )
    scaffold = Scaffold(options.name, _root(options, catalog))
    written = [str(path) for path in write(scaffold)]
    commands = next_commands(scaffold, inside=scaffold.root in catalog.roots)
    if options.json:
        out_json({"files": written, "next": commands})
        return OK
    for path in written:
        out(path)
    out("\nnext:")
    for command in commands:
        out(f"  {command}")
    return OK


def _root(options: Namespace, catalog: Catalog) -> Path:
    """The folder that gets the task: ``--to``, else the checkout."""
    if options.to:
        return Path(options.to).expanduser().resolve()
    own = catalog.roots[-1]
    if own == BUNDLED:
        raise UsageError(
            "this crlbench is installed without a checkout, so say where the task goes: --to DIR."
            " DIR is then a --catalog folder: crlbench list tasks --catalog DIR"
        )
    return own


def next_commands(scaffold: Scaffold, inside: bool) -> list[str]:
    """What to type after the files were changed: freeze, validate, test."""
    folder = shlex.quote(str(scaffold.folder))
    return [
        f"crlbench freeze {scaffold.name if inside else folder}",
        f"crlbench validate {folder}",
        f"pytest {shlex.quote(str(scaffold.test))}",
    ]
