"""Times of day: worked out again with datetime, and what is paid for."""

from __future__ import annotations

import datetime
import re

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("clock")
SPLITS = ["train", "train_fixed", "id", "hard", "format"]
DAY = datetime.datetime(2001, 1, 1)
FORMS = {4: "<%H:%M>", 5: "%Hh%M"}


def asked(text: str) -> tuple[datetime.datetime, datetime.timedelta]:
    """The time of a prompt and what is added to it, in any wording."""
    plus = re.search(r"(\d\d):(\d\d)\+(?:(\d+):)?(\d+)=", text)
    if plus:
        hour, minute, hours, minutes = (int(found or 0) for found in plus.groups())
    else:
        (time,) = re.findall(r"\b(\d\d):(\d\d)\b", text)
        hour, minute = map(int, time)
        span = {unit: int(number) for number, unit in re.findall(r"(\d+) (hours|minutes)", text)}
        hours, minutes = span.get("hours", 0), span["minutes"]
    added = datetime.timedelta(hours=hours, minutes=minutes)
    return DAY.replace(hour=hour, minute=minute), added


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_what_datetime_gives(split: str) -> None:
    for row in TASK.rows(split):
        start, added = asked(row["messages"][-1]["content"])
        form = FORMS.get(row["template"], "%H:%M")
        assert row["answer"] == (start + added).strftime(form), row["id"]
        assert asked(f"{row['key']}=") == (start, added)


@pytest.mark.parametrize("split", SPLITS)
def test_a_level_crosses_what_its_name_says(split: str) -> None:
    for row in TASK.rows(split):
        start, added = asked(row["messages"][-1]["content"])
        end, minutes = start + added, added.seconds // 60
        hours_later = (end.replace(minute=0) - start.replace(minute=0)).seconds // 3600
        if row["level"] == 1:
            assert hours_later == 0 and minutes % 5 == 0
        elif row["level"] == 2:
            assert hours_later == 1 and end.day == start.day and 2 <= minutes <= 59
        else:
            assert end.day == start.day + 1 and minutes > 120 and minutes % 60


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("09:05", "09:05"),
        (" 09:05\n", "09:05"),
        ("\n\n09:05", "09:05"),
        ("<09:05>", "<09:05>"),
        ("09h05", "09h05"),
    ],
)
def test_right(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 1.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "09:05"),
        ("9:05", "09:05"),
        ("9:5", "09:05"),
        ("0905", "09:05"),
        ("009:05", "09:05"),
        ("09:05:00", "09:05"),
        ("09:050", "09:05"),
        ("33:05", "09:05"),
        ("08:65", "09:05"),
        ("09.05", "09:05"),
        ("09: 05", "09:05"),
        ("09:05.", "09:05"),
        ("09:05 am", "09:05"),
        ("21:05", "09:05"),
        ("05:09", "09:05"),
        ("09:05 09:05", "09:05"),
        ("09:05 09:06", "09:05"),
        ("09:05\n09:06", "09:05"),
        ("09:04, 09:05", "09:05"),
        ("08:45+20=09:05", "09:05"),
        ("08:45+20=\n08:45+20=", "09:05"),
        ("\uff10\uff19:\uff10\uff15", "09:05"),
        ("09\u223605", "09:05"),
        ("09:\u200b05", "09:05"),
        ("09:05\x00", "09:05"),
        ("09:05", "<09:05>"),
        ("<09:05", "<09:05>"),
        ("<<09:05>>", "<09:05>"),
        ("<09:04><09:05>", "<09:05>"),
        ("<09h05>", "<09:05>"),
        ("09:05", "09h05"),
        ("09H05", "09h05"),
        ("..:..", "09:05"),
    ],
)
def test_wrong(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 0.0


def test_lines_before_the_last_count_for_the_verifier_only() -> None:
    text = "08:45 and 15 are 09:00\n09:05"
    assert (TASK.verify(text, "09:05"), TASK.audit(text, "09:05")) == (1.0, 0.0)


def test_a_list_of_answers_is_too_long_for_the_verifier() -> None:
    wrong = "09:06\n"
    for count in range(1, 64):
        text = wrong * count + "09:05"
        assert TASK.verify(text, "09:05") == float(len(text) <= 64)
        assert TASK.audit(text, "09:05") == 0.0


def test_every_time_of_the_day_in_a_list_is_paid_for_none() -> None:
    times = [f"{hour:02d}:{minute:02d}" for hour in range(24) for minute in range(60)]
    for row in TASK.rows("id")[:64]:
        others = [time for time in times if time != row["answer"]]
        for text in (" ".join(times), ",".join(times), "\n".join([row["answer"], *others])):
            assert TASK.verify(text, row["answer"]) == TASK.audit(text, row["answer"]) == 0.0
