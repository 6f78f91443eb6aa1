"""Structured output: JSON that fits a small schema, with its values read from a short text.

Level 1 fills three fields. Level 2 fills four and tells more than is asked; one value is
missing or not allowed by the schema, so it becomes null or, where the key is optional, is
left out. Level 3 fills six fields in two nested objects from a text about two people, again
with one such value. A schema and a text allow exactly one object, so a completion fits the
schema with the right values iff it equals the gold one in keys, types and values; order of
keys and white space are free. The key is the schema and the text.
"""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from typing import Any

from crlbench.reward.splits import build_split

CARD = {
    "name": "schema",
    "version": "1.0.0",
    "tags": ["format", "noise", "compositional"],
    "summary": "Write JSON that fits a small schema, with values taken from a short text.",
    "max_completion_bytes": 256,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-c30d9e7b-schema-62a8f14b7d05",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "Schema: {schema} Text: {text} Fill in the schema for {name}.",
    "{text} Write {name}'s data as JSON of this schema: {schema}",
    "Read this: {text} Give the data of {name}. The schema is {schema}",
    "Here is a schema: {schema} Fill it in for {name} from these lines: {text}",
    "Schema: {schema} Text: {text} Fill in the schema for {name}, between <json> and </json>.",
    "Schema: {schema} Text: {text} Fill in the schema for {name}, as a list of one object.",
)
ANSWERS = ("{}",) * 4 + ("<json>{}</json>", "[{}]")
REPLIES = (
    *('one JSON object, like {"a":1},',) * 4,
    'one JSON object between tags, like <json>{"a":1}</json>,',
    'a JSON list that holds one object, like [{"a":1}],',
)
SYSTEM = (
    "Fill in a schema from a text. Reply with {} and nothing else. A key with ? is optional. "
    "Where the text gives no value that the schema allows, write null, or leave the key out if "
    "it is optional. Choices stand for the same word in the text: RED is red, mon is Monday."
)
OPEN, CLOSE = "<json>", "</json>"

NAMES = (
    "Anna Bruno Carla David Elena Felix Greta Henry Irene Jonas Karla Louis Maria Nora Oscar "
    "Paula Quinn Rosa Simon Tanya Ulric Vera Walter Yara"
).split()
CITIES = "Oslo Rome Lima Cairo Paris Delhi Quito Tokyo Berlin Madrid Dublin Vienna".split()
COLOURS = "red blue green black white brown pink grey".split()
ITEMS = "lamp table chair clock carpet mirror bottle kettle basket pillow".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
PERSON = ("name", "age", "city", "member")
ORDER = ("item", "price", "colour", "day", "sizes")

SENTENCES = {
    "name": "{name} signed the form",
    "age": "{name} is {told} years old",
    "city": "{name} lives in {told}",
    "member": "{name} {told}",
    "item": "{name} ordered a {told}",
    "price": "{name} paid {told} euros",
    "colour": "{name} asked for {told}",
    "day": "{name} comes on {told}",
    "sizes": "{name} wrote down the sizes {told}",
}
CHOICES: dict[str, tuple[str, ...]] = {
    "city": tuple(CITIES),
    "colour": tuple(colour.upper() for colour in COLOURS),
    "day": tuple(day[:3].lower() for day in DAYS),
}


def fits(value: Any, spec: tuple[Any, ...]) -> bool:
    """Whether a value is allowed: its type and, for numbers and choices, its range."""
    kind, *limits = spec
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "choice":
        return value in limits
    if kind == "list":
        return isinstance(value, list) and all(fits(part, limits[0]) for part in value)
    wanted = int if kind == "integer" else float
    return type(value) is wanted and limits[0] <= value <= limits[1]


def shown(spec: tuple[Any, ...]) -> str:
    """A field's specification as a prompt words it."""
    kind, *limits = spec
    if kind == "choice":
        return " or ".join(f'"{choice}"' for choice in limits)
    if kind == "list":
        return f"list of {shown(limits[0])}"
    return f"{kind} {limits[0]} to {limits[1]}" if limits else kind


