"""The byte-level tokenizer that all bundled models share.

Token b is the byte b (0-255); 256-258 are <pad>, <bos>, <eos>. Nothing is added on its own:
a document carries <bos> and <eos> explicitly. Text that spells "<eos>" is bytes like any
other, so a prompt cannot smuggle in an end token.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

PAD, BOS, EOS = 256, 257, 258
SPECIAL = {"<pad>": PAD, "<bos>": BOS, "<eos>": EOS}
VOCABULARY = 259
CONTEXT = 256
FILES = ("tokenizer.json", "tokenizer_config.json")


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in the ByteLevel convention (GPT-2)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(b if b in printable else next(spare)) for b in range(256)]


def build() -> Tokenizer:
    """A BPE model without merges over the 256 byte characters."""
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in SPECIAL]
    )
    return tokenizer


def configuration() -> dict[str, object]:
    """The contents of tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": None,
        "padding_side": "left",
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": CONTEXT,
    }


def write(folder: Path) -> None:
    """Write both tokenizer files into a model's folder."""
    build().save(str(folder / FILES[0]))
    text = json.dumps(configuration(), indent=2) + "\n"
    (folder / FILES[1]).write_text(text, encoding="utf-8")


def encode(text: str) -> list[int]:
    """The token ids of a text: its UTF-8 bytes."""
    return list(text.encode())
