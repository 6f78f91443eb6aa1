"""How much a cell does at once: what its decoding, its passes and the estimate of its memory share.

Nothing here needs a tensor, so that the estimate can be made before torch is loaded.
"""

from __future__ import annotations

import math

DECODE_ROWS = 256
"""Rows decoded at once in an evaluation: part of the decode plan."""
LOGIT_FLOATS = 1 << 24
"""Most numbers of a distribution over the vocabulary in a decode step: it bounds the rows that
are decoded at once (256 up to a vocabulary of 65,536)."""
SLACK = 0.25
"""Share of a batch that is added to other batches instead of being decoded alone."""

ACTIVATION_BYTES = {"cpu": 1 << 30, "cuda": 8 << 30}
"""What a backward pass may keep of its forward pass, by device; on a card of known memory it is
that memory over :data:`CARD_PER_ACTIVATIONS`."""
CARD_PER_ACTIVATIONS = 4
CARD_STEP = 4 << 30
"""The memory of a card is taken in whole steps: cards of one kind report slightly different sizes,
and have equal budgets."""
VECTORS = 12
"""Vectors of the width of the model that a layer keeps of a token."""
WIDE_VECTORS = 4
"""Vectors of the width of the feed-forward network that a layer keeps of a token."""
LEAST_TOKENS = 64
"""Fewest tokens of a micro-batch, whatever they take."""
FREE_PASS = 4
"""How many times the token budget a pass without gradient may hold."""
HEAD_BLOCK = {"cpu": 1 << 21, "cuda": 1 << 25}
"""Most logits of a block of the head, by device (8 MiB and 128 MiB in float32); on a card of known
memory they take that memory over :data:`CARD_PER_LOGITS` in float32."""
CARD_PER_LOGITS = 128
RECORDED_BYTES = 768 << 20
"""Most memory that the fast plan takes for what linear layers put out in sampling."""
KEPT_LOGIT_BYTES = 256 << 20
"""Most memory of logits that wait for the backward pass in the fast plan."""
REMEMBERED = 1 << 24
"""Most weights whose last step is remembered (64 MiB)."""
PART_FLOATS = 1 << 25
"""Weights that are copied at once to see where a step goes (128 MiB in float32)."""


def decode_rows(vocabulary: int, ranks: int = 1) -> int:
    """Rows of a batch of an evaluation: fewer where the vocabulary is very large."""
    return max(1, min(DECODE_ROWS, LOGIT_FLOATS // vocabulary) // ranks)


def decode_batches(prompts: int, draws: int, rows: int) -> int:
    """Into how many batches of about ``rows`` rows prompts are divided, each with all its draws."""
    return min(prompts, max(1, math.ceil(prompts * draws / rows - SLACK)))


def token_budget(layers: int, hidden: int, wide: int, device: str, card: int | None = None) -> int:
    """Tokens, prompts and padding included, of which a pass may keep the activations.

    An estimate from the widths and the depth of a model, in float32.

    Args:
        card: bytes of memory of the device, where it is a card and they are known.
    """
    floats = layers * (VECTORS * hidden + WIDE_VECTORS * wide)
    kept = ACTIVATION_BYTES[device] if card is None else _in_steps(card) // CARD_PER_ACTIVATIONS
    return max(LEAST_TOKENS, kept // (4 * floats))


def head_block(device: str, card: int | None = None) -> int:
    """Most logits of a block of the head; ``card`` as :func:`token_budget` has it."""
    return HEAD_BLOCK[device] if card is None else _in_steps(card) // (4 * CARD_PER_LOGITS)


def _in_steps(card: int) -> int:
    return max(1, card // CARD_STEP) * CARD_STEP
