"""Whether a model's frame and its tokenizer leave the text of every prompt as it is.

Frames are tried with questions of the kinds that tasks ask. No part of a tokenizer may write text,
and none may look at a character's neighbours. Ids that decode to the prompt prove nothing where the
decoder hides what a normaliser wrote. So both are read as data, before anything is encoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crlbench.errors import ValidationError
from crlbench.policy.text.chat import Message, closing, render, template_file
from crlbench.policy.text.frame import RULE, SHOWN
from crlbench.policy.text.spelling import file_of

Part = dict[str, Any]

LISTS = ("normalizers", "pretokenizers", "decoders", "processors")
KNOWN = {
    "normalizer": {
        *("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Lowercase", "StripAccents"),
        *("Strip", "BertNormalizer", "ByteLevel", "Prepend", "Replace"),
    },
    "pre_tokenizer": {
        *("ByteLevel", "Metaspace", "Split", "Whitespace", "WhitespaceSplit", "Digits"),
        *("Punctuation", "BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts"),
        "FixedLength",
    },
    "decoder": {
        *("ByteLevel", "Metaspace", "WordPiece", "BPEDecoder", "ByteFallback", "Fuse"),
        *("Replace", "Strip"),
    },
}
"""Parts of the library ``tokenizers`` that work character by character, or split."""
BLANK = re.compile(r"[\s▁]*")
BLANKS = re.compile(r"(?:\\[sntr]|[\s▁\[\]+*?^$|]|\{\d*,?\d*\})+")
"""A pattern that matches nothing but white space, wherever that is."""
QUOTES = {"``": '"', "''": '"'}
"""What the tokenizers of ALBERT and XLNet exchange."""
WRITTEN = re.compile(r"\\[ux]\{?[0-9a-fA-F]+\}?|\\.|\[(?:\\.|[^\]])*\]|\{\d*,?\d*\}")
"""Escapes, classes and counts of a pattern: what is left are the characters that it names."""


def check_parts(tokenizer: Any) -> None:
    """Refuse a tokenizer with a part that could write text, or change it by what is beside it.

    A tokenizer without such parts (written in Python, from vocabulary and merges) has none.

    Raises:
        ValidationError: names the file, the part and what it does.
    """
    where = file_of(tokenizer, "tokenizer.json")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    for kind in KNOWN if backend is not None else ():
        for part in _parts(getattr(backend, kind)):
            if problem := _problem(kind, part):
                words = json.dumps(part, ensure_ascii=False)
                raise ValidationError(
                    f"{RULE}: {where}: {kind} {words:.{2 * SHOWN}} {problem}. What a model reads "
                    "and writes must be the text itself: take this part out."
                )
    for token, content in _aliases(tokenizer, backend):
        raise ValidationError(
            f"{RULE}: {where}: the added token {content!r:.{SHOWN}} has the id of {token!r}: a "
            "prompt with one would be read as the other. Give it an id of its own."
        )
    dropout = getattr(getattr(backend, "model", None), "dropout", None)
    if dropout:
        raise ValidationError(
            f"{RULE}: {where}: model.dropout = {dropout}: the same prompt would be read in many "
            "ways. Set it to null."
        )


def _parts(component: Any) -> Iterator[Part]:
    if component is None:
        return
    try:
        waiting = [json.loads(component.__getstate__())]
    except Exception:  # a part that Python code was put into
        waiting = [{"type": type(component).__name__}]
    while waiting:
        part = waiting.pop(0)
        if part.get("type") == "Sequence":
            waiting = [*next((part[name] for name in LISTS if name in part), []), *waiting]
        else:
            yield part


def _problem(kind: str, part: Part) -> str:
    """What is wrong with a part; "" where nothing is."""
    name = part.get("type")
    if name not in KNOWN[kind]:
        return "is no part that is known to leave text alone"
    if name == "Replace":
        return _replacing(part, signs=kind == "normalizer")
    if name == "Prepend" and not BLANK.fullmatch(str(part["prepend"])):
        return "writes text of its own before every prompt"
    if kind == "decoder" and name == "Strip" and not BLANK.fullmatch(str(part["content"])):
        return "takes text away"
    if kind == "decoder" and name == "WordPiece" and re.search(r"\w", str(part["prefix"])):
        return "takes text away"
    if kind == "decoder" and name == "BPEDecoder" and re.fullmatch(r"\w*", str(part["suffix"])):
        return "takes text away"
    if name == "Metaspace" and re.match(r"\w", str(part["replacement"])):
        return "exchanges letters or digits for spaces"
    if name == "CharDelimiterSplit" and re.match(r"\w", str(part["delimiter"])):
        return "takes text away"
    if name == "Split":
        return _splitting(part)
    return ""


def _replacing(part: Part, signs: bool) -> str:
    """Replacing is honest within white space and, where ``signs``, from one sign to others."""
    literal, pattern = part["pattern"].get("String"), part["pattern"].get("Regex")
    content = str(part["content"])
    if literal is not None:
        blank = BLANK.fullmatch(literal) and BLANK.fullmatch(content)
        sign = len(literal) == 1 and not any(c.isalnum() for c in literal + content)
        honest = blank or QUOTES.get(literal) == content or (signs and sign)
        return "" if honest else "exchanges text"
    blank = BLANKS.fullmatch(str(pattern)) and BLANK.fullmatch(content)
    return "" if blank else "exchanges text that depends on what is beside it"


def _splitting(part: Part) -> str:
    pattern = part["pattern"].get("Regex")
    literals = part["pattern"].get("String") if pattern is None else WRITTEN.sub("", pattern)
    if re.search(r"\d", str(literals)):
        return "splits at certain numbers"
    removed = str(part["behavior"]).lower() == "removed"
    blank = BLANKS.fullmatch(pattern) if pattern is not None else BLANK.fullmatch(str(literals))
    return "takes text away" if removed and (part.get("invert") or not blank) else ""


def _aliases(tokenizer: Any, backend: Any) -> Iterator[tuple[str, str]]:
    """Added tokens whose id the vocabulary gives to another text: that text, and their own."""
    model = getattr(backend, "model", None)
    if model is None:
        return
    for i, token in tokenizer.added_tokens_decoder.items():
        word, content = model.id_to_token(i), str(token.content)
        if word in (None, content):
            continue
        text = backend.decoder.decode([word]) if backend.decoder else word
        if text.strip() != content.strip():
            yield word, content


CONTENTS = (
    "23+6=",
    "What is 12 + 34?",
    "7",
    "-17 * 4 - 3 = ",
    "1,234,567.89 + 0.5e-3",
    "one hundred and seven minus 8",
    "3/4 of 0x1f, 1_000 and 12%",
    "٣ + ５ − ½",
    "Sort: 10, 9, 8",
    "count a in banana ->",
    "[MAX 4 9 [MIN 2 7 ] 1 ]",
    "abc:12 def:7 ? def",
    '{"key": [1, 2.5, "x"], "y": null}',
    "def add(a, b):\n    return a + b\n\nassert add(2, 3) == 5",
    "If A is a knight then B is a knave. Who is B? (A) knight (B) knave",
    "Question: Is the capital of France Paris?\nAnswer with yes or no.",
    "Let $x^2 - 5x + 6 = 0$. Give the larger root in \\boxed{}.",
    "<b>Tom & Jerry</b> said: \"it's 5 o'clock\"",
    "naïve café, 東京 🙂 e\u0301",
    "  spaces before,\ttabs\tand lines behind \n\n",
    "word " * 40,
    "12345678901234567890" * 6,
    "The sum of 2 and 3 is 5. " * 60,
)
"""Digits, words, JSON, code, signs, other scripts; short and long."""
SYSTEM = "Add the two numbers. Answer with a number only."
ANSWER = "29"


def check_frame(
    tokenizer: Any, frame: str, thinking: str, prompts: Iterable[Sequence[Message]] = ()
) -> int:
    """The number of prompts that were rendered, all of them in frames of their own shape.

    Args:
        prompts: of tasks, besides :data:`CONTENTS` in every shape of messages that tasks use.

    Raises:
        ValidationError: a prompt's frame depends on its content, or the tokens spell another text.
    """
    check_parts(tokenizer)
    count = 0
    for messages in (*_trials(), *prompts):
        try:
            render(messages, frame, tokenizer, thinking)
        except ValidationError as error:
            if str(error).startswith(RULE):
                raise
            continue  # a shape that the template refuses: a task that uses it says so
        count += 1
    if frame == "chat":
        _check_closing(tokenizer, thinking)
    return count


def _trials() -> Iterable[list[Message]]:
    shapes = (
        ("user",),
        ("system", "user"),
        ("user", "assistant", "user"),
        ("system", "user", "assistant", "user", "assistant", "user"),
    )
    for content in CONTENTS:
        contents = {"system": SYSTEM, "user": content, "assistant": ANSWER}
        for shape in shapes:
            yield [{"role": role, "content": contents[role]} for role in shape]


def _check_closing(tokenizer: Any, thinking: str) -> None:
    """Refuse a template that ends an answer as the question, or the answer, would have it."""
    turns = [(question, answer) for question in CONTENTS[:4] for answer in ("answer", "it is 29")]
    texts = {closing(tokenizer, thinking, *turn) for turn in turns}
    if len(texts) > 1:
        raise ValidationError(
            f"{RULE}: {template_file(tokenizer)}: what it writes behind an answer depends on the "
            f"messages: {', '.join(sorted(repr(text)[:40] for text in texts))}. Write the same "
            "text behind every answer."
        )
