"""Tools: what may be declared, what is wrong with a call, the store, the calculator, the search."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crlbench.errors import ValidationError
from crlbench.reward import bm25
from crlbench.reward.calculator import BY_ZERO, MAX_BITS, NO_EXPRESSION, TOO_LARGE, calculate
from crlbench.reward.env import Call, Said
from crlbench.reward.tools import (
    Tool,
    fault_of,
    get,
    put,
    said_on_line,
    take_calls,
    told_messages,
    tool_step,
    with_tools,
)

GOLDEN = json.loads(Path(__file__).with_name("bm25.json").read_text())


def tool(properties: dict[str, Any], required: list[str] | None = None, name: str = "t") -> Tool:
    given = {"type": "object", "properties": properties, "required": required or []}
    return Tool(name, "Does it.", given)


FULL = tool(
    {
        "word": {"type": "string", "description": "A word."},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "loud": {"type": "boolean"},
        "size": {"type": "string", "enum": ["s", "m"]},
        "places": {"type": "array", "items": {"type": "integer"}},
    },
    ["word", "count"],
)
RIGHT = {"word": "a", "count": 1}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, ""),
        ({"share": 2}, ""),
        ({"share": 0.5, "loud": False, "size": "m", "places": []}, ""),
        ({"places": [1, 2]}, ""),
        ({"word": 1}, "word must be a string"),
        ({"word": None}, "word must be a string"),
        ({"count": "1"}, "count must be an integer"),
        ({"count": 1.0}, "count must be an integer"),
        ({"count": True}, "count must be an integer"),
        ({"share": "0.5"}, "share must be a number"),
        ({"share": False}, "share must be a number"),
        ({"loud": 1}, "loud must be true or false"),
        ({"size": "l"}, "size must be one of s, m"),
        ({"size": 1}, "size must be one of s, m"),
        ({"places": "1"}, "places must be a list, each item an integer"),
        ({"places": [1, "2"]}, "places must be a list, each item an integer"),
        ({"places": [1.5]}, "places must be a list, each item an integer"),
        ({"colour": "red"}, "no such argument"),
    ],
)
def test_a_call_must_fit_its_declaration(arguments: dict[str, Any], fault: str) -> None:
    assert fault_of("t", RIGHT | arguments, [FULL]) == fault


def test_names_come_first_then_what_is_missing_in_the_declared_order() -> None:
    assert fault_of("T", {}, [FULL]) == "unknown tool"
    assert fault_of("t", {"colour": 1}, [FULL]) == "missing argument word"
    assert fault_of("t", {"word": 7}, [FULL]) == "missing argument count"


@pytest.mark.parametrize(
    ("properties", "required", "words"),
    [
        ({"a": {"type": "object"}}, [], "properties.a.type must be one of"),
        ({"a": {"type": ["string", "null"]}}, [], "properties.a.type must be one of"),
        ({"a": {"$ref": "#/b"}}, [], "properties.a.type must be one of"),
        ({"a": {"type": "string", "pattern": "x"}}, [], "properties.a.pattern is not supported"),
        ({"a": {"type": "array"}}, [], "an array needs items"),
        ({"a": {"type": "string", "items": {"type": "string"}}}, [], "nothing else has them"),
        ({"a": {"type": "array", "items": {"type": "date"}}}, [], "a.items.type must be one of"),
        ({"a": {"type": "string", "enum": []}}, [], "enum must list values of type string"),
        ({"a": {"type": "integer", "enum": ["1"]}}, [], "enum must list values of type integer"),
        ({"a b": {"type": "string"}}, [], "the name 'a b' is not allowed"),
        ({"a": {"type": "string"}}, ["b"], "required names 'b'"),
    ],
)
def test_a_declaration_beyond_the_subset_is_refused(
    properties: dict[str, Any], required: list[str], words: str
) -> None:
    with pytest.raises(ValidationError, match=words.replace("$", r"\$")):
        tool(properties, required)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "array"}, "must be a schema of type 'object'"),
        ({"type": "object"}, "parameters.properties must be an object"),
        ({"type": "object", "properties": {}, "$defs": {}}, "defs is not supported"),
    ],
)
def test_parameters_are_an_object_without_references(
    parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        Tool("t", "Does it.", parameters)


def test_a_tools_name_is_a_word() -> None:
    with pytest.raises(ValidationError, match="the name 'get it' is not allowed"):
        Tool("get it", "Gets it.")


def test_a_declaration_as_templates_and_as_one_line() -> None:
    function = FULL.as_function()
    assert function["type"] == "function"
    assert function["function"]["parameters"] is FULL.parameters
    assert Tool(**FULL.as_data()) == FULL
    assert with_tools("Do it.", [SAY]) == (
        "Do it. To call a tool, reply with its name and the arguments: say <word: string> - Does"
        " it."
    )
    assert FULL.as_line() == (
        "t <word: string> <count: integer> [share: number] [loud: boolean] [size: s|m]"
        " [places: array] - Does it."
    )


SAY = tool({"word": {"type": "string"}}, ["word"], "say")


def spell(state: dict[str, Any], name: str, arguments: Any) -> tuple[dict[str, Any], str]:
    return {**state, "said": state["said"] + [arguments["word"]]}, arguments["word"].upper()


def test_calls_run_in_order_and_a_wrong_one_spoils_no_other() -> None:
    calls = [("say", {"word": "a"}), ("say", {}), ("shout", {}), ("say", {"word": "b"})]
    state, results, fault = take_calls({"said": []}, calls, [SAY], spell)
    assert state == {"said": ["a", "b"]}
    assert results == ["A", "missing argument word", "unknown tool", "B"]
    assert fault == "missing argument word"


def test_of_five_calls_none_runs() -> None:
    calls = [("say", {"word": "a"})] * 5
    assert take_calls({"said": []}, calls[:4], [SAY], spell)[0] == {"said": ["a"] * 4}
    assert take_calls({"said": []}, calls, [SAY], spell) == (
        {"said": []},
        ["one call at a time"],
        "one call at a time",
    )


def test_a_turn_with_calls_becomes_a_step() -> None:
    state = {"said": [], "told": ["old"]}
    call = Call("say", {"word": "a"})
    step = tool_step(state, Said("say a", (call,)), [SAY], spell)
    assert step is not None and not step.over and not step.fault
    assert step.state == {"said": ["a"], "told": ["A"]}
    assert told_messages(step.state) == [{"role": "tool", "content": "A"}]
    assert state == {"said": [], "told": ["old"]}
    bad = tool_step(state, Said("{", malformed="not JSON"), [SAY], spell)
    assert bad is not None and (bad.fault, bad.state["told"]) == ("not JSON", ["not JSON"])
    cut = tool_step(state, Said("say a", (call,), cut=True), [SAY], spell)
    assert cut is not None and cut.over and cut.fault == "cut off" and cut.state["said"] == []
    assert tool_step(state, Said("hello"), [SAY], spell) is None


def test_a_store_is_copied_and_bounded() -> None:
    store = {"a": "1"}
    assert get(store, "a") == "1" and get(store, "b") == "nothing"
    assert put(store, "b", "2") == ({"a": "1", "b": "2"}, "ok")
    assert put(store, "a", "2") == ({"a": "2"}, "ok")
    assert put(store, "b", "2", limit=1) == ({"a": "1"}, "full")
    assert put(store, "bb", "2", limit=1) == ({"a": "1"}, "too long")
    assert store == {"a": "1"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("37*84", "3108"),
        ("1/3", "1/3"),
        ("2/4", "1/2"),
        ("0.1+0.2", "3/10"),
        ("-7//2", "-4"),
        ("7%-3", "-2"),
        ("-(2+3)*-4", "20"),
        ("2**10", "1024"),
        ("2**-2", "1/4"),
        ("(-1)**1000001", "-1"),
        ("1**99999999999", "1"),
        ("0**0", "1"),
        ("0**5", "0"),
        (" 1 + 1 ", "2"),
        ("2*(3", NO_EXPRESSION),
        ("2(3)", NO_EXPRESSION),
        ("1.", NO_EXPRESSION),
        ("012", NO_EXPRESSION),
        ("", NO_EXPRESSION),
        ("1e9", NO_EXPRESSION),
        ("1_000", NO_EXPRESSION),
        ("4**0.5", NO_EXPRESSION),
        ("(1,2)", NO_EXPRESSION),
        ("__import__('os')", NO_EXPRESSION),
        ("...", NO_EXPRESSION),
        ("1\n+1", NO_EXPRESSION),
        ("(" * 99 + "1" + ")" * 99, "1"),
        ("1" * 201, NO_EXPRESSION),
        ("1/0", BY_ZERO),
        ("1%0", BY_ZERO),
        ("1//(2-2)", BY_ZERO),
        ("0**-1", BY_ZERO),
        ("2**512", TOO_LARGE),
        ("9**9**9", TOO_LARGE),
        ("9" * 199, TOO_LARGE),
    ],
)
def test_the_calculator_is_exact_and_bounded(expression: str, value: str) -> None:
    assert calculate(expression) == value


@given(st.text(alphabet="0123456789+-*/%(). ", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_value_or_one_of_three_sentences(expression: str) -> None:
    found = calculate(expression)
    if found not in (NO_EXPRESSION, BY_ZERO, TOO_LARGE):
        value = Fraction(found)
        assert str(value) == found
        assert max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS


@given(st.integers(-999, 999), st.integers(-999, 999), st.integers(1, 99), st.sampled_from("+-*"))
@settings(max_examples=100, deadline=None)
def test_values_are_those_of_fractions(a: int, b: int, c: int, sign: str) -> None:
    whole = {"+": a + b, "-": a - b, "*": a * b}[sign]
    assert calculate(f"(({a}){sign}({b}))/{c}") == str(Fraction(whole, c))


def test_search_scores_are_those_of_another_library() -> None:
    corpus = bm25.Corpus(GOLDEN["documents"])
    assert len(GOLDEN["queries"]) == 8
    for query in GOLDEN["queries"]:
        scores = corpus.scores(query["query"])
        assert scores.keys() == query["scores"].keys()
        for name, value in query["scores"].items():
            assert float(scores[name]) == pytest.approx(value, rel=1e-12, abs=1e-12)
        ranked = sorted(query["scores"], key=lambda name: -query["scores"][name])
        assert corpus.search(query["query"], 3) == ranked[:3]


def test_a_score_is_its_formula() -> None:
    """Two documents of 2 and 4 words; the word stands twice in the longer one alone."""
    corpus = bm25.Corpus({"x": "a b", "y": "c c d e"})
    weight = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    share = 2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 4 / 3))
    assert float(corpus.scores("C")["y"]) == pytest.approx(weight * share, rel=1e-13)


def test_equal_scores_come_by_id_and_an_empty_query_finds_nothing() -> None:
    corpus = bm25.Corpus({"n2": "red", "n1": "red", "n3": "blue"})
    assert corpus.search("red", 5) == ["n1", "n2"]
    assert corpus.search("", 5) == corpus.search("green !", 5) == []
    assert bm25.Corpus({}).search("red", 5) == []


@given(st.fractions(min_value=1, max_value=10**9))
@settings(max_examples=100, deadline=None)
def test_logarithms_are_rounded_down_to_their_last_place(value: Fraction) -> None:
    found = bm25.logarithm(value)
    assert found * 2**bm25.BITS == int(found * 2**bm25.BITS)
    assert 0 <= math.log(value) - float(found) + 1e-14 * max(1.0, float(found))
    assert math.log(value) - float(found) < 2.0**-46


GET = tool({"key": {"type": "string"}, "count": {"type": "integer"}}, ["key"], "get")


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("get b", {"key": "b"}),
        (" get b\n", {"key": "b"}),
        ("get b 2", {"key": "b", "count": 2}),
        ("get b -2", {"key": "b", "count": -2}),
        ("get b 2 3", {"key": "b", "count": "2 3"}),
        ("get b 2.0", {"key": "b", "count": "2.0"}),
        ("get  b", {"key": "", "count": "b"}),
        ("get", {}),
        ("put b", None),
        ("Get b", None),
        ("12", None),
        ("", None),
        ("I call\nget b", None),
        ("get b\nget c", {"key": "b\nget", "count": "c"}),
        ("get\nb", {"key": "b"}),
    ],
)
def test_a_call_on_one_line(said: str, arguments: dict[str, Any] | None) -> None:
    calls = () if arguments is None else (Call("get", arguments),)
    assert said_on_line(said, [GET]) == Said(said, calls)
    assert said_on_line(said, [GET], cut=True) == Said(said, calls, cut=True)
    assert said_on_line(said, []) == Said(said)


def test_words_of_a_line_become_values_of_their_types() -> None:
    kinds = {
        "whole": {"type": "integer"},
        "real": {"type": "number"},
        "flag": {"type": "boolean"},
        "many": {"type": "array", "items": {"type": "integer"}},
        "text": {"type": "string"},
    }

    def read(said: str) -> dict[str, Any]:
        (call,) = said_on_line(said, [tool(kinds)]).calls
        return call.arguments

    assert read("t 1 2.5 true 3,x the rest of it") == {
        **{"whole": 1, "real": 2.5, "flag": True, "many": [3, "x"]},
        "text": "the rest of it",
    }
    assert read("t 1e3 7 yes") == {"whole": "1e3", "real": 7, "flag": "yes"}
    stop = Tool("stop", "Stops.")
    assert said_on_line("stop", [stop]).calls == (Call("stop", {}),)
    assert said_on_line("stop it", [stop]).calls == ()
