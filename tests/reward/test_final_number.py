"""The final number of a solution, on texts that people and models really write."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.reward.final_number import WRAPPINGS, final_number, final_number_to
from crlbench.reward.final_number_audit import audited

BOTH = [
    ("The answer is 1,234.50", "1234.5", 1),
    ("The answer is 1,234.50.", "1234.5", 1),
    ("18 dollars", "18", 1),
    ("She makes $18", "18", 1),
    (r"\$18.00", "18", 1),
    ("so it is **18**", "18", 1),
    ("18km", "18", 1),
    ("18%", "18", 1),
    ("(18)", "18", 1),
    ("18\u00a0dollars", "18", 1),
    ("The total is 3 + 15 = 18", "18", 1),
    ("18 = 3*6", "18", 0),
    ("5-18", "18", 0),
    ("5\u201318", "18", 0),
    ("5+18", "18", 0),
    ("2*18", "18", 0),
    ("2**18", "18", 0),
    ("2^18", "18", 0),
    (r"2\times18", "18", 0),
    ("2x18", "18", 0),
    ("18x2", "18", 0),
    ("2 * 18", "18", 0),
    ("2 x 18 apples", "18", 0),
    ("17 - 18", "18", 0),
    (r"2 \times 18", "18", 0),
    ("1,2,18", "18", 0),
    ("18,18", "18", 0),
    ("1234,18", "18", 0),
    ("17;18", "18", 0),
    ("18:18", "18", 0),
    ("17|18", "18", 0),
    ("(17)(18)", "18", 0),
    ("5!=18", "18", 0),
    ("36/2", "18", 0),
    ("180/10", "18", 0),
    ("18/1", "18", 0),
    (r"\frac{36}{2}", "18", 0),
    ("1/2/18", "18", 0),
    ("=18", "18", 1),
    ("6 * 3 = 18", "18", 1),
    ("6 * 3 = $18.", "18", 1),
    ("Total - 18", "18", 1),
    ("3 days\n- 18", "18", 1),
    ("Step 2\n- 18 dollars", "18", 1),
    ("17, 18", "18", 1),
    ("first 17 and then 18", "18", 1),
    ("It is 17. No, wait: 18.", "18", 1),
    ("It is 18. No, wait: 17.", "18", 0),
    ("It drops to -5", "-5", 1),
    ("It drops to \u22125 degrees", "-5", 1),
    ("He owes -$5", "-5", 1),
    ("He owes $-5", "-5", 1),
    ("3 to the -2", "-2", 1),
    ("It drops to 5", "-5", 0),
    ("It rises to -5", "5", 0),
    ("10-5", "-5", 0),
    ("--5", "5", 0),
    (".5", "0.5", 1),
    ("0.50", "0.5", 1),
    ("18.000001", "18", 0),
    ("007", "7", 0),
    ("100,00", "10000", 0),
    ("1 234", "1234", 0),
    ("1.2.3", "3", 0),
    ("x18", "18", 0),
    ("9/2", "2", 0),
    (r"\frac{9}{2}", "2", 0),
    ("1e3", "1", 0),
    ("1e999", "1", 0),
    ("nan", "1", 0),
    ("inf", "1", 0),
    ("", "18", 0),
    ("\uff11\uff18", "18", 0),
    ("\u0661\u0668", "18", 0),
    ("9" * 10_000, "9", 0),
    (r"so \boxed{18} because 3 + 5 and 10", "18", 1),
    (r"\boxed{17} then 18", "18", 0),
    (r"\boxed{17 \text{ or } 18}", "18", 0),
    (r"\boxed{1{,}234}", "1234", 1),
    (r"\boxed{1,\!234}", "1234", 1),
    (r"$$\boxed{\$1{,}234 \text{ dollars}}$$", "1234", 1),
    (r"\boxed{x = 18}", r"\boxed{18}", 1),
    (r"\boxed{\boxed{18}}", r"\boxed{18}", 1),
    (r"\boxed{}", r"\boxed{18}", 0),
    (r"\boxed{18", r"\boxed{18}", 0),
    ("boxed{18}", r"\boxed{18}", 0),
    ("18", r"\boxed{18}", 0),
    ("#### 18", "18", 1),
    ("3 + 15\n#### $18 ", "#### 18", 1),
    ("#### 18.", "#### 18", 1),
    ("#### 18\nThat took 3 steps.", "#### 18", 1),
    ("#### 17 or 18", "#### 18", 0),
    ("####18", "#### 18", 0),
    ("The answer is 18.", "#### 18", 0),
    ("<answer>\n18\n</answer> in 3 steps", "<answer>18</answer>", 1),
    ("<answer>18", "<answer>18</answer>", 0),
    ("<answer>17, 18</answer>", "<answer>18</answer>", 0),
    ("total:18", "18", 1),
    ("6*3=18", "18", 1),
    ("6*3=**18**", "18", 1),
    ("6 * 3=18", "18", 1),
    ("6 * 3 = $<<6*3=18>>18 a day.", "18", 1),
    ("6*3\u224818", "18", 1),
    ("6*3->18", "18", 1),
    ("#### 17\n#### 18", "18", 1),
    (r"\boxed{17} \boxed{18}", r"\boxed{18}", 1),
    (r"\frac{9}{2}", "4.5", 1),
    ("1e3", "1000", 1),
]


@pytest.mark.parametrize(("text", "answer", "paid"), BOTH)
def test_verifier_and_audit_read_the_same_conclusion(text: str, answer: str, paid: int) -> None:
    assert final_number(text, answer) == paid
    assert float(agreed(text, answer)) == paid


def agreed(text: str, answer: str) -> bool:
    numbers = audited(text, answer)
    return numbers is not None and numbers[0] == numbers[1]


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        ("10.667", 1),
        ("about 10.6667", 1),
        ("10.66666666666667", 1),
        ("10.67", 0),
        ("10.666", 0),
        ("10.6675", 0),
        ("11", 0),
        ("1e99999", 0),
        ("1e999", 0),
        ("32/3", 1),
        ("64/6", 0),
        ("1e999/7", 0),
        ("3*32/3", 0),
        ("9" * 39, 0),
    ],
)
def test_rounding_to_three_decimals(text: str, paid: int) -> None:
    assert final_number_to(text, "10.667", 3) == paid


@pytest.mark.slow
@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", *WRAPPINGS]))
def test_every_whole_number_is_read_in_every_wrapping(number: int, wrapping: str) -> None:
    gold = wrapping.format(number)
    told = wrapping.format(f"{number:,}.00")
    for text in (gold, f"First 3, then 4.\n{told}"):
        assert final_number(text, gold) == 1.0
        assert agreed(text, gold)
    other = wrapping.format(number + 1)
    assert final_number(other, gold) == 0.0
    assert not agreed(other, gold)


HEADINGS = [
    ("#### 18\nThat took 3 steps.", "18"),
    ("#### 18 square feet\nin 3 steps", "18"),
    ("#### 18 miles per hour\nin 3 steps", "18"),
    ("#### 18 is the answer\n(3 steps)", "18"),
    ("#### 3 boxes of 12\n3 * 12 = 36\nSo 36.", "36"),
    ("#### 2 packs of pens cost money\n2 * 18 = 36", "36"),
    ("#### 2 boxes, each 18\nThus 36", "36"),
    ("#### **Answer:** 18", "18"),
]


HEADINGS += [
    ("#### 1.1 Add\n9 + 9\n#### 1.2 Result\nIt is 18.", "18"),
    ("#### 2.5 hours\nin 3 steps", "2.5"),
    ("#### Given: 12 rows of 8\nTotal: 96", "96"),
    ("#### Known: 12 rows\n12 * 8 = 96 chairs", "96"),
    ("#### Pens: $6\n#### Books: $12\nIn all $18", "18"),
    ("#### Pens: $6\n#### Total: $18\n(6 and 12)", "18"),
    ("#### Number of apples: 18\n(9 and 9)", "18"),
    ("6+12\n#### Total for 3 pens: $18", "18"),
    ("It is 18.\n#### Step 3: stop", "18"),
    ("#### \u2705 18", "18"),
    ("#### a) 18", "18"),
    ("### Total for 3 pens: $18", "18"),
    ("#### 18. Done", "18"),
    ("#### 3. Total: 18", "18"),
]


@pytest.mark.parametrize(("text", "answer"), HEADINGS)
def test_a_heading_that_tells_a_story_is_no_marker(text: str, answer: str) -> None:
    assert final_number(text, answer) == 1.0
    assert agreed(text, answer)


READINGS = [
    ("x = - 18", "-18"),
    (r"\boxed{- 18}", "-18"),
    (r"\boxed{-\,\$18}", "-18"),
    ("#### - 18", "-18"),
    ("-(18)", "-18"),
    ("10 -(18)", None),
    ("10-(18)", None),
    ("non-negative 18", "18"),
    ("Total - 18", "18"),
    ("Steps:\n- 18", "18"),
    ("- negative 18", "-18"),
    ("It is minus 18.", "-18"),
    ("10 apples minus 18", None),
    ("10 minus 18", None),
    (r"- \frac{9}{2} cups", "4.5"),
    ("1.5 \u00d7 10^6", "1500000"),
    (r"\boxed{-1.5 \times 10^{-3}}", "-0.0015"),
    ("15 \u00d7 10^6", None),
    ("2 \u00d7 1.5 \u00d7 10^6", None),
    ("3/2 \u00d7 10^3", None),
    ("1.5 \u00d7 10", None),
    ("18\u03c0", None),
    (r"18\pi", None),
    ("\u221a18", None),
    (r"\sqrt{18}", None),
    ("18 < x", None),
    ("x < (18)", None),
    ("18 <b>", "18"),
    (r"\boxed{18\text{ or more}}", None),
    ("She needs 18 or more", "18"),
    ("3 and a half", None),
    ("3 and a bit", "3"),
    ("3 and two-thirds", None),
    ("3 and three quarters of them", None),
    ("3 and two friends", "3"),
    ("3x10^2", "300"),
    ("3 x10\u00b2", "300"),
    ("2+3x10^2", None),
    ("17 mod 18", None),
    ("17 \u2795 18", None),
    ("17 \u2716\ufe0f 18", None),
    ("17 apples + (18)", None),
    ("\u215d", "0.625"),
    ("2\u215d cups", "2.625"),
    ("1\u202f234,50 \u20ac", "1234.50"),
    ("1\u202f234,500", None),
    ("USD1,250", "1250"),
    ("-USD 5", "-5"),
    ("18 m<sup>2</sup>", "18"),
    ("18<sup>2</sup>", None),
    ("18 ft.\u00b2", "18"),
    (r"{\color{blue}18}", "18"),
    (r"\textcolor{red}{18}", "18"),
    ("Total => 18", "18"),
]


@pytest.mark.parametrize(("text", "answer"), READINGS)
def test_signs_powers_and_what_goes_on(text: str, answer: str | None) -> None:
    wrong = ("18", "17", "3", "2", "1.5", "4.5", "-4.5", "-18", "10", "6", "0.0015", "1500", "234")
    if answer is not None:
        assert final_number(text, answer) == 1.0
        assert agreed(text, answer)
    for other in {*wrong} - {answer}:
        assert final_number(text, other) == 0.0, other
        assert not agreed(text, other), other


PIECES = st.sampled_from(
    [*"0123456789,.-+/=$%*eE \n", "####", "#### ", r"\boxed{", "}", "{", "<answer>", "</answer>"]
    + [r"\frac{", r"\$", "{,}", "\u2212", "\uff11", "<think>", "</think>", "a:", " is ", "\u00bd"]
    + ["- ", "minus ", "10^", "USD", "<sup>", "\u221a", "\u03c0", "1.1 Ab", "\u2705", "\u2157"]
    + ["\u00b2", "\u00a0", "\\text{", "**", "x", " or ", "\\", "(", "'", "Rs.", "\U0001d7cf", "_{"]
)


@given(st.lists(PIECES, max_size=30).map("".join), st.sampled_from(["18", "-0.5", "#### 3"]))
def test_any_text_gets_zero_or_one(text: str, answer: str) -> None:
    assert final_number(text, answer) in (0.0, 1.0)
    assert final_number_to(text, answer, 3) in (0.0, 1.0)
    audited(text, answer)


@pytest.mark.parametrize(
    "piece",
    ["1,111", r"\boxed{", r"\frac{1}{", "#### ", "{", "-", "<answer>", r"\boxed{{}", "1.1", "1/"]
    + ["#### 1", "a:", "a = ", "(", "**a", "_", "\u00bd", "\u00b2", " + ", " or ", "1\u00a0111"]
    + ["> ", "\\text{", "<b>", "m^2", "Rs. ", "is 1 "],
)
def test_no_long_text_takes_long(piece: str) -> None:
    text = r"\boxed{" + piece * 4000
    start = time.process_time()
    final_number(text, r"\boxed{18}")
    for reply in (text, f"#### {piece * 4000}1", f"#### a:{piece * 4000}"):
        final_number(reply, "18")
        audited(reply, "18")
    assert time.process_time() - start < 2.0
