r"""A line cut into numbers, words and marks, character by character: for the audit of numbers.

LaTeX commands become the marks they draw, fonts and emphasis are dropped with their braces, and so
are the exponents of units and letters.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from crlbench.reward.numerals import CURRENCIES, SIGNS, VULGAR

LONGEST = 40
"""Digits above which a text is nobody's number."""
MOST_POWER = 999
SEPARATORS = ("\\,", "\\ ", "\\;", "\\:", "{,}", "{\\,}", ",\\!", "\\!", "\\thinspace ", "~", "'")
"""What only groups digits, besides spaces that do not break."""
WIDE_SPACES = "\u00a0\u2007\u2008\u2009\u200a\u202f\u205f"
_RAISES = {*"^*\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b"}
"""What raises a ten behind an x that multiplies."""
RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
DRAWN = {
    "times": "\u00d7", "cdot": "\u00b7", "div": "\u00f7", "pm": "\u00b1", "approx": "\u2248",
    "simeq": "\u2248", "le": "\u2264", "leq": "\u2264", "lt": "<", "ge": "\u2265", "geq": "\u2265",
    "gt": ">", "ne": "\u2260", "neq": "\u2260", "to": "\u2192", "rightarrow": "\u2192",
    "Rightarrow": "\u2192", "implies": "\u2192", "circ": "\u00b0", "degree": "\u00b0",
    "sqrt": "\u221a",
}  # fmt: skip
FONTS = {
    "text", "textbf", "textit", "textsf", "texttt", "textrm", "textnormal", "mathrm", "mathbf",
    "mathit", "mathsf", "mathtt", "boldsymbol", "operatorname", "bm", "mbox", "underline", "emph",
}  # fmt: skip
BLANKS = {
    *"boxed fbox left right displaystyle textstyle quad qquad small normalsize large Large".split(),
    *"LARGE huge Huge bf rm it therefore because checkmark".split(),
}
LONG_MARKS = ("->", "=>", ">>", "<=", ">=", "!=", "**")


class Token(NamedTuple):
    """One piece of a line."""

    kind: str
    """"number", "broken" (digits that are no number), "word", "mark" or "space"."""
    text: str
    value: Fraction | None = None


SPACE = Token("space", " ")


def tokens_of(line: str) -> list[Token]:
    """The tokens of a line, without what only dresses its numbers."""
    line = line.translate(SIGNS).replace("<sup>", "^").replace("</sup>", " ")
    line = _without_emphasis(_without_tags(line))
    for written in ("Rs. ", "Rs.", "rs. ", "rs."):
        line = line.replace(written, "$")
    for code in CURRENCIES:
        line = _coded(line, code)
    found: list[Token] = []
    place = 0
    while place < len(line):
        place = _read(line, place, found)
    return _scientific(_without_powers(_fractions(found)))


def _coded(line: str, code: str) -> str:
    """The line with a dollar sign for a currency's code before a number."""
    first, *pieces = line.split(code)
    said = first
    for piece in pieces:
        sign = piece[1:] if piece[:1].isspace() else piece
        counts = _is_digit(sign.lstrip("+-.")[:1]) and not said[-1:].isalpha()
        said += "$" + sign if counts else code + piece
    return said


def _read(line: str, place: int, found: list[Token]) -> int:
    """Append the token at a place; the place behind it."""
    one = line[place]
    if one == "\\":
        return _command(line, place, found)
    if _is_digit(one) or (one == "." and _is_digit(line[place + 1 : place + 2])):
        return _number(line, place, found)
    if one in VULGAR:
        if found and found[-1].kind == "number":
            found.append(SPACE)
        found.append(Token("number", "part", Fraction(*VULGAR[one])))
    elif one in RAISED or one == "\u207b":
        end = place
        while end < len(line) and line[end] in RAISED + "\u207b":
            end += 1
        digits = "".join(str(RAISED.find(sign)) for sign in line[place:end] if sign in RAISED)
        sign = [Token("mark", "-")] if "\u207b" in line[place:end] else []
        found += [Token("mark", "^"), *sign, _numeral(digits)]
        return end
    elif one.isspace() or one == "~":
        found.append(SPACE)
    elif line.startswith("x10", place) and line[place + 3 : place + 4] in _RAISES:
        found.append(Token("mark", "\u00d7"))
    elif one.isalpha() or one == "_":
        end = place
        while end < len(line) and (line[end].isalnum() or line[end] == "_"):
            if line[end] in VULGAR or line[end] in RAISED:
                break
            end += 1
        if line[end - 1] == "_" and line[end : end + 1] == "{":
            end = line.find("}", end) + 1 or len(line)  # an index
        found.append(Token("word", line[place:end]))
        return end
    elif one.isalnum():
        found.append(Token("broken", one))
    else:
        mark = next((mark for mark in LONG_MARKS if line.startswith(mark, place)), one)
        found.append(Token("mark", {"->": "\u2192", "=>": "\u2192"}.get(mark, mark)))
        return place + len(mark)
    return place + 1


