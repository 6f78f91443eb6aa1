"""Countdown: reach a target from given numbers: "numbers 3 7 2 target 20:" -> "2*(3+7)".

Every given number is used exactly once, with + - * / and parentheses. Level 1 gives three
numbers from 2 to 12 and a target up to 99, level 2 four numbers, level 3 five numbers and
a target from 100 to 999. Items are made from an expression whose steps are all positive
whole numbers, so each is solvable; targets that the sum or the product of all numbers
reaches do not occur. Any expression that uses the numbers and has the value is right, so
the gold completion is only one of many. The key is the sorted numbers and the target.
"""

from __future__ import annotations

import math
import random
import re
from fractions import Fraction
from typing import Any

from crlbench.reward.extract import last_line
from crlbench.reward.splits import build_split

CARD = {
    "name": "countdown",
    "version": "1.0.0",
    "tags": ["exploration", "compositional"],
    "summary": "Reach a target number from all given numbers with + - * /.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-af457855-countdown-92264471873b",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "numbers {numbers} target {target}:",
    "reach {target} with {numbers}:",
    "{numbers} make {target}:",
    "target {target}, numbers {numbers}:",
    "numbers {numbers} target {target} as <>:",
    "numbers {numbers} target {target} as equation:",
)
ANSWERS = ("{gold}", "{gold}", "{gold}", "{gold}", "<{gold}>", "{gold}={target}")
REPLIES = (
    "the expression only, like (2+3)*4",
    "the expression only, like (2+3)*4",
    "the expression only, like (2+3)*4",
    "the expression only, like (2+3)*4",
    "the expression in angle brackets, like <(2+3)*4>",
    "the expression, an equals sign and the target, like (2+3)*4=20",
)
SYSTEM = (
    "Write an arithmetic expression whose value is the target. Use every given number exactly "
    "once, and nothing else but + - * / and parentheses. Reply with {}."
)
LOWEST, HIGHEST = 2, 12
COUNTS = {1: 3, 2: 4, 3: 5}
TARGETS = {1: (1, 99), 2: (1, 99), 3: (100, 999)}
RANKS = {"+": 1, "-": 1, "*": 2, "/": 2}
MAX_CHARS = 64
"""Longest line that is read as an expression."""

Part = tuple[int, str, int]
"""An expression while an item is made: its value, its text, the rank of its last operation."""
Exact = int | Fraction


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    low, high = TARGETS[level]
    while True:
        numbers = [rng.randint(LOWEST, HIGHEST) for _ in range(COUNTS[level])]
        target, gold, _ = _expression(numbers, rng)
        if low <= target <= high and target not in (sum(numbers), math.prod(numbers)):
            break
    fields = {"numbers": " ".join(map(str, numbers)), "target": target, "gold": gold}
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(**fields)},
        ],
        "answer": ANSWERS[template].format(**fields),
        "level": level,
        "template": template,
        "key": f"{' '.join(map(str, sorted(numbers)))} = {target}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is an expression of the asked numbers and value.

    The numbers and the value are those of the answer, whose format the line must have. The
    line is parsed, never evaluated as code; values are exact fractions, so a division need
    not come out whole on the way. Signs before a number, powers and numbers written next to
    a parenthesis are no expressions.
    """
    gold, given = _expression_in(answer, answer), _expression_in(last_line(text), answer)
    if sorted(_NUMBER.findall(gold)) != sorted(_NUMBER.findall(given)):
        return 0.0
    value = _value(given)
    return float(value is not None and value == _value(gold))


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion is one line that says what the answer says (see ``_reading``)."""
    body = text.strip()
    if len(body) > MAX_CHARS or len(body.splitlines()) != 1:
        return 0.0
    said = _reading(body)
    return float(said is not None and said == _reading(answer))


def _expression(numbers: list[int], rng: random.Random) -> Part:
    """A random expression of all numbers in which every step is a positive whole number."""
    parts: list[Part] = [(number, str(number), 3) for number in numbers]
    while len(parts) > 1:
        left, right = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
        parts.append(_joined(left, rng.choice(_allowed(left[0], right[0])), right))
    return parts[0]


