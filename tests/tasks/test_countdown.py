"""Expressions that reach the target, and texts that only seem to."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("countdown")
GOLD = "(3+7)*12"
BOTH = ("verify", "audit")

RIGHT = [
    ("12*(3+7)", GOLD),
    ("(7+3)*12", GOLD),
    ("  ( 3 + 7 ) * 12  ", GOLD),
    ("((3)+((7)))*(12)", GOLD),
    ("(3+7)/(1/12)", "(3+7)*12/1"),
    ("8/(3-(8/3))", "8/(3-8/3)"),
    ("2-5+4", "4-5+2"),
    ("<12*(7+3)>", f"<{GOLD}>"),
    ("< 12*(7+3) >", f"<{GOLD}>"),
    ("12*(7+3)=120", f"{GOLD}=120"),
    ("12 * (7+3) = 120", f"{GOLD}=120"),
    ("\n(3+7)*12\n\n", GOLD),
]
WRONG = [
    ("", GOLD),
    ("120", GOLD),
    ("3+7*12", GOLD),
    ("(3+7)*12*1", GOLD),
    ("3*7+12", GOLD),
    ("12*(3+7)+7-7", GOLD),
    ("12*10", GOLD),
    ("(3+7)*(12", GOLD),
    ("(3+7)*12)", GOLD),
    ("(3+7)12", GOLD),
    ("(3 7)*12", GOLD),
    ("3 7 + 12 *", GOLD),
    ("(03+7)*12", GOLD),
    ("(3+7)*1 2", GOLD),
    ("+(3+7)*12", GOLD),
    ("(3--7)*12", GOLD),
    ("(3+7)**12", GOLD),
    ("(3+7)*12=120", GOLD),
    ("(3+7)*12=", GOLD),
    ("=(3+7)*12", GOLD),
    ("<(3+7)*12>", GOLD),
    ("(3+7)*12.", GOLD),
    ("(3+7)*12 or 12*(3+7)", GOLD),
    ("(3+7)*12\n3*7*12", GOLD),
    ("(3+7)*12 # 120", GOLD),
    ("(3+7)\u00d712", GOLD),
    ("(\uff13+7)*12", GOLD),
    ("(3+7)*1\u0662", GOLD),
    ("(3_0+7)*12", GOLD),
    ("int('120')", GOLD),
    ("__import__('os').system('true')", GOLD),
    ("()", GOLD),
    ("(" * 40 + "3+7)*12", GOLD),
    ("(" * 5000, GOLD),
    ("9**9**9**9", GOLD),
    ("nan", GOLD),
    ("3/(7-7)*12", "3*(7+7)*12"),
    ("3/(7-7)+12", "3+7-7+12"),
    ("(3+7)*12", f"<{GOLD}>"),
    ("<(3+7)*12", f"<{GOLD}>"),
    ("<<(3+7)*12>>", f"<{GOLD}>"),
    ("<3*7*12><(3+7)*12>", f"<{GOLD}>"),
    ("(3+7)*12", f"{GOLD}=120"),
    ("(3+7)*12=121", f"{GOLD}=120"),
    ("(3+7)*12=0120", f"{GOLD}=120"),
    ("(3+7)*12=120=120", f"{GOLD}=120"),
    ("3*7*12=120", f"{GOLD}=120"),
    ("120=120", f"{GOLD}=120"),
]


@pytest.mark.parametrize("judge", BOTH)
@pytest.mark.parametrize(("text", "answer"), RIGHT)
def test_right(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 1.0


@pytest.mark.parametrize("judge", BOTH)
@pytest.mark.parametrize(("text", "answer"), WRONG)
def test_wrong(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 0.0


def test_words_before_the_last_line_count_for_the_verifier_only() -> None:
    text = f"3+7 is 10, so:\n{GOLD}"
    assert (TASK.verify(text, GOLD), TASK.audit(text, GOLD)) == (1.0, 0.0)


def random_expression(numbers: list[str], rng: random.Random) -> str:
    parts = rng.sample(numbers, len(numbers))
    while len(parts) > 1:
        i = rng.randrange(len(parts) - 1)
        pair = rng.choice("+-*/").join(parts[i : i + 2])
        parts[i : i + 2] = [rng.choice((pair, f"({pair})"))]
    return parts[0]


def test_judges_and_python_agree_on_random_expressions() -> None:
    rng = random.Random(1)
    rights = 0
    for _ in range(3000):
        numbers = [str(rng.randint(2, 6)) for _ in range(rng.choice((3, 4)))]
        gold, text = (random_expression(numbers, rng) for _ in range(2))
        try:
            wanted = exactly(gold)
        except ZeroDivisionError:
            continue
        try:
            right = float(exactly(text) == wanted)
        except ZeroDivisionError:
            right = 0.0
        rights += int(right)
        assert (TASK.verify(text, gold), TASK.audit(text, gold)) == (right, right), (text, gold)
    assert rights > 50


def exactly(expression: str) -> Fraction:
    return eval(re.sub("([0-9]+)", r"Fraction(\1)", expression), {"Fraction": Fraction})


@pytest.mark.parametrize("split", ["train", "id", "hard"])
def test_the_gold_uses_the_shown_numbers_and_reaches_the_shown_target(split: str) -> None:
    for row in TASK.rows(split):
        shown = re.fullmatch("numbers ([0-9 ]+) target ([0-9]+):", row["messages"][-1]["content"])
        assert shown
        used = re.findall("[0-9]+", row["answer"])
        assert sorted(used) == sorted(shown[1].split())
        assert len(used) == row["level"] + 2
        assert exactly(row["answer"]) == int(shown[2])
        assert (100 <= int(shown[2]) <= 999) == (row["level"] == 3)
