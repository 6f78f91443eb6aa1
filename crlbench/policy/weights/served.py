"""Whether decoding and training read a model as the model reads itself.

A run samples token by token over a cache, in rows of different lengths, and learns from passes
that run each prompt once. Both are right for some architectures and wrong for others: a cache
that is ignored, positions that count padding, logits that are changed after the head. So the
architecture is tried at toy size, in a fraction of a second, before weights are loaded.
"""

from __future__ import annotations

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
from crlbench.policy.weights.shrink import PAD, shrink
from crlbench.types import PromptBatch

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
