"""Function calls written as Python, compared with the calls that a published answer accepts.

The rules are those of the Berkeley Function-Calling Leaderboard (Patil et al. 2025) for its
categories without execution, as its pages describe them:

- The reply is a list of calls, ``[f(a=1), g.h(b="x")]``; brackets may be missing. Arguments have
  names. An expression that is no literal counts as its text.
- A call is right if it has the function's name, every required argument, no argument that the
  answer does not know, and for each argument one of the values that the answer accepts. An
  accepted ``""`` means that the argument may be left out.
- A value has the declared type, or that of the accepted value (a name where a list is declared).
  A whole number counts as a float, but not the other way round; true and false are no numbers.
- Texts are compared without case, blanks and the signs ``, . / - _ * ^``, and with one kind of
  quotation marks. Lists are compared item by item in their order; objects key by key, each key
  with accepted values of its own.
- Several calls are right together or not at all, in any order.
- Where no function fits, a reply without a call is right, whatever else it says.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from crlbench.reward.answers import outside_thoughts

MAX_BYTES = 8192
"""Longest reply in which calls are looked for."""
OMITTED = ""
"""An accepted value that allows the argument to be left out."""

Call = tuple[str, dict[str, Any]]
_FENCE = re.compile(r"\A```[a-z]*\n(.*)\n```\Z", re.DOTALL)
_IGNORED = re.compile(r"[ ,./\-_*^]")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (float, int),
    "number": (float, int),
    "boolean": (bool,),
    "array": (list,),
    "tuple": (list,),
    "dict": (dict,),
}


def verify_calls(text: str, answer: str) -> float:
    """1.0 iff the calls of a reply are those that an answer accepts.

    ``answer`` is JSON: ``right`` (``calls``, ``none`` or ``some``), and for ``calls`` the accepted
    calls in ``calls`` and the declarations in ``functions``.
    """
    wanted = _answer(answer)
    calls = calls_in(text)
    if wanted["right"] != "calls":
        return float(bool(calls) == (wanted["right"] == "some"))
    return float(calls is not None and _all_match(calls, wanted["calls"], wanted["functions"]))


def calls_in(text: str) -> list[Call] | None:
    """The calls of a reply, outside its thoughts; None where it is no list of calls."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return None
    code = outside_thoughts(text).strip()
    fenced = _FENCE.match(code)
    code = (fenced[1] if fenced else code).strip().strip("`").strip()
    code = code if code.startswith("[") else f"[{code}]"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code, mode="eval").body
            return [_call(node, code) for node in tree.elts] if isinstance(tree, ast.List) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _call(node: ast.expr, code: str) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("not a call with named arguments")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError("an argument without a name, or one given twice")
        arguments[keyword.arg] = _value(keyword.value, code)
    return _dotted(node.func), arguments


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise ValueError("not the name of a function")


def _value(node: ast.expr, code: str) -> Any:
    """A literal's value, a tuple as a list; of anything else its text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one, code) for one in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if all(isinstance(key, str) for key in keys):
            values = (_value(one, code) for one in node.values)
            return dict(zip(keys, values, strict=True))
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        if type(number) in (int, float) and isinstance(node.op, ast.USub | ast.UAdd):
            return -number if isinstance(node.op, ast.USub) else number
    return ast.get_source_segment(code, node) or ""


@lru_cache(maxsize=2048)
def _answer(answer: str) -> Mapping[str, Any]:
    given: Mapping[str, Any] = json.loads(answer)
    return given


def _all_match(
    calls: Sequence[Call],
    accepted: Sequence[Mapping[str, Any]],
    functions: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Whether calls and accepted ones can be paired off, each with another (augmenting paths)."""
    if len(calls) != len(accepted):
        return False
    fitting = [
        [place for place, call in enumerate(calls) if _matches(call, wanted, functions)]
        for wanted in accepted
    ]
    taken_by: dict[int, int] = {}

    def place_found(wanted: int, tried: set[int]) -> bool:
        for place in fitting[wanted]:
            if place not in tried:
                tried.add(place)
                if place not in taken_by or place_found(taken_by[place], tried):
                    taken_by[place] = wanted
                    return True
        return False

    return all(place_found(wanted, set()) for wanted in range(len(accepted)))


def _matches(
    call: Call, wanted: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]]
) -> bool:
    name, arguments = call
    if name not in wanted:
        return False
    accepted, function = wanted[name], functions[name]
    declared = function["properties"]
    if any(needed not in arguments for needed in function["required"]):
        return False
    if any(given not in accepted or given not in declared for given in arguments):
        return False
    return all(
        any(_accepts(arguments[one], value, declared[one]) for value in values)
        if one in arguments
        else OMITTED in values
        for one, values in accepted.items()
    )


def _accepts(value: Any, wanted: Any, schema: Mapping[str, Any]) -> bool:
    return _typed(value, wanted, schema) and _same(value, wanted)


def _typed(value: Any, wanted: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value has the declared type, items of lists included, or that of the wanted."""
    kinds = _KINDS.get(schema["type"])
    if kinds is None:  # any
        return True
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        return type(value) is type(wanted)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(wanted, list) and items is not None:
        pairs = zip(value, wanted, strict=False)
        return all(_typed(one, other, items) for one, other in pairs)
    return True


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return plain(value) == plain(wanted)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() <= wanted.keys() and all(
            any(_same(value[key], one) for one in values) if key in value else OMITTED in values
            for key, values in wanted.items()
        )
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return value == wanted
    return value is None and wanted is None


def plain(text: str) -> str:
    """A text as it is compared: without case, blanks and most punctuation."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


def gold_calls(answer: str) -> str:
    """A right reply: of each argument the first value that is accepted, left out where it may be.

    For ``none`` the empty list, for ``some`` a call of the first function without arguments.
    """
    wanted = _answer(answer)
    if wanted["right"] == "none":
        return "[]"
    if wanted["right"] == "some":
        return f"[{next(iter(wanted['functions']))}()]"
    return f"[{', '.join(_written(one, wanted['functions']) for one in wanted['calls'])}]"


def _written(wanted: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]]) -> str:
    ((name, accepted),) = wanted.items()
    arguments = []
    for one, values in accepted.items():
        chosen = next((value for value in values if value != OMITTED), OMITTED)
        needed = one in functions[name]["required"]
        if needed or OMITTED not in values:
            arguments.append(f"{one}={_first(chosen)!r}")
    return f"{name}({', '.join(arguments)})"


def _first(value: Any) -> Any:
    """A wanted value with the first accepted one of each key."""
    if isinstance(value, dict):
        return {key: _first(values[0]) for key, values in value.items()}
    return [_first(one) for one in value] if isinstance(value, list) else value
