r"""Mathematical equivalence of a completion's final answer and the gold, by ``math-verify``.

What is read is the place that the gold completion's own format names, and nothing else of the
text: the last ``\boxed{...}`` or ``<answer>...</answer>`` with content, or the last line, after
"Answer:" or alone (:mod:`crlbench.reward.answers`). How it is spelled is undone first
(:mod:`crlbench.reward.notation`). What stands there must be one answer as a whole; a number
somewhere in a sentence earns nothing. An integral, a sum or another operator that is still to be
evaluated restates the problem and is no answer, unless the gold holds it too. The comparison runs
under hard limits in a process of its own (:mod:`crlbench.reward.forked`), and never raises for a
text.

The library (extra ``math``, versions pinned) is Apache-2.0; its rounding of decimals (six
places, so that 0.333333 is 1/3) and of percent (50% is 50, and 1/2) are kept.
"""

from __future__ import annotations

import re
from typing import Any

from crlbench.reward.answers import boxes, last_filled, outside_thoughts, tags
from crlbench.reward.forked import CPU_S, Server, require
from crlbench.reward.notation import readings, tidy

VERSIONS = {
    "math-verify": "0.9.0",
    "latex2sympy2_extended": "1.11.0",
    "antlr4-python3-runtime": "4.13.2",
    "sympy": "1.14.0",
}
MAX_CHARS = 400
"""Longest final answer that is parsed."""
MAX_DEPTH = 24
"""Deepest nesting of braces, brackets and parentheses."""
MAX_DIGITS = 60
"""Longest run of digits."""
MAX_EXPONENT = 9999
"""Largest whole number that stands as a power, or before a factorial sign."""
MAX_TOWER = 3
"""Most power signs in an answer without a letter, where values can explode."""
SMALLEST_RATIO = 1e-5
"""Largest relative difference of two numbers that count as equal."""
EXACT_DIGITS = 30
"""Digits to which constants agree that count as identical."""
WORDS = ("no", "if", "or")
"""Short answers that are compared as words, as those of three letters and more always are: as
mathematics they would be products of letters, equal in any order."""


def equivalent(text: str, answer: str) -> float:
    """1.0 iff the completion's final answer is mathematically that of the gold completion.

    Raises :class:`crlbench.errors.EnvironmentUnfit` without the extra ``math``.
    """
    gold = tidy(_place(answer, answer))
    given = tidy(_place(text, answer), gold.value[-1:])
    if not gold.value or not given.value or (gold.unit and given.unit and gold.unit != given.unit):
        return 0.0
    wanted = _ungrouped(gold.value)
    return max(_same(wanted, reading) for reading in readings(given.value, wanted))


def _ungrouped(gold: str) -> str:
    """A gold answer that is one number with commas, without them."""
    return gold.replace(",", "") if _GROUPED.fullmatch(gold) else gold


def _same(gold: str, given: str) -> float:
    if given != gold and too_much(given):
        return 0.0
    if _word(gold) or _word(given):
        return float(_word(gold) == _word(given))
    if given == gold or _choice(gold) == given.strip("()"):
        return 1.0
    if _says_other(given, gold):
        return 0.0
    if operators(given) - operators(gold):
        stated = _stated(given)
        return _same(gold, stated) if stated and "=" not in gold else 0.0
    if _EVALUATED.search(gold) or _EVALUATED.search(given):
        return float("".join(gold.split()) == "".join(given.split()))
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(given):
        return float(int(gold) == int(given))
    return compare(_apart(gold), _apart(given))


def _stated(found: str) -> str:
    r"""What an equation says of its left side: 5 for "\\min f = 5"; "" for anything else."""
    depth, equals = 0, -1
    for place, character in enumerate(found):
        depth += (character in "({[") - (character in ")}]")
        spaces = character in ",;" and found[place - 1 : place] == "\\"
        if depth == 0 and character in "<>,;" and not spaces:
            return ""
        equals = place if depth == 0 and character == "=" else equals
    right = found[equals + 1 :].strip() if equals > 0 else ""
    listed = "," in right or r"\text" in right
    return "" if _OTHER_RELATION.search(found) or listed else right


def _says_other(given: str, gold: str) -> bool:
    r"""Whether an answer denies something, or states two things where the gold is one value.

    "x=3 \\quad x=5" states two; of a chain such as "x = 2 + 3 = 5" only the last part counts.
    """
    if _DENIES.search(given) and not _DENIES.search(gold):
        return True
    stated = [part for part in _NEXT.split(given) if part.partition("=")[0].strip()]
    several = sum("=" in part for part in stated) > 1
    return several and not re.search(r"[,;=]|\\(?:pm|text|mathrm|begin)", gold)