def _fact(rng: random.Random, field: str, name: str) -> tuple[str, Any]:
    """What the text tells about a field, and the value that it stands for."""
    if field == "name":
        return name, name
    if field == "age":
        age = rng.randint(12, 95)
        return str(age), age
    if field == "member":
        member = rng.random() < 0.5
        return ("is a member" if member else "is not a member"), member
    if field == "item":
        item = rng.choice(ITEMS)
        return item, item
    if field == "price":
        price = round(rng.randint(12, 98) + rng.randint(1, 9) / 10, 1)
        return str(price), price
    if field == "sizes":
        sizes = rng.sample(range(2, 60), rng.randint(2, 3))
        return " and ".join([", ".join(map(str, sizes[:-1])), str(sizes[-1])]), sizes
    place = rng.randrange(len(CHOICES[field]))
    told = {"city": CITIES, "colour": COLOURS, "day": DAYS}[field][place]
    return told, CHOICES[field][place]


def _spec(rng: random.Random, field: str, value: Any, allowed: bool) -> tuple[Any, ...]:
    """A specification of a field that allows its value or, where it can, does not."""
    if field in CHOICES:
        others = rng.sample([c for c in CHOICES[field] if c != value], 3)
        choices = [*others[:2], value if allowed else others[2]]
        rng.shuffle(choices)
        return ("choice", *choices)
    if field in ("age", "price"):
        low, high = int(value) - rng.randint(1, 9), int(value) + rng.randint(2, 20)
        if not allowed:
            low, high = rng.choice(((high, high + 20), (max(low - 20, 0), low)))
        return ("integer" if field == "age" else "number", low, high)
    if field == "sizes":
        return ("list", ("integer", 1, 60))
    return ("boolean",) if field == "member" else ("string",)


def _fields(rng: random.Random, level: int) -> list[tuple[str, ...]]:
    """The asked fields: one group for a flat object, two for nested ones."""
    if level == 3:
        return [tuple(rng.sample(PERSON, 3)), tuple(rng.sample(ORDER, 3))]
    order = rng.sample(ORDER, 2)
    return [tuple(rng.sample([*rng.sample(PERSON, level), *order], level + 2))]


def _record(
    rng: random.Random, level: int, name: str
) -> tuple[dict[str, tuple[str, Any]], str, str]:
    """What is told about a person, the schema as worded, and the gold object as JSON."""
    groups = _fields(rng, level)
    asked = [field for group in groups for field in group]
    facts = {field: _fact(rng, field, name) for field in (*PERSON, *ORDER)}
    spoilt = rng.choice([field for field in asked if field != "name"]) if level > 1 else ""
    told = {field: facts[field] for field in asked}
    if spoilt and (spoilt not in (*CHOICES, "age", "price") or rng.random() < 0.5):
        del told[spoilt]
    parts, values = [], []
    for group in groups:
        words, gold = [], {}
        for field in group:
            optional = level > 1 and rng.random() < 0.4
            spec = _spec(rng, field, facts[field][1], allowed=field != spoilt)
            words.append(f'"{field}"{"?" * optional}: {shown(spec)}')
            if field in told and fits(facts[field][1], spec):
                gold[field] = facts[field][1]
            elif not optional:
                gold[field] = None
        parts.append("{" + ", ".join(words) + "}")
        values.append(gold)
    if level < 3:
        extra = rng.choice([field for field in (*PERSON[1:], *ORDER) if field not in asked])
        told |= {extra: facts[extra]} if level == 2 else {}
        return told, parts[0], _dumped(values[0])
    schema = f'{{"person": {parts[0]}, "order": {parts[1]}}}'
    return told, schema, _dumped({"person": values[0], "order": values[1]})


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _sentences(told: dict[str, tuple[str, Any]], name: str) -> list[str]:
    return [SENTENCES[field].format(name=name, told=fact[0]) for field, fact in told.items()]


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    name, other = rng.sample(NAMES, 2)
    told, schema, gold = _record(rng, level, name)
    lines = _sentences(told, name)
    if level == 3:
        fields = rng.sample([*PERSON, *ORDER], 4)
        lines += _sentences({field: _fact(rng, field, other) for field in fields}, other)
    rng.shuffle(lines)
    fields = {"schema": schema, "text": ". ".join(lines) + ".", "name": name}
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(**fields)},
        ],
        "answer": ANSWERS[template].format(gold),
        "level": level,
        "template": template,
        "key": f"{name} | {schema} | {'; '.join(sorted(lines))}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion is strict JSON with the keys, types and values of the gold one."""
    try:
        return float(same(parsed(text), parsed(answer)))
    except (ValueError, ArithmeticError, RecursionError):
        return 0.0


