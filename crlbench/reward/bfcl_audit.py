"""A second judge of function calls, which shares no code and no method with ``bfcl.py``.

Every accepted call is written out as all its spellings, each value in one canonical text; a reply
is right if its calls, written in the same way, can be crossed off one by one.
"""

from __future__ import annotations

import ast
import json
import warnings
from fractions import Fraction
from itertools import product
from string import ascii_lowercase
from typing import Any

from crlbench.reward.answers_audit import spoken

LONGEST = 8192
SIGNS = str.maketrans({sign: None for sign in " ,./-_*^"} | {"'": '"'})
MANY = 20_000
"""Spellings of one object above which it is not written out, and no reply is right."""


def audit_calls(text: str, answer: str) -> float:
    """1.0 iff the second reading finds the accepted calls, or none where none is right."""
    facts = json.loads(answer)
    said = _read(text)
    if facts["right"] == "none":
        return float(not said)
    if facts["right"] == "some":
        return float(bool(said))
    if said is None or len(said) != len(facts["calls"]):
        return 0.0
    return float(_crossed_off(said, facts["calls"], facts["functions"]))


def _crossed_off(said: list[ast.Call], open_calls: list[Any], functions: Any) -> bool:
    if not said:
        return True
    first, rest = said[0], said[1:]
    return any(
        _is_one(first, wanted, functions)
        and _crossed_off(rest, open_calls[:i] + open_calls[i + 1 :], functions)
        for i, wanted in enumerate(open_calls)
    )


def _read(text: str) -> list[ast.Call] | None:
    if len(text.encode("utf-8", "surrogatepass")) > LONGEST:
        return None
    lines = spoken(text).strip().split("\n")
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1] == "```":
        lines = lines[1:-1] if set(lines[0][3:]) <= set(ascii_lowercase) else lines
    code = "\n".join(lines).strip().strip("`").strip()
    code = code if code[:1] == "[" else "[" + code + "]"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(code)
            (statement,) = module.body
            if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.List):
                return None
            found = statement.value.elts
            for one in found:
                ast.unparse(one)  # too deep for a second reading
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for one in found:
        named = isinstance(one, ast.Call) and not one.args and all(k.arg for k in one.keywords)
        if not named or not all(part.isidentifier() for part in ast.unparse(one.func).split(".")):
            return None
        if len({keyword.arg for keyword in one.keywords}) < len(one.keywords):
            return None
    return list(found)


def _is_one(call: ast.Call, wanted: Any, functions: Any) -> bool:
    ((name, accepted),) = wanted.items()
    declared = functions[name]["properties"]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if ast.unparse(call.func) != name or not {*functions[name]["required"]} <= given.keys():
        return False
    if not given.keys() <= accepted.keys() & declared.keys():
        return False
    for argument, values in accepted.items():
        if argument not in given:
            if "" not in values:
                return False
            continue
        value = _python(given[argument])
        if not any(
            _canonical(value) in _spellings(one) and _of_type(value, one, declared[argument])
            for one in values
        ):
            return False
    return True


def _python(node: ast.expr) -> Any:
    """The value of a literal; of anything else its text, inside lists and objects too."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = Ellipsis
    if _is_data(value):
        return value
    if isinstance(node, ast.List | ast.Tuple):
        return [_python(one) for one in node.elts]
    if isinstance(node, ast.Dict) and all(
        isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys
    ):
        return {key.value: _python(one) for key, one in zip(node.keys, node.values, strict=True)}  # type: ignore[union-attr]
    return ast.unparse(node)


def _is_data(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_data(one) for key, one in value.items())
    return value is None or isinstance(value, str | int | float)


def _canonical(value: Any) -> str:
    """One text for all values that are compared as equal."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return json.dumps(value.translate(SIGNS).lower())
    if isinstance(value, list | tuple):
        return "[" + ";".join(map(_canonical, value)) + "]"
    if isinstance(value, dict):
        return "{" + ";".join(f"{key!r}={_canonical(value[key])}" for key in sorted(value)) + "}"
    return f"{value!r}" if value in (float("inf"), -float("inf")) else str(Fraction(value))


def _spellings(wanted: Any) -> set[str]:
    """The canonical texts that a wanted value accepts; several for objects alone."""
    if isinstance(wanted, list):
        parts = [_spellings(one) for one in wanted]
        return {"[" + ";".join(chosen) + "]" for chosen in _choices(parts)}
    if not isinstance(wanted, dict):
        return {_canonical(wanted)}
    keys = sorted(wanted)
    options = [
        {f"{key!r}={text}" for value in wanted[key] for text in _spellings(value)}
        | ({""} if "" in wanted[key] else set())
        for key in keys
    ]
    return {"{" + ";".join(filter(None, chosen)) + "}" for chosen in _choices(options)}


def _choices(parts: list[set[str]]) -> list[tuple[str, ...]]:
    size = 1
    for part in parts:
        size *= len(part)
    return list(product(*parts)) if size <= MANY else []


def _of_type(value: Any, wanted: Any, schema: Any) -> bool:
    names = {
        "string": "str",
        "integer": "int",
        "float": "float int",
        "number": "float int",
        "boolean": "bool",
        "array": "list tuple",
        "tuple": "list tuple",
        "dict": "dict",
    }.get(schema["type"])
    if names is None:
        return True
    kind = type(value).__name__
    if kind not in names.split():
        return kind.replace("tuple", "list") == type(wanted).__name__
    if kind in ("list", "tuple") and isinstance(wanted, list) and "items" in schema:
        return all(_of_type(*pair, schema["items"]) for pair in zip(value, wanted, strict=False))
    return True