def _apart(found: str) -> str:
    """Elements of a list apart, for the library takes "1,234" to be one number."""
    return _ELEMENTS.sub(", ", found)


def judgeable(answer: str) -> bool:
    """Whether a gold completion can be judged, and not only repeated.

    Its answer must be a word, or be parsed within the limits and found equal to itself. Raises
    like :func:`equivalent`.
    """
    gold = final(answer, answer)
    gold = _ungrouped(gold)
    if _word(gold):
        return True
    return bool(gold) and not too_much(gold) and compare(_apart(gold), _apart(gold)) == 1.0


def compare(gold: str, given: str) -> float:
    """1.0 iff the library finds two expressions equal; 0.0 also where it fails or takes too long.

    Goes to the library in any case: also for equal strings.
    """
    global _checked
    if not _checked:
        require(VERSIONS, "math", "mathematical equivalence")
        _checked = True
    return _server.ask([gold, given]) or 0.0


_server = Server("crlbench.reward.equivalence")
_checked = False
_INTEGER = re.compile(r"[-+]?[0-9]{1,60}")
_ELEMENTS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_OTHER_RELATION = re.compile(
    r"\\(?:(?:leq?|geq?)(?:slant)?|neq?|nleq|ngeq|ll|gg|(?:not)?in|subset|sim|equiv|propto)(?![A-Za-z])"
)
_DENIES = re.compile(r"\\not(?![A-Za-z])|\\(?:text|mathrm)\s?\{[^{}]*(?:n't|\b(?:not|never)\b)")
_NEXT = re.compile(
    r"\\q?quad(?![A-Za-z])|\\\\|(?<!\\);|\\(?:lor|land|vee|wedge)(?![A-Za-z])|\\&"
    r"|\\(?:text|mathrm|operatorname)\s?\{\s*(?:or|and)\s*\}|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])"
)
"""What parts statements."""
_EVALUATED = re.compile(r"\\(?:gcd|lcm)[^A-Za-z].*[A-Za-z]")
"""The library takes the greatest common divisor of two letters to be 1: compared as text alone."""
_NAMED = re.compile(
    r"(?<![A-Za-z])(i{0,4}o?int|idotsint|oiint|intop|sum|prod|coprod|lim(?:sup|inf)?|(?:arg)?max"
    r"|(?:arg)?min|sup|inf|gcd|hcf|lcm|det|[bp]?mod|rem|Pr|Var|Cov|tr|trace|rank|deg|dim|diff"
    r"|derivative|integral|integrate|partial|nabla|big(?:cup|cap)|[vV]matrix)(?![A-Za-z])"
)
_WRITTEN = {
    "derivative": re.compile(
        r"(?<![A-Za-z])d(?:\^\{?\w\}?)?[A-Za-z]?\s*/\s*d[A-Za-z]"
        r"|\\frac\s*\{?\s*(?:\\(?:mathrm|text|rm)\s*\{?\s*)?d(?![A-Za-z]{2})[^{}]{0,9}"
        r"(?:\{\w+\})?\}*\s*\{?\s*(?:\\(?:mathrm|text|rm)\s*\{?\s*)?d\}?\s*[A-Za-z]"
        r"|[A-Za-z](?:'+|\^\{?\\prime\}?)\s*\("
    ),
    "mean": re.compile(r"(?<![A-Za-z])(?:\\[a-z]+\{)?E\}?\s*(?:\\left)?\["),
    "chance": re.compile(r"\\(?:mathbb|mathbf|mathrm|operatorname)\{P\}|\\P(?![A-Za-z])"),
    "determinant": re.compile(r"\|\s*\\begin|\\begin\{[vV]matrix|\\left\|\s*\\begin"),
}

_SPACING = re.compile(r"\\[,;:! ]|~|\\q?quad(?![A-Za-z])")


def operators(found: str) -> set[str]:
    r"""The operators of an expression that stand for something still to be evaluated.

    >>> operators(r"\int_0^1 x^2 dx"), operators(r"\frac{1}{3}")
    ({'int'}, set())
    """
    found = _SPACING.sub(" ", found)
    written = {name for name, pattern in _WRITTEN.items() if pattern.search(found)}
    return written | set(_NAMED.findall(found))


