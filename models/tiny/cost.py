"""What each architecture costs beside tiny-llama: ``python models/tiny/cost.py``.

CPU seconds on one thread of an update of pretraining and of a batch of completions, the best
of three turns over all models, because other work on a machine only adds. The weights are
random, so that all decode for as long as they may.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice

import corpus
import torch
from architectures import FIRST
from pretrain import PRETRAINING, SEED, new_model
from scoring import complete, read_split
from tokenizer import BOS, encode
from training import train
from transformers.utils import logging

TURNS, UPDATES = 3, 16
PROMPTS, DRAWS = 8, 16


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> int:
    """Measure and print a Markdown table."""
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    count = UPDATES * PRETRAINING.batch
    rows = [document.tokens() for document in islice(corpus.documents(SEED, corpus.Mix()), count)]
    prompts = (row["messages"][-1]["content"] for row in read_split("list-ops", "id")[:PROMPTS])
    heads = [[BOS, *encode(prompt + "\n")] for prompt in prompts for _ in range(DRAWS)]
    schedule = replace(PRETRAINING, updates=UPDATES)
    updates, completions = defaultdict(list), defaultdict(list)
    for _ in range(TURNS):
        for name in FIRST:
            model, generator = new_model(name, SEED), torch.Generator().manual_seed(SEED)
            completions[name].append(seconds(partial(complete, model, heads, generator)))
            updates[name].append(seconds(partial(train, model, iter(rows), schedule, SEED)))
    print("| model | an update, ms | of tiny-llama's | completions, s | of tiny-llama's |")
    print("|---|---|---|---|---|")
    whole, drawn = min(updates["tiny-llama"]), min(completions["tiny-llama"])
    for name in FIRST:
        update, draw = min(updates[name]), min(completions[name])
        print(
            f"| {name} | {update / UPDATES * 1e3:.0f} | {update / whole:.2f}"
            f" | {draw:.2f} | {draw / drawn:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
