"""The byte-level tokenizer, as every model folder carries it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizer
from hypothesis import given
from hypothesis import strategies as st
from pretrain import HERE, MODELS
from transformers import AutoTokenizer

FOLDERS = {name: HERE / name for name in MODELS}


@pytest.fixture(scope="module")
def loaded() -> Any:
    return AutoTokenizer.from_pretrained(HERE / "tiny-llama")


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_every_folder_carries_the_same_tokenizer(folder: Path, tmp_path: Path) -> None:
    tokenizer.write(tmp_path)
    for file in tokenizer.FILES:
        assert (folder / file).read_bytes() == (tmp_path / file).read_bytes()


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_special_tokens_and_size(folder: Path) -> None:
    own = AutoTokenizer.from_pretrained(folder)
    assert len(own) == tokenizer.VOCABULARY == 259
    assert (own.pad_token_id, own.bos_token_id, own.eos_token_id) == (256, 257, 258)
    assert own.unk_token is None
    assert own.encode("3+4=\n") == list(b"3+4=\n")


@pytest.mark.slow
@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    own = tokenizer.build()
    own.encode_special_tokens = True
    ids = own.encode(text).ids
    assert ids == list(text.encode())
    assert own.decode(ids, skip_special_tokens=False) == text


def test_every_byte_is_its_own_token(loaded: Any) -> None:
    characters = tokenizer.byte_characters()
    assert loaded.convert_ids_to_tokens(range(256)) == characters
    assert len(set(characters)) == 256


@pytest.mark.parametrize("text", ["<eos>", "a <bos> b", "  two  spaces \n\n\t.", "\x00", "é😀"])
def test_awkward_texts_round_trip_through_auto_tokenizer(loaded: Any, text: str) -> None:
    ids = loaded(text)["input_ids"]
    assert ids == list(text.encode()) == tokenizer.encode(text)
    assert loaded.decode(ids) == text


def test_special_tokens_are_left_out_of_decoded_text(loaded: Any) -> None:
    assert loaded.decode([257, *b"41", 258, 256], skip_special_tokens=True) == "41"
