"""Calendar and unit word problems: dates, weekdays, clock times, money, units.

Ten kinds of problem, each told in four wordings: a date so many days later or earlier, the
days between two dates, the weekday and date after so many days, the end of a shift, the
minutes between two clock times, change, unit conversion, wages, and what is left of a cut
board. Level 1 takes one small step, level 2 two steps or larger numbers, level 3 three. The
calendar is the Gregorian one, clocks count to 24 hours, and every sum comes out exactly: money
is counted in cents and everything else in its smallest unit. The canonical template tells a
problem in the first or the second wording, the paraphrases 1-3 in the third or the fourth. The
key is the kind and its numbers, without the words.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import numeric

CARD = {
    "name": "units",
    "version": "1.0.0",
    "tags": ["format", "compositional"],
    "summary": "Solve word problems about dates, clock times, money and units.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-0d95b7e3-units-a28f6c41d3b9",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{problem}",
    "Question: {problem}",
    "Solve this. {problem}",
    "A small problem: {problem}",
    "{problem} Answer as <>.",
    "{problem} Answer as answer=.",
)
WORDINGS = (None, 2, 3, 2, None, None)
"""The wording of each template; None stands for the first or the second, as drawn."""
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "answer={}")
REPLIES = (
    "{form}, written like {example}",
    "{form}, written like {example}",
    "{form}, written like {example}",
    "{form}, written like {example}",
    "{form} in angle brackets, written like <{example}>",
    "{form} after 'answer=', written like answer={example}",
)
SYSTEM = "Solve the problem. Reply only with {}."
FORMS = {
    "date": ("the date", "1987-09-08"),
    "day": ("the weekday and the date", "Mon,1987-09-07"),
    "time": ("the time on the 24-hour clock", "08:09"),
    "money": ("the amount in dollars with two decimals", "0.70"),
    "number": ("the whole number", "7000"),
}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
FIRST_DAY = datetime.date(1990, 1, 1)
DAYS = 60 * 365
"""Number of days from the first on which a problem may start."""
DAY_MINUTES = 24 * 60

PROBLEMS = {
    "later": (
        "What date is {span} after {date}?",
        "A parcel is sent on {day} and arrives {span} later. When does it arrive?",
        "Today is {day}. What will the date be in {span}?",
        "A course starts on {date}. The exam is {span} after the start. Find its date.",
    ),
    "earlier": (
        "What date is {span} before {date}?",
        "A bill is due on {day} and was written {span} earlier. When was it written?",
        "Today is {day}. What was the date {span} ago?",
        "A race is on {date}. Training began {span} before it. Find the date when it began.",
    ),
    "between": (
        "How many days after {first} is {second}?",
        "A trip starts on {first_day} and ends on {second_day}. How many days later is its end?",
        "Today is {first_day}. How many days is it until {second_day}?",
        "A tree was planted on {first} and felled on {second}. How many days passed?",
    ),
    "weekday": (
        "{date} is a {weekday}. Which weekday and date is {count} days later?",
        "A ship leaves on {weekday}, {day}, and lands {count} days later. When does it land?",
        "Today is {weekday}, {day}. Which weekday and date will it be in {count} days?",
        "From {weekday}, {date}, a loan runs for {count} days. Find its last weekday and date.",
    ),
    "ends": (
        "A shift starts at {start} and lasts {parts}. At what time does it end?",
        "Someone leaves at {start} and travels for {parts}. What time is it on arrival?",
        "It is {start}. What time will the clock show after {parts}?",
        "An oven is switched on at {start} and runs for {parts}. When does it stop?",
    ),
    "lasts": (
        "How many minutes pass from {start} to {end}?",
        "A train leaves at {start} and arrives at {end}. How many minutes does it travel?",
        "A machine runs from {start} until {end}. For how many minutes does it run?",
        "It was {start}, now it is {end}. How many minutes have gone by?",
    ),
    "change": (
        "You buy {basket}{discount} and pay with ${paid}. How much change do you get?",
        "Someone pays ${paid} for {basket}{discount}. What is the change?",
        "A customer takes {basket}{discount} and hands over ${paid}. How much comes back?",
        "From ${paid} you pay for {basket}{discount}. How much money is left?",
    ),
    "convert": (
        "How many {unit} are {amount}?",
        "Write {amount} in {unit}. How many {unit} is that?",
        "A report says {amount}. What number of {unit} does that make?",
        "Someone needs {amount} expressed in {unit}. Find the number.",
    ),
    "wage": (
        "Work pays ${rate} an hour. Someone works {work}.{fee} How much is earned?",
        "Someone works {work} at ${rate} an hour.{fee} What is the pay?",
        "A repair takes {work} at ${rate} an hour.{fee} What sum is paid?",
        "The hourly rate is ${rate} and a job takes {work}.{fee} How much does it bring in?",
    ),
    "offcut": (
        "{boards} cut into as many {piece} cm pieces as possible. "
        "How many cm are left over{total}?",
        "{boards} used for shelves of {piece} cm, as many as can be made. "
        "How many cm remain{total}?",
        "{boards} divided into lengths of {piece} cm until too little is left. "
        "How many cm of waste are there{total}?",
        "{boards} sawn into parts of {piece} cm, as many as there can be. "
        "How long is the rest{total}, in cm?",
    ),
}
LATER_SPANS = {1: (2, 40), 2: (41, 420), 3: (421, 2500)}
BETWEEN = {1: (5, 60), 2: (61, 500), 3: (501, 4000)}
WEEKDAY_SPANS = {1: (3, 30), 2: (31, 300), 3: (301, 2500)}
GOODS = ("pens", "cups", "books", "lamps", "plates", "scarves", "caps", "bowls", "mugs")
NOTES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
"""What one pays with, in cents."""
PERCENTS = (5, 10, 15, 20, 25, 30, 40)
SCALES = (
    (("kilometres", 1000), ("metres", 100), ("centimetres", 1)),
    (("tonnes", 1000), ("kilograms", 1000), ("grams", 1)),
    (("litres", 10), ("decilitres", 100), ("millilitres", 1)),
    (("weeks", 7), ("days", 24), ("hours", 1)),
    (("days", 24), ("hours", 60), ("minutes", 1)),
    (("hours", 60), ("minutes", 60), ("seconds", 1)),
    (("yards", 3), ("feet", 12), ("inches", 1)),
    (("US gallons", 4), ("quarts", 4), ("cups", 1)),
)
"""Units with how many of the next each holds: 1 kilometre is 1000 metres, and so on."""

Made = tuple[str, dict[str, Any], tuple[Any, ...]]
"""The answer in its one form, the fields of the wordings, and the numbers for the key."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    kind = rng.choice(sorted(MAKERS))
    form, make = MAKERS[kind]
    answer, fields, numbers = make(rng, level)
    drawn = rng.randrange(2)
    wording = WORDINGS[template]
    problem = PROBLEMS[kind][drawn if wording is None else wording].format(**fields)
    name, example = FORMS[form]
    reply = REPLIES[template].format(form=name, example=example)
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(reply)},
            {"role": "user", "content": TEMPLATES[template].format(problem=problem)},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": f"{kind} {' '.join(map(str, numbers))}",
        "meta": {"kind": kind},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion gives the answer's number in its format (see ``numeric``), or
    its last non-empty line is the date, time or amount; spaces do not count there. The answer
    closes the completion, but for spaces, line ends and, after a number, one full stop."""
    text = text.strip(" \n")
    whole = answer.strip("<>").isdigit()
    closed = not whole or _CLOSING["<" in answer].search(text)
    return numeric(text, answer) if closed and _TYPED.fullmatch(text) else 0.0


_TYPED = re.compile(r"[ -~\n]*")
"""Characters of a completion: ASCII that shows, spaces and line ends."""
_CLOSING = (
    re.compile(
        r"(?<![-0-9,.*/+^%])(?<![0-9][:;])(?<![0-9] [-*/+] )[0-9]+(?:,[0-9]{3})*\.?\Z",
    ),
    re.compile(r">\.?\Z"),
)
"""What closes a completion whose answer is a whole number, bare or in angle brackets: no list
and no sum, product or quotient left undone."""


def audit(text: str, answer: str) -> float:
    """1.0 iff the whole completion is a value of the answer's form, equal to the answer's."""
    given, wanted = (_parse(part.strip(" \n")) for part in (text, answer))
    return float(given is not None and given == wanted)


def _parse(text: str) -> tuple[str, str, Any] | None:
    """The frame, the form and the value of a text; None if it has no form or is written in
    another way than the one canonical way."""
    frame = ""
    if text.startswith("<") and text.endswith(">"):
        frame, text = "<>", text[1:-1]
    elif text.startswith("answer="):
        frame, text = "answer=", text[7:]
    if not 0 < len(text) <= 20 or not text.isascii():
        return None
    for form, read in READERS.items():
        try:
            value, written = read(text)
        except (ValueError, OverflowError):
            continue
        if written == text:
            return frame, form, value
    return None


def _read_number(text: str) -> tuple[Any, str]:
    value = int(text)
    return value, str(value)


def _read_money(text: str) -> tuple[Any, str]:
    dollars, _, cents = text.partition(".")
    value = int(dollars), int(cents)
    return value, f"{value[0]}.{value[1]:02d}"


def _read_time(text: str) -> tuple[Any, str]:
    value = datetime.time.fromisoformat(text)
    return value, value.isoformat("minutes")


def _read_date(text: str) -> tuple[Any, str]:
    value = datetime.date.fromisoformat(text)
    return value, value.isoformat()


def _read_day(text: str) -> tuple[Any, str]:
    value = datetime.datetime.strptime(text[4:], "%Y-%m-%d")
    return value, f"{WEEKDAYS[value.weekday()][:3]},{value.date().isoformat()}"


READERS: dict[str, Callable[[str], tuple[Any, str]]] = {
    "number": _read_number,
    "money": _read_money,
    "time": _read_time,
    "date": _read_date,
    "day": _read_day,
}


def _later(rng: random.Random, level: int) -> Made:
    date, days, span = _date_and_span(rng, level)
    answer = date + datetime.timedelta(days)
    return str(answer), {"date": date, "day": _long(date), "span": span}, (date, days)


def _earlier(rng: random.Random, level: int) -> Made:
    date, days, span = _date_and_span(rng, level)
    answer = date - datetime.timedelta(days)
    return str(answer), {"date": date, "day": _long(date), "span": span}, (date, days)


def _between(rng: random.Random, level: int) -> Made:
    first = _date(rng)
    days = rng.randint(*BETWEEN[level])
    second = first + datetime.timedelta(days)
    fields = {"first": first, "second": second}
    fields |= {"first_day": _long(first), "second_day": _long(second)}
    return str(days), fields, (first, second)


def _weekday(rng: random.Random, level: int) -> Made:
    date = _date(rng)
    days = rng.randint(*WEEKDAY_SPANS[level])
    end = date + datetime.timedelta(days)
    fields = {"date": date, "day": _long(date), "weekday": WEEKDAYS[date.weekday()]}
    answer = f"{WEEKDAYS[end.weekday()][:3]},{end}"
    return answer, {**fields, "count": days}, (date, days)


def _ends(rng: random.Random, level: int) -> Made:
    start = rng.randrange(DAY_MINUTES // 2 if level == 1 else DAY_MINUTES)
    parts = [rng.randint(61, 660 // level + 60) for _ in range(level)]
    told = " plus ".join(f"{part // 60} h {part % 60} min" for part in parts)
    answer = _clock((start + sum(parts)) % DAY_MINUTES)
    return answer, {"start": _clock(start), "parts": told}, (start, *sorted(parts))


def _lasts(rng: random.Random, level: int) -> Made:
    start, end = rng.sample(range(DAY_MINUTES), 2)
    date, days = _date(rng), 0
    if level == 3:
        days = rng.randint(2, 9)
    elif end < start:
        start, end = end, start
    if level == 2:
        start, end, days = end, start, 1
    later = {0: " the same day", 1: " the next day"}.get(days, f" on {_long(_plus(date, days))}")
    since = f" on {_long(date)}" if level == 3 else ""
    fields = {"start": f"{_clock(start)}{since}", "end": f"{_clock(end)}{later}"}
    key = (start, end, days, date if level == 3 else "")
    return str(end - start + days * DAY_MINUTES), fields, key


def _change(rng: random.Random, level: int) -> Made:
    percent = 0
    while True:
        lines = [(rng.randint(2, 9), rng.randint(50, 1500 // level)) for _ in range(level)]
        if level == 3:
            percent = rng.choice(PERCENTS)
        full = sum(count * price for count, price in lines)
        cents, rest = divmod(full * (100 - percent), 100)
        if rest == 0:
            break
    paid = rng.choice([note for note in NOTES if note > cents][:2])
    goods = rng.sample(GOODS, level)
    basket = [
        f"{count} {name} at ${_money(price)} each"
        for name, (count, price) in zip(goods, lines, strict=True)
    ]
    discount = f" (all at {percent} percent off)" if percent else ""
    fields = {"basket": _listing(basket), "discount": discount, "paid": paid // 100}
    return _money(paid - cents), fields, (paid, percent, *sorted(lines))


def _convert(rng: random.Random, level: int) -> Made:
    scale = rng.choice(SCALES)
    if level == 1:
        first = rng.randrange(2)
        scale = scale[first : first + 2]
    counts = [rng.randint(2, 40)]
    counts += [rng.randrange(2, above) for _, above in scale[:-1]]
    total = 0
    for count, above in zip(counts, (1, *(held for _, held in scale)), strict=False):
        total = total * above + count
    times = rng.randint(3, 9) if level == 3 else 1
    names = [name for name, _ in scale]
    told = _listing([f"{count} {name}" for count, name in zip(counts, names, strict=True)])
    fields = {"unit": names[-1], "amount": f"{times} times ({told})" if times > 1 else told}
    return str(times * total), fields, (names[-1], names[0], times, *counts)


def _wage(rng: random.Random, level: int) -> Made:
    rate = 4 * rng.randint(225, 1000)
    quarters = 4 * rng.randint(2, 9) + (rng.randint(1, 3) if level > 1 else 0)
    work = f"{quarters // 4} hours" + (f" {15 * (quarters % 4)} minutes" if level > 1 else "")
    days, fee, told = 1, 0, ""
    if level == 3:
        days, fee = rng.randint(2, 6), rng.randint(101, 999)
        work = f"{days} days of {work} each"
        told = f" A fee of ${_money(fee)} is taken off."
    cents = days * quarters * (rate // 4) - fee
    fields = {"rate": _money(rate), "work": work, "fee": told}
    return _money(cents), fields, (rate, quarters, days, fee)


def _offcut(rng: random.Random, level: int) -> Made:
    while True:
        boards = rng.randint(3, 9) if level == 3 else 1
        length = 100 * rng.randint(3, 30) + (rng.randint(2, 99) if level > 1 else 0)
        piece = rng.randint(31, 98)
        if length % piece:
            break
    told = f"{length // 100} m" + (f" {length % 100} cm" if length % 100 else "")
    subject = f"A board of {told} is" if boards == 1 else f"Each of {boards} boards of {told} is"
    fields = {"boards": subject, "piece": piece, "total": "" if boards == 1 else " in all"}
    return str(boards * (length % piece)), fields, (boards, length, piece)


MAKERS: dict[str, tuple[str, Callable[[random.Random, int], Made]]] = {
    "later": ("date", _later),
    "earlier": ("date", _earlier),
    "between": ("number", _between),
    "weekday": ("day", _weekday),
    "ends": ("time", _ends),
    "lasts": ("number", _lasts),
    "change": ("money", _change),
    "convert": ("number", _convert),
    "wage": ("money", _wage),
    "offcut": ("number", _offcut),
}
"""The form of a kind's answer, and what makes a problem of a level."""


def _date(rng: random.Random) -> datetime.date:
    return _plus(FIRST_DAY, rng.randrange(DAYS))


def _plus(date: datetime.date, days: int) -> datetime.date:
    return date + datetime.timedelta(days)


def _date_and_span(rng: random.Random, level: int) -> tuple[datetime.date, int, str]:
    """A date, a number of days, and that number in words: days, or weeks and days."""
    date = _date(rng)
    days = rng.randint(*LATER_SPANS[level])
    if level == 1:
        return date, days, f"{days} days"
    while days % 7 < 2:
        days += 1
    if level == 2:
        return date, days, f"{days // 7} weeks and {days % 7} days"
    more = rng.randint(20, 200)
    span = f"{days // 7} weeks, {days % 7} days and then another {more} days"
    return date, days + more, span


def _long(date: datetime.date) -> str:
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _listing(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
