"""The command line: what may be typed, and how every way of ending looks.

Nothing heavy is imported here. Each command's own file is imported when the command is called,
so that ``crlbench --help`` answers at once.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from crlbench import __version__
from crlbench.commands.flags import require_readable_names
from crlbench.disk import switches
from crlbench.disk.files import require_temporary
from crlbench.errors import (
    INTERNAL,
    OK,
    CrlbenchError,
    EnvironmentUnfit,
    Interrupted,
    UsageError,
    unknown_name,
)

OFFLINE_SWITCHES = ("CRLBENCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")

GLOBALS: dict[str, Any] = {
    "home": None,
    "offline": False,
    "json": False,
    "quiet": False,
    "verbose": False,
    "no_color": False,
    "no_progress": False,
    "catalog": [],
}

_PATHS: dict[int | None, tuple[type[CrlbenchError], str]] = {
    errno.ENAMETOOLONG: (UsageError, "Give a shorter one."),
    errno.ELOOP: (UsageError, "Links there lead to themselves. Give another one."),
    errno.ENOTDIR: (UsageError, "A part of it is a file. Give a folder."),
    errno.EACCES: (EnvironmentUnfit, "Give yourself permission for it, or give another one."),
    errno.EPERM: (EnvironmentUnfit, "Give yourself permission for it, or give another one."),
    errno.EROFS: (EnvironmentUnfit, "Give one that can be written."),
    errno.ENOSPC: (EnvironmentUnfit, "Free space, then run the same command again."),
}
"""What the system may say of a path that was given, wherever a command meets it."""

COMMANDS = {
    "evaluate": "train and measure a model on a track",
    "ablate": "change one part of a recipe at a time and measure what it does",
    "compare": "compare stored entries, with a verdict on each pair",
    "list": "list models, tasks, recipes, tracks, runs or results",
    "show": "show one model, task, recipe or track",
    "report": "write one self-contained HTML page of stored runs",
    "watch": "show runs while they are made: a live page, or the report as runs end",
    "fingerprint": "print or compare everything that is held fixed",
    "export": "write the trained model of a run, for other programs",
    "fit-reward": "fit a reward model on preference pairs",
    "freeze": "write a task's split files and digests, or check them",
    "archive": "keep the present version of a track or task beside newer ones",
    "fetch": "download models and datasets that are not bundled",
    "doctor": "check whether this machine can run a model on a track, and what helps",
    "submit": "pack finished runs as a result that others can review",
    "validate": "check tasks, models and results against every rule",
    "verify": "check a result: recompute it, and retrain its first updates",
    "add": "write a new task and its tests, or the entry of a model",
    "probe": "sample tasks with untrained models and count correct completions",
    "leaderboard": "build, show and export the board of results; take entries back",
}
"""Each command with its summary; the rest of it is in a file of its own: :func:`module_of`."""


class Parser(argparse.ArgumentParser):
    """A command line whose flags are added when they are first needed.

    Wrong usage becomes a :class:`UsageError` with the nearest names.
    """

    fill: Callable[[Parser], None] | None = None
    """What adds the flags; None once they are there."""

    def filled(self) -> Parser:
        """This parser with all its flags."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        return self

    @property
    def below(self) -> dict[str, Parser]:
        """The parsers of its commands or actions, by name."""
        actions = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return next((action.choices for action in actions), {})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.filled()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = action.dest if action.dest in ("command", "action") else "entry kind"
            what = action.option_strings[-1] if action.option_strings else kind
            raise unknown_name(what, str(value), map(str, action.choices))


def module_of(name: str) -> Any:
    """The file of a command, which says its flags, its examples and what it does."""
    return import_module(f"crlbench.commands.{name.replace('-', '_')}")


