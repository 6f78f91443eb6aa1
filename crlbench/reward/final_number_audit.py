r"""A second reading of a final number, written apart from ``final_number`` and stricter.

It goes word by word without regular expressions and computes in fractions. A wrapped gold must
be wrapped the same way and all such wrappings of a text must agree; without a wrapping only the
last line with a digit in it is read, and every wrapping elsewhere must agree with it.
"""

from __future__ import annotations

from fractions import Fraction

FORMS = (("#### ", "\n"), ("\\boxed{", "}"), ("<answer>", "</answer>"))
"""What stands before and after a wrapped number; the end of the text closes the first."""
SIGNS = "+-*/^x\u2013\u00d7\u00f7\u00b7"
"""Marks that, between two numbers, leave something to be worked out."""
FREE = "$*=()[]~:\u20ac\u00a3\u2248"
"""Marks that may touch a number without changing it."""


def audited(text: str, answer: str) -> tuple[Fraction, Fraction] | None:
    """The number that a text commits itself to, and that of the gold completion.

    None where the text commits itself to none, or to several.
    """
    form = next((form for form in FORMS if answer.startswith(form[0])), None)
    gold = _single(_inside(answer, form)[0] if form else answer)
    said = {_single(one) for own in ([form] if form else FORMS) for one in _inside(text, own)}
    if form is None and not said:
        lines = [line for line in _clean(text).splitlines() if any(map(_is_digit, line))]
        said = {_numbers(lines[-1])[-1]} if lines and not _unfinished(lines[-1]) else set()
    found = said.pop() if len(said) == 1 else None
    return None if found is None or gold is None else (found, gold)


def _inside(text: str, form: tuple[str, str]) -> list[str]:
    """What stands in each wrapping of one form."""
    before, after = form
    found = []
    for piece in text.split(before)[1:]:
        end = _closing(piece) if after == "}" else piece.find(after)
        if end < 0 and after == "\n":
            end = len(piece)
        if end >= 0:
            found.append(piece[:end])
    return found


def _closing(text: str) -> int:
    """The place of the brace that closes one opened before the text; -1 if none does."""
    depth = 1
    for place, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return place
    return -1


def _unfinished(line: str) -> bool:
    """Whether the last number of a line follows a mark between spaces and another number."""
    words = line.split()
    while words and not any(map(_is_digit, words[-1])):
        words.pop()
    mark = words[-2].strip("*") if len(words) > 2 else "?"
    sign = mark in {*SIGNS, "", "times", "cdot", "div"}
    return sign and any(map(_is_digit, words[-3]))


def _single(text: str) -> Fraction | None:
    found = _numbers(_clean(text))
    return found[0] if len(found) == 1 else None


def _clean(text: str) -> str:
    for written, meant in (
        ("{,}", ","),
        ("\\,", ""),
        ("\\!", ""),
        ("}{", "/"),
        ("\u2212", "-"),
        ("\\", " "),
        ("{", " "),
        ("}", " "),
    ):
        text = text.replace(written, meant)
    return text


def _numbers(line: str) -> list[Fraction | None]:
    """The value of every word with a digit in it; None for one that is no plain number."""
    words = [word.lstrip(FREE + "\"'").rstrip(FREE + ".,;!?%\"'") for word in line.split()]
    return [_value(word) for word in words if any(map(_is_digit, word))]


def _value(word: str) -> Fraction | None:
    negative = word.startswith("-")
    word = word.removeprefix("-").lstrip(FREE)
    if word.startswith("-") and not negative:
        negative, word = True, word[1:]
    end = next((i for i, c in enumerate(word) if not (_is_digit(c) or c in ",.")), len(word))
    digits, unit = word[:end].rstrip(".,"), word[end:]
    if any(map(_is_digit, unit)) or not 0 < len(digits) <= 40:
        return None
    whole, _, part = digits.partition(".")
    first, *others = whole.split(",")
    if others and not (0 < len(first) <= 3 and all(len(group) == 3 for group in others)):
        return None
    if (len(first) > 1 and first[0] == "0") or "." in part or "," in part:
        return None
    size = Fraction(int("".join([first, *others, part]) or "0"), 10 ** len(part))
    return -size if negative else size


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"
