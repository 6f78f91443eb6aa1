"""Environments with tools: the best script, scripts that do not look, faults, and both judges."""

from __future__ import annotations

import functools
import json
import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crlbench.catalog.code import load_code
from crlbench.reward.env import Call, Position, Said, canonical, read_start, transcript
from crlbench.reward.playing import open_episode, take_turn
from crlbench.reward.splits import SPLITS, freeze_rng
from crlbench.reward.tools import read_text, tools_of

ROOT = Path(__file__).parents[2]
PLAIN = ("lookup", "calc", "shop")
NAMES = (*PLAIN, pytest.param("python-tool", marks=pytest.mark.slow))
ROWS = 24
"""Rows of a split that are played."""


@functools.cache
def code(name: str) -> types.ModuleType:
    return load_code(ROOT / "tasks" / name / "task.py")


@functools.cache
def rows(name: str, split: str = "id") -> list[dict[str, Any]]:
    module = code(name)
    return module.build(split, freeze_rng(name, module.CARD["version"], split))


def some(name: str) -> list[dict[str, Any]]:
    return [*rows(name)[:ROWS], *rows(name, "hard")[:ROWS]]


Policy = Callable[[dict[str, Any], Position], Said]
"""(state, position) -> what is said."""


def play(name: str, answer: str, policy: Policy) -> tuple[float, str, Position]:
    """The score of an episode, its transcript and its end; both judges agree on it."""
    module, start = code(name), read_start(answer)
    position = open_episode(module.ENVIRONMENT, start)
    said: list[Said] = []
    while position.scores is None:
        said.append(policy(json.loads(position.state), position))
        position = take_turn(module.ENVIRONMENT, start, position, said[-1])
    text = transcript(said)
    score = module.verify(text, answer).outcome
    assert score == position.scores[0]
    assert module.audit(text, answer) == pytest.approx(score)
    return score, text, position


def texts_of(text: str) -> list[str]:
    """What is said in a transcript."""
    return [turn if isinstance(turn, str) else turn["text"] for turn in json.loads(text)]


def best(name: str) -> Policy:
    module = code(name)
    return lambda state, position: read_text(module.ENVIRONMENT, module.best(state))


def lines(name: str, texts: list[str]) -> Policy:
    """Says these lines in turn, whatever it sees; the last again and again."""

    def policy(state: dict[str, Any], position: Position) -> Said:
        text = texts[min(len(position.turns), len(texts) - 1)]
        return read_text(code(name).ENVIRONMENT, text)

    return policy


@pytest.mark.parametrize("name", NAMES)
def test_the_best_script_has_full_marks_and_is_the_gold(name: str) -> None:
    for row in [*some(name), *rows(name, "format")[:ROWS]]:
        score, text, end = play(name, row["answer"], best(name))
        assert score == 1.0, row["answer"]
        assert not any(turn.fault for turn in end.turns)
        assert code(name).gold(row["answer"]) == text
        longest = max(len(said.encode()) for said in texts_of(text))
        assert longest <= code(name).CARD["max_completion_bytes"]


@pytest.mark.parametrize("name", NAMES)
def test_nobody_scores_who_does_not_look(name: str) -> None:
    """Silence, an echo of the view, another row's gold, and the best sequence found by trying."""
    items = some(name)
    scripts: list[Policy] = [lines(name, [text]) for text in ("", "7", "10", "100", "get a")]
    scripts.append(lambda state, position: Said(position.view[-1]["content"]))
    scores = [sum(play(name, r["answer"], one)[0] for r in items) / len(items) for one in scripts]
    assert max(scores) <= 0.05
    other = []
    for row, donor in zip(items, items[1:] + items[:1], strict=True):
        donated = texts_of(play(name, donor["answer"], best(name))[1])
        other.append(play(name, row["answer"], lines(name, donated))[0])
    assert sum(other) / len(other) <= 0.35


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_pure_and_total(name: str) -> None:
    module = code(name)
    said = [
        Said(""),
        Said("12"),
        Said("\ud800\x00" * 9),
        Said("{", malformed="not JSON"),
        Said("get a", cut=True),
        Said("x", (Call("nothing", {}),)),
        *(Said("x", (Call(tool.name, {}),) * 4) for tool in tools_of(module.ENVIRONMENT)),
        *(Said("x", (Call(tool.name, {"z": 1}),) * 5) for tool in tools_of(module.ENVIRONMENT)),
    ]
    for row in some(name)[::6]:
        start = read_start(row["answer"])
        state = json.loads(start.state)
        for one in said:
            before = canonical(state)
            first, again = (module.step(state, one, lambda label: 0.5) for _ in range(2))
            assert first == again and canonical(state) == before
            assert canonical(first.state)
            assert play(name, row["answer"], lambda state, position, one=one: one)[0] in (0.0, 1.0)


