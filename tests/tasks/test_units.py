"""Calendar and unit problems: solved again from their texts, and what is paid for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from fractions import Fraction
from math import prod

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("units")
MONTHS = "January February March April May June July August September October November December"
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
ISO = r"\d{4}-\d\d-\d\d"
LONG = rf"\d+ (?:{MONTHS.replace(' ', '|')}) \d{{4}}"
NEXT = {
    "kilometres metres": 1000,
    "metres centimetres": 100,
    "tonnes kilograms": 1000,
    "kilograms grams": 1000,
    "litres decilitres": 10,
    "decilitres millilitres": 100,
    "weeks days": 7,
    "days hours": 24,
    "hours minutes": 60,
    "minutes seconds": 60,
    "yards feet": 3,
    "feet inches": 12,
    "gallons quarts": 4,
    "quarts cups": 4,
}


def month_length(year: int, month: int) -> int:
    leap = year % 400 == 0 or (year % 4 == 0 and year % 100 != 0)
    return 28 + leap if month == 2 else 30 if month in (4, 6, 9, 11) else 31


def walk(date: tuple[int, int, int], days: int) -> tuple[int, int, int]:
    """A date moved day by day, with the calendar's own rules and no library."""
    year, month, day = date
    for _ in range(abs(days)):
        if days > 0:
            day += 1
            if day > month_length(year, month):
                day, month = 1, month + 1
            if month > 12:
                month, year = 1, year + 1
        else:
            day -= 1
            if day < 1:
                month -= 1
                if month < 1:
                    month, year = 12, year - 1
                day = month_length(year, month)
    return year, month, day


def dates(text: str) -> list[tuple[int, int, int]]:
    found = []
    for written in re.findall(f"{ISO}|{LONG}", text):
        if " " in written:
            day, month, year = written.split()
            found.append((int(year), MONTHS.split().index(month) + 1, int(day)))
        else:
            year, month, day = map(int, written.split("-"))
            found.append((year, month, day))
    return found


def iso(date: tuple[int, int, int]) -> str:
    return "{:04d}-{:02d}-{:02d}".format(*date)


def apart(start: tuple[int, int, int], end: tuple[int, int, int]) -> int:
    days = 0
    while start != end:
        start, days = walk(start, 1), days + 1
    return days


def clocks(text: str) -> list[int]:
    return [60 * int(h) + int(m) for h, m in re.findall(r"(\d\d):(\d\d)", text)]


def first(pattern: str, text: str, otherwise: int | None = None) -> int:
    """The number that a pattern finds first; one that must be there has no other value."""
    found = re.search(pattern, text)
    assert found or otherwise is not None, (pattern, text)
    return int(found.group(1)) if found else otherwise or 0


def dollars(text: str) -> list[Fraction]:
    return [Fraction(found) for found in re.findall(r"\$(\d+(?:\.\d\d)?)", text)]


def amount(value: Fraction) -> str:
    assert (value * 100).denominator == 1 and value > 0
    return f"{int(value)}.{int(value * 100) % 100:02d}"


def dated(text: str, kind: str) -> str:
    """The kinds about dates."""
    date = dates(text)[0]
    if kind == "between":
        return str(apart(*dates(text)))
    rest = re.sub(f"{ISO}|{LONG}", "", text)
    steps = [
        int(count) * (7 if unit == "weeks" else 1)
        for count, unit in re.findall(r"(\d+) (?:more )?(weeks|days)", rest)
    ]
    end = walk(date, -sum(steps) if kind == "earlier" else sum(steps))
    if kind != "weekday":
        return iso(end)
    today = next(i for i, name in enumerate(DAYS.split()) if name in text)
    return f"{DAYS.split()[(today + sum(steps)) % 7][:3]},{iso(end)}"


def timed(text: str, kind: str) -> str:
    """The kinds about clock times."""
    if kind == "ends":
        parts = re.findall(r"(\d+) h (\d+) min", text)
        end = clocks(text)[0] + sum(60 * int(h) + int(m) for h, m in parts)
        return f"{end // 60 % 24:02d}:{end % 60:02d}"
    start, end = clocks(text)
    days = apart(*dates(text)) if dates(text) else int("next day" in text)
    return str(end - start + 1440 * days)


