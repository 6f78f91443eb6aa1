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
from crlbench.reward.numerals import VULGAR

FORMS = ("#### ", "\\boxed{", "<answer>")
OPERATORS = {*"+-*/^x%\u00d7\u00f7\u00b7", "**"}
DRESS = {*"()[]{}\"'\\$\u20ac\u00a3\u00a5\u20b9~,", " "}
"""Tokens around an operator or a number that change nothing."""
RESULT = {"=", "\u2248", "\u2192", ">>"}
"""Tokens behind which a number is a result."""
BOUNDS = {"<", ">", "<=", ">=", "!=", "\u2264", "\u2265", "\u2260", "\u00b1", "\u221a"}
JOINING = {"or", "plus", "minus", "times", "mod", "modulo", "by"}
"""Words that join two numbers into something else than a conclusion."""
LEADS_TO = {"is", "was", "be", "equals", "of", "to", "by"}
"""Words behind which "minus" takes from nothing."""
PIECES = {"half", "halves"} | {
    part + ending
    for part in "quarter third fourth fifth sixth seventh eighth ninth tenth".split()
    for ending in ("", "s")
}
COUNTS = {*"a an one two three four five six seven eight nine".split()}
"""Words of a part that makes a number mixed, as in "18 and two thirds"."""
ENDS = {*".;:!?"}
LEADS = {
    *"the final answer total result about roughly around minus negative".split(),
}
"""Words before the number of an answer."""
IDLE = {*"per is are answer final total result text boxed mathrm".split()}
"""Words beside a number that tell nothing more of it."""
MOST_WORDS = 2
"""Words of a unit, as in "square feet"; more of them tell a story."""
WHOLE = {
    *"the so thus hence therefore final numerical correct overall grand answer result".split(),
    *"total conclusion is are".split(),
}
"""Words of a label that names the answer, and no part of the way."""
WAY = {
    *"given known data fact facts information find step part case first then next note".split(),
    *"check verification calculation formula plan example problem question let assume".split(),
    *"assuming assumption assumptions assumed assumes".split(),
}
"""Words of a label of what is given or of a step."""
LONGEST_LEAD = 400
"""Characters of a heading in which its first number is looked for."""
MONEY = {"usd", "eur", "gbp", "inr", "us"}
MONEY_SIGNS = {*"$\u20ac\u00a3\u00a5\u20b9"}


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
    lines = [piece.partition("\n")[0] for piece in pieces[1:] if piece[:1] in (" ", "\t")]
    alone = sum(any(map(_is_numeral, line)) for line in lines) == 1
    for number, piece in enumerate(pieces):
        if number and piece[:1] in (" ", "\t"):
            line, _, rest = piece.partition("\n")
            followed = bool(rest.strip()) or number + 1 < len(pieces)
            counted = last > number or any(map(_is_numeral, rest))
            found.append((place, _claim(line, followed, counted, alone)))
        place += len(piece) + len("####")
    return found


def _claim(heading: str, followed: bool, counted: bool, alone: bool = True) -> str:
    """What a heading says as an answer; "" where it only names a part.

    ``followed`` says that a text follows, ``counted`` that it has numbers, and ``alone`` that no
    other heading has one.
    """
    letter = heading.lstrip(" (")
    heading = letter[2:] if letter[:1].isalpha() and letter[1:2] == ")" else heading
    if _begins_with_number(heading):
        if not _is_numbered(heading):
            return "" if counted and _tells_a_story(heading) else heading
        if followed:
            return ""
        number = heading.lstrip("*_ ")
        inner = number.lstrip("0123456789.):* ")
        return (_claim(inner, False, False) if inner != number else "") or heading
    signs = [sign for sign in (":", "=", "\u2248", " is ", " are ") if sign in heading]
    if not signs:
        return ""
    first = min(signs, key=heading.index)
    label, _, rest = heading.partition(first)
    numbered = any(map(_is_numeral, label))
    if len(label) > 60 or (numbered and followed) or not _begins_with_number(rest):
        return ""
    words = "".join(one if one.isalpha() else " " for one in (label + first).lower()).split()
    whole = (words and {*words} <= WHOLE) or (alone and not {*words} & WAY)
    return rest if whole or not counted else ""


def _tells_a_story(heading: str) -> bool:
    """Whether more words follow a number than a unit has."""
    line = "".join(one if one.isalpha() else " " for one in heading.lower())
    words = {*line.split()} - IDLE
    plain = heading.partition("^")[0]
    pieces = "".join(one if one.isalnum() else " " for one in plain).split()
    numbers = [i for i, piece in enumerate(pieces) if piece.isdigit()]
    between = pieces[numbers[0] : numbers[-1]] if numbers and "=" not in heading else []
    return len(words) > MOST_WORDS or any(len(one) > 1 and one.isalpha() for one in between)


