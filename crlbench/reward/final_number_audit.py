r"""A second reading of a final number, written apart from ``final_number``.

It cuts a line into tokens character by character, without regular expressions, and computes in
fractions. A number is first all that digits and separators make of it, and then judged by the
grammar of its groups. What stands between the last number and the one before it decides whether
the last one is a conclusion.
"""

from __future__ import annotations

from fractions import Fraction

from crlbench.reward.answers_audit import boxed_pieces, breaks_off, spoken, tagged_pieces
from crlbench.reward.line_tokens import Token, tokens_of

FORMS = ("#### ", "\\boxed{", "<answer>")
OPERATORS = {*"+-*/^x\u00d7\u00f7\u00b7", "**"}
DRESS = {*"()[]{}\"'\\$\u20ac\u00a3\u00a5\u20b9~,", " "}
"""Tokens around an operator or a number that change nothing."""
RESULT = {"=", "\u2248", "\u2192", ">>"}
"""Tokens behind which a number is a result."""
BOUNDS = {"<", ">", "<=", ">=", "!=", "\u2264", "\u2265", "\u2260", "\u00b1"}
JOINING = {"or", "plus", "minus", "times", "by"}
"""Words that join two numbers into something else than a conclusion."""
ENDS = {*".;:!?"}
LEADS = {"the", "final", "answer", "total", "result", "about", "roughly", "around"}
IDLE = {*"per is are answer final total result text boxed mathrm".split()}
"""Words beside a number that tell nothing more of it."""
MOST_WORDS = 2
"""Words of a unit, as in "square feet"; more of them tell a story."""
LONGEST_LEAD = 400
"""Characters of a heading in which its first number is looked for."""
MONEY = {"usd", "eur", "gbp", "inr", "us"}


def audited(text: str, answer: str) -> tuple[Fraction, Fraction] | None:
    """The number that a text commits itself to, and that of the gold completion.

    None where the text commits itself to none, or to several.
    """
    form = next((one for one in FORMS if answer.startswith(one)), None)
    gold = _single(_wrapped(answer, form) if form else answer)
    text = spoken(text)
    content = _wrapped(text, form)
    found = _single(content) if content or form else _closing_number(text)
    return None if found is None or gold is None else (found, gold)


def _wrapped(text: str, form: str | None) -> str:
    """The content, with a digit in it, of the wrapping that starts last; "" without one."""
    found: list[tuple[int, str]] = []
    if form in (None, "\\boxed{"):
        found += boxed_pieces(text)
        if form and breaks_off(text):
            return ""
    if form in (None, "<answer>"):
        found += tagged_pieces(text)
    if form in (None, "#### "):
        found += _hashed(text)
    filled = [one for one in found if any(map(_is_numeral, one[1]))]
    return max(filled)[1] if filled else ""


def _hashed(text: str) -> list[tuple[int, str]]:
    found, place = [], 0
    pieces = text.split("####")
    last = max((i for i, piece in enumerate(pieces) if any(map(_is_numeral, piece))), default=-1)
    for number, piece in enumerate(pieces):
        if number and piece[:1] in (" ", "\t"):
            line, _, rest = piece.partition("\n")
            followed = bool(rest.strip()) or number + 1 < len(pieces)
            counted = last > number or any(map(_is_numeral, rest))
            found.append((place, _claim(line, followed, counted)))
        place += len(piece) + len("####")
    return found


def _claim(heading: str, followed: bool, counted: bool) -> str:
    """What a heading says as an answer; "" where it only names a part.

    ``followed`` says that a text follows, ``counted`` that it has numbers.
    """
    if _begins_with_number(heading):
        part = followed and _is_numbered(heading)
        return "" if part or (counted and _tells_a_story(heading)) else heading
    signs = [sign for sign in (":", "=", "\u2248", " is ", " are ") if sign in heading]
    if not signs:
        return ""
    first = min(signs, key=heading.index)
    label, _, rest = heading.partition(first)
    short = len(label) <= 60 and not any(map(_is_numeral, label))
    return rest if short and _begins_with_number(rest) else ""


def _tells_a_story(heading: str) -> bool:
    """Whether more words follow a number than a unit has."""
    line = "".join(one if one.isalpha() else " " for one in heading.lower())
    words = {*line.split()} - IDLE
    pieces = "".join(one if one.isalnum() else " " for one in heading).split()
    numbers = [i for i, piece in enumerate(pieces) if piece.isdigit()]
    between = pieces[numbers[0] : numbers[-1]] if numbers and "=" not in heading else []
    return len(words) > MOST_WORDS or any(len(one) > 1 and one.isalpha() for one in between)


def _begins_with_number(text: str) -> bool:
    """Whether only marks, currencies and words such as "about" stand before the first number."""
    for token in tokens_of(text[:LONGEST_LEAD]):
        if token.kind == "number":
            return True
        idle = token.text in DRESS | {*"-+=*:", "**"} or token.text.lower() in LEADS | MONEY
        if token.kind != "space" and not idle:
            return False
    return False


def _is_numbered(heading: str) -> bool:
    """Whether a heading begins like a part of a list, as in "1. Add" or "2) Multiply"."""
    dense = [token for token in tokens_of(heading[:LONGEST_LEAD]) if token.kind != "space"]
    first = next(i for i, token in enumerate(dense) if token.kind == "number")
    marks = [token.text for token in dense[first + 1 : first + 3]]
    return len(marks) == 2 and marks[0] in (".", ")", ":") and dense[first + 2].kind == "word"


