"""Which text of a reply counts as its answer, by both readings of the rule."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.reward.answers import boxes, is_blank, last_filled, outside_thoughts, tags
from crlbench.reward.answers_audit import (
    boxed_pieces,
    breaks_off,
    says_nothing,
    spoken,
    tagged_pieces,
)

REPLIES = [
    ("no thought", "no thought"),
    ("<think>a</think>b", "b"),
    ("<think>a<think>b</think>c", "c"),
    ("<think>a<think>b</think>c</think>d", "d"),
    ("a<think>b</think>c", "ac"),
    ("a</think>b", "b"),
    ("a</think>", ""),
    ("a</think>b</think>c", "c"),
    ("<think>a", ""),
    ("a<think>b", ""),
    ("<think>a</think>b<think>c", ""),
    ("<think>a</thinking>b", "b"),
    ("<Reasoning>a</REASONING>b", "b"),
    ("<answer><think>a</think>b</answer>", "<answer>b</answer>"),
    ("[THINK]a[/THINK]b", "b"),
    ("\u25c1think\u25b7a\u25c1/think\u25b7b", "b"),
    ("<|begin_of_thought|>a<|end_of_thought|>b", "b"),
    ("<|START_THINKING|>a<|END_THINKING|>b", "b"),
    ("<seed:think>a</seed:think>b", "b"),
    ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "b"),
    ("<|channel|>analysis<|message|>a<|end|>", ""),
    ("<|channel|>commentary<|message|>a<|channel|>final<|message|>b<|return|>", "b"),
    ("analysisaassistantfinalb", "b"),
    ("b<|im_end|>\n", "b"),
    ("b</s>", "b"),
    ("I think it is <b>b</b>", "I think it is <b>b</b>"),
    ("x < think > y", "x < think > y"),
    ("<think >a</think >b", "b"),
    ('<think budget="9">a</ think>b', "b"),
    ("<|think|>a<|/think|>b", "b"),
    ("<analysis>a</analysis>b", "b"),
    ("<rationale>a</rationale>b", "b"),
    ("<inner_monologue>a</inner_monologue>b", "b"),
    ("<analyst>a</analyst>", "<analyst>a</analyst>"),
    ("my <thinker>b", "my <thinker>b"),
    ("", ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "answer"), REPLIES)
@pytest.mark.parametrize("read", [outside_thoughts, spoken])
def test_a_thought_is_no_answer(read, text: str, answer: str) -> None:
    assert read(text).strip() == answer


MARKS = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<Thinking>",
        "</THOUGHT>",
        "[THINK]",
        "[/think]",
        "<answer>",
        "a",
        "\n",
    ]
    + ["</answer>", "<|channel|>", "final", "<|message|>", "<|channel|>final", "assistantfinal"]
    + ["<|end_of_thought|>", "<", "/think>", "</s>", " ", "\u25c1think\u25b7", "<seed:think>"]
    + ["<think >", "<|think|>", "<|/cot|>", '<analysis a="b">', "</ think>", "<think", ">", "|"]
)


@pytest.mark.slow
@given(st.lists(MARKS, max_size=12).map("".join))
def test_both_readings_find_the_same_text(text: str) -> None:
    assert outside_thoughts(text).strip() == spoken(text).strip()


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{1} \boxed{}", "1"),
        (r"\boxed{1} \boxed{...} \boxed{\text{}}", "1"),
        (r"\boxed{1} \boxed{answer}", "1"),
        (r"\boxed{\boxed{1}}", "1"),
        (r"\boxed {\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{1}", "1"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{1} \boxed{2", ""),
        (r"\boxed{}", ""),
        ("boxed{1}", ""),
    ],
)
def test_the_last_box_with_content_counts(text: str, content: str) -> None:
    assert last_filled(boxes(text)) == content
    pieces = [] if breaks_off(text) else boxed_pieces(text)
    filled = [one for _, one in pieces if one and not says_nothing(one)]
    assert (filled or [""])[-1] == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>1</answer><answer>2</answer>", "2"),
        ("<answer>1</answer> <answer> </answer>", "1"),
        ("between <answer> and </answer>: <answer>1</answer>", "1"),
        ("<answer>1</answer> between <answer> and </answer>", "1"),
        ("<ANSWER>1</Answer>", "1"),
        ("<answer>a < b</answer>", "a < b"),
        ("<answer>1", ""),
    ],
)
def test_the_last_tag_with_content_counts(text: str, content: str) -> None:
    assert last_filled(tags(text)) == content
    filled = [one for _, one in tagged_pieces(text) if one and not says_nothing(one)]
    assert (filled or [""])[-1] == content


@pytest.mark.parametrize(
    "content", ["", " ", "...", r"\ldots", "?", "your answer", r"\text{ }", "~"]
)
def test_what_shows_a_marker_is_no_content(content: str) -> None:
    assert is_blank(content) and says_nothing(content)


@pytest.mark.parametrize("content", ["0", "x", "Yes", r"\emptyset", "-", "the answers", r"\infty"])
def test_an_answer_is_content(content: str) -> None:
    assert not is_blank(content) and not says_nothing(content)


@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", r"\boxed{", "{", "<answer>", "<answer><", "</s>", "the ", "\\"]
)
def test_no_long_reply_takes_long(piece: str) -> None:
    text = piece * 20_000
    start = time.process_time()
    for read in (outside_thoughts, spoken, boxes, boxed_pieces, tags, tagged_pieces, breaks_off):
        read(text)
    assert time.process_time() - start < 2.0
