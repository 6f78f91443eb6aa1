"""The least time an iteration can take here: its floating-point operations over the measured peak.

    python benchmarks/floor.py --model smollm2-135m-instruct [--threads N] [--device cpu|cuda]

The peak is measured with large matrix products in float32 and bfloat16, the bandwidth with a copy.
The operations are counted from the model's configuration and the work, with every short cut that
keeps the numbers: a group's prompt is run once, logits are made where a token is predicted, and no
pass is run whose result is known (old log-probs, and the values, come with decoding).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from crlbench.errors import CrlbenchError, ValidationError

REPEATS = 7
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
BYTES = {"fp32": 4, "bf16": 2}
PRODUCTS = ((2048, 2048, 2048), (2048, 576, 1536), (2048, 576, 49152), (4096, 1024, 4096))
"""(m, k, n) of products (m, k) x (k, n): square, and as an update of a small model has them."""
ON_CARD = (8192, 8192, 8192)
"""A product that is large enough for a GPU to reach its peak."""


@dataclass(frozen=True)
class Shape:
    """What of a dense decoder decides its operations."""

    linear: int
    """Weights of the matrices that every token meets, the head apart."""
    head: int
    """Weights of the head, hidden size times vocabulary."""
    attention: int
    """Layers x heads x width of a head."""
    hidden: int
    parameters: int


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of one iteration, two for a multiply and add."""

    decode: float
    reference: float
    update: float
    """Forward once and backward, which is twice the forward."""

    @property
    def total(self) -> float:
        return self.decode + self.reference + self.update


@dataclass(frozen=True)
class Peak:
    """What this machine reaches."""

    flops: dict[str, float]
    """Operations a second by precision."""
    bandwidth: float
    """Bytes a second, read and written ones added."""


def shape_of(config: Any) -> Shape:
    """The shape of a model from its transformers configuration; no weights are made.

    Raises:
        ValidationError: experts or compressed keys: their operations are not these.
    """
    from transformers import AutoModelForCausalLM

    text = config.get_text_config()
    for name in ("num_experts", "n_routed_experts", "num_local_experts", "kv_lora_rank"):
        if getattr(text, name, None):
            raise ValidationError(
                f"model type '{text.model_type}' has {name}: operations are counted for dense "
                "models with plain attention only. Choose another model, e.g. tiny-llama."
            )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    linear = sum(
        m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear) and m is not head
    )
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    attention = text.num_hidden_layers * text.num_attention_heads * width
    parameters = sum(p.numel() for p in model.parameters())
    return Shape(linear, head.weight.numel(), attention, text.hidden_size, parameters)


def forward_operations(shape: Shape, tokens: int, predicted: int, pairs: int) -> float:
    """One forward pass.

    Two operations for every weight of the layers and token, two for every weight of the head and
    predicted token, and four (two products) for every pair of a query with a key it sees, layer,
    head and component.
    """
    return (
        2.0 * shape.linear * tokens + 2.0 * shape.head * predicted + 4.0 * shape.attention * pairs
    )


def iteration_operations(
    shape: Shape, prompts: Sequence[int], completions: int, tokens: int, *, critic: bool
) -> Operations:
    """One iteration with a KL to a reference, one epoch and one step.

    A prompt of L tokens is run once and predicts the first token of its G completions; of each
    completion all tokens but the last are run, each predicting the next. So every pass has
    sum(L) + P G (T - 1) tokens, P + P G (T - 1) predictions, and L (L + 1) / 2 pairs a prompt
    and (T - 1) L + T (T - 1) / 2 a completion.

    Args:
        prompts: tokens of each of the P prompts.
        completions: G, of each prompt.
        tokens: T, of each completion.
        critic: a value head on the same states: 2 H operations a prediction, forward.
    """
    rows, run = len(prompts) * completions, tokens - 1
    pairs = sum(n * (n + 1) // 2 + completions * (run * n + run * tokens // 2) for n in prompts)
    predicted = len(prompts) + rows * run
    forward = forward_operations(shape, sum(prompts) + rows * run, predicted, pairs)
    value = 2.0 * shape.hidden * predicted if critic else 0.0
    return Operations(forward + value, forward, 3 * (forward + value))


def iteration_bytes(shape: Shape, tokens: int, precision: str) -> float:
    """Bytes that an iteration moves at least in decoding and in AdamW's step.

    Decoding reads the weights once a token; the step reads weight, gradient and two moments and
    writes weight and moments, in float32.
    """
    return shape.parameters * (BYTES[precision] * tokens + 7 * 4.0)


def measure(device: str = "cpu") -> Peak:
    """The peak of this machine with the threads torch has; a few seconds of work."""
    flops = {}
    shapes = PRODUCTS if device == "cpu" else (*PRODUCTS, ON_CARD)
    for precision, dtype in DTYPES.items():
        flops[precision] = max(_product_rate(shape, dtype, device) for shape in shapes)
    source = torch.zeros(2**26, device=device)
    target = torch.ones_like(source)
    seconds = _median_seconds(lambda: target.copy_(source), device)
    return Peak(flops, 2 * source.numel() * source.element_size() / seconds)


def _product_rate(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> float:
    m, k, n = shape
    a = torch.randn(m, k, device=device).to(dtype)
    # The layout of nn.Linear's weight.
    b = torch.randn(n, k, device=device).to(dtype)
    out = torch.empty(m, n, dtype=dtype, device=device)
    return 2.0 * m * k * n / _median_seconds(lambda: torch.matmul(a, b.T, out=out), device)


def _median_seconds(work: Callable[[], Any], device: str) -> float:
    times = []
    for _ in range(REPEATS + 1):
        begun = _now(device)
        work()
        times.append(_now(device) - begun)
    return statistics.median(times[1:])


def _now(device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--completions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--peak-only", action="store_true", help="print the peak as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak_only:
        print(json.dumps(asdict(measure(options.device))))
        return
    try:
        report(options)
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def report(options: argparse.Namespace) -> None:
    """Print the peak and the floor of each recipe and precision."""
    from peer.work import find_model, prompts_for
    from transformers import AutoConfig

    model = find_model(options.model)
    lengths = [len(ids) for _, ids in prompts_for(model, options.prompts)]
    shape = shape_of(AutoConfig.from_pretrained(model.folder))
    peak = measure(options.device)
    for precision, rate in peak.flops.items():
        print(f"peak {precision}: {rate / 1e9:.0f} GFLOP/s")
    print(f"bandwidth: {peak.bandwidth / 1e9:.1f} GB/s")
    for recipe in ("grpo", "ppo"):
        counted = iteration_operations(
            shape, lengths, options.completions, options.tokens, critic=recipe == "ppo"
        )
        for precision, rate in peak.flops.items():
            moved = iteration_bytes(shape, options.tokens, precision) / peak.bandwidth
            parts = {name: value / 1e12 for name, value in asdict(counted).items()}
            print(
                f"{recipe} {precision}: {counted.total / rate:.2f} s, of "
                + ", ".join(f"{name} {value:.3f}" for name, value in parts.items())
                + f" TFLOP; weights and optimizer state moved in {moved:.2f} s"
            )


if __name__ == "__main__":
    main()