@pytest.mark.parametrize("fault", ["not JSON", "cut off"])
@pytest.mark.parametrize("name", NAMES)
def test_an_episode_ends_in_time_whatever_is_called(name: str, fault: str) -> None:
    malformed = Said("{", malformed=fault)
    _, text, end = play(name, rows(name)[0]["answer"], lambda state, position: malformed)
    assert len(json.loads(text)) == code(name).MAX_TURNS
    assert {turn.fault for turn in end.turns} == {fault}


@pytest.mark.parametrize("name", ["lookup", "calc", "shop", "python-tool"])
def test_a_view_shows_nothing_that_is_hidden(name: str) -> None:
    module = code(name)
    other = {"store": {}, "right": True, "calls": 9, "bought": "p001", "code": "", "value": "x"}
    for row in [rows(name)[i] for i in range(0, 60, 7)]:
        state = json.loads(read_start(row["answer"]).state)
        changed = state | {field: other[field] for field in module.hidden(state, 0)}
        assert changed != state
        assert module.observe(state, 0) == module.observe(changed, 0) == row["messages"]
        assert module.news(state, 0) == module.news(changed, 0) == row["messages"]


@pytest.mark.parametrize("name", ["lookup", "calc"])
def test_toy_views_and_texts_are_short(name: str) -> None:
    for row in some(name):
        _, text, end = play(name, row["answer"], best(name))
        assert len(row["messages"][-1]["content"].encode()) <= 24
        assert all(len(said.encode()) <= 12 for said in texts_of(text))


def start_of(name: str, **fields: Any) -> str:
    """The first row's answer with other fields in its state."""
    start = read_start(rows(name)[0]["answer"])
    state = json.loads(start.state) | fields
    return canonical({"state": state, "seat": 0, "chance": start.chance})


def test_lookup_by_hand() -> None:
    answer = start_of("lookup", terms=["b", "14"], store={"b": "7", "c": "9"})
    views = []

    def policy(state: dict[str, Any], position: Position) -> Said:
        views.append(position.view[-1]["content"])
        return lines("lookup", ["get c", "get b", "21"])(state, position)

    assert play("lookup", answer, policy)[0] == 1.0
    assert views == ["b+14=", "b+14=", "7+14="]
    assert play("lookup", answer, lines("lookup", ["21"]))[0] == 1.0  # a lucky guess is a sum
    assert play("lookup", answer, lines("lookup", ["get b", "22"]))[0] == 0.0
    assert play("lookup", answer, lines("lookup", ["get b"]))[0] == 0.0
    both = Said("x", (Call("get", {"key": "b"}), Call("get", {"key": "z"})))
    step = code("lookup").step(json.loads(read_start(answer).state), both, lambda label: 0.0)
    assert code("lookup").news(step.state, 0) == [
        {"role": "tool", "content": "7"},
        {"role": "tool", "content": "nothing"},
    ]


@pytest.mark.parametrize(
    ("ask", "texts", "score"),
    [
        ("37*84", ["calc 37*84", "3108"], 1.0),
        ("37*84", ["3108"], 1.0),
        ("37*84", ["calc 37*8", "calc 37*84", "3108"], 0.75),
        ("37*84", ["calc 1", "calc 2", "calc 37*84", "3108"], 0.5),
        ("37*84", ["calc 37*84", "3018"], 0.0),
        ("37*84", ["calc 37*84"], 0.0),
        ("12+30", ["42"], 1.0),
        ("12+30", ["calc 12+30", "42"], 0.75),
        ("12+30", ["calc", "42"], 1.0),  # a fault computes nothing
        ("12+30", ["43"], 0.0),
    ],
)
def test_calc_by_hand(ask: str, texts: list[str], score: float) -> None:
    assert play("calc", start_of("calc", ask=ask), lines("calc", texts))[0] == score


def test_the_calculator_shows_its_result_behind_the_question() -> None:
    module = code("calc")
    state = json.loads(read_start(start_of("calc", ask="37*84")).state)
    for expression, shown in (("37*84", "3108"), ("2**500", "too large"), ("1/3", "1/3")):
        call = Said("x", (Call("calc", {"expression": expression}),))
        step = module.step(state, call, lambda label: 0.0)
        assert module.observe(step.state, 0)[-1]["content"] == f"37*84={shown}"


