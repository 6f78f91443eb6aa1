r"""The place of a mathematical answer and its LaTeX made plain: for the audit, written apart.

Texts are split and joined here, where :mod:`crlbench.reward.notation` has patterns. Commas stay:
what they mean is decided when elements are compared.
"""

from __future__ import annotations

from crlbench.reward.answers_audit import (
    boxed_pieces,
    breaks_off,
    closing,
    says_nothing,
    spoken,
    tagged_pieces,
)
from crlbench.reward.line_tokens import RAISED, SEPARATORS, WIDE_SPACES
from crlbench.reward.measures import MEASURES, NOT_UNITS
from crlbench.reward.numerals import SIGNS, VULGAR

LONGEST = 400
"""Characters of an answer that is evaluated."""
_DRAWN = {
    "\u00d7": "\\times ", "\u00b7": "\\cdot ", "\u00f7": "/", "\u2264": "\\le ", "\u2265": "\\ge ",
    "\u2260": "\\ne ", "\u221e": "\\infty ", "\u222a": "\\cup ", "\u2208": "\\in ",
    "\u03c0": "\\pi ", "\u00b0": "^\\circ ", "\u2248": "\\approx ", "\u00b1": "\\pm ",
    "\u221a": "\\sqrt ", "\u221b": "\\sqrt[3]", "\u2205": "\\emptyset ",
}  # fmt: skip
_FONTS = tuple(
    f"\\{name}{{"
    for name in (
        "textbf textit textsf texttt textrm mathbf mathit mathsf mathtt boldsymbol bm emph"
        " underline"
    ).split()
)
_DROPPED = tuple(
    "\\" + name
    for name in (
        "displaystyle textstyle normalsize small large Large LARGE huge Huge bf rm it therefore"
        " because checkmark left right bigl bigr Bigl Bigr big Big"
    ).split()
)
_SYNONYMS = (
    ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\cfrac", "\\frac"), (":=", "="),
    ("\\varnothing", "\\emptyset"), ("\\lbrace", "\\{"), ("\\rbrace", "\\}"),
    ("\\degree", "^\\circ"), ("\\text{percent}", "\\%"), ("\\text{ percent}", "\\%"),
    ("\\text{\\%}", "\\%"), ("\\text{ \\%}", "\\%"), ("bmatrix", "pmatrix"),
)  # fmt: skip
_OTHER_WORDS = {
    *"not no t never neither nor cannot wrong false incorrect than unless except if half".split(),
    *"twice double triple".split(),
}
"""Words of a text before an answer that deny it, or tell of another value."""
_NEXT = {*"or and ; \\quad \\qquad \\lor \\land \\vee \\wedge \\&".split()}
"""What parts statements."""
_COMMANDS = ("\\text", "\\mathrm", "\\operatorname", "\\mbox")
_SHORT_UNITS = {"cm", "mm", "km", "kg", "mg", "ml", "km/h", "m/s", "mph"}
_LONE_UNITS = _SHORT_UNITS | {
    *"m g s h min minute minutes hour hours day days degrees dollars cents units feet".split()
}


def place_of(text: str, gold: str) -> str | None:
    """What stands where the gold's format asks for the answer; None where nothing does."""
    text = spoken(text)
    if gold.startswith("\\boxed"):
        pieces = [] if breaks_off(text) else boxed_pieces(text)
    elif gold.startswith("<answer>"):
        pieces = tagged_pieces(text)
    else:
        return _line(text, gold.startswith("Answer:"))
    return next((one for _, one in reversed(pieces) if one and not says_nothing(one)), None)


def _line(text: str, labelled: bool) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    while lines and _is_rule(lines[-1]):
        lines.pop()
    if len(lines) > 2 and (lines[-3], lines[-1]) in (("$$", "$$"), ("\\[", "\\]")):
        lines[-3:] = [lines[-2]]
    lines = lines[-2:]
    if not lines or not labelled:
        return lines[-1] if lines else None
    label, found, rest = lines[-1].partition(":")
    if found and _is_label(label):
        return _without_markup(rest).strip("*_ ")
    label, found, rest = lines[0].partition(":")
    return lines[-1] if found and _is_label(label) and not rest.strip("*_ ") else None


def _is_rule(line: str) -> bool:
    """Whether a line only ends a part or a block."""
    return len(line) > 2 and {*line} <= {*"-_*="} or line.strip("`") == ""


