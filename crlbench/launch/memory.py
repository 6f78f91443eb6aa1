"""How much memory a cell takes, from shapes alone: nothing is loaded and no library imported.

A run is fullest at one of a few moments: while decoding with a key-value cache, in the backward
pass of a micro-batch, or while a checkpoint is written. Each holds what is resident then (weights,
optimizer) and what it makes for itself. The sizes follow the code that allocates them; what the
allocator and the libraries add was measured (docs/doctor.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from crlbench.contract.model_card import ModelCard
from crlbench.contract.sizes import (
    FREE_PASS,
    KEPT_LOGIT_BYTES,
    PART_FLOATS,
    RECORDED_BYTES,
    REMEMBERED,
    head_block,
    token_budget,
)
from crlbench.launch.workload import Batch, Work

PROCESS_BYTES = {"cpu": 520_000_000, "cuda": 600_000_000}
"""Libraries, tasks and prompts of a worker: of the machine's memory on the CPU, of the device's
(its context and kernels) on a GPU."""
ADAPTER_BYTES = {"cpu": 300_000_000, "cuda": 0}
"""What peft takes, and what the heap of a whole run gains where an adapter learns. Fitted too."""
DECODING_HOLES = 1.5
GRAPH_HOLES = {"full": 1.1, "adapter": 1.5}
"""What decoding and backward passes take of the system for each byte that they hold at once: the
holes that differently shaped tensors leave in the heap. An adapter casts its inputs and makes
more of them. Fitted to measured peaks (docs/doctor.md)."""
SHARE = 0.85
"""An estimate is trusted to this share: a machine with less than it is too small."""
FLOAT, HALF = 4, 2
MOMENTS = 2 * FLOAT
"""Two float32 optimizer moments of a weight that learns."""
WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "nf4": 0.516}
"""Size of a weight; nf4 with its scales, quantised as well: 1/2 + 1/64 + 4/(64 * 256)."""

Quantisation = Literal["none", "nf4", "int8"]


@dataclass(frozen=True)
class Shape:
    """What of an architecture decides about memory."""

    total: int
    """Parameters."""
    linear: int
    """Those in linear layers, without the head."""
    spread: int
    """Inputs plus outputs of all those layers: a LoRA of rank r has r times as many weights."""
    vocabulary: int
    hidden: int
    layers: int
    wide: int
    """Width of the feed-forward network that a token passes."""
    heads: int
    """Width of the queries of a layer, over all heads."""
    keys: int
    """Width of the keys and values of a layer together: what its cache holds of a token."""
    tied: bool
    """Whether the head shares the embedding's weights."""

    @property
    def table(self) -> int:
        """Weights of the head, and of the embedding."""
        return self.vocabulary * self.hidden


@dataclass(frozen=True)
class Form:
    """How the weights are held and which of them learn."""

    name: str
    precision: Literal["fp32", "bf16"]
    """Precision of the arithmetic: bf16 is autocast."""
    dtype: str = "bfloat16"
    """Type of the frozen weights under an adapter."""
    quantisation: Quantisation = "none"
    rank: int | None = None
    """Rank of the adapter; None where all weights learn."""


FORMS = (
    Form("full fp32", "fp32"),
    Form("full bf16-mixed", "bf16"),
    Form("LoRA bf16", "bf16", rank=16),
    Form("LoRA fp32", "fp32", "float32", rank=16),
    Form("QLoRA nf4", "bf16", quantisation="nf4", rank=16),
    Form("QLoRA int8", "bf16", quantisation="int8", rank=16),
)
"""The ways to train a model, as people name them."""


@dataclass(frozen=True)
class Estimate:
    """The parts of a cell's memory in bytes, and how they add up at its fullest moment."""

    form: Form
    parts: dict[str, int]
    """Bytes by name, each part at its own largest."""
    moments: dict[str, int] = field(default_factory=dict)
    """What the process holds at each of them."""

    @property
    def moment(self) -> str:
        """The fullest."""
        return max(self.moments, key=lambda name: self.moments[name])

    @property
    def peak(self) -> int:
        """Bytes at the fullest moment."""
        return self.moments[self.moment]


