"""The memory estimate of `crlbench doctor` against measured peaks.

    python benchmarks/memory.py MODEL [--only NAME] [--track small] [--set K=V] [--markdown]

Each configuration is a whole cell in a process of its own: the start model is scored, two
iterations are trained, a point of the curve and the end are scored, everything is written. Its peak
is the largest resident size of that process. MODEL is a name of the catalogue or a checkpoint
folder; its weights are run with LoRA, QLoRA and all weights learning, by entries made for the
purpose in a folder that is gone afterwards. `--phases` also tells where the peaks are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

SHORT = {
    "budget.grid": "1",
    "budget.iterations_per_point": "2",
    "evaluation.curve_every": "1",
    "evaluation.end_items": "64",
    "evaluation.retain_items": "16",
}
"""A short run: two iterations, few items at the ends."""
LORA = {"kind": "lora", "rank": 16, "alpha": 32, "targets": "all-linear"}
KINDS = {
    "full-fp32": ({}, "fp32"),
    "full-bf16": ({}, "bf16"),
    "lora-fp32": ({"adapter": LORA, "dtype": "float32"}, "fp32"),
    "lora-bf16": ({"adapter": LORA, "dtype": "bfloat16"}, "bf16"),
    "qlora-nf4": ({"adapter": LORA, "dtype": "bfloat16", "quantisation": "nf4"}, "bf16"),
    "qlora-int8": ({"adapter": LORA, "dtype": "bfloat16", "quantisation": "int8"}, "bf16"),
}
"""What is changed of an entry, and the track's precision, by kind."""
LONGEST = 10**6
"""Context of a checkpoint that states none."""
PHASES = (
    ("crlbench.run.execute", "load", "loading"),
    ("crlbench.run.execute", "make_module", "learner"),
    ("crlbench.run.starts:StartScores", "_make_id", "start: id"),
    ("crlbench.run.starts:StartScores", "_make_splits", "start: splits"),
    ("crlbench.run.starts:StartScores", "_make_retain", "start: retain"),
    ("crlbench.train.learner:Learner", "validation_step", "curve"),
    ("crlbench.policy.decode.loop:DecodeLoop", "sample", "rollout"),
    ("crlbench.train.module:PolicyOptimization", "keep", "reference"),
    ("crlbench.train.surrogate:Surrogate", "losses", "micro-batch"),
    ("crlbench.train.optimizer:TracedAdamW", "step", "optimizer"),
    ("crlbench.train.callbacks:LastCheckpoint", "save", "checkpoint"),
    ("crlbench.run.ends:Examiner", "whole", "end scores"),
    ("crlbench.run.execute", "write_run", "record"),
)
"""Functions whose peaks `--phases` tells apart."""