def build_parser() -> Parser:
    """The whole command line, each command as yet without its flags."""
    parser = Parser(
        prog="crlbench",
        description="Reinforcement learning of language models under frozen conditions: every "
        "number carries the fingerprint of what was held fixed.",
        epilog="First: crlbench evaluate --model tiny-llama",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"crlbench {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.fill = partial(_fill, name)
    _add_shared(parser)
    return parser


def _fill(name: str, parser: Parser) -> None:
    """Give a command, and its actions, what its file says."""
    module = module_of(name)
    parser.epilog = module.EXAMPLES
    module.add_flags(parser)
    for one in (*parser.below.values(), parser):
        _add_shared(one)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    """Flags taken before or after a command's name; absent ones leave no trace."""
    group = parser.add_argument_group("everywhere")

    def add(*names: str, **options: Any) -> None:
        group.add_argument(*names, default=argparse.SUPPRESS, **options)

    add("--home", metavar="DIR", help=f"downloads and caches ($CRLBENCH_HOME, {switches.HOME})")
    add("--catalog", metavar="DIR", action="append",
        help="folder with further tasks/, models/, leaderboard/, recipes/ (repeatable)")
    add("--offline", action="store_true", help="never use the network")
    add("--json", action="store_true", help="print the result as JSON")
    add("-q", "--quiet", action="store_true", help="print only the result")
    add("-v", "--verbose", action="store_true", help="show tracebacks")
    add("--no-color", action="store_true", help="use no colours ($NO_COLOR)")
    add("--no-progress", action="store_true", help="print lines instead of a bar")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, with the environment and the defaults filled in.

    Raises:
        UsageError: something unknown or impossible, with the nearest names.
    """
    if odd := [text for text in argv if "\0" in text]:
        raise UsageError(f"{odd[0]!r:.80} holds a zero byte, which no name and no number has.")
    parser = build_parser()
    options, unknown = parser.parse_known_args(argv)
    late = getattr(module_of(options.command), "LATE", None) if options.command else None
    if unknown and late and getattr(options, late) is None and not unknown[0].startswith("-"):
        setattr(options, late, unknown.pop(0))
    if unknown:
        _refuse_unknown(_innermost(parser, options), unknown)
    for name, default in GLOBALS.items():
        if not hasattr(options, name):
            setattr(options, name, default)
    if options.command is None:
        parser.print_help(sys.stderr)
        raise UsageError("no command given.")
    if getattr(options, "action", "") is None:
        command = _innermost(parser, options)
        command.print_help(sys.stderr)
        raise UsageError(f"no action given: {command.prog} {'|'.join(command.below)}.")
    options.no_color |= bool(os.environ.get("NO_COLOR"))
    options.no_progress |= bool(os.environ.get("CI"))
    options.offline |= switches.offline()
    options.home = switches.find_home(options.home)
    options.typed = shlex.join(["crlbench", *argv])
    return options


def _innermost(parser: Parser, options: argparse.Namespace) -> Parser:
    """The parser of the command, or of its action, that was called."""
    for name in (options.command, getattr(options, "action", None)):
        parser = parser.below.get(name, parser)
    return parser


def _refuse_unknown(known: Parser, unknown: Sequence[str]) -> NoReturn:
    """Name the first argument that nobody knows, with the nearest flags."""
    first = unknown[0].split("=")[0]
    if first.startswith("-"):
        options = [name for name in known._option_string_actions if name.startswith("--")]
        near = difflib.get_close_matches(first, options, n=3, cutoff=0.5)
        raise unknown_name("option", first, near, f"See: {known.prog} --help")
    raise UsageError(f"unexpected argument '{first}'. See: {known.prog} --help")


def _export(options: argparse.Namespace) -> None:
    """What the rooms and the workers read from the environment."""
    if options.home is not None:
        os.environ["CRLBENCH_HOME"] = str(options.home)
        if not switches.hub_placed():
            os.environ["HF_HOME"] = str(options.home / "huggingface")
    # torch makes a folder for its compiler as soon as it is imported: no new one for that.
    with suppress(FileNotFoundError):  # commands that need none go on without
        os.environ.setdefault(switches.COMPILER_FOLDER, tempfile.gettempdir())
    if options.offline:
        os.environ.update(dict.fromkeys(OFFLINE_SWITCHES, "1"))


def prepare(options: argparse.Namespace) -> None:
    """Make this process ready for a command: its environment, and what the command cannot lack.

    Raises:
        EnvironmentUnfit: this machine lacks something.
        UsageError: a name that no library can take.
    """
    _export(options)
    command = module_of(options.command)
    if getattr(command, "NEEDS_TEMPORARY", True):
        require_temporary()
    if getattr(command, "READS_MODELS", False):
        require_readable_names(options)


def _handle(options: argparse.Namespace) -> int:
    code: int = module_of(options.command).run(options)
    return code


def _print_anything() -> None:
    """Characters that a terminal's encoding lacks are escaped instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for anything a person did."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    verbose = bool({"-v", "--verbose"} & set(arguments))
    try:
        options = parse(arguments)
        verbose = options.verbose
        prepare(options)
        code = _handle(options)
        sys.stdout.flush()
        return code
    except CrlbenchError as error:
        return _complain(f"crlbench: {error}", error.exit_code, verbose)
    except KeyboardInterrupt:
        return _complain("crlbench: interrupted", Interrupted.exit_code, verbose)
    except BrokenPipeError:
        # The reader has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        if isinstance(error, OSError) and (told := of_a_path(error)) is not None:
            return _complain(f"crlbench: {told}", told.exit_code, verbose)
        message = f"crlbench: internal error: {type(error).__name__}: {error}"
        hint = "" if verbose else "\nThis is a fault of crlbench. -v shows where it happened."
        return _complain(message + hint, INTERNAL, verbose)


def of_a_path(error: OSError) -> CrlbenchError | None:
    """What to say where the system refuses a path: which one, why, and what helps."""
    if error.filename is None or error.errno not in _PATHS:
        return None
    kind, hint = _PATHS[error.errno]
    return kind(f"{str(error.filename):.200}: {error.strerror}. {hint}")


def _complain(message: str, code: int, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    print(message, file=sys.stderr)
    return code
