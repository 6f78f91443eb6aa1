"""``crlbench compare``: entries side by side, with paired verdicts."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.commands.console import print_result
from crlbench.commands.flags import RUNS, file_target
from crlbench.errors import OK, UsageError

SUFFIXES = {".html": "html", ".htm": "html", ".json": "json", ".md": "md", ".txt": "text"}
"""What the name of ``--out`` says about the format; a name without an ending says nothing."""
AXES = ("all", "efficiency", "stability", "generalization")
BY = ("completions", "bytes", "updates", "flops", "labels", "time")
FORMATS = ("text", "md", "json", "html")
NEEDS_TEMPORARY = False

EXAMPLES = """\
examples:
  crlbench compare tiny-llama tiny-qwen2
  crlbench compare tiny-llama/ppo tiny-llama/grpo --axis efficiency --by bytes
  crlbench compare A/runs/mini-0123456789ab/my-model@89abcdef/ppo tiny-llama --out compare.html
  crlbench compare mini@1/tiny-llama mini@1/tiny-qwen2
  crlbench compare tiny-llama/rlhf tiny-llama/sft-dpo --by flops
  crlbench compare --designs tiny2-llama tiny2-qwen2 --json
  crlbench compare --designs runs/mini-0123456789ab

A name is looked up among your runs and among the board's stored results, so that my-model can be
compared with tiny-llama: on the board that both lie on.
--designs takes every checkpoint of a design together (protocol CRL-2); without names, all designs
of the board below --runs. It says how much of a difference between designs is pretraining.
mini@1/ names entries of mini at version 1, the current version or an archived one.
Exit code 4: the entries have different conditions or hardware, so they are not comparable.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("entries", metavar="ENTRY", nargs="*",
        help="two or more: a run folder, or a name below --runs: tiny-llama, "
        "tiny-llama@25666175, tiny-llama/grpo; differences are the later one minus the earlier")
    add("--designs", metavar="DESIGN", nargs="*", default=None,
        help="compare designs over their checkpoints: names of models, or folders of runs (all of "
        "the board)")
    add("--runs", metavar="DIR", default=None,
        help="folder in which names are looked up (runs, and the board's stored results)")
    add("--axis", metavar="X", choices=AXES, default="all", help=f"{', '.join(AXES)} (all)")
    add("--tasks", metavar="A,B", help="only these tasks (all tasks of the entries)")
    add("--by", metavar="X", choices=BY, default="completions",
        help=f"{', '.join(BY)}: x-axis of curves and times to threshold (completions); flops and "
        "labels are those that chains of stages were charged; time is not reproducible and needs "
        "one class of hardware")
    add("--format", metavar="F", choices=FORMATS, default=None,
        help=f"{', '.join(FORMATS)} (text, or by the name of --out)")
    add("--out", metavar="FILE", help="file to write; its path is printed")
    add("--force-unequal", action="store_true",
        help="compare although conditions differ: under a watermark, without a verdict")


def run(options: Namespace) -> int:
    """Print or write what stored entries say against each other."""
    form = _format(options)
    target = None if options.out is None else file_target("--out", options.out)
    if options.designs is None:
        comparison, render, show = read_comparison(options), _render, _terminal
    else:
        from crlbench.commands import compare_designs

        comparison = compare_designs.read_designs(options)
        render, show = compare_designs.render, compare_designs.terminal
    if target is None:
        _print(comparison, form, not options.no_color, render, show)
        return OK
    from crlbench.run.store import write_text

    write_text(target, render(comparison, form))
    print_result(options, {"compare": str(target)}, [str(target)])
    return OK


def read_comparison(options: Namespace) -> Any:
    """The comparison of the entries that the options name.

    Raises:
        UsageError: fewer than two entries, or an unknown name.
        NotComparable: unequal conditions, and no ``force_unequal``.
        ValidationError: something stored is damaged.
    """
    from crlbench.verdict import board
    from crlbench.verdict.compare import compare as side_by_side

    if len(options.entries) < 2:
        raise UsageError("compare needs at least two entries: crlbench compare A B.")
    return side_by_side(
        read_entries(options),
        axes=board.AXES if options.axis == "all" else (options.axis,),
        tasks=chosen_tasks(options),
        by=options.by,
        force=options.force_unequal,
    )


def read_entries(options: Namespace) -> list[Any]:
    """The entries that the options name, in their order.

    Raises:
        UsageError: an unknown name.
        ValidationError: something stored is damaged.
    """
    from crlbench.commands.stored_entries import find_entries
    from crlbench.verdict import compare_read
    from crlbench.verdict.resources import leaderboard_folder

    places = [Path(options.runs or RUNS)]
    if options.runs is None:
        places.append(leaderboard_folder() / "results")
    return [compare_read.read_entry(folder) for folder in find_entries(options.entries, places)]


def chosen_tasks(options: Namespace) -> tuple[str, ...] | None:
    """The names of ``--tasks``; None for all that any entry has."""
    if options.tasks is None:
        return None
    from crlbench.commands.settings import names_in

    names = names_in([options.tasks])
    if not names:
        raise UsageError(f"--tasks {options.tasks}: names no task.")
    return names


def _format(options: Namespace) -> str:
    """What was asked for: by --format, by --json, by the name of --out, else text."""
    if options.json and options.format not in (None, "json"):
        raise UsageError(f"--json and --format {options.format} contradict each other; give one.")
    asked = options.format or ("json" if options.json else None)
    ending = Path(options.out).suffix.lower() if options.out else ""
    if not ending:
        return asked or "text"
    named = SUFFIXES.get(ending)
    if named is None:
        raise UsageError(
            f"--out {options.out}: no format is called {ending}; allowed are {', '.join(SUFFIXES)}."
        )
    if asked not in (None, named):
        allowed = " or ".join(end for end, form in SUFFIXES.items() if form == asked)
        flag = f"--format {options.format}" if options.format else "--json"
        raise UsageError(
            f"{flag} and --out {options.out} contradict each other; for {asked} the file's name "
            f"ends in {allowed}."
        )
    return named


def _render(comparison: Any, form: str) -> str:
    """The comparison as the text of a file."""
    if form == "json":
        return comparison.to_json()
    if form == "html":
        from crlbench.pages.compare import render_comparison

        return render_comparison(comparison)
    from crlbench.pages.compare_table import markdown_comparison, plain_comparison

    return (markdown_comparison if form == "md" else plain_comparison)(comparison)


def _terminal(comparison: Any, width: int) -> Any:
    from crlbench.pages.compare_table import terminal_comparison

    return terminal_comparison(comparison, width)


def _print(
    comparison: Any,
    form: str,
    colour: bool,
    render: Callable[[Any, str], str],
    show: Callable[[Any, int], Any],
) -> None:
    """Coloured for people at a terminal, plain for files and pipes."""
    if form != "text" or not sys.stdout.isatty():
        sys.stdout.write(render(comparison, form))
        return
    from rich.console import Console

    console = Console(no_color=not colour)
    console.print(show(comparison, console.width))
