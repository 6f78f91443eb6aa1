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

from crlbench.reward.latex_plain import LONGEST, place_of, plain_answer, says_other

POINTS = 3
"""Values of the letters that two expressions must agree at."""
ROUNDED_POINTS = 64
"""The same where an expression rounds: at most values that hides a small difference."""
CLOSE = 1e-6
"""Relative difference of values that count as equal."""

_TEXT = re.compile(r"\\(?:text|mathrm|operatorname)\{([^{}]*)\}")
_RELATION = re.compile(r"(\\(?:leq?|geq?|neq?|in)(?![A-Za-z])|<|>|=)")
_NAMED = re.compile(
    r"(?:[A-Za-z]|\([A-Za-z](?:\s*,\s*[A-Za-z])*\))\s*(?:=\s*(?=\(|\\pm|\\\{)|\\in\s*(?=[(\[]|\\\{))"
)
"""What names the unknowns before a tuple, a set or two values."""
_TURNED = re.compile(r"([-+]?\d[^=<>]*?)\s*=\s*[A-Za-z]")
_GROUPS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d)")
_SAME = {r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne"}
_PAIRS = {"(": ")", "[": "]", r"\{": r"\}"}
_TOKEN = re.compile(
    r"[1-9]\d{0,2}(?:,\d{3})+(?!\d)|\d+\.?\d*|\.\d+|\^\s*\{?\s*\\circ\s*\}?|\\[A-Za-z]+|\\."
    r"|[A-Za-z]|\S"
)
_IN_BRACES = re.compile(r"(?<!\\)\{[1-9]\d{0,2}(?:,\d{3})+\}")
"""A number that is an argument: its commas separate nothing else."""
_INDIAN = re.compile(r"[-+]?[1-9]\d?,(?:\d\d,)*0\d,(?:\d\d,)*\d{3}")
MAX_DEPTH = 12
"""Deepest nesting of lists and relations that is compared."""
MAX_MERGES = 8
"""Most ways to read commas that are tried."""


def same_answer(text: str, gold: str) -> float:
    """1.0 iff the completion ends in the format of the gold completion with an equal answer."""
    found, wanted = place_of(text, gold), place_of(gold, gold)
    if not found or not wanted or len(found) > LONGEST:
        return 0.0
    if says_other(found, wanted):
        return 0.0
    answer, measure = plain_answer(wanted)
    given, unit = plain_answer(found, answer[-1:])
    if not given or not given.isascii() or (unit and measure and unit != measure):
        return 0.0
    if _is_group(answer):
        answer = answer.replace(",", "")
    given = _IN_BRACES.sub(lambda match: match[0].replace(",", ""), given)
    if ";" in given and ";" not in answer:
        given = _GROUPS.sub(lambda match: match[0].replace(",", ""), given).replace(";", ", ")
    if not _NAMED.match(answer):
        given = given[named.end() :].strip() if (named := _NAMED.match(given)) else given
    if "=" not in answer and (turned := _TURNED.fullmatch(given)):
        given = turned[1]
    if "," not in answer and _INDIAN.fullmatch(given):
        given = given.replace(",", "")
    return float(_same(answer, given, MAX_DEPTH))


def _is_group(text: str) -> bool:
    """Whether a whole text is one number with commas between its thousands."""
    return re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", text) is not None


def _same(a: str, b: str, depth: int) -> bool:
    """Whether the gold answer a and the given one b are equal."""
    if depth == 0:
        return False
    if _bare(a) == _bare(b) or (_choice(a) and _choice(a) == _choice(b)):
        return True
    if any(_bare(text).isalpha() and len(_bare(text)) > 2 for text in (a, b)):
        return False
    if _bare(a).isdigit() and _bare(b).isdigit():
        return a == b
    left, right = _unions(a), _unions(b)
    if len(left) > 1 or len(right) > 1:
        return _all_same(left, right, False, depth)
    listed = _same_lists(a, b, depth) if "," in a + b or "\\pm" in a + b else None
    if listed is not None:
        return listed
    left, right = _relations(a), _relations(b)
    if len(left) == len(right) > 1:
        return left[1::2] == right[1::2] and _all_same(left[::2], right[::2], True, depth)
    if len(left) > 1 or len(right) > 1:
        stated = "=" in (*left[-2:-1], *right[-2:-1])
        return stated and _same(left[-1], right[-1], depth - 1)
    inner = _enclosed(a)[1], _enclosed(b)[1]
    if inner != (a, b) and _brackets_agree(a, b) and "(" not in (a[:1], b[:1]):
        return _same(*inner, depth - 1)
    return _equal_values(a, b)


def _same_lists(a: str, b: str, depth: int) -> bool | None:
    """Whether two lists have equal elements; None where neither is a list."""
    left, right = _signed_apart(_listed(a)), _signed_apart(_listed(b))
    if len(left) == len(right) == 1:
        return None
    alone = len(left) == 1 and _enclosed(b)[0] and not _zeros_lead(right)
    if alone or not _brackets_agree(a, b):
        return False
    ordered = _tupled(a) or _tupled(b)
    return any(_all_same(left, way, ordered, depth) for way in _merges(right, len(left)))


def _signed_apart(parts: list[str]) -> list[str]:
    r"""Elements with \pm in front as two elements."""
    found: list[str] = []
    for part in parts:
        bare = part.strip()
        signed = bare.startswith("\\pm")
        found += [bare[3:].strip(), "-" + bare[3:].strip()] if signed else [part]
    return found


def _zeros_lead(parts: list[str]) -> bool:
    """Whether a part after the first begins like no number: 0 and another digit."""
    return any(part[:1] == "0" and part[1:2].isdigit() for part in parts[1:])


def _merges(parts: list[str], count: int) -> list[list[str]]:
    """The ways to join neighbours that a comma between thousands separates, down to a count."""
    ways = [[(parts[0], False)]]
    """Each element with whether it is one that grew."""
    for part in parts[1:]:
        grouped = re.match(r"\d{3}(?!\d)", part)
        following = []
        for way in ways:
            following.append([*way, (part, False)])
            text, grew = way[-1]
            head = re.search(r"(?<![\d.])[1-9]\d*\Z", text)
            if grouped and head and (grew or len(head[0]) <= 3):
                following.append([*way[:-1], (text + part, part.isdigit())])
        ways = following[-4 * MAX_MERGES :]
    texts = [[text for text, _ in way] for way in ways if len(way) == count]
    return [way for way in texts if not _zeros_lead(way)][-MAX_MERGES:]


def _bare(text: str) -> str:
    bare = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", _TEXT.sub(r"\1", text)).lower().rstrip(".")
    word = bare.strip("{}!")
    return word if word.isalpha() else bare


def _choice(text: str) -> str:
    """The capital letter that an answer is, with or without parentheses; "" for any other."""
    letter = _TEXT.sub(r"\1", text).strip().strip("()")
    return letter if len(letter) == 1 and letter.isupper() else ""


def _all_same(left: list[str], right: list[str], ordered: bool, depth: int) -> bool:
    if len(left) != len(right):
        return False
    if ordered:
        return all(_same(a.strip(), b.strip(), depth - 1) for a, b in zip(left, right, strict=True))
    rest = list(right)
    for a in left:
        match = next((b for b in rest if _same(a.strip(), b.strip(), depth - 1)), None)
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
    """The elements between the commas of a text or of the brackets around it; spaces stay."""
    inner = _enclosed(text)[1] if "," in text else text
    inner = re.sub(r",?\s*(?:\\text\{\s*(?:and|or|,)\s*\}|\b(?:and|or)\b)", ",", inner)
    parts, depth, start = [], 0, 0
    for place, character in enumerate(inner):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(inner[start:place])
            start = place + 1
    return [*parts, inner[start:]]


def _equal_values(a: str, b: str) -> bool:
    rounds = re.search(r"\\(?:lfloor|lceil)", a + b)
    points = range(ROUNDED_POINTS if rounds else POINTS)
    if b.endswith("%") and not a.endswith("%") and _equal_values(a, b.rstrip("\\%")):
        return True
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
_ANGLES = {"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc"}
"""Functions within which degrees are not counted but are angles."""
_CONSTANTS = {"\\pi": cmath.pi, "e": cmath.e, "i": 1j, "\\infty": math.inf}
_CLOSERS = {"(": ")", "{": "}", "[": "]", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_STOPS = {")", "}", "]", "+", "-", "/", "*", "^", "!", "_", "\\rfloor", "\\rceil", "%", "\\%", "|"}
_ENDS = _STOPS | {"\\cdot", "\\times", "("} | {*_FUNCTIONS}


class _Reader:
    """Recursive descent over the tokens of one expression, with its letters' values."""

    def __init__(self, tokens: list[str], point: int) -> None:
        self.tokens = tokens[::-1]
        self.point = point
        self.degree = math.pi / 180 if {*tokens} & _ANGLES else 1.0

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
        while self.next() in ("!", "%", "\\%") or self.next().startswith("^"):
            sign, plain = self.tokens.pop(), False
            if sign.endswith(("\\circ", "\\circ}")):
                value = value * self.degree
            elif sign == "^":
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
