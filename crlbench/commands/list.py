"""``crlbench list``: what there is of one kind."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from crlbench.commands.console import out, out_json, warn
from crlbench.commands.flags import OUT
from crlbench.errors import OK, UsageError, ValidationError
from crlbench.pages.table import tabulate

KINDS = ("models", "tasks", "recipes", "tracks", "runs", "results")
NEEDS_TEMPORARY = False

EXAMPLES = """\
examples:
  crlbench list models --family qwen3
  crlbench list tasks --json
  crlbench list results

Exit code 3: an entry cannot be read. stderr names it, and the rest is listed.
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=KINDS, metavar="WHAT", help=", ".join(KINDS))
    parser.add_argument("--out", metavar="DIR", default="runs", help=OUT)
    parser.add_argument("--family", metavar="NAME", help="for models: only this family")
    parser.add_argument("--kind", metavar="KIND", help="for models: base, instruct or reasoning")


def run(options: Namespace) -> int:
    """Print the entries of one kind as a table or as JSON.

    An entry that cannot be read is named on stderr, and the rest is listed.

    Returns:
        0, or 3 where an entry cannot be read.
    """
    from crlbench.commands.list_rows import LISTS

    for flag in ("family", "kind"):
        if getattr(options, flag) is not None and options.what != "models":
            raise UsageError(f"--{flag} belongs to models, not to {options.what}.")
    faults: dict[str, None] = {}
    rows, columns = LISTS[options.what](options, lambda error: faults.setdefault(str(error)))
    if options.json:
        out_json(rows)
    elif rows:
        out(tabulate(rows, columns).to_text())
    else:
        out(f"no {options.what}")
    for fault in faults:
        warn(f"crlbench: {fault}")
    return ValidationError.exit_code if faults else OK
