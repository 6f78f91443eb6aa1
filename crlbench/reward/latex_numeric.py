r"""A second opinion on mathematical answers that shares nothing with the first.

Expressions are evaluated in floating point at fixed pseudo-random values of their letters, by a
parser of this file's own; what is no expression is compared as text. Numbers are floats
throughout, so that no expression takes long: an overflow is a failure to evaluate.
"""

from __future__ import annotations

import cmath
import hashlib
import math
import re
from collections.abc import Callable

LONGEST = 400
"""Characters of an answer that is evaluated."""
POINTS = 3
"""Values of the letters that two expressions must agree at."""
ROUNDED_POINTS = 64
"""The same where an expression rounds: at most values that hides a small difference."""
CLOSE = 1e-6
"""Relative difference of values that count as equal."""

_SPACING = re.compile(r"\\[,;:! ]|\\q?quad(?![a-z])|~|\\(?:left|right|displaystyle)(?![a-z])|\s+")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|operatorname|textit)\{([^{}]*)\}")
_UNIT = re.compile(r"(?<=[\d}])\\(?:text|mathrm)\{[^{}]*\}(?:\^\{?[23]\}?)?$")
_RELATION = re.compile(r"(\\leq?|\\geq?|\\neq?|\\in|<|>|=)(?![A-Za-z])")
_SAME = {r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne"}
_PAIRS = {"(": ")", "[": "]", r"\{": r"\}"}
_TOKEN = re.compile(r"\d+(?:,\d{3})+(?!\d)|\d+\.?\d*|\.\d+|\\[A-Za-z]+|\\.|[A-Za-z]|\S")


def same_answer(text: str, gold: str) -> float:
    """1.0 iff the completion ends in the format of the gold completion with an equal answer."""
    given, wanted = _inside(text, gold), _inside(gold, gold)
    if given is None or wanted is None or not given:
        return 0.0
    return float(_same(given, wanted))


def _inside(text: str, gold: str) -> str | None:
    """The answer's place in a text, cleaned; None where the format is not kept."""
    if gold.startswith("\\boxed"):
        parts = text.split("\\boxed{")
        found = _until_closed(parts[-1]) if len(parts) > 1 else None
    elif gold.startswith("<answer>"):
        head, mark, _ = text.rpartition("</answer>")
        found = head.rpartition("<answer>")[2] if mark and "<answer>" in head else None
    else:
        found = text.strip().rpartition("\n")[2].strip()
        if gold.startswith("Answer:"):
            found = found[len("Answer:") :] if found.startswith("Answer:") else None
    if found is None or len(found) > LONGEST:
        return None
    cleaned = _cleaned(found)
    return cleaned if cleaned.isascii() else None


def _until_closed(rest: str) -> str | None:
    opened = 1
    for place, character in enumerate(rest):
        if rest[place - 1 : place] != "\\":
            opened += {"{": 1, "}": -1}.get(character, 0)
        if not opened:
            return rest[:place]
    return None


def _cleaned(found: str) -> str:
    found = _SPACING.sub(" ", found.replace("$", "")).strip().rstrip(".").strip()
    found = re.sub(r"\\[dt]frac", r"\\frac", found)
    found = found.replace("\u2212", "-").replace("\u03c0", r"\pi ")
    found = _UNIT.sub("", found.replace(" \\text", "\\text"))
    return found.replace(r"^\circ", "").replace(r"^{\circ}", "")


def _same(a: str, b: str) -> bool:
    if _bare(a) == _bare(b):
        return True
    if any(_bare(text).isalpha() and len(_bare(text)) > 2 for text in (a, b)):
        return False
    if _bare(a).isdigit() and _bare(b).isdigit():
        return a == b
    for split, ordered in ((_unions, False), (_relations, True), (_listed, True)):
        left, right = split(a), split(b)
        if len(left) > 1 or len(right) > 1:
            if split is _relations and len(left) != len(right):
                return _same(left[-1], right[-1]) and "=" in (*left[-2:-1], *right[-2:-1])
            if split is _listed and not (_tupled(a) or _tupled(b)):
                ordered = False
            if split is _listed and not _brackets_agree(a, b):
                return False
            return _all_same(left, right, ordered)
    return _equal_values(a, b)


def _bare(text: str) -> str:
    return re.sub(r"\s+", "", _TEXT.sub(r"\1", text)).lower()


def _all_same(left: list[str], right: list[str], ordered: bool) -> bool:
    if len(left) != len(right):
        return False
    if ordered:
        return all(_same(a, b) for a, b in zip(left, right, strict=True))
    rest = list(right)
    for a in left:
        match = next((b for b in rest if _same(a, b)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


def _unions(text: str) -> list[str]:
    return [part.strip() for part in text.split("\\cup")]


def _relations(text: str) -> list[str]:
    return [_SAME.get(part.strip(), part.strip()) for part in _RELATION.split(text)]


def _tupled(text: str) -> bool:
    return _enclosed(text)[0] in ("(", "[")


def _brackets_agree(a: str, b: str) -> bool:
    """Brackets that say something: a square one is not a round one; none at all suits any."""
    kinds = [(_enclosed(text)[0], text[-1:]) for text in (a, b)]
    return kinds[0] == kinds[1] or "" in (kinds[0][0], kinds[1][0])


def _enclosed(text: str) -> tuple[str, str]:
    """The opening bracket around a whole text ("" for none), and what it holds."""
    for opening in _PAIRS:
        if text.startswith(opening) and text[-1:] in ")]}":
            closing = r"\}" if opening == r"\{" else text[-1:]
            inner = text[len(opening) : -len(closing)]
            if text.endswith(closing) and _never_closes(inner):
                return opening, inner
    return "", text


def _never_closes(inner: str) -> bool:
    depth = 0
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def _listed(text: str) -> list[str]:
    inner = _enclosed(text)[1] if "," in text else text
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", text):
        return [text]
    parts, depth, start = [], 0, 0
    for place, character in enumerate(inner):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(inner[start:place].strip())
            start = place + 1
    return [*parts, inner[start:].strip()]


def _equal_values(a: str, b: str) -> bool:
    rounds = re.search(r"\\(?:lfloor|lceil)", a + b)
    points = range(ROUNDED_POINTS if rounds else POINTS)
    try:
        return all(_near(_value(a, point), _value(b, point)) for point in points)
    except (ValueError, IndexError, OverflowError, ZeroDivisionError, RecursionError, TypeError):
        return False


def _near(x: complex, y: complex) -> bool:
    if cmath.isinf(x) or cmath.isinf(y):
        return x == y
    return abs(x - y) <= CLOSE * max(abs(x), abs(y))


def _value(text: str, point: int) -> complex:
    """An expression's value at a point; ValueError where it is none."""
    tokens = _TOKEN.findall(_TEXT.sub(r"\1", text))
    reader = _Reader(tokens, point)
    value = reader.sum()
    if reader.rest():
        raise ValueError("left over")
    return value


_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "\\sin": cmath.sin, "\\cos": cmath.cos, "\\tan": cmath.tan, "\\ln": cmath.log,
    "\\log": cmath.log, "\\exp": cmath.exp, "\\arctan": cmath.atan, "\\arcsin": cmath.asin,
    "\\arccos": cmath.acos, "\\sinh": cmath.sinh, "\\cosh": cmath.cosh, "\\tanh": cmath.tanh,
    "\\cot": lambda z: 1 / cmath.tan(z), "\\sec": lambda z: 1 / cmath.cos(z),
    "\\csc": lambda z: 1 / cmath.sin(z),
}  # fmt: skip
_CONSTANTS = {"\\pi": cmath.pi, "e": cmath.e, "i": 1j, "\\infty": math.inf}
_CLOSERS = {"(": ")", "{": "}", "[": "]", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_STOPS = {")", "}", "]", "+", "-", "/", "*", "^", "!", "_", "\\rfloor", "\\rceil", "%", "\\%", "|"}
_ENDS = _STOPS | {"\\cdot", "\\times", "("} | {*_FUNCTIONS}


class _Reader:
    """Recursive descent over the tokens of one expression, with its letters' values."""

    def __init__(self, tokens: list[str], point: int) -> None:
        self.tokens = tokens[::-1]
        self.point = point

    def rest(self) -> list[str]:
        return self.tokens

    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def take(self, wanted: str) -> None:
        if not self.tokens or self.tokens.pop() != wanted:
            raise ValueError(wanted)

    def sum(self) -> complex:
        value = self.product()
        while self.next() in ("+", "-"):
            value += self.product() if self.tokens.pop() == "+" else -self.product()
        return value

    def product(self) -> complex:
        if self.next() in ("-", "+"):
            return -self.product() if self.tokens.pop() == "-" else self.product()
        value, plain = self.power()
        while self.next() and (self.next() not in _STOPS or self.next() in "*/"):
            sign = self.tokens.pop() if self.next() in ("*", "/", "\\cdot", "\\times") else ""
            if sign == "*" and self.next() == "*":
                raise ValueError("**")
            mixed = not sign and plain and self.next() == "\\frac"
            if not sign and self.next()[0].isdigit():
                raise ValueError("numbers side by side")
            negative = sign and self.next() == "-"
            if negative:
                self.tokens.pop()
            factor, plain = self.power()
            factor = -factor if negative else factor
            if mixed:
                value += factor
            else:
                value = value / factor if sign == "/" else value * factor
        return value

    def power(self) -> tuple[complex, bool]:
        """An atom with its powers, factorials and percent signs; whether it is a plain number."""
        plain = self.next()[:1].isdigit()
        value = self.atom()
        while self.next() in ("^", "!", "%", "\\%"):
            sign, plain = self.tokens.pop(), False
            if sign == "^":
                value = complex(value) ** self.exponent()
            elif sign == "!":
                value = math.gamma(complex(value).real + 1)
            else:
                value = value / 100
        return value, plain

    def exponent(self) -> complex:
        if self.next() == "-":
            self.tokens.pop()
            return -self.atom(short=True)
        return self.atom(short=True)

    def atom(self, short: bool = False) -> complex:
        token = self.tokens.pop()
        if token[0].isdigit() or token[0] == ".":
            if token[0] == "0" and token[1:2].isdigit():
                raise ValueError("a leading zero")
            if short and len(token) > 1 and "." not in token:
                self.tokens.append(token[1:])
                token = token[0]
            return float(token.replace(",", ""))
        if token in _CLOSERS:
            value = self.sum()
            self.take(_CLOSERS[token])
            rounded = {"\\lfloor": math.floor, "\\lceil": math.ceil, "|": abs}.get(token)
            whole = complex(value).real if token.startswith("\\") else value
            return rounded(whole) if rounded else value  # type: ignore[arg-type]
        if token == "\\frac":
            return self.atom(short=True) / self.atom(short=True)
        if token == "\\binom":
            n, k = (complex(self.atom(short=True)).real for _ in range(2))
            return math.gamma(n + 1) / math.gamma(k + 1) / math.gamma(n - k + 1)
        if token == "\\sqrt":
            return self.root()
        if token in _FUNCTIONS:
            return self.function(token)
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        if token.isalpha() or re.fullmatch(r"\\[A-Za-z]+", token):
            return self.letter(token)
        raise ValueError(token)

    def root(self) -> complex:
        degree: complex = 2
        if self.next() == "[":
            self.tokens.pop()
            degree = self.sum()
            self.take("]")
        base = complex(self.atom(short=True))
        if degree == 3 and base.imag == 0 and base.real < 0:
            return -((-base) ** (1 / 3))
        return base ** (1 / degree)

    def function(self, token: str) -> complex:
        base = power = 1 + 0j
        if self.next() == "_":
            self.tokens.pop()
            base = cmath.log(self.atom(short=True))
        if self.next() == "^":
            self.tokens.pop()
            power = self.exponent()
        argument = self.atom() if self.next() in ("(", "{", "[", "|") else self.argument()
        return (_FUNCTIONS[token](argument) / base) ** power

    def argument(self) -> complex:
        """What a function without parentheses applies to: \\ln 2x is the logarithm of 2x."""
        value = self.power()[0]
        while self.next() and self.next() not in _ENDS:
            value *= self.power()[0]
        return value

    def letter(self, token: str) -> complex:
        if self.next() == "_":
            self.tokens.pop()
            token += "_" + self.subscript()
        digest = hashlib.sha256(f"{token}|{self.point}".encode()).digest()
        # Narrow and wide in turn, for rounding must tell letters apart too.
        return (0.3 + int.from_bytes(digest[:4], "big") / 2**31) * (1 + 7 * (self.point % 4))

    def subscript(self) -> str:
        first = self.tokens.pop()
        if first != "{":
            return first[0] if first[0].isdigit() else first
        found = ""
        while self.next() != "}":
            found += self.tokens.pop()
        self.tokens.pop()
        return found