def main() -> None:
    options = parse()
    if options.cell:
        run(json.loads(Path(options.cell).read_text(encoding="utf-8")), options.phases)
        return
    with tempfile.TemporaryDirectory(prefix="crlbench-memory-") as scratch:
        rows = [measured(options, kind, Path(scratch)) for kind in options.only or KINDS]
    print(table(rows) if options.markdown else json.dumps(rows, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", help="entry or checkpoint folder")
    parser.add_argument("--only", action="append", choices=tuple(KINDS), help="kinds to measure")
    parser.add_argument("--track", default="small")
    parser.add_argument("--task", default="addition")
    parser.add_argument("--recipe", default="ppo")
    parser.add_argument("--set", action="append", default=[], help="change a condition")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(options: argparse.Namespace, kind: str, scratch: Path) -> dict[str, Any]:
    """Estimate one kind, and measure it in a process of its own."""
    from crlbench.launch.worker import environment_of

    cell = cell_of(options, kind, scratch / kind)
    path = scratch / f"{kind}.json"
    path.write_text(cell.model_dump_json(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, __file__, "--cell", str(path), *(["--phases"] * options.phases)],
        env=os.environ | environment_of(options.threads) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8", errors="replace",
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    guess = estimated(cell)
    return {
        "model": Path(options.model).name,
        "kind": kind,
        "estimate_gb": round(guess.peak / 1e9, 3),
        "peak_gb": found["peak_gb"],
        "error": round(guess.peak / 1e9 / found["peak_gb"] - 1, 3),
        "fullest": guess.moment,
        "moments_gb": {name: round(size / 1e9, 2) for name, size in guess.moments.items()},
        "phases_gb": found["phases"],
    }


def estimated(cell: Any) -> Any:
    """The estimate of a cell, as `crlbench doctor` makes it."""
    from crlbench.catalog.find import Catalog
    from crlbench.catalog.retain_panel import find_panel
    from crlbench.contract.conditions import Conditions
    from crlbench.doctor.model import architecture, context
    from crlbench.launch.memory import estimate, form_of

    catalog = Catalog(cell.catalog)
    card = catalog.load_model(cell.model)
    conditions = Conditions.model_validate(cell.conditions)
    tasks = [catalog.load_task(name) for name in cell.tasks]
    members = find_panel(catalog.roots).choose(conditions.evaluation.retain)
    _, shape = architecture(card, True)
    _, work = context(card, True, shape, conditions, tasks, members, "cpu")
    return estimate(shape, form_of(card, conditions.hardware.precision), work)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| model | form | estimate, GB | measured, GB | error | fullest |", "|---" * 6 + "|"]
    for row in rows:
        figures = f"{row['estimate_gb']:.2f} | {row['peak_gb']:.2f} | {row['error']:+.0%}"
        lines.append(f"| {row['model']} | {row['kind']} | {figures} | {row['fullest']} |")
    return "\n".join(lines)


def cell_of(options: argparse.Namespace, kind: str, folder: Path) -> Any:
    """The cell of a kind; its entry, the model's with what the kind changes, is written first."""
    from crlbench.catalog.find import Catalog
    from crlbench.commands.job import choose, plan_of
    from crlbench.commands.settings import Settings
    from crlbench.disk.toml import dump_toml
    from crlbench.policy.weights.shape import config_of, skeleton
    from crlbench.run.admission import locate
    from crlbench.run.board import Request, load_track, make_board

    changes, precision = KINDS[kind]
    card = Catalog().load_model(options.model)
    slug = f"{card.slug}-{kind}"
    model = skeleton(config_of(card, locate(card)))
    size = sum(p.numel() for p in model.parameters())
    data = card.model_dump(mode="json", by_alias=True, exclude_none=True)
    dropped = ("adapter", "unlisted")
    entry = {name: value for name, value in data.items() if name not in dropped} | {
        "slug": slug,
        "source": {"path": "weights"},
        "kind": "base" if card.kind == "unknown" else card.kind,
        "frame": "plain" if card.frame == "auto" else card.frame,
        "quantisation": "none",
        # Of an unlisted folder.
        "params_total": card.params_total or size,
        "params_active": card.params_active or size,
        "context": card.context or LONGEST,
        "added": "2026-01-01",
    }
    # An entry reaches no folder but one below its own.
    shutil.copytree(locate(card).name, folder / "models" / "weights")
    (folder / "models" / f"{slug}.toml").write_text(dump_toml(entry | changes), encoding="utf-8")

    catalog = Catalog([folder])
    track = load_track(catalog, options.track)
    machine = {"hardware.threads": str(options.threads), "hardware.precision": precision}
    changed = SHORT | machine | dict(text.split("=", 1) for text in options.set)
    board, tasks, _ = make_board(catalog, track, Request(changed, [options.task]))
    settings = Settings(seeds=1, out=str(folder / "runs"), logger=())
    recipe = choose(options.recipe, catalog)
    model = (slug, catalog.load_model(slug))
    return plan_of(board, model, recipe, tasks, settings, catalog).cells[0]


def run(content: dict[str, Any], phases: bool) -> None:
    """Run a cell here and print its peak."""
    from crlbench.contract.records import Cell
    from crlbench.run.execute import run_cell
    from crlbench.run.record import peak_memory

    peaks: dict[str, float] = defaultdict(float)
    if phases:
        for where, name, phase in PHASES:
            module, _, owner = where.partition(":")
            found = import_module(module)
            found = getattr(found, owner) if owner else found
            setattr(found, name, watched(getattr(found, name), phase, peaks))
    run_cell(Cell.model_validate(content), lambda _: None, lambda: False)
    peak = max([peak_memory() / 1e9, *peaks.values()])
    print(json.dumps({"peak_gb": round(peak, 3), "phases": peaks}))


def watched(function: Callable[..., Any], phase: str, peaks: dict[str, float]) -> Any:
    """The same function; the peak since it was entered is kept by phase."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        peaks["between"] = max(peaks["between"], forget())
        found = function(*args, **kwargs)
        peaks[phase] = max(peaks[phase], forget())
        return found

    return run


def forget() -> float:
    """The peak of this process so far in GB, which starts again from what is resident."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return round(peak * 1024 / 1e9, 3)


if __name__ == "__main__":
    main()
