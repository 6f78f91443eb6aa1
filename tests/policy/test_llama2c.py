"""llama2.c's file against a forward pass written after its ``run.c``: pairs turn, in place."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from crlbench.errors import ValidationError
from crlbench.policy.weights.convert import convert
from crlbench.policy.weights.llama2c import read_llama2c

DIM, FEED, LAYERS, HEADS, KV, CONTEXT = 16, 24, 2, 4, 2, 32
HEAD = DIM // HEADS
PIECES = [" h", "he", "ll", "llo", " hello", " "]
"""Behind the specials and the bytes; the later, the better its score."""
TOKENS = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(bytes([b]) for b in range(256))]
TOKENS += [bytes([c]) for c in b"helo"] + [piece.encode() for piece in PIECES]


def tensors(tied: bool) -> dict[str, np.ndarray]:
    """By the names of llama2.c, in its order."""
    draw, count = np.random.default_rng(3), len(TOKENS)
    shapes = {
        "tok": (count, DIM), "att_norm": (LAYERS, DIM), "q": (LAYERS, DIM, DIM),
        "k": (LAYERS, KV * HEAD, DIM), "v": (LAYERS, KV * HEAD, DIM), "o": (LAYERS, DIM, DIM),
        "ffn_norm": (LAYERS, DIM), "w1": (LAYERS, FEED, DIM), "w2": (LAYERS, DIM, FEED),
        "w3": (LAYERS, FEED, DIM), "norm": (DIM,), "angles": (CONTEXT, HEAD),
    }
    if not tied:
        shapes["out"] = (count, DIM)
    return {
        name: draw.normal(float("norm" in name), 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_llama2c(path: Path, tied: bool = True) -> Path:
    sign = 1 if tied else -1
    data = struct.pack("<7i", DIM, FEED, LAYERS, HEADS, KV, sign * len(TOKENS), CONTEXT)
    data += b"".join(tensor.tobytes() for tensor in tensors(tied).values())
    data += struct.pack("<i", max(map(len, TOKENS)))
    for i, token in enumerate(TOKENS):
        score = float(i - len(TOKENS)) if i >= 259 else 0.0
        data += struct.pack("<fi", score, len(token)) + token
    path.write_bytes(data)
    return path


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def turn(x: np.ndarray, at: int) -> np.ndarray:
    """Neighbours turn together, by an angle that falls with their place in the head."""
    x = x.copy()
    for i in range(0, len(x), 2):
        angle = at / 10000.0 ** ((i % HEAD) / HEAD)
        a, b = x[i], x[i + 1]
        x[i] = a * np.cos(angle) - b * np.sin(angle)
        x[i + 1] = a * np.sin(angle) + b * np.cos(angle)
    return x


def reference(ids: list[int], tied: bool) -> np.ndarray:
    """Logits (t, vocabulary), one position after the other with a cache, as run.c computes them."""
    w = tensors(tied)
    keys, values = ([[] for _ in range(LAYERS)] for _ in range(2))
    logits = []
    for at, token in enumerate(ids):
        x = w["tok"][token]
        for layer in range(LAYERS):
            h = norm(x, w["att_norm"][layer])
            q = turn(w["q"][layer] @ h, at)
            keys[layer].append(turn(w["k"][layer] @ h, at))
            values[layer].append(w["v"][layer] @ h)
            mixed = np.zeros(DIM, np.float32)
            for head in range(HEADS):
                own, shared = (slice(i * HEAD, (i + 1) * HEAD) for i in (head, head * KV // HEADS))
                scores = np.array([q[own] @ k[shared] for k in keys[layer]]) / np.sqrt(HEAD)
                share = np.exp(scores - scores.max())
                share /= share.sum()
                mixed[own] = sum(s * v[shared] for s, v in zip(share, values[layer], strict=True))
            x = x + w["o"][layer] @ mixed
            h = norm(x, w["ffn_norm"][layer])
            gate = w["w1"][layer] @ h
            x = x + w["w2"][layer] @ (gate / (1 + np.exp(-gate)) * (w["w3"][layer] @ h))
        logits.append(w["tok" if tied else "out"] @ norm(x, w["norm"]))
    return np.array(logits)


@pytest.mark.parametrize("tied", [True, False])
def test_the_model_computes_what_llama2c_computes(tmp_path: Path, tied: bool) -> None:
    model, _ = read_llama2c(write_llama2c(tmp_path / "m.bin", tied))
    ids = [1, 40, 262, 7, 199, 265]
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(found, reference(ids, tied), atol=2e-5)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) is tied


def test_the_converted_folder_reads_merges_by_score_and_falls_back_to_bytes(
    tmp_path: Path,
) -> None:
    file = write_llama2c(tmp_path / "m.bin")
    facts = convert(file, tmp_path / "out", "float32", kind="llama2c")
    assert (facts.end_token, facts.pad_token, facts.context) == ("<s>", "<unk>", CONTEXT)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.tokenize("hello") == ["▁", "he", "llo"]  # "he" comes before "▁h"
    assert tokenizer.convert_tokens_to_ids("é") == 0
    assert tokenizer("é", add_special_tokens=False)["input_ids"][-2:] == [3 + 0xC3, 3 + 0xA9]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (model.config.eos_token_id, model.config.pad_token_id) == (1, 0)


@pytest.mark.parametrize(
    ("keep", "more"), [(20, b""), (4000, b""), (-1, b""), (None, b"x"), (0, b"no such file" * 9)]
)
def test_a_damaged_file_is_refused(tmp_path: Path, keep: int | None, more: bytes) -> None:
    file = write_llama2c(tmp_path / "m.bin")
    file.write_bytes(file.read_bytes()[:keep] + more)
    with pytest.raises(ValidationError, match=r"m\.bin: is not a file of llama2\.c"):
        convert(file, tmp_path / "out", "float32", kind="llama2c")
    assert not (tmp_path / "out").exists()
