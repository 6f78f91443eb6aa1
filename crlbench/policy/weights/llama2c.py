"""The weights and the tokenizer of llama2.c, one after the other in one file.

The layout is that of llama2.c's ``export.py`` (version 0) and ``tokenizer.py``, at
https://github.com/karpathy/llama2.c: seven int32, float32 tensors by kind and layer, two tables
of rotary angles; then for each token its score (float32), length (int32) and bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer
from transformers.tokenization_utils_base import generate_merges

from crlbench.errors import ValidationError

HEADER = struct.Struct("<7i")
SPECIALS = {0: "<unk>", 1: "<s>", 2: "</s>"}
"""The tokenizer writes its second and third token with line breaks around them."""
FIRST_BYTE = 3
"""Ids 3 to 258 stand for single bytes, which sentencepiece writes as <0x00> to <0xFF>."""


def read_llama2c(file: Path) -> tuple[nn.Module, Any]:
    """The float32 model and the tokenizer of a file, documents ending where the next begins.

    llama2.c trains on stories with a beginning token before each and nothing behind it, so the
    beginning token is what ends a completion; the end token of the vocabulary was never trained.

    Raises:
        ValidationError: the sizes in the file and its length do not fit together.
    """
    data = file.read_bytes()
    try:
        config, weights, rest = _read_weights(data)
        tokenizer = _read_tokenizer(data[rest:], config.vocab_size)
    except (struct.error, ValueError, IndexError) as error:
        raise ValidationError(f"{file.name}: is not a file of llama2.c: {error}.") from None
    model = LlamaForCausalLM(config)
    model.load_state_dict(weights)
    tokenizer.model_max_length = config.max_position_embeddings
    return model.eval(), tokenizer


def _read_weights(data: bytes) -> tuple[LlamaConfig, dict[str, Tensor], int]:
    """The config, the weights by their names in transformers, and where the tokenizer begins."""
    dim, feed, layers, heads, kv_heads, vocabulary, context = HEADER.unpack_from(data)
    whole = min(dim, feed, layers, heads, kv_heads, context) > 0 and vocabulary != 0
    # Rotation turns the halves of a head, and keys are shared by equal groups of heads.
    if not whole or dim % (2 * heads) or heads % kv_heads:
        raise ValueError("its header holds impossible sizes")
    tied, vocabulary = vocabulary > 0, abs(vocabulary)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=dim,
        intermediate_size=feed,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
    )
    kv = kv_heads * (dim // heads)
    shapes = {
        "input_layernorm": (dim,),
        "self_attn.q_proj": (dim, dim),
        "self_attn.k_proj": (kv, dim),
        "self_attn.v_proj": (kv, dim),
        "self_attn.o_proj": (dim, dim),
        "post_attention_layernorm": (dim,),
        "mlp.gate_proj": (feed, dim),
        "mlp.down_proj": (dim, feed),
        "mlp.up_proj": (feed, dim),
    }
    at = HEADER.size

    def take(*shape: int) -> Tensor:
        nonlocal at
        start, at = at, at + 4 * torch.Size(shape).numel()
        if at > len(data):
            raise ValueError("it ends before its weights do")
        return torch.frombuffer(bytearray(data[start:at]), dtype=torch.float32).reshape(shape)

    weights = {"model.embed_tokens.weight": take(vocabulary, dim)}
    for name, shape in shapes.items():
        for layer, tensor in enumerate(take(layers, *shape)):
            rotates = name.endswith(("q_proj", "k_proj"))
            weights[f"model.layers.{layer}.{name}.weight"] = (
                _halves(tensor, dim // heads) if rotates else tensor
            )
    weights["model.norm.weight"] = take(dim)
    at += 4 * context * (dim // heads)  # cosines and sines, which transformers computes itself
    head = weights["model.embed_tokens.weight"] if tied else take(vocabulary, dim)
    return config, weights | {"lm_head.weight": head}, at


def _halves(weight: Tensor, head: int) -> Tensor:
    """Rows of each head (heads * head, dim) from pairs that turn together to two halves."""
    return weight.view(-1, head // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _read_tokenizer(data: bytes, vocabulary: int) -> LlamaTokenizer:
    tokens, scores, at = [], {}, 4  # after the length of the longest token
    for index in range(vocabulary):
        score, length = struct.unpack_from("<fi", data, at)
        piece = data[at + 8 : at + 8 + length]
        at += 8 + length
        token = _as_sentencepiece(index, piece)
        tokens.append(token)
        scores[token] = score
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes are left behind its {vocabulary} tokens")
    ids = {token: index for index, token in enumerate(tokens)}
    if len(ids) != vocabulary:
        raise ValueError("its tokenizer holds a token twice")
    tokenizer = LlamaTokenizer(
        vocab=ids,
        merges=generate_merges(ids, scores),
        bos_token=SPECIALS[1],
        eos_token=SPECIALS[1],
        unk_token=SPECIALS[0],
    )
    specials = [AddedToken(token, special=True, normalized=False) for token in SPECIALS.values()]
    tokenizer.add_tokens(specials, special_tokens=True)
    return tokenizer


def _as_sentencepiece(index: int, piece: bytes) -> str:
    if index in SPECIALS:
        return SPECIALS[index]
    if FIRST_BYTE <= index < FIRST_BYTE + 256:
        return f"<0x{index - FIRST_BYTE:02X}>"
    return piece.decode().replace(" ", "\u2581")
