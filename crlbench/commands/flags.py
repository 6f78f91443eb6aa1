"""Flags that several commands take, and what some may be told.

Nothing heavy is imported here, so that ``--help`` is quick.
"""

from __future__ import annotations

from argparse import ArgumentParser, _ArgumentGroup
from typing import Any

DEVICES = ("cpu", "cuda", "auto")
LOGGERS = ("tensorboard", "csv", "none")
STRATEGIES = ("auto", "ddp", "fsdp")
MODEL = "entry name, checkpoint folder, GGUF file or org/name@commit"
OUT = "folder of all runs (runs)"

_TRAINING: dict[str, dict[str, Any]] = {
    "--model": {"metavar": "X", "action": "append", "help": f"{MODEL} (repeatable)"},
    "--track": {"metavar": "T", "help": "conditions to run under, or T@version (mini)"},
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