def _is_label(label: str) -> bool:
    label = _without_markup(label).strip("*_ ")
    label = label.lstrip("> ")
    listed = label[:2] in ("- ", "+ ", "\u2022 ")
    words = label[2 * listed :].strip("#*_> ").lower().split()
    return words[-1:] == ["answer"] and {*words[:-1]} <= {"the", "final"}


def _without_markup(line: str) -> str:
    for tag in ("b", "strong", "i", "em", "u"):
        line = line.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
    return line


def says_other(found: str, gold: str) -> bool:
    """Whether an answer denies something, or states two things where the gold is one value."""
    words, wanted = _words(found), _words(gold)
    denials = {"\\not", "not", "never", "n't"}
    if denials & {*words} and not denials & {*wanted}:
        return True
    statements = [""]
    for word in words:
        if word in _NEXT:
            statements.append("")
        else:
            statements[-1] += word
    several = sum(0 < one.find("=") for one in statements) > 1
    one_value = not any(sign in gold for sign in (*",;=", "\\pm", "\\text", "\\mathrm", "\\begin"))
    return several and one_value


def _words(found: str) -> list[str]:
    """The words, commands and signs of LaTeX, apart."""
    found = found.replace("\\\\", " ; ").replace("\\;", " ").replace(";", " ; ")
    for sign in ("{", "}"):
        found = found.replace(sign, " ")
    for sign in ("=", "n't"):
        found = found.replace(sign, f" {sign} ")
    return found.replace("\\", " \\").split()


def plain_answer(found: str, letter: str = "") -> tuple[str, str]:
    """An answer without its dress, and its unit; not in ASCII where its signs are unknown.

    The gold ends with ``letter``, which is no unit then.
    """
    found = _undressed(found.strip("\u200b\u200e\u200f\u2060\ufeff \t\n\"\u201c\u201d\u201e"))
    if found.startswith("\\boxed{") and closing(found[7:]) == len(found) - 8:
        found = _undressed(found[7:-1])
    if found.startswith("\\text{") and closing(found[6:]) == len(found) - 7:
        number, space, unit = found[6:-1].strip().partition(" ")
        if number[:1].isdigit():
            found = f"{number}\\text{{ {unit}}}" if space else number
    found = found.replace("\\\\", "\\cr ")  # before its second half is taken for a space
    for separator in (*SEPARATORS, *WIDE_SPACES):
        found = _ungrouped(found, separator)
    found = _spelled(found)
    for font in _FONTS:
        found = _without_font(found, font)
    found = _without_colours(found)
    for space in ("\\,", "\\;", "\\:", "\\!", "\\ ", "~", "\\quad"):
        found = found.replace(space, " ")
    for command in _DROPPED:
        found = _without_command(found, command)
    for written, meant in _SYNONYMS:
        found = found.replace(written, meant)
    found = _repeating(_in_words(" ".join(found.split())))
    found = _apart(_without_relation(_behind_lead(found)))
    return _measured(found.rstrip(",; ") if found[-2:-1] != "\\" else found, letter)


def _without_command(found: str, command: str) -> str:
    """The text with a space for a command, where no longer name begins with it."""
    first, *pieces = found.split(command)
    return first + "".join((command if one[:1].isalpha() else " ") + one for one in pieces)


def _without_colours(found: str) -> str:
    for command in ("\\textcolor{", "\\color{"):
        first, *pieces = found.split(command)
        found = first + "".join(piece.partition("}")[2] for piece in pieces)
    return found


def _in_words(found: str) -> str:
    """The text with what people write for a command: pi, infinity, sqrt(2), x**2, {a \\over b}."""
    if found.lower() == "infinity":
        return "\\infty"
    for name in ("pi", "sqrt"):
        first, *pieces = found.split(name)
        said = first
        for piece in pieces:
            alone = not (said[-1:].isalpha() or said.endswith("\\") or piece[:1].isalpha())
            said += ("\\" if alone else "") + name + (" " if alone and name == "pi" else "") + piece
        found = said
    upper, over, lower = found.partition("\\over ")
    if over and upper[:1] == "{" and lower[-1:] == "}" and closing(found[1:]) == len(found) - 2:
        return f"\\frac{upper.rstrip()}}}{{{lower.lstrip()}"
    first, *powers = found.split("**")
    for power in powers:
        size = _digits(power)
        first += f"^{{{power[:size]}}}{power[size:]}" if size else f"^{power}"
    return first


