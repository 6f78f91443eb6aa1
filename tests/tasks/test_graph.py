"""Graph reachability: items solved again from their texts, and what is paid for."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.rows import Row

TASK = Catalog().load_task("graph")
REACH, DISTANCE = "b,c,f", "c=2,f=1,h=3"


def edges_of(row: Row) -> list[tuple[str, str]]:
    return re.findall(r"(\w)->(\w)", row["messages"][-1]["content"])


def start_of(row: Row) -> str:
    return re.findall(r"from (\w)\b", row["messages"][-1]["content"])[0]


def all_lengths(edges: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Shortest paths between all pairs of nodes, by Floyd and Warshall's algorithm."""
    nodes = sorted({node for edge in edges for node in edge})
    far = len(nodes)
    lengths = {(a, b): 0 if a == b else far for a in nodes for b in nodes}
    lengths |= dict.fromkeys(edges, 1)
    for via in nodes:
        for a in nodes:
            for b in nodes:
                lengths[a, b] = min(lengths[a, b], lengths[a, via] + lengths[via, b])
    return {pair: length for pair, length in lengths.items() if 0 < length < far}


def solved(row: Row) -> str:
    text = row["messages"][-1]["content"]
    start, lengths = start_of(row), all_lengths(edges_of(row))
    semicolons, angles = row["template"] == 5, row["template"] == 4
    if row["meta"]["asks"] == "reach":
        parts = sorted(b for a, b in lengths if a == start)
    else:
        (asked,) = re.findall(r"(\w), (\w) and (\w)\b", text)
        link = ":" if semicolons else "="
        parts = [f"{node}{link}{lengths[start, node]}" for node in asked]
    answer = (";" if semicolons else ",").join(parts)
    return f"<{answer}>" if angles else answer


@pytest.mark.parametrize("split", ["train", "id", "hard", "format"])
def test_every_answer_is_found_again(split: str) -> None:
    for row in TASK.rows(split):
        assert solved(row) == row["answer"], row["id"]


def reached_in(row: Row, steps: int) -> str:
    nodes = {start_of(row)}
    for _ in range(steps):
        nodes |= {b for a, b in edges_of(row) if a in nodes}
    return ",".join(sorted(nodes - {start_of(row)}))


@pytest.mark.parametrize("split", ["train", "id", "hard"])
def test_no_shortcut_is_ever_right(split: str) -> None:
    for row in TASK.rows(split):
        if row["meta"]["asks"] == "reach":
            edges, start = edges_of(row), {start_of(row)}
            shown = {node for edge in edges for node in edge} - start
            entered = {b for _, b in edges} - start
            guesses = [reached_in(row, 1), *(",".join(sorted(g)) for g in (shown, entered))]
            assert row["answer"] not in guesses, row["id"]


def test_guessing_lengths_is_rare_even_with_the_nodes_right() -> None:
    asked = [row for row in TASK.rows("id") if row["meta"]["asks"] == "distance"]
    for level in (1, 2):
        lengths = Counter(
            re.sub(r"\w=", "", row["answer"]) for row in asked if row["level"] == level
        )
        assert max(lengths.values()) / lengths.total() < 0.15


@pytest.mark.parametrize("text", ["b,c,f", " b, c, f\n", "b , c , f", "It is:\nb,c,f"])
def test_right_sets_are_paid(text: str) -> None:
    assert TASK.verify(text, REACH) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b,c",
        "b,c,f,g",
        "c,b,f",
        "f,c,b",
        "b,c,c,f",
        "b,b,c,f",
        "bcf",
        "b c f",
        "b;c;f",
        "b,c,f,",
        ",b,c,f",
        "b,,c,f",
        "b,c,f.",
        "{b,c,f}",
        "<b,c,f>",
        "b, c and f",
        "B,C,F",
        "a,b,c,d,e,f,g,h",
        ",".join("abcdefghijklmnopqrstuvw"),
        "b,c,f or b,c",
        "b,c,f\nb,c",
        "nodes b,c,f",
        "b,\u0441,f",
        "b\uff0cc\uff0cf",
        "b,c,f\u200b",
        "b,c,f\x00",
        "b,c,f " * 1000,
        "nan",
        "\ud800",
    ],
)
def test_wrong_sets_are_not(text: str) -> None:
    assert TASK.verify(text, REACH) == TASK.audit(text, REACH) == 0.0


@pytest.mark.parametrize("text", ["c=2,f=1,h=3", "c = 2, f = 1, h = 3", " c=2, f=1, h=3 "])
def test_right_lengths_are_paid(text: str) -> None:
    assert TASK.verify(text, DISTANCE) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "2,1,3",
        "c=2,f=1",
        "c=2,f=1,h=4",
        "f=1,c=2,h=3",
        "c=2,f=1,h=3,k=1",
        "c=2,c=1,f=1,h=3",
        "c=02,f=1,h=3",
        "c=2.0,f=1,h=3",
        "c=+2,f=1,h=3",
        "c=\u00b2,f=1,h=3",
        "c=\uff12,f=1,h=3",
        "c=123,f=123,h=123",
        "c:2,f:1,h:3",
        "c=2;f=1;h=3",
        "<c=2,f=1,h=3>",
        "c=inf,f=1,h=3",
        "c=2 f=1 h=3",
        "c=2,f=1,h=3\nc=2,f=1,h=2",
    ],
)
def test_wrong_lengths_are_not(text: str) -> None:
    assert TASK.verify(text, DISTANCE) == TASK.audit(text, DISTANCE) == 0.0


def test_the_audit_is_stricter() -> None:
    text = "It is:\nb,c,f"
    assert TASK.verify(text, REACH) == 1.0 and TASK.audit(text, REACH) == 0.0


def test_letters_and_order_do_not_change_the_key() -> None:
    key = TASK.code._key
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "e"), ("b", "e")]
    moved = str.maketrans("abcde", "tkbam")
    renamed = [(a.translate(moved), b.translate(moved)) for a, b in reversed(edges)]
    assert key(edges, "a") == key(renamed, "t")
    assert key(edges, "a") != key(edges, "b")
    assert key(edges, "a") != key([*edges[:-1], ("e", "b")], "a")
