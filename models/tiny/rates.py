"""The learning rate of each size's pretraining: ``python models/tiny/rates.py --out runs/rates``.

Three sizes of two designs are pretrained at each rate of a grid, up to the moment at which models
of the second generation are taken. A rate is worth its loss on answers over the last updates: every
document is read once, so that is a loss on documents not read before. The smallest loss wins, and
ties go to the smaller rate. Where the winner is an end of the grid, the grid goes on there.
docs/zoo.md says what was fixed before.

A finished pretraining is a line of ``rates.jsonl``, and is not made again, so the same command
continues. No weights are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import corpus
import torch
from pretrain import MOMENT, PRETRAINING, mix_of, new_model
from training import train
from transformers.utils import logging

from crlbench.base.wording import count

MODELS = tuple(f"tiny2-{design}{size}" for size in ("-0.3m", "", "-3m") for design in
               ("llama", "gemma"))
GRID = (5e-4, 1e-3, 2e-3, 4e-3)
ENDS = 1e-4, 2e-2
"""A grid does not go on beyond these."""
LAST = 200
"""Updates over which the loss is taken."""
PLACE = 1, 1
"""Initialisation and corpus order: others than those of the models that are compared."""
UPDATE_S = {"-0.3m": 0.033, "": 0.077, "-3m": 0.17}
"""Processor seconds of an update, of both designs on average (docs/zoo.md)."""

Losses = Mapping[float, float]
"""By rate; infinite where the training diverged."""


def next_rate(losses: Losses) -> float | None:
    """The rate that a model still needs; None where its winner is known."""
    for rate in GRID:
        if rate not in losses:
            return rate
    best, low, high = winner(losses), min(losses), max(losses)
    if best == low and low / 2 >= ENDS[0]:
        return low / 2
    if best == high and high * 2 <= ENDS[1]:
        return high * 2
    return None


def winner(losses: Losses) -> float:
    """The rate with the smallest loss; of equal ones the smaller."""
    return min(losses, key=lambda rate: (losses[rate], rate))


def pretrain_once(name: str, rate: float) -> float:
    """The loss on answers over the last updates, nats a token; infinite where it is no number."""
    initialisation, order = PLACE
    rows = (document.tokens() for document in corpus.documents(order, mix_of(name)))
    schedule = replace(PRETRAINING, learning_rate=rate)
    history = train(new_model(name, initialisation), rows, schedule, order, until=MOMENT)
    loss = fmean(one["answer"] for one in history[-LAST:])
    return loss if math.isfinite(loss) else math.inf


def read(path: Path) -> dict[str, dict[float, float]]:
    """Losses by model and rate; empty where there are none yet."""
    found: dict[str, dict[float, float]] = {name: {} for name in MODELS}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for row in map(json.loads, lines):
        loss = row["loss"]
        found[row["model"]][row["rate"]] = math.inf if loss is None else loss
    return found


def table(found: Mapping[str, Losses]) -> Iterator[str]:
    """A Markdown table of the losses, each winner bold."""
    rates = sorted({*GRID, *(rate for losses in found.values() for rate in losses)})
    yield f"| model | {' | '.join(f'{rate:g}' for rate in rates)} |"
    yield "|---" * (len(rates) + 1) + "|"
    for name, losses in found.items():
        best = winner(losses) if losses and next_rate(losses) is None else None
        cells = [f"{losses[r]:.4f}" if r in losses else "" for r in rates]
        cells = [f"**{c}**" if r == best else c for r, c in zip(rates, cells, strict=True)]
        yield f"| `{name}` | {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> int:
    """Pretrain what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of rates.jsonl")
    parser.add_argument("--max-hours", type=float, help="begin nothing after this time")
    parser.add_argument("--dry-run", action="store_true", help="print what is missing, run nothing")
    options = parser.parse_args(arguments)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    path, begun = options.out / "rates.jsonl", time.monotonic()
    if options.dry_run:
        found = read(path)
        missing = [(name, rate) for name in MODELS for rate in GRID if rate not in found[name]]
        seconds = sum(MOMENT * UPDATE_S[name[len("tiny2-llama"):]] for name, _ in missing)
        runs = count(len(missing), "pretraining")
        print(f"{runs} of {MOMENT:,} updates, about {seconds / 60:.0f} min")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        while (rate := next_rate(read(path)[name])) is not None:
            hours = (time.monotonic() - begun) / 3600
            if options.max_hours is not None and hours >= options.max_hours:
                print(f"stopped before {name} at {rate:g}; the same command continues")
                return 8
            before = time.process_time()
            loss = pretrain_once(name, rate)
            row = {"model": name, "rate": rate, "loss": loss if math.isfinite(loss) else None,
                   "updates": MOMENT, "processor_s": round(time.process_time() - before, 1)}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name} at {rate:g}: {loss:.4f}")
    print("\n".join(table(read(path))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
