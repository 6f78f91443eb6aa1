"""Text to token ids that spell it: a tokenizer may add nothing to a prompt and change nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from crlbench.errors import ValidationError
from crlbench.policy.text.frame import RULE, SHOWN

CONTROL = re.compile(r"[<\[({|＜「>].*[>\])}|＞」<]", re.DOTALL)
"""How control tokens are written: ``<|im_end|>``, ``[INST]``, ``|||EMAIL|||``, ``>>TITLE<<``."""
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
WORDS = re.compile(r"\w+|[^\w\s]+")
NAMES = re.compile(r"\w+")


def spell(text: str, tokenizer: Any, contents: Sequence[str] = ()) -> list[int]:
    """The ids of a text, without special tokens around it.

    White space may be lost or doubled (a space before the first word, tokens that swallow what
    is beside them). Characters may be read as another form of themselves, each by itself: Unicode
    normal forms, lower case, or the unknown token.

    Args:
        contents: the messages in it, where a token that is written like a control token is none.

    Raises:
        ValidationError: the ids decode to another text, or an added token spans words of it.
    """
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    back = _decoded(tokenizer, ids)
    if _squeezed(back) != _squeezed(text) and not _lossy(back, text, tokenizer):
        raise ValidationError(_changed(text, back, tokenizer))
    phrases = _phrases(tokenizer, len(tokenizer))
    spans = {
        i
        for i in phrases.keys() & ids
        if not CONTROL.fullmatch(phrases[i].strip()) or any(phrases[i] in c for c in contents)
    }
    if spans:
        phrase = phrases[min(spans)]
        raise ValidationError(
            f"{RULE}: {file_of(tokenizer, 'tokenizer.json')}: its added token {phrase!r:.{SHOWN}} "
            f"stands for several words of the prompt {text!r:.{SHOWN}}. An added token may be a "
            "control token, one word, one character or white space: take it out."
        )
    return ids


def file_of(tokenizer: Any, *names: str) -> str:
    """The first of these files beside a tokenizer that is there, else the last name."""
    folder = Path(str(getattr(tokenizer, "name_or_path", "") or ""))
    return next((str(folder / name) for name in names if (folder / name).is_file()), names[-1])


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def _squeezed(text: str) -> str:
    """Without white space, SentencePiece's sign for it included."""
    return "".join(text.replace("▁", " ").split())


def _lossy(back: str, text: str, tokenizer: Any) -> bool:
    """Whether each character was read by itself as a form of itself, but for unknown words."""
    unknown = str(tokenizer.unk_token or "")
    unknown = unknown if CONTROL.fullmatch(unknown) else ""
    pieces = [_canonical(piece) for piece in (back.split(unknown) if unknown else [back])]
    for form in {text, *(unicodedata.normalize(form, text) for form in FORMS)}:
        alone = "".join(_read(tokenizer, character) for character in _squeezed(form))
        if _in_order(pieces, _canonical(alone)):
            return True
    return False


def _in_order(pieces: list[str], text: str) -> bool:
    """Whether a text is these pieces, with anything between them."""
    if len(pieces) == 1:
        return pieces[0] == text
    first, *middle, last = pieces
    if not text.startswith(first) or not text[len(first) :].endswith(last):
        return False
    rest = text[len(first) : len(text) - len(last)]
    for piece in middle:
        _, match, rest = rest.partition(piece) if piece else ("", True, rest)
        if not match:
            return False
    return True


@lru_cache(maxsize=2**14)
def _read(tokenizer: Any, character: str) -> str:
    """How a tokenizer reads one character; itself where that is unknown, or is another one."""
    ids = list(tokenizer(character, add_special_tokens=False)["input_ids"])
    reading = _squeezed(_decoded(tokenizer, ids))
    forms = {""}
    for form in FORMS:
        normal = _squeezed(unicodedata.normalize(form, character))
        bare = "".join(c for c in normal if not unicodedata.combining(c))
        forms |= {normal, normal.lower(), normal.casefold(), bare, bare.lower()}
    sign = ord(character) > 127 and not any(c.isalnum() for c in character + reading)
    return reading if sign or reading in forms else character


def _canonical(text: str) -> str:
    return unicodedata.normalize("NFKC", _squeezed(text))


@lru_cache(maxsize=8)
def _phrases(tokenizer: Any, size: int) -> dict[int, str]:
    """Added tokens of several words, by id; of those in brackets, the brackets count for none."""
    added = {i: str(token.content) for i, token in tokenizer.added_tokens_decoder.items()}
    return {i: text for i, text in added.items() if len(_words(text)) > 1}


def _words(text: str) -> list[str]:
    return (NAMES if CONTROL.fullmatch(text.strip()) else WORDS).findall(text)


def _changed(text: str, back: str, tokenizer: Any) -> str:
    place = next(
        (i for i, pair in enumerate(zip(text, back, strict=False)) if pair[0] != pair[1]),
        min(len(text), len(back)),
    )
    start = max(place - SHOWN // 3, 0)
    return (
        f"{RULE}: {file_of(tokenizer, 'tokenizer.json')}: its tokens spell another text than the "
        f"prompt: it reads {text[start : start + SHOWN]!r} as {back[start : start + SHOWN]!r}. A "
        "tokenizer may add nothing and exchange nothing: correct its normalizer, added tokens or "
        "decoder."
    )