def test_shop_by_hand() -> None:
    products = code("shop").PRODUCTS
    assert len(products) == 144 and len({one.words for one in products.values()}) == 144
    name, product = next(iter(products.items()))
    wish = {"thing": product.thing, "budget": product.price}
    like = sorted([product.colour, product.material])

    def score(like: list[str], budget: int, texts: list[str], thing: str = product.thing) -> float:
        answer = start_of("shop", wish={"thing": thing, "budget": budget, "like": like})
        return play("shop", answer, lines("shop", texts))[0]

    assert score(like, wish["budget"], [f"buy {name}"]) == 1.0
    assert score([like[0], "paper"], wish["budget"], [f"buy {name}"]) == pytest.approx(2 / 3)
    assert score(["paper"], wish["budget"], [f"buy {name}"]) == 0.5
    assert score(like, wish["budget"] - 1, [f"buy {name}"]) == 0.0
    assert score(like, wish["budget"], [f"buy {name}"], thing="spoon") == 0.0
    assert score(like, wish["budget"], ["buy p999", "search 99 x", f"buy {name}"]) == 1.0
    assert score(like, wish["budget"], ["search 99 x"]) == 0.0
    assert score(like, wish["budget"], [f"I buy {name}"]) == 0.0


def test_two_orders_in_one_turn_are_one() -> None:
    module = code("shop")
    first, second, *_ = module.PRODUCTS
    product = module.PRODUCTS[first]
    wish = {"thing": product.thing, "budget": product.price, "like": [product.colour]}
    both = Said("x", (Call("buy", {"id": first}), Call("buy", {"id": second})))
    answer = start_of("shop", wish=wish)
    assert play("shop", answer, lambda state, position: both)[0] == 1.0


def test_every_wish_can_be_met_and_search_finds_it_first() -> None:
    module = code("shop")
    for row in rows("shop") + rows("shop", "hard"):
        wish = json.loads(read_start(row["answer"]).state)["wish"]
        state = {"wish": wish, "form": 0, "told": [], "asked": "", "bought": ""}
        said = read_text(module.ENVIRONMENT, module.best(state))
        step = module.step(state, said, lambda label: 0.0)
        name = step.state["told"][0].split(" ")[0]
        assert module.score({**state, "bought": name}) == (1.0,)


@pytest.mark.slow
def test_python_answers_by_running_and_starts_afresh() -> None:
    module = code("python-tool")
    state = {"ask": "q", "code": "print(1)", "value": "1", "form": 0, "told": [], "right": False}

    def run(text: str) -> str:
        said = Said("x", (Call("python", {"code": text}),))
        return module.step(state, said, lambda label: 0.0).state["told"][0]

    assert run("print(sum(range(5)))") == "10"
    assert run("x = 1") == "(no output)"
    assert run("print(x)") == "error: NameError: name 'x' is not defined"
    assert run("print(1)\n1/0") == "1\nerror: ZeroDivisionError: division by zero"
    assert run("if") == "error: SyntaxError: invalid syntax (code, line 1)"
    assert run("while True: pass") == "error: stopped by a limit"
    assert run("print(open('/etc/passwd').read())").startswith("error: ")
    assert run("import socket; socket.socket()").startswith("error: ")
    assert run("print('é' * 2000)").endswith("[cut]")
    assert run("#" * 3000) == "error: the code is too long"


@pytest.mark.slow
def test_values_of_questions_are_those_of_their_programs() -> None:
    for row in some("python-tool"):
        state = json.loads(read_start(row["answer"]).state)
        assert code("python-tool").run_python(state["code"]) == state["value"]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_both_judges_agree_on_any_episode(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(PLAIN))
    row = data.draw(st.sampled_from(some(name)))
    words = st.sampled_from(["get", "calc", "buy", "search", "a", "7", "3*4", "p003", "99", "red"])
    texts = data.draw(st.lists(st.lists(words, max_size=3).map(" ".join), min_size=1, max_size=5))
    helped = data.draw(st.booleans())
    rng = random.Random(data.draw(st.integers(0, 99)))

    def policy(state: dict[str, Any], position: Position) -> Said:
        blind = lines(name, texts)(state, position)
        return best(name)(state, position) if helped and rng.random() < 0.7 else blind

    assert 0.0 <= play(name, row["answer"], policy)[0] <= 1.0


@pytest.mark.parametrize("name", NAMES)
def test_no_other_text_is_an_episode(name: str) -> None:
    row = rows(name)[0]
    whole = json.loads(play(name, row["answer"], best(name))[1])
    module = code(name)
    texts = ["", "[]", "7", "{}", "[7]", canonical(whole[:-1]), canonical([*whole, "7"]), "[[[["]
    for text in texts:
        assert module.verify(text, row["answer"]).outcome == 0.0
        assert module.audit(text, row["answer"]) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lookup", "calc", "shop", "python-tool"])
def test_training_and_evaluation_share_no_key(name: str) -> None:
    keys = {split: {row["key"] for row in rows(name, split)} for split in SPLITS}
    assert not keys["train"] & (keys["id"] | keys["hard"]) and not keys["id"] & keys["hard"]
    assert len(keys["id"]) == code(name).SIZES.id
