"""How answers of mathematics are spelled: groups of digits, units, and what guards may refuse."""

from __future__ import annotations

import time

import pytest

from crlbench.reward.equivalence import equivalent, too_much
from crlbench.reward.latex_numeric import same_answer
from crlbench.reward.notation import readings, tidy
from crlbench.reward.numerals import join_foreign, join_groups, join_spaced


def box(inner: str) -> str:
    return f"\\boxed{{{inner}}}"


@pytest.mark.parametrize(
    ("given", "gold", "read"),
    [
        ("1,234", "1234", ["1234"]),
        ("1,000", "1000", ["1000"]),
        ("1,234", "1, 234", ["1,234"]),
        ("1,2", "12", ["1,2"]),
        ("1, 000", "1000", ["1, 000"]),
        ("(1,234)", "1234", ["(1,234)"]),
        ("(1,000)", "1000", ["(1000)"]),
        ("(1,000,2,000)", "(1000,2000)", ["(1000,2000)"]),
        ("(2,251,252)", "(2,251,252)", ["(2,251,252)"]),
        ("1,234,567", "1234,567", ["1234,567", "1,234567"]),
        ("0,123", "123", ["0,123"]),
        ("0.5,000", "0.5000", ["0.5,000"]),
    ],
)
def test_commas_are_read_as_many_as_the_gold_has(given: str, gold: str, read: list[str]) -> None:
    assert [*readings(given, gold)] == read


@pytest.mark.parametrize(
    "by", [r"\,", r"\ ", "~", "{,}", r",\!", "'", "\u202f", "\u00a0", "\u2009"]
)
def test_every_separator_groups_three_digits_and_no_others(by: str) -> None:
    assert join_groups(f"1{by}000{by}234") == "1000234"
    for text in (f"1{by}00", f"12{by}34", f"1{by}0000", f"0{by}123", f"1{by}234{by}5"):
        assert join_groups(text) == text


def test_foreign_groups_are_those_that_no_english_number_looks_like() -> None:
    assert join_foreign("1,00,000 12,34,567 1.234.567 1.234,50") == "100000 1234567 1234567 1234.50"
    for text in ("1.234", "1,234", "1,00", "1.2.3", "1,2,18", "1.234,567", "1.23.456"):
        assert join_foreign(text) == text
    assert join_spaced("10 000") == "10000" and join_spaced("1 2 3") == "1 2 3"


@pytest.mark.slow
def test_a_guard_knows_the_grammar_of_the_number_it_guards() -> None:
    """Groups of zeros, and digits behind the base of a logarithm, are no broken numbers."""
    for text in (
        r"1,000",
        r"\frac{1,000}{3}",
        r"(1,000, 2,000)",
        r"\log_2 3",
        r"2^{1,000}",
        "100,005",
    ):
        plain = text.replace(",000", "000").replace(",005", "005")
        assert equivalent(box(text), box(plain)) == 1.0, text
        assert same_answer(box(text), box(plain)) == 1.0, text
    assert all(map(too_much, ["007", "1 2", ",000", "1,00", "2^{10000}"]))
    assert equivalent(box(r"2^{100,000}"), box("7")) == 0.0
    assert equivalent(box(",".join(["100"] * 90)), box("1" + "001" * 25)) == 0.0


def test_units_that_measure_differently_are_different_answers() -> None:
    gold = box(r"5\text{ cm}")
    for same in (r"5\text{ cm}", "5cm", "5 cm", r"5\text{ centimeters}", "5", r"5\,\mathrm{cm}"):
        assert equivalent(box(same), gold) == same_answer(box(same), gold) == 1.0, same
    for other in (r"5\text{ km}", "5km", r"5\text{ cm}^2", "6 cm", r"5\text{ million}"):
        assert equivalent(box(other), gold) == same_answer(box(other), gold) == 0.0, other
    counted = box(r"9\text{ values}")
    assert equivalent(box(r"9\text{ numbers}"), counted) == 1.0


def test_a_letter_is_no_unit() -> None:
    assert tidy("5m").value == "5m" and tidy("n - m").value == "n - m" and tidy("km").value == "km"
    assert tidy("5 m").value == "5" and tidy(r"5\text{ m}").unit == "m"


