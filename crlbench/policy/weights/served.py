"""Whether decoding and training read a model as the model reads itself.

A run samples token by token over a cache, in rows of different lengths, and learns from passes
that run each prompt once. Both are right for some architectures and wrong for others: a cache
that is ignored, positions that count padding, logits that are changed after the head. So the
architecture is tried at toy size, in a fraction of a second, before weights are loaded: every code
path, no memory to speak of.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from crlbench.base.wording import one_line
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import row_groups
from crlbench.policy.decode.rows import GrowingRows
from crlbench.policy.forward import states_plain, states_shared
from crlbench.policy.head import next_token_logits
from crlbench.policy.weights.load import without_dropout
from crlbench.types import PromptBatch

WORDS = 131
"""Size of the vocabulary: ASCII, padding, and the tokens that begin and end a text."""
PAD, BEGIN, END = 128, 129, 130
WIDTH, HEAD, HEADS = 64, 16, 4
LENGTH = 256
"""Longest sequence, in tokens."""
WINDOW = 8
"""Tokens that a sliding window shows."""

SIZES: dict[str, int] = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": 96,
    "num_attention_heads": HEADS,
    "head_dim": HEAD,
    # Feed-forward layers and experts.
    "ffn_dim": 96,
    "n_inner": 96,
    "block_multiple_of": 8,
    "moe_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    # Latent attention.
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 24,
    "v_head_dim": 16,
    # State spaces: heads times their width are mamba_expand = 2 times the hidden size.
    "mamba_n_heads": 8,
    "mamba_num_heads": 8,
    "n_mamba_heads": 8,
    "mamba_d_head": 16,
    "mamba_head_dim": 16,
    "mamba_headdim": 16,
    "mamba_d_ssm": 128,
    "mamba_d_state": 8,
    "ssm_state_size": 8,
    "mamba_dt_rank": 4,
    "mamba_chunk_size": 8,
    "chunk_size": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "attention_hidden_size": 2 * WIDTH,
    "attention_head_dim": 2 * WIDTH // HEADS,
    "kv_channels": HEAD,
    "num_query_groups": HEADS,
}
"""What such fields become; one that is absent or None stays so."""
MOST: dict[str, int] = {
    "max_position_embeddings": LENGTH,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "mamba_n_groups": 2,
    "mamba_ngroups": 2,
    "n_groups": 2,
    "sliding_window": WINDOW,
    "attention_chunk_size": WINDOW,
}
"""What such fields become at most."""
PERIODS = {"attn_layer_period": 2, "attn_layer_offset": 1}
INDICES = ("attn_layer_indices", "full_attn_idxs", "hybrid_layer_ids", "mlp_only_layers")
"""Fields that list layers by number."""
SPREAD = 0.2
"""Spread of random weights: a token that is not seen changes every distribution."""


def shrink(config: Any) -> Any:
    """A config of the same class with the structure of ``config`` and a few thousand weights.

    Kept are the share of heads that have their own keys, windows, the kinds of layers (one of
    each at least, two layers at least), tied weights, caps and scales of logits, more experts
    than a token is sent to, latent ranks and the kind of positions.
    """
    config = config.get_text_config()
    old = config.to_dict()
    aliases = getattr(config, "attribute_map", {})
    new = {name: value for name, value in old.items() if not name.startswith("_")}
    for name, size in (SIZES | MOST).items():
        real = aliases.get(name, name)
        if isinstance(old.get(real), int):
            new[real] = min(old[real], size) if name in MOST else size
    _keep_ratios(old, new, aliases)
    _choose_layers(config.num_hidden_layers, old, new, aliases)
    for name, size in PERIODS.items():
        if name in old:
            new[name] = size
    for name in ("initializer_range", "init_std"):
        if name in old:
            new[name] = SPREAD
    if "rope_parameters" in old:
        new["rope_parameters"] = _short_factors(old["rope_parameters"], HEAD)
    new |= {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}
    for name in ("model_type", "transformers_version", "architectures", "dtype"):
        new.pop(name, None)
    return type(config)(**new)


def _keep_ratios(old: dict[str, Any], new: dict[str, Any], aliases: dict[str, str]) -> None:
    """Heads of keys, the width of a head, experts and projections relative to the model."""
    heads, width = (old.get(aliases.get(n, n)) for n in ("num_attention_heads", "hidden_size"))
    if isinstance(shared := old.get("num_key_value_heads"), int):
        new["num_key_value_heads"] = HEADS if shared == heads else 1 if shared == 1 else 2
    head = old.get("head_dim")
    if isinstance(head, int) and heads and head * heads != width:
        new["head_dim"] = 2 * HEAD
    if isinstance(rotary := old.get("qk_rope_head_dim"), int):
        new["head_dim"] = new["qk_rope_head_dim"] if head == rotary else HEAD
    if isinstance(narrow := old.get("word_embed_proj_dim"), int):
        new["word_embed_proj_dim"] = WIDTH if narrow == width else WIDTH // 2
    if isinstance(rotary := old.get("rotary_dim"), int):
        new["rotary_dim"] = HEAD // 2


def _choose_layers(
    count: int, old: dict[str, Any], new: dict[str, Any], aliases: dict[str, str]
) -> None:
    """One layer of each kind, two at least, as every field that tells layers apart has them."""
    lists = {
        name: value
        for name, value in old.items()
        if isinstance(value, list) and len(value) == count and name not in INDICES
    }
    numbers = {name: old[name] for name in INDICES if isinstance(old.get(name), Iterable)}
    dense = old.get("first_k_dense_replace")
    kinds: dict[tuple[Any, ...], int] = {}
    for layer in range(count):
        kind = (
            *(str(value[layer]) for value in lists.values()),
            *(layer in value for value in numbers.values()),
            dense is not None and layer < dense,
        )
        kinds.setdefault(kind, layer)
    chosen = sorted(kinds.values())
    if len(chosen) == 1 or "attn_layer_period" in old:
        chosen = list(range(min(count, 2 if len(chosen) == 1 else 4)))
    new |= {name: [value[layer] for layer in chosen] for name, value in lists.items()}
    for name, value in numbers.items():
        new[name] = [place for place, layer in enumerate(chosen) if layer in value]
    if dense is not None:
        new["first_k_dense_replace"] = sum(layer < dense for layer in chosen)
    name = aliases.get("num_hidden_layers", "num_hidden_layers")
    if name in old:
        new[name] = len(chosen)


def _short_factors(rope: Any, head: int) -> Any:
    """Lists of one factor for every two numbers of a head, cut to the head's width."""
    if not isinstance(rope, dict):
        return rope
    short = copy.deepcopy(rope)
    share = short.get("partial_rotary_factor", 1.0)
    for name, value in short.items():
        if isinstance(value, dict):
            short[name] = _short_factors(value, head)
        elif name.endswith("_factor") and isinstance(value, list):
            short[name] = value[: int(head * share) // 2]
    return short


TOY_GAP = 2e-4
"""Nats by which two ways to the same log-probability may differ; float32 rounds by less."""
PROMPTS = (13, 4, 9)
"""Tokens of the prompts; the longest is beyond the toy model's window."""
COMPLETIONS = (12, 2, 7, 11, 1, 5)
"""Tokens of the completions, two a prompt."""


def check_served(name: str, config: Any) -> None:
    """Refuse an architecture whose numbers would be wrong here.

    One that cannot be made small passes: the first update compares decoding and learning.

    Raises:
        ValidationError: it cannot be decoded, or log-probabilities differ from the model's own.
    """
    try:
        model = toy(config)
        batch, completions = _batch()
        reference = _own(model, batch, completions)
    except Exception:  # the toy is misshapen, which says nothing of the model
        return
    try:
        gaps = {
            "sampled token by token": _decoded(model, batch, completions) - reference,
            "run after a shared prompt": _learned(model, batch, completions, True) - reference,
            "run whole": _learned(model, batch, completions, False) - reference,
        }
        wrong = {way: float(gap.abs().max()) for way, gap in gaps.items()}
        problems = [
            f"its tokens, {way}, have log-probabilities {gap:.2g} nats from the model's own"
            for way, gap in wrong.items()
            if not gap <= TOY_GAP
        ]
    except Exception as error:  # models raise whatever they trip over
        text = one_line(error, 200)
        problems = [f"its code fails where rows share a prompt or a cache ({text})"]
    if problems:
        kind = config.get_text_config().model_type
        raise ValidationError(
            f"model '{name}': the architecture '{kind}' cannot be served here: {problems[0]}. "
            "Nothing learned would count. `crlbench list models` names models that run."
        )


def toy(config: Any, seed: int = 0) -> Any:
    """A random model of a config at toy size, in float32, without dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(shrink(config), trust_remote_code=False).float()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    # Biases start at 0 and norms at 1, where a mistake would not be seen.
                    parameter.add_(0.1 * torch.randn(parameter.shape))
    return without_dropout(model).eval()


def _batch() -> tuple[PromptBatch, list[Tensor]]:
    """Left-padded prompts, and rows of tokens to follow them."""
    draw = torch.Generator().manual_seed(0)
    length = max(PROMPTS)
    mask = torch.arange(length) >= length - torch.tensor(PROMPTS)[:, None]
    ids = torch.randint(0, PAD, mask.shape, generator=draw).masked_fill(~mask, PAD)
    rows = [torch.randint(0, PAD, (n,), generator=draw) for n in COMPLETIONS]
    names = [str(place) for place in range(len(PROMPTS))]
    return PromptBatch(0, names, ids, mask, names, len(rows) // len(PROMPTS)), rows


@torch.no_grad()
def _own(model: Any, batch: PromptBatch, rows: list[Tensor]) -> Tensor:
    """(n,) log-probabilities of all tokens by the model's forward pass of each row alone."""
    parts = []
    for place, row in zip(row_groups(batch).tolist(), rows, strict=True):
        prompt = batch.prompt_ids[place][batch.prompt_mask[place]]
        logits = model(input_ids=torch.cat([prompt, row])[None], use_cache=False).logits[0]
        parts.append(_taken(logits[len(prompt) - 1 : -1], row))
    return torch.cat(parts)


@torch.no_grad()
def _decoded(model: Any, batch: PromptBatch, rows: list[Tensor]) -> Tensor:
    """(n,) as :func:`_own`, token by token over the cache, where rows leave when they end."""
    parts: list[list[Tensor]] = [[] for _ in rows]
    here = list(range(len(rows)))
    decoding = GrowingRows(model, batch, row_groups(batch), max(COMPLETIONS))
    for t in range(max(COMPLETIONS)):
        tokens = torch.stack([rows[row][t] for row in here])
        scores = _taken(next_token_logits(model, decoding.states, 1.0), tokens)
        for row, score in zip(here, scores, strict=True):
            parts[row].append(score)
        places = [place for place, row in enumerate(here) if len(rows[row]) > t + 1]
        here = [here[place] for place in places]
        if not here:
            break
        decoding.keep(torch.tensor(places))
        decoding.append(tokens[places])
    return torch.cat([torch.stack(scores) for scores in parts])


@torch.no_grad()
def _learned(model: Any, batch: PromptBatch, rows: list[Tensor], shared: bool) -> Tensor:
    """(n,) as :func:`_own`, by the passes that learn."""
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    mask = torch.arange(ids.shape[1]) < torch.tensor(COMPLETIONS)[:, None]
    run = states_shared if shared else states_plain
    states = run(model, batch.prompt_ids, batch.prompt_mask, ids, mask, row_groups(batch))
    return _taken(next_token_logits(model, states, 1.0), ids)[mask]


def _taken(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probabilities of ``tokens`` (...) under ``logits`` (..., V)."""
    return torch.log_softmax(logits.float(), dim=-1).gather(-1, tokens[..., None]).squeeze(-1)