def _begins_with_number(text: str) -> bool:
    """Whether only marks, currencies and words such as "about" stand before the first number."""
    for token in tokens_of(text[:LONGEST_LEAD]):
        if token.kind == "number":
            return True
        idle = token.text in DRESS | {*"-+=*:", "**"} or token.text.lower() in LEADS | MONEY
        idle = idle or (token.kind == "mark" and token.text >= "\u2600")
        if token.kind != "space" and not idle:
            return False
    return False


def _is_numbered(heading: str) -> bool:
    """Whether a heading begins like a part of a list, as in "1. Add" or "2) Multiply"."""
    dense = [token for token in tokens_of(heading[:LONGEST_LEAD]) if token.kind != "space"]
    number, _, title = heading.strip(" *_").partition(" ")
    parts = number.rstrip(".):").split(".")
    dotted = len(parts) > 1 and all(part.isdigit() and len(part) < 3 for part in parts)
    if dotted and title[:1].isupper() and title[1:3].islower() and title[1:3].isalpha():
        return True
    first = next(i for i, token in enumerate(dense) if token.kind == "number")
    marks = [token.text for token in dense[first + 1 : first + 3]]
    return len(marks) == 2 and marks[0] in (".", ")", ":") and dense[first + 2].kind == "word"


def _single(text: str) -> Fraction | None:
    """The one number of a short text, or the result of the one calculation in it."""
    tokens = tokens_of(_joined(" ".join(text.split(" "))))
    places = [i for i, token in enumerate(tokens) if token.kind == "number"]
    if not places:
        return None
    value, first = _conclusion(tokens, True)
    earlier = [place for place in places if place < first]
    if not earlier:
        after = [token.text.lower() for token in tokens[places[-1] :] if token.kind == "word"]
        return value if after[:1] != ["or"] else None
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
    followed = False
    for line in reversed(text.splitlines()):
        if not any(map(_is_numeral, line)):
            followed = followed or bool(line.strip())
            continue
        bare = line.lstrip()
        hashes = len(bare) - len(bare.lstrip("#"))
        if 0 < hashes <= 6 and bare[hashes : hashes + 1].isspace():
            line = _claim(bare[hashes:], followed, False)
        followed = True
        while line.lstrip().startswith(">"):
            line = line.lstrip()[1:]
        tokens = tokens_of(line)
        if any(token.kind == "number" for token in tokens):
            return _conclusion(tokens)[0]
    return None


def _conclusion(tokens: list[Token], alone: bool = False) -> tuple[Fraction | None, int]:
    """The value that tokens end on, None where they conclude nothing, and its first place.

    ``alone`` says that the tokens fill a wrapping, in which no list begins with a hyphen.
    """
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
    return _signed(tokens, first, last, value, alone), first


def _signed(
    tokens: list[Token], first: int, last: int, value: Fraction | None, alone: bool
) -> Fraction | None:
    """The value with its sign, if it is a conclusion."""
    negative = _negative(tokens, first) or _negative_apart(tokens, first, alone)
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


def _negative_apart(tokens: list[Token], first: int, alone: bool) -> int:
    """The same for a minus that spaces or a word put apart from its number."""
    place = first - 1
    while place >= 0 and (tokens[place].kind == "space" or tokens[place].text in MONEY_SIGNS):
        place -= 1
    if place < 0 or place == first - 1 or tokens[place + 1].kind != "space":
        return 0
    word = tokens[place].text.lower()
    before = [token for token in tokens[:place] if token.kind != "space"]
    ahead = before[-1].text.lower() if before else ""
    glued = place > 0 and tokens[place - 1].text == "-"
    if word == "negative" and not glued:
        return first - place
    joins = {*"=\u2248\u2192(["}
    if word == "minus" and (not before or ahead in LEADS_TO | joins | {":"}):
        return first - place
    dollar = ahead == "$" and place > 0 and tokens[place - 1].text == "$"
    if word == "-" and (ahead in joins or dollar or (alone and ahead in ("", ":"))):
        return first - place
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
    dense = [token for token in rest[:12] if token.kind != "space"]
    texts = [token.text for token in dense[:3]]
    bounds = texts[:1] and texts[0] in BOUNDS - {"\u00b1", "\u221a"} and len(dense) > 1
    if bounds and dense[1].kind == "word":
        return True
    if texts[:1] in (["\u03c0"], ["\\pi"]) or _adds_a_part(dense):
        return True
    operator = dense and dense[0].text in OPERATORS - {"+", "-"}
    return bool(operator and len(dense) > 1 and dense[1].kind in ("number", "broken"))


def _adds_a_part(rest: list[Token]) -> bool:
    """Whether tokens begin with a part of one in words: "and a half", "and two-thirds"."""
    words = [token.text for token in rest[:4] if token.text != "-"]
    return words[:1] == ["and"] and {*words[1:2]} <= COUNTS and bool(PIECES & {*words[2:3]})


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
        return not signed or any(token.text == "," for token in gap)
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
    return "0" <= character <= "9" or character in VULGAR
