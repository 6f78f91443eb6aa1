"""What a model that reads episodes can do on the way: ``python models/tiny/play_moments.py``.

Continues a model of the second generation on documents of episodes, as ``pretrain.py`` does, and at
moments (numbers of updates) scores every environment of the tracks: sampled at temperature 1,
greedy, turns without a fault, and with exchanged observations. A line of ``scores.jsonl`` a moment.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from play_scoring import greedy_score, play_score
from pretrain import HERE as MODELS
from pretrain import PLAY, PLAY_CONTEXT, PLAYED_TASKS, PLAYING, SEED, load, rows_of, save, start_of
from training import train
from transformers.utils import logging

STARTS, DRAWS = 128, 2
"""Starts of the ID split of an environment, and sampled episodes of each."""


def score_moment(name: str, model: Any, updates: int, out: Path) -> None:
    """Write a line with the scores of a model as it is."""
    folder = out / f"{name}-{updates}"
    save(copy.deepcopy(model), folder)
    stored, scores = load(folder), {}
    for task in PLAYED_TASKS:
        sampled = play_score(folder, stored, task, "id", STARTS, DRAWS)
        greedy = greedy_score(folder, stored, task, "id", STARTS)
        scores[task] = {
            "sampled": sampled.sampled, "greedy": greedy, "new": round(STARTS * (1 - greedy)),
            "legal": sampled.legal, "blind": sampled.blind,
        }  # fmt: skip
        print(f"{name} {updates} {task}: {sampled.sampled:.3f} sampled, {greedy:.3f} greedy")
    with (out / "scores.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"model": name, "updates": updates, "scores": scores}) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Train up to the last moment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, choices=PLAY)
    parser.add_argument("--moments", type=int, nargs="+", required=True, metavar="N")
    parser.add_argument("--out", type=Path, required=True, help="folder for the moments")
    options = parser.parse_args(arguments)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    options.out.mkdir(parents=True, exist_ok=True)
    model = load(MODELS / str(start_of(options.model)))
    model.config.max_position_embeddings = PLAY_CONTEXT

    def watch(update: int, losses: dict[str, float]) -> None:
        if update + 1 in options.moments:
            score_moment(options.model, model, update + 1, options.out)

    until = max(options.moments)
    train(model, rows_of(options.model, SEED), PLAYING, SEED, watch, until=until)
    return 0


if __name__ == "__main__":
    sys.exit(main())
