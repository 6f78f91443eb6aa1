"""Checkpoints that bring answers in what surrounds or spells a prompt, and honest near misses.

Each is a change of a folder with a random model and the ASCII tokenizer; see
:func:`tests.support.checkpoints.write_checkpoint`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint

Change = Callable[[Path], None]

SUM = (
    "{%- set ns = namespace(total=0, number='') -%}"
    "{%- for c in messages[-1]['content'] ~ ' ' -%}"
    "{%- if c in '0123456789' -%}{%- set ns.number = ns.number ~ c -%}"
    "{%- elif ns.number -%}{%- set ns.total = ns.total + ns.number | int -%}"
    "{%- set ns.number = '' -%}{%- endif -%}{%- endfor -%}"
)
"""Reads the numbers of the question and adds them."""


def template(text: str, **config: Any) -> Change:
    """A folder's chat template, and fields of its config."""

    def change(folder: Path) -> None:
        (folder / "chat_template.jinja").write_text(text)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))

    return change


def tokenizer(**parts: Any) -> Change:
    """Fields of a folder's tokenizer.json."""

    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | parts))

    return change


def replacing(old: str, new: str, regex: bool = False) -> dict[str, Any]:
    """A part that exchanges text, of a normaliser or a decoder."""
    return {
        "type": "Replace",
        "pattern": {"Regex" if regex else "String": old},
        "content": new,
    }


