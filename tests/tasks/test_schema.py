"""Hand-made replies to ``schema`` items, and each gold object checked against its prompt."""

from __future__ import annotations

import json
import re

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("schema")
GOLD = '{"person":{"name":"Anna","age":34},"price":12.5,"member":true,"sizes":[4,17],"day":null}'

RIGHT = [
    GOLD,
    f" {GOLD}\n",
    json.dumps(json.loads(GOLD), indent=2),
    '{"day":null,"sizes":[4,17],"member":true,"price":12.50,"person":{"age":34,"name":"Anna"}}',
    GOLD.replace("Anna", "\\u0041nna"),
]
CHANGES = {
    "string for a number": ('"age":34', '"age":"34"'),
    "float for an integer": ('"age":34', '"age":34.0'),
    "exponent for an integer": ('"age":34', '"age":34e0'),
    "sum for an integer": ('"age":34', '"age":30+4'),
    "leading zero": ('"age":34', '"age":034'),
    "plus sign": ('"age":34', '"age":+34'),
    "nearly the number": ("12.5", "12.500000000000000000001"),
    "integer for a number": ("12.5", "12"),
    "comma in a number": ("12.5", "12,5"),
    "NaN": ("12.5", "NaN"),
    "Infinity": ("12.5", "-Infinity"),
    "overflow": ("12.5", "1e99999999999999999999"),
    "thousands of digits": ("12.5", "9" * 9000),
    "1 for true": ("true", "1"),
    "Python's True": ("true", "True"),
    "quoted true": ("true", '"true"'),
    "other boolean": ("true", "false"),
    "other case": ("Anna", "anna"),
    "space in a string": ("Anna", "Anna "),
    "look-alike letter": ("Anna", "\u0410nna"),
    "zero-width space": ("Anna", "Anna\u200b"),
    "other order in a list": ("[4,17]", "[17,4]"),
    "longer list": ("[4,17]", "[4,17,17]"),
    "shorter list": ("[4,17]", "[4]"),
    "object for a list": ("[4,17]", '{"0":4,"1":17}'),
    "nested list": ("[4,17]", "[[4,17]]"),
    "missing key": ('"member":true,', ""),
    "added key": ('"member":true', '"member":true,"city":null'),
    "key twice": ('"member":true', '"member":false,"member":true'),
    "key twice inside": ('"age":34', '"age":34,"age":34'),
    "null left out": (',"day":null', ""),
    "string for null": ("null", '"null"'),
    "None": ("null", "None"),
    "empty string for null": ("null", '""'),
    "flat for nested": ('{"name":"Anna","age":34}', '"Anna"'),
    "single quotes": ('"Anna"', "'Anna'"),
    "bare key": ('"day"', "day"),
    "trailing comma": ("null}", "null,}"),
    "comment": ("null}", "null /* none */}"),
    "cut": ("null}", "null"),
    "text after": ("null}", "null} Done."),
    "second object": ("null}", "null}{}"),
    "text before": ('{"person"', 'Sure: {"person"'),
    "code fence": (GOLD, f"```json\n{GOLD}\n```"),
    "in a list": (GOLD, f"[{GOLD}]"),
    "in tags": (GOLD, f"<json>{GOLD}</json>"),
    "in a string": (GOLD, json.dumps(GOLD)),
    "byte order mark": (GOLD, f"\ufeff{GOLD}"),
    "no-break space": (GOLD, f"{GOLD}\u00a0"),
    "depth": (GOLD, "[" * 100_000),
    "empty object": (GOLD, "{}"),
}


@pytest.mark.parametrize("text", RIGHT)
def test_right_replies(text: str) -> None:
    assert TASK.verify(text, GOLD) == 1.0


@pytest.mark.parametrize("case", CHANGES)
def test_wrong_replies(case: str) -> None:
    old, new = CHANGES[case]
    assert old in GOLD
    text = GOLD.replace(old, new)
    assert TASK.verify(text, GOLD) == 0.0
    assert TASK.audit(text, GOLD) == 0.0


