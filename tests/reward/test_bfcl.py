"""Function calls written as Python: hand-made cases of every rule, each read by two judges."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crlbench.reward.bfcl import calls_in, gold_calls, verify_calls
from crlbench.reward.bfcl_audit import audit_calls

PROPERTIES: dict[str, Any] = {
    "whole": {"type": "integer"},
    "real": {"type": "float"},
    "word": {"type": "string"},
    "flag": {"type": "boolean"},
    "many": {"type": "array", "items": {"type": "integer"}},
    "reals": {"type": "array", "items": {"type": "float"}},
    "words": {"type": "array", "items": {"type": "string"}},
    "rows": {"type": "array", "items": {"type": "dict"}},
    "pair": {"type": "tuple", "items": {"type": "float"}},
    "table": {"type": "dict"},
    "free": {"type": "any"},
}


def answer_of(
    *calls: dict[str, Any], required: list[str] | None = None, right: str = "calls"
) -> str:
    function = {"properties": PROPERTIES, "required": required or []}
    functions = {"f": function, "g.h": function}
    return json.dumps({"right": right, "functions": functions, "calls": list(calls)})


def judged(text: str, answer: str) -> float:
    """The verdict that both judges give."""
    found = verify_calls(text, answer)
    assert audit_calls(text, answer) == found
    return found


@pytest.mark.parametrize(
    ("name", "accepted", "value", "right"),
    [
        ("whole", [5], "5", True),
        ("whole", [5], "-5", False),
        ("whole", [-5], "-5", True),
        ("whole", [5], "5.0", False),  # a float is no whole number
        ("whole", [5], "'5'", False),
        ("whole", [1], "True", False),
        ("whole", [5, 6], "6", True),
        ("real", [5.0], "5", True),  # but a whole number is a float
        ("real", [0.5], ".5", True),
        ("real", [0.5], "0.51", False),
        ("real", [1.0], "True", False),
        ("real", ["", None], "None", True),  # the type of an accepted value
        ("word", ["New York, NY"], "'new york ny'", True),
        ("word", ["2023-06-01"], "'2023/06/01'", True),
        ("word", ["x^2"], "'x2'", True),
        ("word", ["it's"], "'it\"s'", True),
        ("word", ["a;b"], "'ab'", False),
        ("word", ["a"], "'b'", False),
        ("word", ["5"], "5", False),
        ("word", ["", True], "True", True),
        ("flag", [True], "True", True),
        ("flag", [True], "'true'", False),
        ("flag", [True], "1", False),
        ("flag", [True], "true", False),  # a name, not the value
        ("many", [[1, 2, 3]], "[1, 2, 3]", True),
        ("many", [[1, 2, 3]], "(1, 2, 3)", True),
        ("many", [[1, 2, 3]], "[2, 1, 3]", False),
        ("many", [[1, 2, 3]], "[1, 2]", False),
        ("many", [[1, 2]], "[1.0, 2]", False),
        ("many", [["a"]], "['A']", True),  # items of the accepted value's type
        ("many", ["data['x']"], "data['x']", True),
        ("many", ["data['x']"], "'data[\"x\"]'", True),
        ("reals", [[1.0, 2.0]], "[1, 2]", True),
        ("words", [["A b", "c"]], "['ab', 'C']", True),
        ("words", [["a"], ["b"]], "['b']", True),
        ("words", [[]], "[]", True),
        ("words", [["a"]], "'a'", False),
        ("rows", [[{"k": ["a", "b"], "n": [1]}]], "[{'k': 'B', 'n': 1}]", True),
        ("rows", [[{"k": ["a"]}, {"k": ["b"]}]], "[{'k': 'b'}, {'k': 'a'}]", False),
        ("pair", [[1.5, -2.0]], "(1.5, -2)", True),
        ("table", [{"a": [1, 2], "b": ["x", ""]}], "{'a': 2}", True),
        ("table", [{"a": [1, 2], "b": ["x", ""]}], "{'b': 'X', 'a': 1}", True),
        ("table", [{"a": [1, 2], "b": ["x", ""]}], "{'b': 'x'}", False),
        ("table", [{"a": [1]}], "{'a': 1, 'c': 2}", False),
        ("table", [{"a": [[1, 2]]}], "{'a': [1, 2]}", True),
        ("free", ["my_data"], "my_data", True),
        ("free", ["my_data"], "'my data'", True),
        ("free", [3], "3", True),
    ],
)
def test_a_value_is_right_as_documented(
    name: str, accepted: list[Any], value: str, right: bool
) -> None:
    assert judged(f"[f({name}={value})]", answer_of({"f": {name: accepted}})) == float(right)


TWO = answer_of({"f": {"whole": [1], "word": ["", "a"]}}, required=["whole"])


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("[f(whole=1)]", True),
        ("f(whole=1)", True),
        ("[f(word='a', whole=1)]", True),
        ("[f(whole=1, word='')]", True),  # the accepted "" is also a text
        ("[f(whole=1,)]", True),
        ("```python\n[f(whole=1)]\n```", True),
        ("`f(whole=1)`", True),
        ("<think>f(whole=2)?</think>\n[f(whole=1)]", True),
        ("[f(whole=1, word='b')]", False),
        ("[f(word='a')]", False),  # a required argument is missing
        ("[f(whole=1, flag=True)]", False),  # an argument that the answer does not know
        ("[f(1)]", False),
        ("[f(**{'whole': 1})]", False),
        ("[g.h(whole=1)]", False),
        ("[f(whole=1), f(whole=1)]", False),
        ("[]", False),
        ("", False),
        ("I call f(whole=1).", False),
        ("[f(whole=1)] as asked", False),
        ("[f(whole=1)", False),
        ("[f(whole=1, whole=1)]", False),
        ("[f[0](whole=1)]", False),
        ("[f()(whole=1)]", False),
        ("{'f': {'whole': 1}}", False),
        ("[f]", False),
        ("<think>[f(whole=1)]", False),
        ("[f(whole=1)]" + " " * 9000, False),
        ("[" * 5000, False),
        ("[f(whole=" + "9" * 5000 + ")]", False),
    ],
)
def test_a_reply_is_a_list_of_calls_and_nothing_else(text: str, right: bool) -> None:
    assert judged(text, TWO) == float(right)


THREE = answer_of(
    {"f": {"whole": [1, 2]}},
    {"f": {"whole": [1]}},
    {"g.h": {"word": ["a"]}},
)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("[f(whole=1), f(whole=2), g.h(word='a')]", True),
        ("[g.h(word='a'), f(whole=2), f(whole=1)]", True),
        ("[f(whole=1), f(whole=1), g.h(word='a')]", True),
        ("[f(whole=2), f(whole=2), g.h(word='a')]", False),
        ("[f(whole=1), g.h(word='a'), g.h(word='a')]", False),
        ("[f(whole=1), f(whole=2)]", False),
        ("[f(whole=1), f(whole=2), g.h(word='a'), g.h(word='a')]", False),
        ("[f(whole=1), f(whole=2), h(word='a')]", False),
    ],
)
def test_several_calls_are_right_together_in_any_order(text: str, right: bool) -> None:
    """The first call may stand for either answer: a greedy choice would call the reply wrong."""
    assert judged(text, THREE) == float(right)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[f(whole=1)]", True),
        ("unknown()", True),
        ("[]", False),
        ("", False),
        ("None of the functions helps.", False),
        ("f(1)", False),
    ],
)
def test_whether_to_call_is_all_that_counts_for_irrelevance(text: str, calls: bool) -> None:
    assert judged(text, answer_of(right="some")) == float(calls)
    assert judged(text, answer_of(right="none")) == float(not calls)


def test_values_that_are_no_literals_are_texts() -> None:
    assert calls_in("[a.b(x=-1.5, y=[n, {'k': (1,)}], z=g(2), w={1: 2})]") == [
        ("a.b", {"x": -1.5, "y": ["n", {"k": [1]}], "z": "g(2)", "w": "{1: 2}"})
    ]


def test_a_gold_takes_the_first_values_and_leaves_out_what_it_may() -> None:
    answer = answer_of(
        {"f": {"whole": ["", 3], "word": ["b", ""], "table": [{"k": ["x", "y"]}]}},
        {"g.h": {"whole": [4]}},
        required=["whole"],
    )
    assert gold_calls(answer) == "[f(whole=3, table={'k': 'x'}), g.h(whole=4)]"
    assert judged(gold_calls(answer), answer) == 1.0
    assert gold_calls(answer_of(right="none")) == "[]"
    assert gold_calls(answer_of(right="some")) == "[f()]"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, "a", "A b", "c-d", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("kl"), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(PROPERTIES)), VALUES, max_size=3), VALUES)
@settings(max_examples=300, deadline=None)
def test_both_judges_agree_on_any_call(arguments: dict[str, Any], other: Any) -> None:
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    accepted = {
        name: [_alternatives(other), _alternatives(value)] for name, value in arguments.items()
    }
    assert judged(f"[f({written})]", answer_of({"f": accepted})) in (0.0, 1.0)


def _alternatives(value: Any) -> Any:
    """A value as answers hold it: each key of an object with a list of accepted values."""
    if isinstance(value, dict):
        return {key: [_alternatives(one)] for key, one in value.items()}
    return [_alternatives(one) for one in value] if isinstance(value, list) else value


@given(st.text(max_size=80) | st.text(alphabet="[]f(whole=1, )'\"`\n", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_judged_alike(text: str) -> None:
    assert judged(text, TWO) in (0.0, 1.0)
