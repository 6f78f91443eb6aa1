"""A person's own file of answers: every accepted form, and every line that is refused."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.errors import ValidationError
from crlbench.suite.own_answers import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    Example,
    key_of,
    read_own,
    require_apart,
)
from crlbench.suite.pairs import HELD_OUT, held_out
from tests.support.own_files import pairs, write


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


ASK = say("user", "2+2=")
RULE = say("system", "Be short.")
TALK = [say("user", "Hello"), say("assistant", "Hi"), say("user", "2+2=")]
HH = "\n\nHuman: Hello\n\nAssistant: Hi\n\nHuman: 2+2="


@pytest.mark.parametrize(
    ("line", "messages", "answers"),
    [
        ({"prompt": "2+2=", "chosen": "4", "rejected": " 5"}, [ASK], ("4", " 5")),
        ({"prompt": [RULE, ASK], "chosen": [say("assistant", "4")],
          "rejected": [say("assistant", "5")]}, [RULE, ASK], ("4", "5")),
        ({"prompt": "2+2=", "chosen": [ASK, say("assistant", "4")],
          "rejected": [ASK, say("assistant", "5")], "score_chosen": 9.5}, [ASK], ("4", "5")),
        ({"prompt": "2+2=", "chosen": [RULE, ASK, say("assistant", "4")],
          "rejected": [RULE, ASK, say("assistant", "5")]}, [RULE, ASK], ("4", "5")),
        ({"chosen": [*TALK, say("assistant", "4")], "rejected": [*TALK, say("assistant", "5")]},
         TALK, ("4", "5")),
        ({"messages": TALK, "chosen": "4", "rejected": "5"}, TALK, ("4", "5")),
        ({"chosen": f"{HH}\n\nAssistant: 4", "rejected": f"{HH}\n\nAssistant: 5"},
         TALK, ("4", "5")),
        ({"prompt": f"{HH}\n\nAssistant:", "chosen": " 4", "rejected": " 5"}, TALK, (" 4", " 5")),
        ({"prompt": "2+2=", "completion": "4", "id": 7}, [ASK], ("4",)),
        ({"prompt": [ASK], "completion": [say("assistant", "4")]}, [ASK], ("4",)),
        ({"messages": [RULE, *TALK, say("assistant", "4")]}, [RULE, *TALK], ("4",)),
    ],
)  # fmt: skip
def test_a_form_is_read(
    tmp_path: Path, line: dict[str, Any], messages: list[Any], answers: tuple[str, ...]
) -> None:
    own = read_own(write(tmp_path / "own.jsonl", [b"", line, b"  "]))
    assert own.examples == (Example(2, tuple(messages), answers),)
    assert own.holds == ("pairs" if len(answers) == 2 else "demonstrations")


GOOD = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{prompt: 1}", "not valid JSON"),
        (b'{"prompt": "\xff"}', r"not UTF-8 text \(byte 12\)"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"prompt": "\\ud800", "chosen": "a", "rejected": "b"}', "half a character"),
        (b'{"prompt": "1", "prompt": "2"}', "'prompt' stands twice"),
        (b'"text"', "is no JSON object"),
        (b'{"x": "' + b"y" * MAX_LINE_BYTES + b'"}', f"at most {MAX_LINE_BYTES}. Perhaps a line"),
        ({"question": "1", "answer": "2"}, "lacks fields: it has answer, question. Accepted are "
         r"prompt \+ chosen \+ rejected; messages \+ chosen"),
        ({"prompt": "1", "completion": "2"}, r"has the fields prompt \+ completion, and line 1"),
        ({"prompt": "4", "chosen": " ", "rejected": "5"}, "chosen is empty"),
        ({"prompt": "4", "chosen": "5", "rejected": ""}, "rejected is empty"),
        ({"prompt": " \n", "chosen": "4", "rejected": "5"}, "its prompt is empty"),
        ({"prompt": "4", "chosen": "5", "rejected": "5"}, "chosen and rejected are equal"),
        (GOOD, "says what line 1 says"),
        ({"prompt": 4, "chosen": "4", "rejected": "5"}, "prompt is neither a text nor a list"),
        ({"prompt": "4", "chosen": None, "rejected": "5"}, "chosen is neither a text nor a list"),
        ({"prompt": [], "chosen": "4", "rejected": "5"}, "prompt is neither a text nor a list"),
        ({"prompt": [{"from": "human", "value": "4"}], "chosen": "4", "rejected": "5"},
         "a message has a role and a content"),
        ({"prompt": [say("tool", "4")], "chosen": "4", "rejected": "5"}, "the role 'tool' is none"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}], "chosen": "4",
          "rejected": "5"}, "is no text. Only text"),
        ({"prompt": [ASK, say("assistant", "4")], "chosen": "4", "rejected": "5"},
         "does not end with what a user says"),
        ({"prompt": [ASK, RULE, ASK], "chosen": "4", "rejected": "5"}, "not the first one"),
        ({"prompt": "3+3=", "chosen": [ASK, say("assistant", "4")], "rejected": "5"},
         "chosen has other messages before the answer than the prompt"),
        ({"prompt": "2+2=", "chosen": [ASK], "rejected": "5"},
         "chosen does not end with what the assistant says"),
    ],
)  # fmt: skip
def test_a_line_is_refused_with_its_number_and_what_to_do(
    tmp_path: Path, line: dict[str, Any] | bytes, reason: str
) -> None:
    path = write(tmp_path / "own.jsonl", [GOOD, b"", line])
    with pytest.raises(ValidationError, match=f"(?s)1 of its 2 lines.*  line 3: .*{reason}"):
        read_own(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"chosen": "4", "rejected": "5"}, "chosen is no dialogue of Human and Assistant"),
        ({"chosen": f"{HH}\n\nAssistant: 4", "rejected": f"{HH}?\n\nAssistant: 5"},
         "differ before their last answer"),
        ({"chosen": "\n\nHuman: a\n\nHuman: b\n\nAssistant: 4", "rejected": "5"},
         "Human begins and the two take turns"),
        ({"chosen": f"{HH}\n\nAssistant: ", "rejected": f"{HH}\n\nAssistant: 5"},
         "chosen is empty"),
        ({"messages": [ASK]}, "does not end with what the assistant says"),
        ({"messages": [say("assistant", "4")]}, "does not end with what a user says"),
    ],
)  # fmt: skip
def test_a_dialogue_is_refused_where_no_prompt_can_be_told(
    tmp_path: Path, line: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=f"line 1: .*{reason}"):
        read_own(write(tmp_path / "own.jsonl", [line]))


def test_the_advice_leaves_out_every_bad_line(tmp_path: Path) -> None:
    bad = [{"prompt": "4", "chosen": str(number), "rejected": ""} for number in range(9)]
    path = write(tmp_path / "it's own.jsonl", [GOOD, *bad, GOOD | {"prompt": "1+2="}])
    with pytest.raises(ValidationError) as refusal:
        read_own(path)
    text = str(refusal.value)
    assert "9 of its 11 lines" in text and "and 4 more" in text and "line 7" not in text
    command = re.search(r"leave them out: (sed .*) > fewer.jsonl", text)
    assert command is not None
    fewer = subprocess.run(command[1], shell=True, capture_output=True, check=True).stdout  # noqa: S602
    assert len(read_own(write(tmp_path / "fewer.jsonl", fewer.splitlines())).examples) == 2


def test_a_file_is_refused_whole_where_no_line_is_to_blame(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    for data, reason in (
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b'[\n {"prompt": "1"}\n]', "is one JSON list"),
        (b'[["1", "2"]]', "is one JSON list"),
        (gzip.compress(b"{}"), "not UTF-8|not valid JSON"),
    ):
        path.write_bytes(data)
        with pytest.raises(ValidationError, match=reason):
            read_own(path)
    with pytest.raises(ValidationError, match="Is a directory"):
        read_own(tmp_path)
    with pytest.raises(ValidationError, match="No such file"):
        read_own(tmp_path / "other.jsonl")


def test_two_lines_may_disagree(tmp_path: Path) -> None:
    other = GOOD | {"chosen": GOOD["rejected"], "rejected": GOOD["chosen"]}
    assert len(read_own(write(tmp_path / "own.jsonl", [GOOD, other])).examples) == 2


def test_fewer_pairs_than_teach_anything_are_refused(tmp_path: Path) -> None:
    assert read_own(write(tmp_path / "enough.jsonl", pairs(64))).require_pairs().pairs()
    with pytest.raises(ValidationError, match="holds 63 pairs, and 64 are the fewest"):
        read_own(write(tmp_path / "few.jsonl", pairs(63))).require_pairs()


def test_no_prompt_is_learned_from_and_evaluated_on(tmp_path: Path) -> None:
    task = Catalog().load_task("addition")
    lines = pairs(3)
    require_apart(read_own(write(tmp_path / "apart.jsonl", lines)), [task])
    for split in ("id", "hard", "format"):
        text = task.rows(split)[5]["messages"][-1]["content"]
        shared = {"prompt": f" {text.upper()} ", "chosen": "1", "rejected": "2"}
        path = write(tmp_path / f"{split}.jsonl", [*lines, shared])
        named = f"line 4: its prompt is that of addition/{split}/{split}-00005"
        with pytest.raises(ValidationError, match=named):
            require_apart(read_own(path), [task])


@pytest.mark.parametrize(
    "hidden",
    ["{}\u200b", "\u2060{}", "{}\u00a0", "spaced", "wide", "talk"],
)
def test_an_evaluated_prompt_is_found_in_other_clothes(tmp_path: Path, hidden: str) -> None:
    """Characters that nobody sees, other widths, and a conversation that ends in it."""
    task = Catalog().load_task("addition")
    text = task.rows("id")[5]["messages"][-1]["content"]
    prompt: object = {
        "spaced": " ".join(text),
        "wide": "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in text),
        "talk": [say("user", "hi"), say("assistant", "hello"), say("user", text)],
    }.get(hidden, hidden.format(text))
    shared = {"prompt": prompt, "chosen": "1", "rejected": "2"}
    path = write(tmp_path / "own.jsonl", [*pairs(3), shared])
    with pytest.raises(ValidationError, match="line 4: its prompt is that of addition/id/id-00005"):
        require_apart(read_own(path), [task])


def test_prompts_of_the_retain_panel_are_evaluated_too(tmp_path: Path) -> None:
    (member,) = find_panel(Catalog().roots).choose(["arithmetic"])
    shared = {"prompt": member.items[0].prompt, "chosen": "1", "rejected": "2"}
    own = read_own(write(tmp_path / "own.jsonl", [*pairs(3), shared]))
    require_apart(own, [])
    with pytest.raises(ValidationError, match="line 4: .* retain/arithmetic/"):
        require_apart(own, [], [member])


def test_a_judged_answer_is_not_imitated(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}?", "completion": "1", "label": bool(n % 2)} for n in range(3)]
    with pytest.raises(ValidationError, match="line 1: has a label .*without the field label"):
        read_own(write(tmp_path / "own.jsonl", rows))


@pytest.mark.parametrize(
    ("data", "said"),
    [("{}".encode("utf-16"), "is UTF-16"), (b'{"a": 1}\r{"a": 2}\r', "carriage return alone")],
)
def test_what_an_editor_wrote_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(data)
    with pytest.raises(ValidationError, match=said):
        read_own(path)


def test_prompts_are_equal_where_users_say_the_same() -> None:
    assert key_of([RULE, say("user", "What  IS\n2?")]) == key_of([say("user", "what is 2?")])
    assert key_of(TALK) != key_of(TALK[2:])  # type: ignore[arg-type]


def test_held_out_pairs_are_about_other_prompts(tmp_path: Path) -> None:
    lines = [line | {"rejected": wrong} for line in pairs(40) for wrong in ("x", "y")]
    parts = held_out(read_own(write(tmp_path / "own.jsonl", lines)).pairs(), seed=3)
    keys = {split: {pair["key"] for pair in part} for split, part in parts.items()}
    assert len(keys["id"]) == 40 // HELD_OUT and not keys["id"] & keys["train"]
    assert sum(map(len, parts.values())) == 80


@pytest.mark.parametrize(
    ("suffix", "pack", "unpack"),
    [(".zst", zstandard.compress, "zstd -dc"), (".gz", gzip.compress, "gzip -dc")],
)
def test_a_compressed_file_is_the_same_file(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], unpack: str
) -> None:
    plain = write(tmp_path / "own.jsonl", [GOOD])
    packed = tmp_path / f"own.jsonl{suffix}"
    packed.write_bytes(pack(plain.read_bytes()))
    assert read_own(packed).sha256 == read_own(plain).sha256
    assert read_own(packed).examples == read_own(plain).examples
    bad = write(tmp_path / "bad.jsonl", [GOOD, GOOD])
    packed.write_bytes(pack(bad.read_bytes()))
    with pytest.raises(ValidationError, match=rf"{unpack} {packed} \| sed '2d' > fewer.jsonl"):
        read_own(packed)
    packed.write_bytes(packed.read_bytes()[:-4])
    with pytest.raises(ValidationError, match=f"{packed}: cannot be unpacked"):
        read_own(packed)
    packed.write_bytes(b"no archive")
    with pytest.raises(ValidationError, match=f"{packed}: cannot be unpacked"):
        read_own(packed)


@pytest.mark.slow
def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    for suffix, pack in ((".zst", zstandard.compress), (".gz", gzip.compress)):
        path = tmp_path / f"bomb.jsonl{suffix}"
        path.write_bytes(pack(bytes(MAX_FILE_BYTES + 1)))
        with pytest.raises(ValidationError, match="unpacks to more than"):
            read_own(path)


def test_two_frozen_pairs_may_say_the_same(tmp_path: Path) -> None:
    pair = {"messages": [ASK], "chosen": "2", "rejected": "3", "level": 1, "key": "k", "meta": {}}
    lines = [pair | {"id": f"pairs_train-{number:05d}"} for number in (0, 1, 1)]
    assert len(read_own(write(tmp_path / "two.jsonl", lines[:2])).examples) == 2
    with pytest.raises(ValidationError, match="line 3: says what line 2 says"):
        read_own(write(tmp_path / "three.jsonl", lines))
