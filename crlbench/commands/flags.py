"""Flags that several commands take, and checks of what they hold.

Nothing heavy is imported here, so that ``--help`` is quick.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from pathlib import Path
from typing import Any

from crlbench.errors import EnvironmentUnfit, UsageError

DEVICES = ("cpu", "cuda", "auto")
RUNS = "runs"
"""Where evaluate leaves runs."""
LOGGERS = ("tensorboard", "csv", "wandb", "trackio", "none")
INSTALLED_APART = ("wandb", "trackio")
"""Loggers whose packages do not come along."""
STRATEGIES = ("auto", "ddp", "fsdp")
MODEL = "entry name, checkpoint folder, GGUF file or org/name@commit"
OUT = "folder of all runs (runs)"

_TRAINING: dict[str, dict[str, Any]] = {
    "--model": {"metavar": "X", "action": "append", "help": f"{MODEL} (repeatable)"},
    "--track": {"metavar": "T", "help": "conditions to run under, or T@version (mini)"},
    "--data": {
        "metavar": "FILE",
        "help": "JSON lines of your own, or a task with frozen pairs (harmless), to learn from "
        "with dpo, sft and the like: docs/own-answers.md",
    },
    "--tasks": {"metavar": "A,B", "help": "only these tasks (all of the track)"},
    "--seeds": {"metavar": "N", "type": int},
    "--out": {"metavar": "DIR", "help": OUT},
    "--dry-run": {"action": "store_true", "default": None},
    "--jobs": {"metavar": "N", "help": "runs at once (auto: cores / threads per run)"},
    "--set": {"metavar": "K=V", "action": "append"},
    "--fresh": {
        "action": "store_true",
        "default": None,
        "help": "discard the stored runs that are asked for, and redo them",
    },
    "--repeat": {
        "action": "store_true",
        "default": None,
        "help": "redo runs with a missing record file; the ledger logs it",
    },
    "--max-hours": {
        "metavar": "H",
        "type": float,
        "help": "stop after this time; the same command continues",
    },
    "--ignore-memory": {
        "action": "store_true",
        "default": None,
        "help": "run even if the memory estimate exceeds this machine",
    },
    "--logger": {"metavar": "A,B", "help": f"{', '.join(LOGGERS)} (tensorboard)"},
    "--device": {"metavar": "D", "help": f"{', '.join(DEVICES)} ($CRLBENCH_DEVICE, cpu)"},
}
"""Flags of the commands that train; an absent one leaves None: the settings have the defaults."""


def add_training_flags(to: ArgumentParser | _ArgumentGroup, *names: str, **more: Any) -> None:
    """Add some of the flags of the commands that train; ``more`` is what a command says itself."""
    for name in names:
        to.add_argument(name, **(_TRAINING[name] | more))


def require_positive(**numbers: int | None) -> None:
    """Refuse flags below 1, by their names; None is a flag that was left out."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UsageError(f"--{name.replace('_', '-')} {number}: must be at least 1.")


def file_target(flag: str, path: Path | str) -> Path:
    """The path of a file that will be written; refuses a folder."""
    if Path(path).is_dir():
        raise UsageError(f"{flag} {path}: is a folder; give the name of a file.")
    return Path(path)


def require_readable_names(options: Namespace) -> None:
    """Refuse names of files that the libraries of models cannot take, which is all but UTF-8.

    Raises:
        EnvironmentUnfit: in this locale they cannot be read, in another one they can.
        UsageError: they are no UTF-8.
    """
    values = vars(options).values()
    names = [one for value in values for one in (value if isinstance(value, list) else [value])]
    for name in (*map(str, names), os.getcwd()):
        if name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name):
            continue
        try:
            text = os.fsencode(name).decode("utf-8")
        except ValueError:
            raise UsageError(f"{name!r:.200}: is no UTF-8 text. Give it another name.") from None
        raise EnvironmentUnfit(
            f"{ascii(text)}: names of files are read as {sys.getfilesystemencoding()} here, and "
            "this one has other characters. Set PYTHONUTF8=1, or LC_ALL=C.UTF-8."
        )


def port(text: str) -> int:
    """The number of a port."""
    number = int(text)
    if not 0 <= number < 2**16:
        raise ValueError(text)
    return number
