"""Framing, end tokens and the completion cap."""

from __future__ import annotations

import pytest
import torch

from crlbench.errors import ValidationError
from crlbench.policy.chat import (
    completion_cap,
    end_tokens,
    left_pad,
    pad_token,
    render,
    token_ends,
)
from tests.checkpoints import CHAT_TEMPLATE, ascii_tokenizer

MESSAGES = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "1+2="},
]


def shown(frame, template=None):
    tokenizer = ascii_tokenizer(template)
    return tokenizer.decode(render(MESSAGES, frame, tokenizer))


def test_frames():
    assert shown("terse") == "<bos>1+2=\n"
    assert shown("plain") == "<bos>Add.\n1+2=\n"
    assert shown("chat", CHAT_TEMPLATE) == "[system]Add.\n[user]1+2=\n[assistant]"


def test_a_template_without_a_system_role_gets_it_in_the_user_turn():
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}"
    assert shown("chat", refusing + "{% endif %}" + CHAT_TEMPLATE) == (
        "[user]Add.\n1+2=\n[assistant]"
    )


def test_a_chat_frame_without_a_template_is_refused():
    with pytest.raises(ValidationError, match="no chat template"):
        shown("chat")


def test_left_padding():
    ids, mask = left_pad([[1, 2, 3], [4]], pad=9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask.tolist() == [[True, True, True], [False, False, True]]


def test_end_and_pad_tokens():
    tokenizer = ascii_tokenizer()
    assert end_tokens(tokenizer) == (130,)
    assert end_tokens(tokenizer, ["a"]) == (130, ord("a"))
    assert pad_token(tokenizer, (130,)) == 128
    tokenizer.pad_token = None
    assert pad_token(tokenizer, (130,)) == 130
    with pytest.raises(ValidationError, match="stop token"):
        end_tokens(ascii_tokenizer(), ["<|never|>"])
    tokenizer.eos_token = None
    with pytest.raises(ValidationError, match="no end token"):
        end_tokens(tokenizer)


def test_the_cap_counts_the_same_bytes_for_every_tokenizer():
    assert completion_cap(ascii_tokenizer(), ["abcd", "ef"], max_bytes=24) == 25

    class Words:
        def __call__(self, text, add_special_tokens):
            return {"input_ids": text.split()}

    assert completion_cap(Words(), ["four word s here x y"], max_bytes=20) == 7  # 20 bytes, 6 words


def test_token_ends_count_characters():
    tokenizer = ascii_tokenizer()
    assert token_ends(tokenizer, torch.tensor([*b"hey", 130])) == [1, 2, 3, 3]