def final(text: str, answer: str) -> str:
    r"""The final answer of a completion in the format of the gold completion; "" without one.

    >>> final(r"So \boxed{1}, no: \boxed{\frac{1}{2}}.", r"\boxed{0}")
    '\\frac{1}{2}'
    """
    return tidy(_place(text, answer)).value


def _place(text: str, answer: str) -> str:
    """What stands where the gold completion's format asks for the answer, as it is written."""
    text = outside_thoughts(text)
    if answer.startswith(r"\boxed{"):
        return last_filled(boxes(text))
    if answer.startswith("<answer>"):
        return last_filled(tags(text))
    end = _DISPLAY.sub(r"\1\2\3", text[-4 * MAX_CHARS :])
    lines = [line.strip() for line in end.splitlines() if line.strip()]
    while lines and _RULE.fullmatch(lines[-1]):
        lines.pop()
    if answer.startswith("Answer:"):
        return _behind_label(lines)
    return lines[-1] if lines else ""


_DISPLAY = re.compile(r"(\$\$|\\\[)[^\S\n]*\n\s*((?:(?!\$\$|\\\])[^\n])+)\n\s*(\$\$|\\\])")
"""A formula that stands between its marks on a line of its own."""
_RULE = re.compile(r"[-_*=]{3,}|```+")
"""A line that ends a part or a block and says nothing."""
_MARKUP = re.compile(r"</?(?:b|strong|i|em|u|p|div|span)>", re.IGNORECASE)
_LABEL = re.compile(
    r"(?:[-+\u2022](?=\s)|[>#*_\s])*(?:the\s+)?(?:final\s+)?answer\s*(?:[*_]{1,3})?:", re.IGNORECASE
)


def _behind_label(lines: list[str]) -> str:
    """What follows "Answer:" on the last line, or fills the last line behind a bare "Answer:"."""
    lines = [_MARKUP.sub("", line) for line in lines[-2:]]
    if not lines:
        return ""
    label = _LABEL.match(lines[-1])
    if label:
        return lines[-1][label.end() :].strip("*_ ")
    above = _LABEL.match(lines[-2]) if len(lines) > 1 else None
    return lines[-1] if above and not lines[-2][above.end() :].strip("*_ ") else ""


def _word(found: str) -> str:
    """An answer that is a word, in small letters; "" for any other."""
    bare = re.sub(r"\\(?:text|mathrm|operatorname)\{([^{}]*)\}", r"\1", found)
    bare = bare.strip(" .!{}\"'\u201c\u201d\u201e").lower()
    return bare if bare in WORDS or re.fullmatch("[a-z]{3,}", bare) else ""


def _choice(gold: str) -> str:
    """The letter of a gold answer that names one in parentheses, as "(A)"; "" for any other."""
    choice = re.fullmatch(r"\\text\{\(([A-Z])\)\}", gold)
    return choice[1] if choice else ""


_POWER = re.compile(r"(?:\^|\*\*)[\s({+-]*(\d+)")
_FACTORIAL = re.compile(r"(\d+)[\s)}]*!")
_LOOSE = re.compile(r"\d\s+[\d.]")
_ZEROS = re.compile(r"(?<![\d.])0\d")


def too_much(found: str) -> bool:
    """Whether an answer is refused before it is parsed.

    Refused are texts over the limits of this file, texts with other letters than ASCII's,
    numbers with leading zeros, and numbers side by side ("1 2 3"), which the library adds up.
    """
    if len(found) > MAX_CHARS or not found.isascii() or not found.isprintable():
        return True
    depth = deepest = 0
    for character in found:
        depth += (character in "({[") - (character in ")}]")
        deepest = max(deepest, depth)
    numbers = [*_POWER.findall(found), *_FACTORIAL.findall(found)]
    return (
        deepest > MAX_DEPTH
        or re.search(rf"\d{{{MAX_DIGITS + 1}}}", found) is not None
        or any(int(number) > MAX_EXPONENT for number in numbers)
        or (found.count("^") + found.count("**") >= MAX_TOWER and not re.search("[A-Za-z]", found))
        or found.count("!!") > 0
        or _LOOSE.search(found) is not None
        or _ZEROS.search(found) is not None
    )


# --- What runs in the server, where alone the library is imported.