def parsed(text: str) -> tuple[bool, Any]:
    """Whether tags enclose the JSON, and its value; ValueError for anything but strict JSON."""
    text = text.strip(" \t\r\n")
    tagged = text.startswith(OPEN) and text.endswith(CLOSE)
    body = text[len(OPEN) : -len(CLOSE)] if tagged else text
    value = json.loads(
        body, object_pairs_hook=_unique, parse_constant=_refused, parse_float=Decimal
    )
    return tagged, value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def same(found: Any, gold: Any) -> bool:
    """Equality of keys, types and values: 1, 1.0 and true are three things."""
    if type(found) is not type(gold):
        return False
    if isinstance(gold, dict):
        return found.keys() == gold.keys() and all(same(found[key], gold[key]) for key in gold)
    if isinstance(gold, list | tuple):
        return len(found) == len(gold) and all(map(same, found, gold))
    return found == gold


AUDIT_BYTES = 512
_INNERMOST = re.compile(r"\{[^{}\[\]]*\}|\[[^{}\[\]]*\]")
_SCALAR = r'(?:"[A-Za-z]+"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|true|false|null|@[0-9]+)'
_VALUE = re.compile(_SCALAR)
_MEMBER = re.compile(rf'("[a-z]+") ?: ?({_SCALAR})')


def audit(text: str, answer: str) -> float:
    """1.0 iff both texts shrink to one name, innermost brackets first, without a parser.

    Numbers are compared as written, strings hold letters only, and spaces stand singly
    around commas and colons if at all.
    """
    text = text.strip(" \n")
    if len(text) > AUDIT_BYTES or "@" in text:
        return 0.0
    names: dict[str, str] = {}
    shrunk = [_shrunk(whole, names) for whole in (text, answer)]
    return float(shrunk[0] == shrunk[1] and "?" not in shrunk[0])


def _shrunk(text: str, names: dict[str, str]) -> str:
    """The text with every object and list replaced by a name that its content decides."""

    def named(found: re.Match[str]) -> str:
        parts = [part.strip(" ") for part in found[0][1:-1].split(",")]
        if found[0][0] == "[":
            whole = ",".join(parts) if all(map(_VALUE.fullmatch, parts)) else "?"
        else:
            whole = _members([_MEMBER.fullmatch(part) for part in parts])
        return "?" if whole == "?" else names.setdefault(found[0][0] + whole, f"@{len(names)}")

    for _ in range(AUDIT_BYTES):
        shorter = _INNERMOST.sub(named, text)
        if shorter == text or "?" in shorter:
            return shorter
        text = shorter
    return "?"


def _members(found: list[re.Match[str] | None]) -> str:
    """The members of an object in the order of their keys; "?" if one is no member."""
    pairs = sorted((match[1], match[2]) for match in found if match)
    if len({key for key, _ in pairs}) < len(found):
        return "?"
    return ",".join(f"{key}:{value}" for key, value in pairs)