def paid(text: str, kind: str) -> str:
    """The kinds about money."""
    if kind == "change":
        lines = re.findall(r"(\d+) [a-z]+ at \$(\d+\.\d\d) each", text)
        total = sum(int(count) * Fraction(price) for count, price in lines)
        total *= 1 - Fraction(first(r"(\d+) percent off", text, 0), 100)
        return amount(first(r"\$(\d+)(?!\d|\.\d)", text) - total)
    minutes = Fraction(first(r"(\d+) minutes", text, 0), 60)
    time = first(r"(\d+) days", text, 1) * (first(r"(\d+) hours", text) + minutes)
    rate, *fee = dollars(text)
    return amount(rate * time - sum(fee))


def measured(text: str, kind: str) -> str:
    """The kinds about lengths and other units."""
    if kind == "offcut":
        left = 100 * first(r"of (\d+) m", text) + first(r" m (\d+) cm", text, 0)
        piece = first(r"(\d+) cm", re.sub(r"of \d+ m( \d+ cm)?", "", text))
        while left >= piece:
            left -= piece
        return str(left * first(r"(\d+) boards", text, 1))
    told = re.findall(r"(\d+) (?:US )?([a-z]+)", text)
    times = int(told.pop(0)[0]) if told[0][1] == "times" else 1
    units = [unit for _, unit in told]
    held = [NEXT[f"{a} {b}"] for a, b in zip(units, units[1:], strict=False)]
    total = sum(int(count) * prod(held[i:]) for i, (count, _) in enumerate(told))
    assert text.count(units[-1]) >= 2
    return str(times * total)


SOLVERS = {
    **dict.fromkeys(("later", "earlier", "between", "weekday"), dated),
    **dict.fromkeys(("ends", "lasts"), timed),
    **dict.fromkeys(("change", "wage"), paid),
    **dict.fromkeys(("convert", "offcut"), measured),
}
FRAMES = {4: "<{}>", 5: "answer={}"}


@pytest.mark.parametrize("split", ["train", "id", "hard", "format"])
def test_every_answer_is_found_again(split: str) -> None:
    for row in TASK.rows(split):
        kind = row["meta"]["kind"]
        found = SOLVERS[kind](row["messages"][-1]["content"], kind)
        assert FRAMES.get(row["template"], "{}").format(found) == row["answer"], row["id"]


def test_every_kind_comes_in_every_level_and_in_four_wordings() -> None:
    levels: dict[str, set[int]] = defaultdict(set)
    for row in [*TASK.rows("train"), *TASK.rows("hard")]:
        levels[row["meta"]["kind"]].add(row["level"])
    assert set(levels) == set(SOLVERS)
    assert all(found == {1, 2, 3} for found in levels.values())
    for wordings in TASK.code.PROBLEMS.values():
        assert len(set(wordings)) == 4
    sources = {row["id"]: row for row in TASK.rows("id")}
    for row in TASK.rows("format"):
        if row["template"] in (1, 2, 3):
            own = sources[row["meta"]["source"]]["messages"][-1]["content"]
            assert own not in row["messages"][-1]["content"]


def test_no_answer_is_frequent_in_its_kind() -> None:
    answers: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for row in TASK.rows("train"):
        answers[row["meta"]["kind"], row["level"]][row["answer"]] += 1
    assert max(max(c.values()) / c.total() for c in answers.values()) < 0.08