_WARM = (
    ("1", "2"), (r"\frac{1}{2}", "0.5"), (r"\sqrt{2}", "2^{1/2}"), ("x^2+1", "1+x^{2}"),
    ("(1,2)", "[1,2)"), (r"\{1,2\}", "1, 2"), (r"x=\frac{a}{b}", "y=3"), ("50\\%", "0.5"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
    (r"(-\infty,2)\cup(3,\infty)", "x<2"), (r"e^{i\pi}", "-1"), (r"\sin x+\cos(2x)", r"\tan x"),
    (r"\ln 2", r"\log_2 3"), (r"\sum_{n=1}^{3}n", r"\int_0^1 x dx"), ("10!", r"\binom{5}{2}"),
    (r"\text{none}", "A"), (r"x\in\mathbb{R}", r"k\neq 1"), (r"\lfloor x\rfloor", "|x|"),
    (r"\pm 2", r"\emptyset"), ("a_1", r"\alpha"), (r"\frac{1+\sqrt{5}}{2}", r"\pi/4"),
)  # fmt: skip
"""Pairs compared before the first question: parser tables and lazy imports are then in place."""


def prepare() -> None:
    """Load the library and let it compare examples, once."""
    for gold, given in _WARM:
        answer([gold, given])
        answer([gold, gold])


def cpu_s(question: list[str]) -> float:
    """CPU time of a question, in seconds."""
    return CPU_S


def forks(question: list[str]) -> bool:
    """Always: the library's caches and the time that a comparison takes must touch no other."""
    return True


def answer(question: list[str]) -> float:
    """1.0 iff the library finds the two expressions [gold, given] equal."""
    from math_verify import verify

    gold, given = (_parsed(latex) for latex in question)
    exact = _exact(gold), _exact(given)
    if None not in exact and exact[0] != exact[1]:
        return 0.0
    same = verify(gold, given, timeout_seconds=None) and _plausible(gold, given)
    return float(same or _identical(gold, given))


def _exact(value: Any) -> Any:
    """The fraction or whole number that a constant without decimals is; None for any other.

    The library compares long numbers by their first digits.
    """
    from sympy import Float, UnevaluatedExpr

    if not getattr(value, "is_number", False) or value.has(Float, UnevaluatedExpr):
        return None
    value = value.doit()
    return value if value.is_Rational else None


def _identical(gold: Any, given: Any) -> bool:
    """Whether two constants agree to so many digits that no accident can be the reason.

    The library does not know that the logarithm of 3 to base 2 is ln 3 / ln 2.
    """
    from sympy import Float

    if not (getattr(gold, "is_number", False) and getattr(given, "is_number", False)):
        return False
    if gold.has(Float) or given.has(Float):
        return False
    a, b = (value.doit().evalf(2 * EXACT_DIGITS) for value in (gold, given))
    if not (a.is_finite and b.is_finite):
        return False
    return bool(abs(a - b) <= abs(a) * 10**-EXACT_DIGITS)


def _parsed(latex: str) -> Any:
    from latex2sympy2_extended.latex2sympy2 import (
        NormalizationConfig,
        latex2sympy,
        normalize_latex,
    )
    from math_verify.grader import should_treat_as_complex

    config = NormalizationConfig(
        basic_latex=True,
        units=False,  # it takes the letter of "n - m" for metres
        malformed_operators=True,
        nits=True,
        boxed="none",
        equations=False,
    )
    plain = normalize_latex(latex, config=config)
    return latex2sympy(
        plain,
        is_real=not should_treat_as_complex(plain),
        convert_degrees=False,
        normalization_config=None,
    )


def _plausible(gold: Any, given: Any) -> bool:
    """Whether two expressions that the library calls equal are not an accident of its rules.

    Rounding to six places makes all tiny numbers 0, and two equations without solutions have
    the same (no) solutions.
    """
    from sympy import UnevaluatedExpr
    from sympy.core.relational import Relational

    if isinstance(gold, Relational) and isinstance(given, Relational):
        return gold.free_symbols == given.free_symbols and _one_relation(gold, given)
    if not (getattr(gold, "is_number", False) and getattr(given, "is_number", False)):
        return True
    if gold.has(UnevaluatedExpr) or given.has(UnevaluatedExpr):
        return True
    a, b = (complex(value.doit().evalf(20)) for value in (gold, given))
    return a == b or abs(a - b) <= SMALLEST_RATIO * max(abs(a), abs(b))


def _one_relation(gold: Any, given: Any) -> bool:
    """Whether two relations differ by a factor, or the gold one has solutions to compare."""
    from sympy import Eq, simplify, solve

    if not isinstance(gold, Eq) or gold == given:
        return True
    factor = simplify((gold.lhs - gold.rhs) / (given.lhs - given.rhs))
    return bool(factor.is_number) or bool(solve(gold, list(gold.free_symbols)))
