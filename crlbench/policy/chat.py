"""From messages to token ids: frames, padding, end tokens and the completion cap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from crlbench.errors import ValidationError

Message = dict[str, str]


def render(messages: Sequence[Message], frame: str, tokenizer: Any) -> list[int]:
    """Token ids of a prompt as the model reads it.

    ``chat`` uses the tokenizer's own template with a generation prompt; ``plain`` (real base
    models) is the messages line by line; ``terse`` (the bundled models) is the user's line.
    """
    if frame == "chat":
        return _chat_ids(messages, tokenizer)
    lines = [m["content"] for m in messages if frame == "plain" or m["role"] == "user"]
    ids = tokenizer("\n".join(lines) + "\n", add_special_tokens=False)["input_ids"]
    bos = tokenizer.bos_token_id
    return ([bos] if bos is not None else []) + list(ids)


def _chat_ids(messages: Sequence[Message], tokenizer: Any) -> list[int]:
    if not tokenizer.chat_template:
        raise ValidationError(
            "this model's tokenizer has no chat template; set frame = 'plain' in its entry"
        )
    options = {"add_generation_prompt": True, "tokenize": False}
    try:
        text = tokenizer.apply_chat_template(list(messages), **options)
    except Exception as error:  # templates raise their own errors, above all on a system role
        merged = _without_system(messages)
        if merged == list(messages):
            raise ValidationError(f"the chat template refuses these messages: {error}") from None
        text = tokenizer.apply_chat_template(merged, **options)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The system text moved into the first user message, for templates without that role."""
    system = [m["content"] for m in messages if m["role"] == "system"]
    rest = [dict(m) for m in messages if m["role"] != "system"]
    if system and rest:
        rest[0]["content"] = "\n".join([*system, rest[0]["content"]])
    return rest


def left_pad(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """(P, L) int64 ids and (P, L) bool mask, real tokens at the right."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad, dtype=torch.int64)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = torch.tensor(row, dtype=torch.int64)
        mask[i, width - len(row) :] = True
    return ids, mask


def end_tokens(tokenizer: Any, stop: Sequence[str] = ()) -> tuple[int, ...]:
    """Ids that end a completion: the tokenizer's end token and the entry's stop tokens."""
    ids = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    for token in stop:
        found = tokenizer.convert_tokens_to_ids(token)
        if found is None or found == tokenizer.unk_token_id:
            raise ValidationError(f"stop token {token!r} is not in the model's vocabulary")
        ids.append(int(found))
    if not ids:
        raise ValidationError(
            "the tokenizer has no end token, so no completion could ever end; "
            "name one under stop_tokens in the model's entry"
        )
    return tuple(dict.fromkeys(ids))


def pad_token(tokenizer: Any, ends: Sequence[int]) -> int:
    """The padding id; without one in the tokenizer, an end token (masks decide, not ids)."""
    return int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0])


def completion_cap(tokenizer: Any, texts: Sequence[str], max_bytes: int) -> int:
    """Tokens a completion may have, the end token included, for a cap given in bytes.

    A cap in tokens would give large vocabularies more text per sample, so the cap is a
    condition in bytes, converted with the tokenizer's bytes per token on frozen texts.
    """
    size = sum(len(text.encode()) for text in texts)
    count = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    return math.ceil(max_bytes * count / max(size, 1)) + 1


def token_ends(tokenizer: Any, ids: Tensor) -> list[int]:
    """Characters decoded up to and including each token of one completion (t,)."""
    row = ids.tolist()
    return [len(tokenizer.decode(row[: t + 1], skip_special_tokens=True)) for t in range(len(row))]