def _repeating(found: str) -> str:
    """The text with a decimal whose digits repeat as a fraction, where it is one."""
    for command in ("\\overline{", "\\bar{", "\\dot{"):
        before, opens, again = found.partition(command)
        whole, point, first = before.partition(".")
        digits = again.removesuffix("}")
        if opens and point and digits.isdigit() and len(digits) < 10 and again[-1:] == "}":
            sign = "-" if whole[:1] == "-" else ""
            shown = whole.removeprefix("-") or "0"
            if (shown + first).isdigit() and len(shown + first) < 19:
                all_digits, once = int(shown + first + digits), int(shown + first)
                nines = int("9" * len(digits) + "0" * len(first))
                return f"{sign}\\frac{{{all_digits - once}}}{{{nines}}}"
    return found


def _behind_lead(found: str) -> str:
    """The answer behind an arrow, or behind a text such as "the minimum is"."""
    for arrow in ("\\Rightarrow ", "\\implies ", "\\to ", "\\rightarrow "):
        found = found.removeprefix(arrow)
    if found.startswith("\\text{"):
        said, _, rest = found[6:].partition("}")
        words = said.lower().replace("'", " ").replace(":", " ").replace("=", " ").split()
        denied = _OTHER_WORDS & {*words} or "at least" in said.lower() or "at most" in said.lower()
        leads = said.rstrip()[-1:] in (":", "=") or words[-1:] in (["is"], ["are"], ["equals"])
        if leads and not denied and len(said) <= 60 and not any(map(str.isdigit, said)):
            return rest.strip()
    return found


def _undressed(found: str) -> str:
    dollar = found.replace("\\$", " ").replace("$", "").replace("`", "")
    if dollar.count("**") % 2 == 0:  # else it is a power
        dollar = dollar.replace("**", "")
    for bracket in ("\\(", "\\)", "\\[", "\\]"):
        if dollar.startswith(bracket) or dollar.endswith(bracket):
            dollar = dollar.replace(bracket, "")
    dollar = dollar.strip().removesuffix("\\text{.}").replace("\\text{ }", " ")
    return dollar.rstrip(".").strip()


def _ungrouped(found: str, separator: str) -> str:
    """The text with one separator of thousands removed, where all groups have three digits."""
    separator = "\\thinspace " if separator == "\\thinspace " else separator
    first, *others = found.split(separator)
    merged = first
    inside = False
    for number, piece in enumerate(others):
        size = _digits(merged[::-1])
        head = merged[len(merged) - size : len(merged) - size + 1]
        before = merged[: len(merged) - size][-1:]
        opens = inside or (0 < size <= 3 and head != "0" and before not in (".", ","))
        whole = _digits(piece) == len(piece)
        last = number + 1 == len(others)
        ends = not whole or last or _digits(others[number + 1]) in (0, 3)
        joins = opens and _digits(piece) == 3 and ends
        merged = merged + piece if joins else merged + separator + piece
        inside = joins and whole
    return merged


def _digits(text: str) -> int:
    """How many digits a text begins with."""
    return next((i for i, one in enumerate(text) if not "0" <= one <= "9"), len(text))


def _spelled(found: str) -> str:
    """The text with signs beyond ASCII as LaTeX."""
    if found.isascii():
        return found
    found = found.translate(SIGNS)
    pieces: list[str] = []
    for sign in found:
        raised = RAISED.find(sign)
        if raised >= 0 or sign == "\u207b":
            digit = str(raised) if raised >= 0 else "-"
            joins = pieces and pieces[-1].startswith("^{")
            pieces.append(pieces.pop()[:-1] + digit + "}" if joins else f"^{{{digit}}}")
        elif sign in VULGAR:
            upper, lower = VULGAR[sign]
            pieces.append(f"\\frac{{{upper}}}{{{lower}}}")
        else:
            pieces.append(_DRAWN.get(sign, sign))
    return "".join(pieces)


def _without_font(found: str, font: str) -> str:
    while font in found:
        before, _, rest = found.partition(font)
        end = closing(rest)
        found = before + rest[:end] + rest[end + 1 :] if end >= 0 else before + rest
    return found