def _allowed(a: int, b: int) -> str:
    return "+*" + "-" * (a > b) + "/" * (b > 1 and a % b == 0)


def _joined(left: Part, operation: str, right: Part) -> Part:
    a, b = left[0], right[0]
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operation]
    rank = RANKS[operation]
    first = f"({left[1]})" if left[2] < rank else left[1]
    grouped = right[2] < rank or (right[2] == rank and operation in "-/")
    second = f"({right[1]})" if grouped else right[1]
    return value, f"{first}{operation}{second}", rank


_NUMBER = re.compile(r"[0-9]+")
_TOKEN = re.compile(r"[0-9]+|[-+*/()]")


def _expression_in(line: str, answer: str) -> str:
    """The expression of a line that has the answer's format; "" for any other line."""
    if len(line) > MAX_CHARS:
        return ""
    if answer.startswith("<"):
        return line[1:-1] if line.startswith("<") and line.endswith(">") else ""
    expression, sign, target = line.partition("=")
    return expression if (sign + target.strip()) == "".join(answer.partition("=")[1:]) else ""


def _value(expression: str) -> Exact | None:
    """The exact value by recursive descent; None for anything that is no expression."""
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression.replace(" ", ""):
        return None
    tokens.reverse()
    try:
        value = _sum(tokens)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return None if tokens else value


def _sum(tokens: list[str]) -> Exact:
    value = _product(tokens)
    while tokens and tokens[-1] in "+-":
        value = value + _product(tokens) if tokens.pop() == "+" else value - _product(tokens)
    return value


def _product(tokens: list[str]) -> Exact:
    value = _factor(tokens)
    while tokens and tokens[-1] in "*/":
        value = value * _factor(tokens) if tokens.pop() == "*" else Fraction(value, _factor(tokens))
    return value


def _factor(tokens: list[str]) -> Exact:
    """A number, or a sum in parentheses; ValueError or IndexError where neither stands."""
    token = tokens.pop()
    if token != "(":
        return int(token)
    value = _sum(tokens)
    if tokens.pop() != ")":
        raise ValueError(token)
    return value


def _reading(line: str) -> tuple[object, ...] | None:
    """What a line says: its brackets, numbers, value in lowest terms and stated target."""
    brackets = line[:1] + line[-1:] if line[:1] == "<" else ""
    body, *stated = (line[1:-1] if brackets else line).split("=")
    tokens = "".join(f" {c} " if c in "+-*/()" else c for c in body).split()
    if any(token not in "+-*/()" and not _is_plain(token) for token in tokens):
        return None
    ratio = _ratio(tokens)
    numbers = sorted(int(token) for token in tokens if token.isdigit())
    return ratio and (brackets, numbers, ratio, [target.strip() for target in stated])


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isdigit() and str(int(token)) == token


def _ratio(tokens: list[str]) -> tuple[int, int] | None:
    """Numerator and denominator in lowest terms, with one stack of values, one of signs."""
    values: list[tuple[int, int]] = []
    signs: list[str] = []
    wanted = True
    for token in ["(", *tokens, ")"]:
        if wanted != (token == "(" or token.isdigit()):
            return None
        wanted = token in "+-*/("
        if token == "(":
            signs.append(token)
        elif token.isdigit():
            values.append((int(token), 1))
        else:
            while signs and signs[-1] != "(" and RANKS[signs[-1]] >= RANKS.get(token, 0):
                _reduce(values, signs.pop())
            if not signs:
                return None
            signs.pop() if token == ")" else signs.append(token)
    if signs or values[0][1] == 0:
        return None
    top, bottom = values[0]
    shared = math.gcd(top, bottom) * (1 if bottom > 0 else -1)
    return top // shared, bottom // shared


def _reduce(values: list[tuple[int, int]], sign: str) -> None:
    """Apply a sign to the two last values; a denominator 0, once there, stays."""
    (a, b), (c, d) = values[-2:]
    results = {"+": (a * d + c * b, b * d), "-": (a * d - c * b, b * d), "*": (a * c, b * d)}
    bottom_is_zero = sign == "/" and (c == 0 or d == 0)
    values[-2:] = [(1, 0) if bottom_is_zero else results.get(sign, (a * d, b * c))]
