"""How few tokens can spell a text: a bound of what is stored of a turn."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def fewest_tokens(tokenizer: Any, text: str, skips: bool) -> int:
    """Fewest sampled tokens that decode to a text.

    Args:
        skips: whether decoding left out control tokens.
    """
    return -(-len(text) // _most_characters(tokenizer, len(tokenizer), skips))


@lru_cache(maxsize=8)
def _most_characters(tokenizer: Any, size: int, skips: bool) -> int:
    """Most characters of a text that one token spells; ``size`` is that of the vocabulary.

    A token that is a part of a character decodes alone to a replacement sign, which is a character
    too. The first token of a text may lose a space, so each is also decoded behind itself.
    """
    left_out = {*tokenizer.all_special_ids} if skips else set()
    left_out |= {i for i, t in tokenizer.added_tokens_decoder.items() if skips and t.special}
    names = {i: n for n, i in tokenizer.get_vocab().items() if i not in left_out}
    most = 1
    for token in sorted(names, key=lambda i: -len(names[i])):
        if len(names[token]) + 1 <= most:  # one more for a space in front
            break
        once, twice = (
            len(tokenizer.decode([token] * n, skip_special_tokens=skips)) for n in (1, 2)
        )
        most = max(most, once, twice - once)
    return most
