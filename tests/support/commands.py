"""Commands as they are typed: on a very small model that the tests write, and in ``--help``."""

from __future__ import annotations

import json
from pathlib import Path

from crlbench import cli

SHORT = {
    "budget.prompts": 4,
    "budget.completions": 2,
    "budget.grid": 2,
    "budget.iterations_per_point": 1,
    "sampling.max_completion_bytes": 4,
    "evaluation.curve_items": 8,
    "evaluation.end_items": 8,
    "evaluation.end_draws": 1,
}


def terse(folder: Path, **changed: object) -> Path:
    """Let a checkpoint read prompts without their system message, and change its config."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"crlbench_frame": "terse"} | changed)
    )
    return folder


def command(model: Path, out: Path, *extra: str, **changed: float) -> list[str]:
    settings = SHORT | {name.replace("__", "."): value for name, value in changed.items()}
    pairs = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", str(model), "--tasks", "addition", "--out", str(out)]
    return ["evaluate", *where, "--seeds", "1", *pairs, *extra]


def examples_of_help() -> dict[str, str]:
    """What ``--help`` shows below the flags of each command and of each action."""
    commands = {name: parser.filled() for name, parser in cli.build_parser().below.items()}
    actions = {
        f"{name} {action}": below
        for name, parser in commands.items()
        for action, below in parser.below.items()
    }
    return {name: parser.epilog or "" for name, parser in (commands | actions).items()}
