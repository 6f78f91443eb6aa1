"""Hops: every path walked again from its prompt, and what is paid for."""

from __future__ import annotations

import random
import re

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("hops")
SPLITS = ["train", "train_fixed", "id", "hard", "format"]
HOPS = {1: {1, 2}, 2: {3, 4}, 3: {4, 5}}
ARROWS = {1: {2, 3}, 2: {5}, 3: {6}}
SEPARATORS = {5: ">"}
FORMS = {4: "<{}>"}
FROM = (
    r"from ([a-h]):$",
    r"^from ([a-h]):",
    r"^start at ([a-h]),",
    r"path of ([a-h]):$",
    r"from ([a-h]) as <>:$",
    r"from ([a-h]) with >:$",
)


def walked(text: str, template: int) -> tuple[dict[str, str], list[str]]:
    """The arrows of a prompt by their letters, and the letters from its start on."""
    arrows = re.findall("([a-h])>([a-h])", text)
    assert len({a for a, _ in arrows}) == len(arrows)  # one arrow of a letter at most
    table, (start,) = dict(arrows), re.findall(FROM[template], text)
    path = [start]
    while path[-1] in table:
        path.append(table[path[-1]])
        assert len({*path}) == len(path)
    return table, path


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_the_path_from_the_start_to_a_letter_without_an_arrow(split: str) -> None:
    for row in TASK.rows(split):
        table, path = walked(row["messages"][-1]["content"], row["template"])
        joined = SEPARATORS.get(row["template"], "").join(path)
        assert row["answer"] == FORMS.get(row["template"], "{}").format(joined), row["id"]
        assert len(path) - 1 in HOPS[row["level"]]
        assert len(path) - 1 < len(table) and len(table) in ARROWS[row["level"]]
        assert all(a != b for a, b in table.items())
        arrows = " ".join(sorted(f"{a}>{b}" for a, b in table.items()))
        assert row["key"] == f"{arrows} from {path[0]}"


def test_the_order_of_the_arrows_makes_no_new_key() -> None:
    rng = random.Random(3)
    for row in TASK.rows("id"):
        arrows, _, start = row["key"].partition(" from ")
        table = dict(arrow.split(">") for arrow in rng.sample(arrows.split(), len(arrows.split())))
        again, _ = walked(row["messages"][-1]["content"], 0)
        assert table == again and start == row["answer"][0]


@pytest.mark.parametrize("split", ["id", "hard"])
@pytest.mark.parametrize("hops", [1, 2, 3, 4, 5])
def test_letters_taken_as_they_stand_seldom_make_the_path(split: str, hops: int) -> None:
    """So that answers of one form, made without following an arrow, earn little."""
    rows, right = TASK.rows(split), {"letters": 0, "ends": 0, "sorted": 0}
    for row in rows:
        table, path = walked(row["messages"][-1]["content"], 0)
        letters = dict.fromkeys(c for pair in table.items() for c in pair if c != path[0])
        ends = [b for b in table.values() if b != path[0]]
        guesses = {"letters": [*letters], "ends": ends, "sorted": sorted(letters)}
        for name, guess in guesses.items():
            right[name] += [path[0], *guess[:hops]] == path
    assert all(count < 0.17 * len(rows) for count in right.values()), right


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("adcb", "adcb"),
        (" adcb\n", "adcb"),
        ("\n\nadcb", "adcb"),
        ("<adcb>", "<adcb>"),
        ("a>d>c>b", "a>d>c>b"),
    ],
)
def test_right(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 1.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "adcb"),
        ("b", "adcb"),
        ("ab", "adcb"),
        ("dcb", "adcb"),
        ("adc", "adcb"),
        ("adcbb", "adcb"),
        ("adcbe", "adcb"),
        ("bcda", "adcb"),
        ("acdb", "adcb"),
        ("ADCB", "adcb"),
        ("a d c b", "adcb"),
        ("a>d>c>b", "adcb"),
        ("adcb.", "adcb"),
        ("adcb adcb", "adcb"),
        ("adcb or adbc", "adcb"),
        ("adcb\nadbc", "adcb"),
        ("adcb\n" * 9 + "b", "adcb"),
        ("adcbabcd", "adcb"),
        ("a>d c>b d>c from a:", "adcb"),
        ("a>d c>b d>c from a:adcb", "adcb"),
        ("abcdefgh", "adcb"),
        ("\u0430dcb", "adcb"),
        ("\uff41\uff44\uff43\uff42", "adcb"),
        ("ad\u200bcb", "adcb"),
        ("adcb\x00", "adcb"),
        ("adcb", "<adcb>"),
        ("<adcb", "<adcb>"),
        ("<<adcb>>", "<adcb>"),
        ("<adbc><adcb>", "<adcb>"),
        ("adcb", "a>d>c>b"),
        ("a>d>c>b>", "a>d>c>b"),
        ("a > d > c > b", "a>d>c>b"),
        ("a>d d>c c>b", "a>d>c>b"),
        (".*", "adcb"),
    ],
)
def test_wrong(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 0.0


def test_lines_before_the_last_count_for_the_verifier_only() -> None:
    text = "from a to d to c to b\nadcb"
    assert (TASK.verify(text, "adcb"), TASK.audit(text, "adcb")) == (1.0, 0.0)


def test_a_list_of_answers_is_too_long_for_the_verifier() -> None:
    wrong = "adbc\n"
    for count in range(1, 64):
        text = wrong * count + "adcb"
        assert TASK.verify(text, "adcb") == float(len(text) <= 64)
        assert TASK.audit(text, "adcb") == 0.0
