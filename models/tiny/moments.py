"""What a pretraining can do on the way: ``python models/tiny/moments.py --design tiny-llama``.

Pretrains a design once on the second mix and, at moments of it (numbers of updates), writes the
weights as they are and scores every family. A start of reinforcement learning is such a moment.
Each moment is a folder that ``crlbench evaluate --model FOLDER`` takes, and a line of
``scores.jsonl``: sampled at temperature 1, greedy, and by level, on held-out prompts.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import corpus
import torch
from architectures import ARCHITECTURES
from pretrain import PRETRAINING, load, new_model, save
from scoring import score
from training import train
from transformers.utils import logging

FRAME = "terse"
"""How bundled models are asked, as their entries say."""
ITEMS, DRAWS = 256, 4
"""Held-out prompts of a family, and samples of each."""


def watch(
    options: argparse.Namespace, model: Any, started: float, update: int, losses: dict[str, float]
) -> None:
    """Write and score the model after an update, if that is one of the moments."""
    done = update + 1
    options.recent.append(losses["answer"])
    if done % 100 == 0:
        seconds, recent = time.perf_counter() - started, fmean(options.recent)
        print(f"update {done}, mean answer loss of the last 100 {recent:.4f}, {seconds:.0f} s")
        options.recent.clear()
    if done not in options.moments:
        return
    name = f"{options.design}-i{options.init}o{options.order}-{done}"
    save_moment(model, options.out / name)
    stored = load(options.out / name)
    scores = {
        family: asdict(score(stored, family, "id", options.items, DRAWS, seed=0))
        for family in options.mix.families
    }
    with (options.out / "scores.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"model": name, "updates": done, "scores": scores}) + "\n")
    for family, of in scores.items():
        print(f"  {family}: {of['sampled']:.3f} sampled, {of['greedy']:.3f} greedy")


def save_moment(model: Any, folder: Path) -> None:
    """Write the weights as they are, in a folder that says how it is asked. Without that, prompts
    would begin with an instruction, which no document does."""
    save(copy.deepcopy(model), folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["crlbench_frame"] = FRAME
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Pretrain up to the last moment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--design", required=True, choices=ARCHITECTURES)
    parser.add_argument("--init", type=int, default=0, help="initialisation (default 0)")
    parser.add_argument("--order", type=int, default=0, help="order of the corpus (default 0)")
    parser.add_argument("--noise", type=float, default=0.0, help="share of wrong answers")
    parser.add_argument(
        "--rate", type=float, default=PRETRAINING.learning_rate, help="peak of the learning rate"
    )
    parser.add_argument(
        "--moments", type=int, nargs="+", default=[1200, 1600, 2000, 2500, 3000], metavar="N"
    )
    parser.add_argument(
        "--items", type=int, default=ITEMS, help=f"held-out prompts a family ({ITEMS})"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the moments")
    options = parser.parse_args(arguments)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    options.out.mkdir(parents=True, exist_ok=True)
    options.recent = []
    options.mix = replace(corpus.SECOND, noise=options.noise, clean=0)
    model = new_model(options.design, options.init)
    rows = (document.tokens() for document in corpus.documents(options.order, options.mix))
    report = partial(watch, options, model, time.perf_counter())
    schedule = replace(PRETRAINING, learning_rate=options.rate)
    train(model, rows, schedule, options.order, report, until=max(options.moments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
