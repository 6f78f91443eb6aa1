"""IFEval from the real prompts: both judges on texts built to follow them, and broken again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from tests.support.external_data import fetched, needs_data

pytestmark = needs_data

UNBUILT = {
    "language:response_language": "the tests write English",
    "combination:repeat_prompt": "the request decides what else can be kept",
}
"""Kinds that no text is built for, and why."""
Needs = dict[str, Mapping[str, Any]]


def ifeval() -> Task:
    return fetched("ifeval")


def rows() -> list[Row]:
    return ifeval().rows("id") + ifeval().rows("hard")


def needs(row: Row) -> Needs:
    """The arguments of a row by the kind of instruction."""
    given = json.loads(row["answer"])
    return dict(zip(given["instructions"], given["arguments"], strict=True))


def words(count: int, letters: str) -> list[str]:
    """Different made-up words without the letters that are to be avoided."""
    alphabet = [c for c in "abdefhiklmnoprstuvw" if c not in letters]
    base = len(alphabet)
    return [
        "".join(alphabet[(i // base**k + 3 * k) % base] for k in range(4)) for i in range(count)
    ]


def built(row: Row) -> str | None:
    """A text that follows all instructions of a row; None where these rules build none."""
    asked = needs(row)
    if asked.keys() & UNBUILT.keys() or "detectable_format:json_format" in asked:
        return None if asked.keys() != {"detectable_format:json_format"} else '{"a": [1, 2]}'
    avoided = rare_letters(asked)
    count = word_count(asked)
    body = words(count, avoided)
    sentences = asked.get("length_constraints:number_sentences")
    closed = 1
    if sentences and sentences["relation"] == "at least":
        closed = sentences["num_sentences"] + 1
        body += words(max(0, 3 * closed - len(body)), avoided)
    text = told(body, closed)
    text = " ".join(part for part in (text, extras(asked)) if part)
    text = framed(text, asked)
    if "change_case:english_capital" in asked:
        text = text.upper()
    if "change_case:english_lowercase" in asked:
        text = text.lower()
    return f'"{text}"' if "startend:quotation" in asked else text


def rare_letters(asked: Needs) -> str:
    letters = asked.get("keywords:letter_frequency", {})
    return letters["letter"] if letters.get("let_relation") == "less than" else ""


def word_count(asked: Needs) -> int:
    number = asked.get("length_constraints:number_words")
    if number is None:
        return 6
    return number["num_words"] + 5 if number["relation"] == "at least" else 3


def told(body: list[str], sentences: int) -> str:
    """The words in so many sentences."""
    size = len(body) // sentences
    parts = [body[i * size : (i + 1) * size] for i in range(sentences - 1)]
    parts.append(body[(sentences - 1) * size :])
    return " ".join(f"{' '.join(part).capitalize()}." for part in parts)


def extras(asked: Needs) -> str:
    """Words, marks and lines that single instructions want."""
    found: list[str] = []
    found += asked.get("keywords:existence", {}).get("keywords", [])
    often = asked.get("keywords:frequency")
    if often and often["relation"] == "at least":
        found += [often["keyword"]] * often["frequency"]
    letter = asked.get("keywords:letter_frequency")
    if letter and letter["let_relation"] == "at least":
        found.append(letter["letter"] * letter["let_frequency"])
    capital = asked.get("change_case:capital_word_frequency")
    if capital and capital["capital_relation"] == "at least":
        found += ["NO"] * capital["capital_frequency"]
    places = asked.get("detectable_content:number_placeholders")
    if places:
        found += ["[a]"] * places["num_placeholders"]
    if "detectable_format:constrained_response" in asked:
        found.append("My answer is no.")
    return " ".join(found)


def framed(text: str, asked: Needs) -> str:
    """The lines and parts around the text."""
    lines = [text]
    sections = asked.get("detectable_format:multiple_sections")
    if sections:
        label = sections["section_spliter"]
        lines += [f"{label} {i + 1}" for i in range(sections["num_sections"])]
    marked = asked.get("detectable_format:number_highlighted_sections")
    if marked:
        lines += ["so *do* it"] * marked["num_highlights"]
    points = asked.get("detectable_format:number_bullet_lists")
    if points:
        lines += ["- so do"] * points["num_bullets"]
    if "detectable_format:title" in asked:
        lines.insert(0, "<<so>>")
    if "combination:two_responses" in asked:
        lines += ["******", "so do"]
    parts = asked.get("length_constraints:number_paragraphs")
    if parts:
        lines += ["***\nso"] * (parts["num_paragraphs"] - 1)
    if "detectable_content:postscript" in asked:
        lines.append(f"{asked['detectable_content:postscript']['postscript_marker']} so")
    ends = asked.get("startend:end_checker")
    if ends:
        lines.append(ends["end_phrase"])
    first = asked.get("length_constraints:nth_paragraph_first_word")
    if first:
        own = ["so do"] * first["num_paragraphs"]
        own[first["nth_paragraph"] - 1] = f"{first['first_word']} {' '.join(lines)}"
        return "\n\n".join(own)
    return "\n".join(lines)


def test_the_set_is_whole() -> None:
    assert len(rows()) == 541
    assert Counter(row["level"] for row in rows()) == {1: 305, 2: 179, 3: 57}
    assert sum(len(json.loads(row["answer"])["instructions"]) for row in rows()) == 834
    assert all([m["role"] for m in row["messages"]] == ["user"] for row in rows())
    assert not ifeval().card.golds


def test_texts_built_for_the_prompts_are_paid_by_both_judges() -> None:
    task = ifeval()
    texts = [(row, text) for row in rows() if (text := built(row)) is not None]
    paid = [(row, text) for row, text in texts if task.verify(text, row["answer"]) == 1.0]
    assert len(texts) >= 440
    assert len(paid) >= 0.95 * len(texts), "the rest has two instructions of one kind"
    covered = {kind for row, _ in paid for kind in needs(row)}
    assert len(covered) == 25 - len(UNBUILT)
    agreed = sum(task.audit(text, row["answer"]) for row, text in paid)
    assert agreed >= 0.99 * len(paid)


@pytest.mark.slow
def test_both_judges_agree_on_built_texts_of_other_prompts() -> None:
    """Texts that keep their own prompt's instructions and some, by chance, of another's."""
    task = ifeval()
    own = rows()
    texts = [text for row in own[::9] if (text := built(row)) is not None]
    cases = [(text, row["answer"]) for text in texts for row in own[::3]]
    same = sum(task.verify(*case) == task.audit(*case) for case in cases)
    assert len(cases) > 5000
    assert same >= 0.99 * len(cases)


@pytest.mark.parametrize(
    ("kind", "breaks"),
    [
        ("punctuation:no_comma", lambda text: text.replace(" ", ", ", 1)),
        ("startend:quotation", lambda text: text[1:]),
        ("detectable_format:title", lambda text: text.replace("<<", "<")),
        ("detectable_format:number_bullet_lists", lambda text: f"{text}\n- so"),
        ("detectable_format:constrained_response", lambda text: text.replace("is no", "was no")),
        ("detectable_format:json_format", lambda text: text[:-1]),
        ("detectable_content:postscript", lambda text: text.lower().replace("p", "q")),
        ("detectable_content:number_placeholders", lambda text: text.replace("[a]", "[a", 1)),
        ("combination:two_responses", lambda text: text.replace("******", "*****")),
        ("change_case:english_lowercase", lambda text: text.title()),
        ("change_case:english_capital", lambda text: text.title()),
        ("length_constraints:number_paragraphs", lambda text: f"{text}\n***\nmore"),
        ("startend:end_checker", lambda text: f"{text} more"),
        ("keywords:existence", lambda text: "".join(c for c in text if c not in "aeiouAEIOU")),
    ],
)
def test_a_text_that_breaks_its_instruction_is_paid_by_neither(kind: str, breaks: Any) -> None:
    task = ifeval()
    tried = 0
    for row in rows():
        text = built(row) if kind in needs(row) else None
        if text is not None and task.verify(text, row["answer"]) == 1.0:
            tried += 1
            broken = breaks(text)
            assert task.verify(broken, row["answer"]) == 0.0, (row["id"], broken)
            assert task.audit(broken, row["answer"]) == 0.0, (row["id"], broken)
    assert tried >= 5


def test_a_long_text_of_few_words_is_paid_and_its_audit_is_not() -> None:
    task = ifeval()
    row = next(r for r in rows() if needs(r).keys() == {"punctuation:no_comma"})
    text = "so it goes " * 100
    assert task.verify(text, row["answer"]) == 1.0
    assert task.audit(text, row["answer"]) == 0.0


def test_no_blank_text_follows_anything() -> None:
    task = ifeval()
    for text in ("", " \n\t"):
        assert not any(task.verify(text, row["answer"]) for row in rows())
        assert not any(task.audit(text, row["answer"]) for row in rows())
