"""Whether a model's real weights give what is sampled the log-probabilities they learn from."""

from __future__ import annotations

import torch

from crlbench.contract.model_card import ModelCard
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.text.chat import render
from crlbench.policy.weights.load import Location, Reader, build_policy, load_backbone
from crlbench.train.module import MAX_GAP
from crlbench.train.stream import Prompt, make_batch

QUESTIONS = ("What is 12 + 34?", "Sort: 10, 9, 8", "Say yes.")
TOKENS = 16
DRAWS = 2
"""Completions a question."""
TOLERANCE = MAX_GAP["fp32"]
"""Nats; what a run itself allows in its first update."""


@torch.no_grad()
def largest_gap(card: ModelCard, place: Location, reader: Reader) -> tuple[float, int]:
    """The gap in nats between sampled and recomputed log-probabilities, and the tokens compared.

    The largest one, in float32 on the CPU, with prompts run once for all rows and with whole rows.

    Raises:
        ValidationError: the weights cannot be loaded.
    """
    start = load_backbone(card, place, "fp32")
    policy = build_policy(card, start, value_head=False, reference=False, seed=0).eval()
    asked = [[{"role": "user", "content": text}] for text in QUESTIONS]
    prompts = [
        Prompt(f"entry/{i}", tuple(render(m, reader.frame, reader.tokenizer, reader.thinking)), "")
        for i, m in enumerate(asked)
    ]
    batch = make_batch(prompts, reader.pad, completions=DRAWS)
    loop = DecodeLoop(reader.tokenizer, 1.0, TOKENS, ends=reader.ends, pad=reader.pad)
    found = loop.sample(policy, batch, DrawKey(0, "entry"))
    real = found.completion_mask
    rows = (found.completion_ids, real, found.group)
    gaps = []
    for shared in (True, False):
        again = policy(batch.prompt_ids, batch.prompt_mask, *rows, 1.0, shared_prefix=shared)
        gaps.append(float((again.logprobs - found.behavior_logprobs)[real].abs().max()))
    return max(gaps), int(real.sum())