def _single(text: str) -> Fraction | None:
    """The one number of a short text, or the result of the one calculation in it."""
    tokens = tokens_of(_joined(" ".join(text.split(" "))))
    places = [i for i, token in enumerate(tokens) if token.kind == "number"]
    if not places:
        return None
    value, first = _conclusion(tokens)
    earlier = [place for place in places if place < first]
    if not earlier:
        return value
    words = {token.text.lower() for token in tokens}
    gap = [token.text for token in tokens[earlier[-1] + 1 : first]]
    listed = any(
        token.text in (",", ";") and after.kind == "space"
        for token, after in zip(tokens, tokens[1:], strict=False)
    )
    return value if "=" in gap and not listed and not words & {"or", "and"} else None


def _joined(text: str) -> str:
    """A text of one answer with plain spaces between its thousands removed."""
    words = text.split()
    digits = words[0].lstrip("+-$\u20ac\u00a3\\*") if words else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and digits[0] != "0"):
        return text
    count = 1
    while count < len(words) and words[count][:3].isdigit() and words[count][3:4] in ("", ".", "*"):
        count += len(words[count][:3]) == 3 or len(words) + 1
    if count > len(words) or any(map(_is_numeral, "".join(words[count:]))):
        return text
    return " ".join(["".join(words[:count]), *words[count:]])


def _closing_number(text: str) -> Fraction | None:
    """The number that the last line with one ends on."""
    for line in reversed(text.splitlines()):
        if not any(map(_is_numeral, line)):
            continue
        bare = line.lstrip()
        hashes = len(bare) - len(bare.lstrip("#"))
        if 0 < hashes <= 6 and bare[hashes : hashes + 1].isspace():
            line = _claim(bare[hashes:], True, False)
        while line.lstrip().startswith(">"):
            line = line.lstrip()[1:]
        tokens = tokens_of(line)
        if any(token.kind == "number" for token in tokens):
            return _conclusion(tokens)[0]
    return None


def _conclusion(tokens: list[Token]) -> tuple[Fraction | None, int]:
    """The value that tokens end on, None where they conclude nothing, and its first place."""
    last = max(i for i, token in enumerate(tokens) if token.kind == "number")
    value, first = tokens[last].value, last
    if last > 1 and tokens[last - 1].text == "/" and tokens[last - 2].kind == "number":
        first = last - 2
        value = _quotient(tokens[first].value, value)
    if value is not None and 0 < value < 1 and first > 1 and tokens[first - 1].kind == "space":
        whole = tokens[first - 2].value
        part = first < last or tokens[last].text == "part"
        if part and whole and whole.denominator == 1:
            first, value = first - 2, whole + value
    return _signed(tokens, first, last, value), first


def _signed(tokens: list[Token], first: int, last: int, value: Fraction | None) -> Fraction | None:
    """The value with its sign, if it is a conclusion."""
    negative = _negative(tokens, first)
    if value is None or _goes_on(tokens[last + 1 :]):
        return None
    if not _may_conclude(tokens[: first - negative], negative > 0):
        return None
    return -value if negative else value


def _negative(tokens: list[Token], first: int) -> int:
    """How many tokens before a number make it negative: 0, 1, or 2 with a currency sign."""
    texts = [token.text for token in tokens[max(0, first - 3) : first]]
    if texts[-1:] == ["-"]:
        before = texts[-2] if len(texts) > 1 else " "
        return 1 if _may_precede_sign(tokens, first - 2, before) else 0
    if len(texts) > 1 and texts[-1] in DRESS - {" "} and texts[-2] == "-":
        before = texts[-3] if len(texts) > 2 else " "
        return 2 if _may_precede_sign(tokens, first - 3, before) else 0
    return 0


def _may_precede_sign(tokens: list[Token], place: int, text: str) -> bool:
    if place < 0:
        return True
    return tokens[place].kind not in ("word", "number") and text not in (")", "]", "}", "%", ".")


def _goes_on(rest: list[Token]) -> bool:
    """Whether what follows a number makes it part of a larger thing."""
    for token in rest:
        if token.kind == "space":
            break
        if token.kind == "word" and any(map(_is_numeral, token.text)):
            return True
    if any(token.kind == "broken" for token in rest):
        return True
    dense = [token for token in rest if token.kind != "space"]
    operator = dense and dense[0].text in OPERATORS - {"+", "-"}
    return bool(operator and len(dense) > 1 and dense[1].kind in ("number", "broken"))


def _may_conclude(before: list[Token], signed: bool) -> bool:
    """Whether the tokens before a number let it stand as a conclusion."""
    numbers = [i for i, token in enumerate(before) if _has_digit(token)]
    gap = before[numbers[-1] + 1 :] if numbers else before
    core = [token for token in gap if token.text not in DRESS and token.kind != "space"]
    if core and core[-1].text in BOUNDS:
        return False
    if not numbers:
        return True
    texts = [token.text for token in core]
    if not any(token.kind == "space" for token in gap):
        return any(text in RESULT for text in texts)
    if not core:
        return not signed
    if all(text in OPERATORS for text in texts):
        return False
    if texts[-1] in OPERATORS - {"-", "^", "x"} and not ENDS & {*texts} and not RESULT & {*texts}:
        return texts[-1] == "+" and gap[-1].text == "+"
    short = sum(len(text) for text in texts) <= 20 and not (ENDS | {"="}) & {*texts}
    return not (short and texts[-1].lower() in JOINING)


def _has_digit(token: Token) -> bool:
    return token.kind in ("number", "broken") or any(map(_is_numeral, token.text))


def _quotient(upper: Fraction | None, lower: Fraction | None) -> Fraction | None:
    """A quotient of whole numbers that is in lowest terms."""
    if upper is None or lower is None or upper.denominator * lower.denominator != 1 or lower <= 1:
        return None
    value = upper / lower
    return value if value.denominator == lower else None


def _is_numeral(character: str) -> bool:
    return "0" <= character <= "9" or character in "\u00bd\u00bc\u00be\u2153\u2154"