def _command(line: str, place: int, found: list[Token]) -> int:
    end = place + 1
    while end < len(line) and line[end].isascii() and line[end].isalpha():
        end += 1
    name = line[place + 1 : end]
    if not name:
        sign = line[place + 1 : place + 2]
        found.append(Token("mark", sign) if sign in ("$", "%", "{", "}") else SPACE)
        return place + 2
    if name in BLANKS:
        found.append(SPACE)
    elif name in DRAWN:
        found.append(Token("mark", DRAWN[name]))
    elif name in ("frac", "dfrac", "tfrac"):
        found.append(Token("word", "\\frac"))
        if _is_digit(line[end : end + 1]) and _is_digit(line[end + 1 : end + 2]):
            for digit in line[end : end + 2]:
                found += [Token("mark", "{"), _numeral(digit), Token("mark", "}")]
            return end + 2
    elif name not in FONTS:
        found.append(Token("word", "\\" + name))
        if line[end : end + 1] == "{":  # what it applies to is no number of its own
            found.append(Token("word", "\\of"))
    return end


def _number(line: str, place: int, found: list[Token]) -> int:
    """Append the number, or the broken one, that starts at a place."""
    pieces, separators, end = [""], [], place
    if line[place] == ".":
        separators.append(".")
        pieces.append("")
        end += 1
    while end < len(line):
        if _is_digit(line[end]):
            pieces[-1] += line[end]
            end += 1
            continue
        separator = _separator(line, end)
        if not separator or not _is_digit(line[end + len(separator) : end + len(separator) + 1]):
            break
        pieces.append("")
        separators.append(separator)
        end += len(separator)
    before = found[-1] if found else SPACE
    token = _judged(pieces, separators)
    glued = before.kind in ("word", "broken") or before.text == "."
    foreign = line[end : end + 1].isdecimal()
    power = _power(line, end)
    if token.value is not None and power:
        exponent = int(line[end + 1 : power])
        fits = abs(exponent) <= MOST_POWER
        token = Token("number", "", token.value * Fraction(10) ** exponent if fits else None)
        end = power
    found.append(Token("broken", line[place:end]) if glued or foreign else token)
    return end


def _power(line: str, place: int) -> int:
    """The end of an exponent such as e-5 at a place; 0 where there is none."""
    if line[place : place + 1] not in ("e", "E"):
        return 0
    end = place + 1 + (line[place + 1 : place + 2] in ("+", "-"))
    first = end
    while end < len(line) and _is_digit(line[end]):
        end += 1
    return end if 0 < end - first <= 3 else 0


def _separator(line: str, place: int) -> str:
    """What stands at a place and may separate digits of one number; "" for anything else."""
    if line[place] in WIDE_SPACES + ",.":
        longer = line[place : place + 3]
        return ",\\!" if longer == ",\\!" else line[place]
    return next((one for one in SEPARATORS if line.startswith(one, place)), "")


def _judged(pieces: list[str], separators: list[str]) -> Token:
    """A number of its pieces by the grammar of groups."""
    kinds = {*separators}
    first, *others = pieces
    threes = all(len(piece) == 3 for piece in others)
    head = 0 < len(first) <= 3 and first[0] != "0"
    if not separators:
        return _numeral(first)
    if separators == ["."]:
        return _numeral(first, others[0])
    if len(kinds) == 1 and head and threes:
        return _numeral("".join(pieces))
    if kinds == {","} and 0 < len(first) <= 2 and first[0] != "0" and len(others) > 1:
        if len(others[-1]) == 3 and all(len(piece) == 2 for piece in others[:-1]):
            return _numeral("".join(pieces))
    before, last = {*separators[:-1]}, separators[-1]
    grouped = head and all(len(piece) == 3 for piece in others[:-1]) and len(before) == 1
    if grouped and last == "." and "." not in before:
        return _numeral("".join(pieces[:-1]), pieces[-1])
    continental = before <= {".", *WIDE_SPACES}
    if grouped and last == "," and continental and len(pieces[-1]) <= 2:
        return _numeral("".join(pieces[:-1]), pieces[-1])
    return Token("broken", "")


def _numeral(whole: str, part: str = "") -> Token:
    """A number of plain digits; its value is None where it is none, as for 007."""
    if len(whole) + len(part) > LONGEST or (len(whole) > 1 and whole[0] == "0"):
        return Token("number", "", None)
    return Token("number", "", Fraction(int(whole + part or "0"), 10 ** len(part)))