def test_formats_count_exactly_where_they_are_asked() -> None:
    frames = ("{}", "<json>{}</json>", "[{}]")
    for asked in frames:
        for given in frames:
            found = TASK.verify(given.format(GOLD), asked.format(GOLD))
            assert found == TASK.audit(given.format(GOLD), asked.format(GOLD))
            assert found == float(given == asked)


FIELD = re.compile(
    r'"(\w+)"(\??): (string|boolean|list of [^,}]*|integer [^,}]*|number [^,}]*|"[^,}]*)'
)


def problem(record: dict, schema: str) -> str:
    """What keeps an object from fitting a schema, read from the prompt's own words."""
    fields = {key: (mark, words) for key, mark, words in FIELD.findall(schema)}
    for key, value in record.items():
        if key not in fields:
            return f"unknown {key}"
        words = fields[key][1]
        limits = [int(n) for n in re.findall(r"-?\d+", words)]
        values = value if words.startswith("list") else [value]
        for one in values if value is not None else []:
            kinds = {"string": str, "boolean": bool, "number": float}
            wanted = int if "integer" in words else kinds.get(words.split()[0], str)
            if type(one) is not wanted:
                return f"{key} is {one!r}"
            if limits and not limits[0] <= one <= limits[1]:
                return f"{key} is out of range"
            if words[0] == '"' and one not in re.findall(r'"(\w+)"', words):
                return f"{key} is no choice"
    missing = [key for key, (mark, _) in fields.items() if key not in record and not mark]
    return f"misses {missing}" if missing else ""


def told(text: str, name: str) -> dict[str, object]:
    """The values that a text gives for one person, read sentence by sentence."""
    patterns = {
        "age": r"is (\d+) years old",
        "city": r"lives in (\w+)",
        "member": r"(is|is not) a member",
        "item": r"ordered a (\w+)",
        "price": r"paid ([\d.]+) euros",
        "colour": r"asked for (\w+)",
        "day": r"comes on (\w+)",
        "sizes": r"wrote down the sizes (.+)",
    }
    read = {
        "age": int,
        "member": lambda told: told == "is",
        "price": float,
        "colour": str.upper,
        "day": lambda told: told[:3].lower(),
        "sizes": lambda told: [int(n) for n in re.findall(r"\d+", told)],
    }
    found: dict[str, object] = {"name": name}
    for sentence in text.rstrip(".").split(". "):
        for field, pattern in patterns.items():
            match = re.fullmatch(f"{name} {pattern}", sentence)
            if match:
                assert field not in found
                found[field] = read.get(field, str)(match[1])
    return found


@pytest.mark.parametrize("split", ["train", "id", "hard"])
def test_gold_follows_from_the_prompt(split: str) -> None:
    """Each asked value is the told one where the schema allows it, else null or left out."""
    nulls = left_out = 0
    for row in TASK.rows(split):
        prompt = row["messages"][-1]["content"]
        whole, rest = prompt.removeprefix("Schema: ").split(" Text: ")
        text, name = re.fullmatch(r"(.*) Fill in the schema for (\w+)\.", rest).groups()
        gold = json.loads(row["answer"])
        flat = {**gold.get("person", gold), **gold.get("order", {})}
        inner = re.sub(r'"(person|order)": ', "", whole) if row["level"] == 3 else whole
        assert problem(flat, inner) == "", (row["id"], flat)
        given = told(text, name)
        for key, mark, _ in FIELD.findall(inner):
            allowed = key in given and not problem({**flat, key: given[key]}, inner)
            if allowed:
                assert flat[key] == given[key]
            elif mark:
                assert key not in flat
                left_out += 1
            else:
                assert flat[key] is None
                nulls += 1
    assert nulls + left_out == sum(row["level"] > 1 for row in TASK.rows(split))
    assert nulls and left_out