@pytest.mark.parametrize(
    ("gold", "given", "paid"),
    [
        (r"5\text{ m/s}^2", r"5\,\mathrm{m/s^{2}}", 1),
        (r"5\text{ m/s}", r"5\frac{\text{m}}{\text{s}}", 1),
        (r"5\text{ m/s}", r"5\text{ m}/\text{s}^2", 0),
        (r"5\text{ m}", r"5\text{ m}/\text{s}", 0),
        (r"5\text{ m}^2", r"5\,\mathrm{m^2}", 1),
        (r"5\text{ m}^2", r"5\,\mathrm{m^3}", 0),
        ("5", r"5\,\mathrm{kg\,m^{-3}}", 1),
        ("5", r"5\,\mathrm{x^2 y}^2 + 1", 0),
        ("5", r"5\text{ dozen}^2", 0),
        ("5", r"5\text{ m 2}", 0),
        ("6m", r"6\,m", 1),
        ("6m", r"6\,", 0),
        ("6", r"6\,m", 1),
    ],
)
def test_a_unit_may_have_exponents_within_and_several_parts(
    gold: str, given: str, paid: int
) -> None:
    assert equivalent(box(given), box(gold)) == same_answer(box(given), box(gold)) == paid


@pytest.mark.parametrize(
    ("gold", "given", "paid"),
    [
        (r"\frac{1234}{5}", r"\frac{1,234}{5}", 1),
        (r"\sqrt{1234}", r"\sqrt{1,234}", 1),
        (r"\pi\cdot 1234", r"\pi\cdot 1,234", 1),
        ("1234", r"\{1,234\}", 0),
        (r"\{1234, 5\}", r"\{1,234; 5\}", 1),
        (r"\{1, 234, 5\}", r"\{1,234; 5\}", 0),
        ("1.5", "1;5", 0),
        (r"\frac{1}{3}", r"0.\overline{3}", 1),
        (r"\frac{1}{30}", r"0.0\overline{3}", 1),
        (r"\frac{1}{3}", r"0.3\overline{4}", 0),
        (r"\frac{5}{6}", "\u215a", 1),
        (r"\frac{5}{6}", "\u215b", 0),
        ("8", "2**3", 1),
        ("6", "2**3", 0),
        ("5", r"\text{The minimum is } 5", 1),
        ("5", r"\text{The minimum is not } 5", 0),
        ("5", r"\text{There are } 5", 1),
        ("5", r"\text{5 apples}", 1),
        ("5", r"\text{5 or 6}", 0),
        ("5", r"\text{5 dozen}", 0),
        (r"5\text{ cm}", r"\text{5 m}", 0),
        ("5", r"\text{Answer 4 or } 5", 0),
        (r"\frac{\pi}{4}", "pi/4", 1),
        (r"\frac{\pi}{4}", "pie/4", 0),
        (r"\emptyset", r"\varnothing", 1),
        (r"\emptyset", r"\{0\}", 0),
        ("No", r"{\bf No}", 1),
        ("No", r"{\bf No} or Yes", 0),
        ("5", r"\textcolor{red}{5}", 1),
        ("5", r"\textcolor{red}{5}5", 0),
    ],
)
def test_dress_is_left_out_and_what_says_something_is_not(gold: str, given: str, paid: int) -> None:
    assert equivalent(box(given), box(gold)) == same_answer(box(given), box(gold)) == paid


@pytest.mark.parametrize(
    "piece",
    ["1,", "1,000", "(1,000", "1\\,111", "\\text{", "1 111", "\u00b2", "$", "~", "pi", "**2"]
    + ["\\mathrm{m^2}", "5\\text{ m}/", "0.\\overline{3}", ";1,000", "\\frac{\\text{m}}"],
)
def test_no_spelling_takes_long(piece: str) -> None:
    text = (piece * 400)[:400]
    start = time.process_time()
    found = tidy(text).value
    for gold in ("1", "1,2,3,4,5,6"):
        [*readings(found, gold)]
        same_answer(box(text), box(gold))
    assert time.process_time() - start < 1.0
