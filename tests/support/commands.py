"""Commands on a real, very small model that the tests write."""

from __future__ import annotations

import json
from pathlib import Path

SHORT = {
    "budget.prompts": 4,
    "budget.completions": 2,
    "budget.grid": 2,
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
