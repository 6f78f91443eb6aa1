"""``crlbench export``: the model that a run trained, as files for other programs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from crlbench.commands.console import note, print_result
from crlbench.errors import OK, UsageError

READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench export runs/mini-0123456789ab/my-model@89abcdef/ppo/addition/real/seed-00 --to adapter
  crlbench export runs/small-0123456789ab/my-model@89abcdef/ppo/addition/real/seed-00 --to m --merge
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="folder of one finished run: .../TASK/ARM/seed-NN"
    )
    parser.add_argument("--to", metavar="DIR", help="folder of the model; must not exist")
    parser.add_argument(
        "--merge", action="store_true",
        help="merge an adapter into its base: a whole checkpoint, for --model DIR",
    )


def run(options: Namespace) -> int:
    """Write an adapter or a checkpoint and print its folder."""
    if options.to is None:
        raise UsageError("export needs --to DIR, a folder that does not exist yet.")
    run, target = Path(options.run), Path(options.to)

    from crlbench.catalog.find import Catalog
    from crlbench.stages.export import export_run

    kind = export_run(run, Catalog(options.catalog), target, options.merge)
    if kind == "adapter":
        note(options, "a peft adapter; --merge writes a whole checkpoint, for --model DIR")
    else:
        note(options, f"a whole checkpoint in float32: crlbench evaluate --model {target}")
    print_result(options, {"folder": str(target), "kind": kind}, [str(target)])
    return OK