NUMBER, DATE, DAY, TIME, MONEY = "368", "2032-03-01", "Mon,2032-03-01", "07:05", "12.60"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("368", NUMBER),
        ("That makes 368.", NUMBER),
        ("30 * 12 + 8 = 368", NUMBER),
        ("30*12+8=368", NUMBER),
        ("Answer:368", NUMBER),
        (" 368. \n", NUMBER),
        ("395,515", "395515"),
        ("It is <368>.", "<368>"),
        (" 2032-03-01\n", DATE),
        ("It arrives on\n2032-03-01", DATE),
        ("Mon, 2032-03-01", DAY),
        ("07:05", TIME),
        ("12.60 ", MONEY),
        ("<12.60>", "<12.60>"),
        ("answer = 368", "answer=368"),
        ("answer=07:05", "answer=07:05"),
    ],
)
def test_right_answers_are_paid(text: str, answer: str) -> None:
    assert TASK.verify(text, answer) == 1.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", NUMBER),
        ("0368", NUMBER),
        ("368.0", NUMBER),
        ("-368", NUMBER),
        ("3.68e2", NUMBER),
        ("3 6 8", NUMBER),
        ("\uff13\uff16\uff18", NUMBER),
        ("three hundred and sixty-eight", NUMBER),
        ("368 or 369", NUMBER),
        ("<368>", "answer=368"),
        ("368", "<368>"),
        ("368", "answer=368"),
        (" ".join(map(str, range(365, 369))), "366"),
        ("364 365 366 367 368", NUMBER),
        ("368 " * 1000, NUMBER),
        ("368\x00", NUMBER),
        ("368\n.", NUMBER),
        ("368..", NUMBER),
        ("368\xa0", NUMBER),
        ("368\u2028", NUMBER),
        ("\x1c368", NUMBER),
        ("368 is wrong", NUMBER),
        ("2*368", NUMBER),
        ("2 * 368", NUMBER),
        ("3-368", NUMBER),
        ("1,2,368", NUMBER),
        ("368:368", NUMBER),
        ("736/368", NUMBER),
        ("<368>\x00", "<368>"),
        ("<368>\n.", "<368>"),
        ("<368> or more", "<368>"),
        ("2032-03-01\x1c", DATE),
        ("x\u20282032-03-01", DATE),
        ("nan", NUMBER),
        ("inf", NUMBER),
        ("2032-3-1", DATE),
        ("2032-03-1", DATE),
        ("2032-02-30", DATE),
        ("2032/03/01", DATE),
        ("20320301", DATE),
        ("2032-W10-1", DATE),
        ("01-03-2032", DATE),
        ("1 March 2032", DATE),
        ("2032-03-01T00:00", DATE),
        ("2032-03-01 or 2032-03-02", DATE),
        ("2032-03-01\n2032-03-02", DATE),
        ("2032\u201103\u201101", DATE),
        ("2032-03-01", DAY),
        ("Monday,2032-03-01", DAY),
        ("Tue,2032-03-01", DAY),
        ("mon,2032-03-01", DAY),
        ("Mon", DAY),
        ("Mon,Tue,Wed,Thu,Fri,Sat,Sun,2032-03-01", DAY),
        ("7:05", TIME),
        ("07:05 am", TIME),
        ("07.05", TIME),
        ("0705", TIME),
        ("07:05:00", TIME),
        ("19:05", TIME),
        ("31:05", TIME),
        ("12.6", MONEY),
        ("12.600", MONEY),
        ("1260", MONEY),
        ("012.60", MONEY),
        ("$12.60", MONEY),
        ("12,60", MONEY),
        ("12.60\u200b", MONEY),
        ("12.60\x00", MONEY),
        ("1.-5", "0.95"),
        ("\ud800", MONEY),
    ],
)
def test_wrong_answers_are_not(text: str, answer: str) -> None:
    assert TASK.verify(text, answer) == TASK.audit(text, answer) == 0.0


def test_the_audit_is_stricter() -> None:
    assert TASK.verify("That makes 368.", NUMBER) == 1.0
    assert TASK.audit("That makes 368.", NUMBER) == 0.0
    assert TASK.audit("368", NUMBER) == TASK.audit("answer=12.60", "answer=12.60") == 1.0


@pytest.mark.parametrize(
    "text", ["12:00+01:00", "9" * 5000, "1_000", "\u0663", "9999-99-99", "Mon,", "answer=", "<>"]
)
@pytest.mark.parametrize("answer", [NUMBER, DATE, DAY, TIME, MONEY])
def test_what_a_parser_might_choke_on(text: str, answer: str) -> None:
    assert TASK.verify(text, answer) == TASK.audit(text, answer) == 0.0
