"""A pydantic error is put into words in one way: the same fields, values and limits everywhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from crlbench.base.explain import SHOWN, explain, faults

CODE = "^[a-z]{2}$"


class Inner(BaseModel):
    share: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    kind: Literal["a", "b"] = "a"
    code: Annotated[str, Field(pattern=CODE)] = "en"
    inner: Inner = Inner()
    counts: dict[Annotated[str, Field(pattern=CODE)], int] = {}

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 9:
            raise ValueError("a name has at most 9 letters")
        return name


def error(data: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate(data)
    return caught.value


CASES = {
    "missing": ({}, "name: Field required (given: {})", "field name: is missing"),
    "unknown": (
        {"name": "x", "knid": 1},
        "knid: Extra inputs are not permitted (given: 1)",
        "field knid: is unknown (did you mean kind?)",
    ),
    "no choice": (
        {"name": "x", "kind": "c"},
        "kind: Input should be 'a' or 'b' (given: 'c')",
        "field kind: 'c' is not allowed; allowed: 'a' or 'b'",
    ),
    "pattern": (
        {"name": "x", "code": "English"},
        f"code: String should match pattern '{CODE}' (given: 'English')",
        "field code: 'English' is not allowed; allowed: a code of two letters",
    ),
    "rule": (
        {"name": "x" * 10},
        f"name: a name has at most 9 letters (given: '{'x' * 10}')",
        "field name: a name has at most 9 letters",
    ),
    "inside": (
        {"name": "x", "inner": {"share": -1}},
        "inner.share: Input should be greater than 0 (given: -1)",
        "field inner.share: -1 is not allowed: input should be greater than 0",
    ),
    "name of an item": (
        {"name": "x", "counts": {"English": 1}},
        f"counts.English: String should match pattern '{CODE}' (given: 'English')",
        "field counts.English: 'English' is not allowed; allowed: a code of two letters",
    ),
    "whole": (
        [],
        "(whole): Input should be a valid dictionary or instance of Form (given: [])",
        "[] is not allowed: input should be a valid dictionary or instance of Form",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_in_words(name: str) -> None:
    data, line, sentence = CASES[name]
    assert explain(error(data), "a.json") == f"a.json: {line}"
    found = explain(error(data), "a.toml", Form, {CODE: "a code of two letters"})
    assert found == f"a.toml: {sentence}."


def test_several_mistakes_are_lines_or_one_sentence() -> None:
    both = error({"kind": "c"})
    assert [line.split(": ")[1] for line in explain(both, "x").splitlines()] == ["name", "kind"]
    assert explain(both, "x", Form).count("; field ") == 1


@pytest.mark.parametrize("form", [None, Form])
def test_only_so_many_are_listed(form: type[BaseModel] | None) -> None:
    many = {"name": "x"} | {f"x{number}": 1 for number in range(SHOWN + 7)}
    said = explain(error(many), "x", form)
    assert f"x{SHOWN - 1}" in said and f"x{SHOWN}:" not in said and "and 7 more" in said


def test_names_of_strangers_are_short_and_printable() -> None:
    (fault,) = faults(error({"name": "x", "a" * 500 + "\n": 1}))
    assert fault.field == "a" * 80 + "..."
    (fault,) = faults(error({"name": "x", "a\x1b[2J": 1}))
    assert fault.field == "a?[2J"
