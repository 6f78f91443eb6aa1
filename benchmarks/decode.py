"""Tokens per second of decoding, growing tensors against fixed shapes, in turn in one process.

    python benchmarks/decode.py [--device cuda] [--precision bf16] [--layers 24] [--tokens 32]

A model of random weights (0.5B parameters with 24 layers); 8 prompts of 32 tokens, 8 completions
each, none ends early. Nothing is timed before every shape was compiled; the seconds that took
are printed. On the CPU, fixed shapes run without a compiler: a check of this script.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.decode.static import StaticDecoder
from crlbench.policy.policy import Policy
from crlbench.types import PromptBatch

PROMPTS, COMPLETIONS, LENGTH = 8, 8, 32


class NoText:
    """Stands for a tokenizer: only tokens are counted here."""

    def batch_decode(self, rows: list[list[int]], **_: object) -> list[str]:
        return [""] * len(rows)


def random_policy(layers: int, device: str) -> Policy:
    """Qwen2 as its makers sized it at 0.5B, with random weights."""
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return Policy(AutoModelForCausalLM.from_config(config), value_head=False).to(device)


def prompts(device: str) -> PromptBatch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 151936, (PROMPTS, LENGTH), generator=generator)
    names = [f"benchmark/{i}" for i in range(PROMPTS)]
    made = PromptBatch(0, names, ids, torch.ones_like(ids, dtype=torch.bool), names, COMPLETIONS)
    return made.to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="bf16", choices=("fp32", "bf16"))
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    work = parser.parse_args()

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    policy, batch = random_policy(work.layers, work.device), prompts(work.device)
    growing = DecodeLoop(NoText(), 1.0, work.tokens, (), 0, StaticDecoder(devices=()))
    decoder = StaticDecoder() if work.device == "cuda" else StaticDecoder(("cpu",), None)
    loops = {"growing": growing, "fixed": replace(growing, static=decoder)}

    def seconds(loop: DecodeLoop, iteration: int) -> float:
        began = time.perf_counter()
        with torch.autocast(work.device, torch.bfloat16, enabled=work.precision == "bf16"):
            loop.sample(policy, batch, DrawKey(0, "benchmark", iteration))
        if work.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    for name, loop in loops.items():
        print(f"{name}: first two rollouts {seconds(loop, 0) + seconds(loop, 1):.1f} s")
    taken: dict[str, list[float]] = {name: [] for name in loops}
    for iteration in range(work.rounds):
        for name, loop in loops.items():
            taken[name].append(seconds(loop, iteration))
    count = PROMPTS * COMPLETIONS * work.tokens
    rates = {name: count / statistics.median(times) for name, times in taken.items()}
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f} tokens/s")
    print(f"fixed over growing: {rates['fixed'] / rates['growing']:.2f}")
    if work.device == "cuda":
        print(f"peak GPU memory: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
