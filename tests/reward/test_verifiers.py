"""What counts as an answer: worked examples for every verifier."""

from __future__ import annotations

import pytest

from crlbench.reward.extract import bracketed, last_line, numbers, squeeze
from crlbench.reward.verify import MAX_BYTES, exact, numeric, pairs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("41", ["41"]),
        ("34+7=41.", ["34", "7", "41"]),
        ("-3 and 4.5", ["-3", "4.5"]),
        ("1,098 or 12,34", ["1098", "12", "34"]),
        ("x41 41st 1.2.3", ["1.2"]),
        ("\uff14\uff11 \u0664\u0661", []),
        ("", []),
    ],
)
def test_numbers(text: str, expected: list[str]) -> None:
    assert numbers(text) == expected


def test_lines_and_brackets() -> None:
    assert squeeze("  a \t b\n") == "a b"
    assert last_line("first\n a  b \n\n") == "a b"
    assert last_line(" \n ") == ""
    assert bracketed("<1> then < 2 > and <<3>") == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("41", "41", 1),
        (" 41 \n", "41", 1),
        ("The sum is 41.", "41", 1),
        ("34 + 7 = 41", "41", 1),
        ("41 is the sum of 34 and 7", "41", 0),
        ("041", "41", 0),
        ("41.0", "41", 0),
        ("-41", "41", 0),
        ("141", "41", 0),
        ("four", "4", 0),
        ("", "41", 0),
        ("1,098", "1098", 1),
        ("1 2 3 41", "41", 1),
        ("1 2 3 4 41", "41", 0),
        ("it is" + " " * (MAX_BYTES - 7) + "41", "41", 1),
        ("it is" + " " * (MAX_BYTES - 6) + "41", "41", 0),
        ("<41>", "<41>", 1),
        ("The sum is < 41 >.", "<41>", 1),
        ("41", "<41>", 0),
        ("<41", "<41>", 0),
        ("<7> <41>", "<41>", 1),
        ("<41> <7>", "<41>", 0),
        ("34 + 7 = 41", "34+7=41", 1),
        ("41", "34+7=41", 0),
        ("7+34=41", "34+7=41", 0),
    ],
)
def test_numeric(text: str, answer: str, expected: int) -> None:
    assert numeric(text, answer) == expected


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("x d k", "x d k", 1),
        ("Here it is:\n x  d k \n", "x d k", 1),
        ("x d k\nthat was it", "x d k", 0),
        ("xdk", "x d k", 0),
        ("X d k", "x d k", 0),
        ("", "x d k", 0),
    ],
)
def test_exact(text: str, answer: str, expected: int) -> None:
    assert exact(text, answer) == expected


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("k=7;a=3", "k=7;a=3", 1),
        ("k = 7 ; a = 3", "k=7;a=3", 1),
        ("a=3;k=7", "k=7;a=3", 0),
        ("k=7;a=3;b=1", "k=7;a=3", 0),
        ("k=7", "k=7;a=3", 0),
        ("k:7;a:3", "k=7;a=3", 0),
        ("k=7a=3", "k=7;a=3", 0),
    ],
)
def test_pairs(text: str, answer: str, expected: int) -> None:
    assert pairs(text, answer) == expected