def shape_of(config: Mapping[str, Any], total: int | None = None) -> Shape:
    """The shape of an architecture from its config, as ``config.json`` has it.

    Args:
        total: Parameters; counted from the config, for decoders of the usual kind, unless given.

    Raises:
        KeyError: the config names no width, depth or vocabulary.
    """
    c = {**config, **(config.get("text_config") or {})}
    hidden = _first(c, "hidden_size", "n_embd", "d_model")
    layers = _first(c, "num_hidden_layers", "n_layer", "num_layers")
    vocabulary = _first(c, "vocab_size")
    count = _first(c, "num_attention_heads", "n_head", default=1)
    width = c.get("head_dim") or hidden // count
    heads, keys = count * width, 2 * width * (c.get("num_key_value_heads") or count)
    if latent := c.get("kv_lora_rank"):  # latent attention caches what it expands later
        rotary = c.get("qk_rope_head_dim") or 0
        heads, keys = count * ((c.get("qk_nope_head_dim") or 0) + rotary), latent + rotary
    wide = _first(c, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    wide = max(wide) if isinstance(wide, (list, tuple)) else wide
    if each := c.get("moe_intermediate_size"):
        experts = (c.get("num_experts_per_tok") or 1) + (c.get("n_shared_experts") or 0)
        wide = max(wide, each * experts)
    tied = bool(c.get("tie_word_embeddings", True))
    tables = vocabulary * hidden * (1 if tied else 2)
    matrices = {"in": hidden * (heads + keys), "out": heads * hidden, "wide": 3 * hidden * wide}
    linear = layers * sum(matrices.values()) if total is None else max(0, total - tables)
    return Shape(
        total=tables + linear if total is None else total,
        linear=linear,
        spread=layers * (3 * hidden + heads + keys + heads + hidden + 3 * (hidden + wide)),
        vocabulary=vocabulary,
        hidden=hidden,
        layers=layers,
        wide=wide,
        heads=heads,
        keys=keys,
        tied=tied,
    )


def _first(config: Mapping[str, Any], *names: str, default: Any = None) -> Any:
    value = next((config[name] for name in names if config.get(name)), default)
    if value is None:
        raise KeyError(names[0])
    return value


def form_of(card: ModelCard, precision: Literal["fp32", "bf16"]) -> Form:
    """The form of an entry under a track's precision; one of :data:`FORMS` where it is that."""
    if card.adapter is None:
        entry = Form("", precision)
    else:
        # In full precision a half-precision base is widened.
        dtype = "float32" if precision == "fp32" else card.dtype
        entry = Form("", precision, dtype, card.quantisation, card.adapter.rank)
    for form in FORMS:
        if (form.rank is None) == (entry.rank is None) and replace(
            entry, name=form.name, rank=form.rank
        ) == form:
            return replace(entry, name=form.name)
    what = "full" if entry.rank is None else "LoRA" if entry.quantisation == "none" else "QLoRA"
    storage = entry.quantisation if entry.quantisation != "none" else entry.dtype
    return replace(entry, name=f"{what} {storage}, {precision}")


def learned_of(shape: Shape, form: Form) -> int:
    """Weights that learn, the value head aside."""
    return shape.total if form.rank is None else form.rank * shape.spread


def weight_bytes(shape: Shape, form: Form) -> int:
    """Bytes of the start model; bfloat16 where all weights learn, as most checkpoints allow."""
    if form.rank is None:
        return HALF * shape.total
    if form.quantisation == "none":
        return int(WEIGHT_BYTES[form.dtype] * shape.total)
    rest = shape.total - shape.linear
    return int(WEIGHT_BYTES[form.quantisation] * shape.linear + WEIGHT_BYTES[form.dtype] * rest)


def kept_bytes(shape: Shape, form: Form) -> int:
    """What a backward pass keeps of a token's forward pass, the vocabulary aside.

    A layer keeps some vectors of each width; how many bytes of each was measured on random
    decoders of six shapes, to 2 %.
    """
    full = form.rank is None
    if form.precision == "fp32":
        hidden, wide, keys = (33, 17, 14) if full else (25, 17, 14)
    elif full:
        hidden, wide, keys = (33, 9, 12)
    else:
        hidden, wide, keys = (28, 9, 9)
    return shape.layers * (hidden * shape.hidden + wide * shape.wide + keys * shape.keys + 500)


def estimate(shape: Shape, form: Form, work: Work) -> Estimate:
    """What a cell of a model takes where it trains."""
    full, autocast = form.rank is None, form.precision == "bf16"
    learned = learned_of(shape, form)
    head = shape.table
    start = weight_bytes(shape, form)
    learner = FLOAT * learned
    optimizer = MOMENTS * learned
    steps = FLOAT * min(learned, REMEMBERED)

    # Second copies of the weights while decoding: cast under autocast, turned in float32.
    wide_base = not full and form.dtype == "float32" and form.quantisation == "none"
    wide = shape.linear + head if full or (wide_base and autocast) else 0
    copies = wide * (HALF if autocast else FLOAT) if full or autocast else 0
    if work.device != "cpu" and not autocast:
        copies = 0

    cache_of = {
        b: FLOAT * shape.layers * shape.keys * b.tokens for b in (work.rollout, *work.evaluations)
    }
    decoding = {
        b: int(DECODING_HOLES * (cache + _step_bytes(shape, b))) for b, cache in cache_of.items()
    }

    tokens = _micro_tokens(shape, work)
    holes = GRAPH_HOLES["full" if full else "adapter"]
    activations = int(holes * kept_bytes(shape, form) * tokens)
    casts = HALF * (shape.linear + head) if full and autocast else 0
    blocks = 6 * FLOAT * head_block(work.device, work.card)
    vocabulary = blocks + (HALF * head if autocast else 0) + (FLOAT * head if full else 0)
    passing = 6 * FLOAT * shape.wide * tokens + _one_weight(shape, form)
    recorded = _recorded_bytes(shape, form, work)
    if work.fast:
        logits = (HALF if autocast else FLOAT) * shape.vocabulary * tokens
        vocabulary += min(KEPT_LOGIT_BYTES, logits)
    gradients = learner

    reference = FREE_PASS * 3 * FLOAT * (shape.wide + shape.hidden) * tokens
    if full:  # a start model in bfloat16 is widened, the linear layers not under autocast
        reference += FLOAT * (shape.total - (shape.linear if autocast else 0))

    process = PROCESS_BYTES[work.device] + (0 if full else ADAPTER_BYTES[work.device])
    resident = process + start + learner + recorded
    training = resident + optimizer + 2 * steps
    evaluation = max(decoding[b] for b in (work.evaluations or (work.rollout,)))
    moments = {
        "decoding": training + copies + max(evaluation, decoding[work.rollout]),
        "reference": training + reference,
        "backward": training + gradients + casts + vocabulary + activations + passing,
        "optimizer": training + gradients + min(learner, FLOAT * max(PART_FLOATS, head)),
        "checkpoint": training + learner + optimizer,
        "record": training + 2 * learner,
    }
    if work.device != "cpu":
        moments = {
            name: moments[name] for name in ("decoding", "reference", "backward", "optimizer")
        }
    parts = {
        "process": process,
        "start": start,
        "learner": learner,
        "optimizer": gradients + optimizer + 2 * steps,
        "activations": activations + passing,
        "head": vocabulary,
        "decoding": copies + max(evaluation, decoding[work.rollout]),
    } | ({"recorded": recorded} if recorded else {})
    return Estimate(form, parts, moments)


def _micro_tokens(shape: Shape, work: Work) -> int:
    """Tokens of the largest micro-batch: the budget, or the whole minibatch where that is less."""
    rollout = work.rollout
    prompts = math.ceil(rollout.prompts / work.minibatches)
    each = rollout.rows // rollout.prompts
    whole = prompts * (rollout.prompt + each * rollout.completion)
    budget = token_budget(shape.layers, shape.hidden, shape.wide, work.device, work.card)
    return min(whole, max(budget, rollout.prompt + rollout.completion))


def _step_bytes(shape: Shape, b: Batch) -> int:
    """What one decode step and the pass over the prompts hold beside the cache."""
    logits = 3 * FLOAT * b.rows * shape.vocabulary
    attention = FLOAT * b.rows * (b.prompt + b.completion) * (2 * shape.heads + shape.keys)
    prompts = 3 * FLOAT * b.prompts * b.prompt * (shape.wide + shape.hidden)
    return max(logits + attention, prompts)


def _recorded_bytes(shape: Shape, form: Form, work: Work) -> int:
    """What linear layers put out in a rollout, as far as the fast plan takes it down."""
    if not work.fast or work.device != "cpu":
        return 0
    b, width = work.rollout, shape.heads + shape.keys + 2 * shape.hidden + 2 * shape.wide
    tokens = b.prompts * b.prompt + b.rows * b.completion
    layer = (HALF if form.precision == "bf16" else FLOAT) * width * tokens
    return layer * min(shape.layers, RECORDED_BYTES // layer)


def _one_weight(shape: Shape, form: Form) -> int:
    """Bytes that the largest linear layer is unpacked to in a pass, where it is quantised."""
    return 0 if form.quantisation == "none" else 2 * FLOAT * shape.hidden * shape.wide