def _without_relation(found: str) -> str:
    for written in ("\\approx", "\\simeq", "\\doteq"):
        found = found.replace(written, "=")
    return found.removeprefix("=").strip()


def _apart(found: str) -> str:
    """Numbers apart by plain spaces, where they make one: 10 000, and 1 1/2."""
    words = found.split(" ")
    digits = [word.isdigit() for word in words]
    if len(words) > 1 and all(digits) and len(words[0]) <= 3 and words[0][0] != "0":
        return "".join(words) if all(len(word) == 3 for word in words[1:]) else found
    upper, bar, lower = words[-1].partition("/")
    if len(words) == 2 and digits[0] and bar and upper.isdigit() and lower.isdigit():
        return f"{words[0]}\\frac{{{upper}}}{{{lower}}}"
    return found


def _measured(found: str, letter: str) -> tuple[str, str]:
    """The text without a unit at its end, and the unit that measures, with its exponent."""
    bare, power = _without_unit_run(found)
    if bare != found:
        return bare, power
    bare, power = found, ""
    head, caret, tail = found.rpartition("^")
    exponent = tail.strip("{} ").removeprefix("-")
    if caret and exponent.isdigit() and len(exponent) == 1 and head and not head[-1].isdigit():
        bare, power = head.rstrip(), tail.strip("{} ")
    for command in ("\\text{", "\\mathrm{", "\\operatorname{", "\\mbox{"):
        before, opens, name = bare.rpartition(command)
        if opens and name.endswith("}") and "}" not in name[:-1] and before.strip():
            words = {*name[:-1].lower().replace("~", " ").split()}
            if not words & NOT_UNITS and not any(one.isdigit() for one in name):
                return before.strip(), _unit(name[:-1], power)
            return found, ""
    before, _, name = bare.rpartition(" ")
    before = before.rstrip()
    if name in _LONE_UNITS - {letter} and before[-1:].isdigit():
        return before, _unit(name, power)
    cut = len(bare) - next((i for i, one in enumerate(bare[::-1]) if one.isdigit()), len(bare))
    if bare[cut:] in _SHORT_UNITS and cut:
        return bare[:cut], _unit(bare[cut:], power)
    return found, ""


def _without_unit_run(found: str) -> tuple[str, str]:
    """The text without a unit of several commands, or with an exponent inside its braces."""
    starts = [found.find(command + "{") for command in _COMMANDS]
    start = min((one for one in starts if one > 0), default=0)
    if found[:start].endswith("\\frac{"):
        start -= len("\\frac{")
    run = found[start:]
    if start <= 0 or not run.endswith("}") and not run[-1:].isdigit():
        return found, ""
    for command in (*_COMMANDS, "\\frac", "\\cdot"):
        run = run.replace(command, " ")
    run = "".join(" " if one in "{}/~" else one for one in run)
    first, *powers = run.split("^")
    numbers = [power.split()[0].removeprefix("-") for power in powers if power.split()]
    names = first + "".join(" ".join(["", *power.split()[1:]]) for power in powers)
    words = {*names.lower().split()}
    unit = 0 < len(words) <= 4 and all(word.strip(".").isalpha() for word in words)
    exponents = len(numbers) == len(powers) and all(one in ("1", "2", "3", "4") for one in numbers)
    if not unit or not exponents or words & NOT_UNITS:
        return found, ""
    bare = found[:start].strip()
    if len(powers) < 2 and not names[len(first) :].strip() and "/" not in found[start:]:
        return bare, _unit(" ".join(first.split()), "".join(powers).strip())
    whole = found[start:].lower()
    for command in (*_COMMANDS, "\\frac", "\\cdot"):
        whole = whole.replace(command, "")
    whole = "".join(one for one in whole.replace("}}{{", "/") if one not in "{}~ ")
    return bare, MEASURES.get(whole, whole if "/" in whole or powers else "")


def _unit(name: str, power: str) -> str:
    words = name.replace("~", " ").strip(" .").lower()
    if words.startswith(("square ", "cubic ")):
        power = "2" if words[0] == "s" else "3"
        words = words.partition(" ")[2]
    compound = words if "/" in words else ""
    known = MEASURES.get(words, MEASURES.get(words.rstrip("s"), compound))
    return known and known + power