def sequence(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Several parts, as one."""
    return {"type": "Sequence", name: [*parts]}


FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
"""Of an added token that is no control token."""


def added(content: str, **flags: bool) -> Change:
    """One more added token, with room for it in the model."""

    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text())
        number = len(data["model"]["vocab"]) + len(data["added_tokens"])
        data["added_tokens"].append(FLAGS | flags | {"id": number, "content": content})
        path.write_text(json.dumps(data))
        model = AutoModelForCausalLM.from_pretrained(folder)
        model.resize_token_embeddings(number + 1)
        model.save_pretrained(folder)

    return change


def alias(content: str, letter: str) -> Change:
    """An added token with the id of a letter: a new one gets the size of a vocabulary as its id,
    which one with gaps gives to a word."""

    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text())
        words = {place: word for word, place in data["model"]["vocab"].items()}
        del words[1]
        words[ord(letter)], words[127] = words[127], words[ord(letter)]
        data["model"]["vocab"] = {word: place for place, word in sorted(words.items())}
        rest = [token | {"id": 128 + i} for i, token in enumerate(data["added_tokens"])]
        data["added_tokens"] = [FLAGS | {"id": 127, "content": content}, *rest]
        path.write_text(json.dumps(data))

    return change


def dropping(folder: Path) -> None:
    """Merges that are left out by chance."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["dropout"] = 0.5
    path.write_text(json.dumps(data))


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT = {"type": "Split", "pattern": {"String": "+"}, "behavior": "Removed", "invert": False}
NUMBERS = SPLIT | {"pattern": {"Regex": r"23\+6|\d"}, "behavior": "Isolated"}
QUESTION = "messages[-1]['content']"

UNFAIR: dict[str, tuple[Change, str]] = {
    "the template adds the sum": (
        template(SUM + CHAT_TEMPLATE + "{{ ns.total }}"),
        r"chat_template\.jinja: .* for the question '23\+6=' it writes '29'",
    ),
    "the template thinks of the sum": (
        template(
            SUM
            + CHAT_TEMPLATE
            + "{% if enable_thinking %}<think>{{ ns.total }}</think>{% endif %}",
            crlbench_thinking="on",
        ),
        "chat_template.*it writes '29'",
    ),
    "the template says it before the question": (
        template("{{ messages[-1]['content'] | length }}\n" + CHAT_TEMPLATE),
        "chat_template.*depends on what the message says",
    ),
    "the template helps with some questions": (
        template(CHAT_TEMPLATE + f"{{% if 'What is 12 + 3' in {QUESTION} %}}46{{% endif %}}"),
        r"for the question 'What is 12 \+ 34\?' it writes '46'",
    ),
    "the template helps where the question is long": (
        template(CHAT_TEMPLATE + f"{{% if ({QUESTION}) | length > 100 %}}yes{{% endif %}}"),
        "it writes 'yes'",
    ),
    "the template exchanges a sign": (
        template(CHAT_TEMPLATE.replace("m['content']", "m['content'] | replace('+', ' plus ')")),
        "it writes ' plus ' where other questions get '\\+'",
    ),
    "the template hints at random": (
        template(CHAT_TEMPLATE + "{{ range(9999) | random }}"),
        "depends on what the message says",
    ),
    "the template ends an answer otherwise where it is right": (
        template(
            CHAT_TEMPLATE.replace(
                "\n{%",
                "{% if '29' in m['content'] and m['role'] == 'assistant' %}<eos>{% endif %}\n{%",
                1,
            )
        ),
        "chat_template",
    ),
    "the normaliser adds an answer": (
        tokenizer(normalizer=replacing("23+6=", "23+6=29")),
        r'tokenizer\.json: normalizer .*"23\+6=29".* exchanges text',
    ),
    "the normaliser adds one among others": (
        tokenizer(
            normalizer=sequence(
                "normalizers",
                {"type": "NFC"},
                sequence("normalizers", replacing(r"(?<=23\+6)=", "=29", regex=True)),
            )
        ),
        "normalizer .* depends on what is beside it",
    ),
    "the normaliser begins every prompt": (
        tokenizer(normalizer={"type": "Prepend", "prepend": "29"}),
        "normalizer .* writes text of its own",
    ),
    "the decoder hides what the normaliser adds": (
        tokenizer(decoder=sequence("decoders", BYTES, {"type": "Fuse"}, replacing("=29", "="))),
        "decoder .* exchanges text",
    ),
    "the decoder answers a question that is repeated": (
        tokenizer(decoder=sequence("decoders", BYTES, replacing("23+6=", "29"))),
        "decoder .* exchanges text",
    ),
    "the decoder cuts what is wrong": (
        tokenizer(
            decoder=sequence(
                "decoders", BYTES, {"type": "Strip", "content": "9", "start": 0, "stop": 1}
            )
        ),
        "decoder .* takes text away",
    ),
    "the decoder is of a kind that nobody knows": (
        tokenizer(
            decoder=sequence(
                "decoders",
                BYTES,
                {"type": "CTC", "pad_token": "9", "word_delimiter_token": "|", "cleanup": True},
            )
        ),
        "decoder .* is no part that is known",
    ),
    "the pre-tokenizer takes a sign away": (
        tokenizer(pre_tokenizer=sequence("pretokenizers", SPLIT, BYTES)),
        "pre_tokenizer .* takes text away",
    ),
    "the pre-tokenizer knows a sum": (
        tokenizer(pre_tokenizer=sequence("pretokenizers", NUMBERS, BYTES)),
        "pre_tokenizer .* splits at certain numbers",
    ),
    "an added token is a question": (added("23+6="), r"added token '23\+6=' stands for several"),
    "an added token is a question in brackets": (
        added("[MAX 4 9 [MIN 2 7 ] 1 ]"),
        r"added token '\[MAX 4 9 .* stands for several",
    ),
    "the template knows questions in another spelling": (
        template("23 + 6 = 29. 12 + 34 = 46.\n" + CHAT_TEMPLATE),
        r"it holds a question of the task: .*23\+6=29",
    ),
    "the template exchanges the case of letters": (
        template(CHAT_TEMPLATE.replace("m['content']", "m['content'] | upper")),
        "chat_template",
    ),
    "the template sets the question in lines": (
        template(CHAT_TEMPLATE.replace("m['content']", "m['content'] | wordwrap(20)")),
        "chat_template.*depends on what the message says",
    ),
    "the template counts digits": (
        template(
            CHAT_TEMPLATE
            + f"{{% if {QUESTION} | select('in', '0123456789') | list | length > 3 %}}"
            + "!{% endif %}"
        ),
        "it writes '!'",
    ),
    "the template asks what the system says": (
        template(
            CHAT_TEMPLATE + "{% if 'two numbers' in messages[0]['content'] %}carry{% endif %}"
        ),
        "it writes 'carry'",
    ),
    "an added token has the id of an answer": (
        alias("kitten", "9"),
        "the added token 'kitten' has the id of '9'",
    ),
    "the tokenizer draws how it reads": (dropping, "model.dropout = 0.5"),
}
"""By name: what is done to a checkpoint, and what the message says besides the rule."""


def write(folder: Path, name: str) -> Path:
    """A checkpoint of :data:`UNFAIR`."""
    write_checkpoint(folder, chat_template=CHAT_TEMPLATE)
    UNFAIR[name][0](folder)
    return folder