def _fractions(tokens: list[Token]) -> list[Token]:
    r"""The tokens with \frac{9}{2} written 9/2, and braces gone."""
    found: list[Token] = []
    place = 0
    while place < len(tokens):
        if tokens[place].text != "\\frac":
            found.append(tokens[place])
            place += 1
            continue
        if found and found[-1].kind == "number":
            found.append(SPACE)
        upper, place = _argument(tokens, place + 1)
        lower, place = _argument(tokens, place)
        found += [*upper, Token("mark", "/"), *lower]
    return [token for token in found if token.text not in ("{", "}") or token.kind != "mark"]


def _argument(tokens: list[Token], place: int) -> tuple[list[Token], int]:
    """What the next pair of braces holds, and the place behind them."""
    while place < len(tokens) and tokens[place].kind == "space":
        place += 1
    if place >= len(tokens) or tokens[place].text != "{":
        return [], place
    end = place + 1
    while end < len(tokens) and tokens[end].text != "}":
        end += 1
    return tokens[place + 1 : end], end + 1


def _without_powers(tokens: list[Token]) -> list[Token]:
    """The tokens without exponents of words: of units, and of letters."""
    found: list[Token] = []
    place = 0
    while place < len(tokens):
        dense = [token for token in found[-3:] if token.kind != "space"]
        if tokens[place].text == "^" and [token.text for token in dense[1:]] == ["."]:
            dense.pop()  # the full stop of a unit: ft.
        follows = dense and (dense[-1].kind == "word" or dense[-1].text == "\u00b0")
        if follows and tokens[place].text in ("^", "**"):
            end = place + 1
            while end < len(tokens) and tokens[end].text in (" ", "-", "+"):
                end += 1
            if end < len(tokens) and (tokens[end].kind == "number" or tokens[end].text == "\u00b0"):
                place = end + 1
                continue
        found.append(tokens[place])
        place += 1
    return found


def _scientific(tokens: list[Token]) -> list[Token]:
    """The tokens with 1.5 \u00d7 10^6 as one number."""
    found: list[Token] = []
    place = 0
    while place < len(tokens):
        one = tokens[place]
        end = place + 1
        dense: list[Token] = []
        while end < len(tokens) and len(dense) < 5 and one.kind == "number":
            if tokens[end].kind != "space" and tokens[end].text not in ("(", ")"):
                dense.append(tokens[end])
            end += 1
            texts = [token.text for token in dense]
            if texts[2:] and texts[2] in ("^", "**") and dense[-1].kind == "number":
                break
        power = _power_of_ten(one, dense)
        divides = found and found[-1].text == "/"
        if power is not None and one.value is not None and not divides:
            found.append(Token("number", "", one.value * Fraction(10) ** power))
            place = end
        else:
            found.append(one)
            place += 1
    return found


def _power_of_ten(first: Token, rest: list[Token]) -> int | None:
    """The exponent of what follows a number that is written as "\u00d7 10^6"; None for others."""
    if first.value is None or not 1 <= first.value < 10 or len(rest) not in (4, 5):
        return None
    times, ten, caret, *sign, power = rest
    wrong = times.text not in ("\u00d7", "\u00b7", "*", "x") or caret.text not in ("^", "**")
    if wrong or ten.value != 10 or power.kind != "number" or power.value is None:
        return None
    if power.value.denominator != 1 or power.value > MOST_POWER:
        return None
    if sign and sign[0].text not in ("-", "+"):
        return None
    return -int(power.value) if sign and sign[0].text == "-" else int(power.value)


def _without_tags(line: str) -> str:
    """The line with a space for each HTML tag or special token."""
    pieces = line.split("<")
    kept = [pieces[0]]
    for piece in pieces[1:]:
        inside, closed, rest = piece.partition(">")
        tag = closed and len(inside) <= 41 and (inside[:1].isalpha() or inside[:1] in ("/", "|"))
        kept.append(f" {rest}" if tag else f"<{piece}")
    return "".join(kept)


def _without_emphasis(line: str) -> str:
    """The line without stars and underscores that open at a word's start and close at an end."""
    for sign in ("*", "_"):
        if sign in line:
            line = _unpaired(line, sign)
    return line.replace("`", " ")


def _unpaired(line: str, sign: str) -> str:
    words = line.split(" ")
    opened: list[tuple[int, int]] = []
    for number, word in enumerate(words):
        core = word.lstrip("(\"'")
        lead = len(core) - len(core.lstrip(sign))
        if 0 < lead <= 3 and core.strip(sign):
            opened.append((number, lead))
        bare = word.rstrip(".,;:!?)\"'$")
        tail = len(bare) - len(bare.rstrip(sign))
        if opened and tail == opened[-1][1] and bare.strip(sign):
            start, count = opened.pop()
            words[start] = words[start].replace(sign * count, "", 1)
            head, _, end = words[number].rpartition(sign * count)
            words[number] = head + end
    return " ".join(words)


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9" and len(character) == 1
