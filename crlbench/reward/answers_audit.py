r"""A second reading of which text counts as the answer, for the audits; written apart.

The rules are those of :mod:`crlbench.reward.answers`. The technique is another: marks are replaced
by two signs and the text is split at the closing ones, and markers are found by splitting too.
"""

from __future__ import annotations

OPENS, CLOSES = "\ue000", "\ue001"
"""Stand for marks of thoughts; code points without a meaning, which texts lose first."""
_CHANNEL = "<|channel|>"
_MARKS = (
    *((f"{_CHANNEL}{space}final<|message|>", CLOSES) for space in ("", " ")),
    *((f"{_CHANNEL}{space}final", CLOSES) for space in ("", " ")),
    (_CHANNEL, OPENS),
    ("assistantfinal", CLOSES),
    ("[think]", OPENS), ("[/think]", CLOSES),
    ("\u25c1think\u25b7", OPENS), ("\u25c1/think\u25b7", CLOSES),
    ("<|begin_of_thought|>", OPENS), ("<|end_of_thought|>", CLOSES),
    ("<|start_thinking|>", OPENS), ("<|end_thinking|>", CLOSES),
)  # fmt: skip
_NAMES = {
    *"think thinking thought thoughts thought_process reasoning rationale analysis cot".split(),
    *"reflection scratchpad inner_monologue inner_thought inner_thoughts seed:think".split(),
}
LONGEST_TAG = 110
"""Characters of a tag in which its attributes are looked over."""
_TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "<|return|>", "<|end_of_solution|>",
    "</s>", "<end_of_turn>",
)  # fmt: skip
_SMALL = {ord("A") + i: ord("a") + i for i in range(26)}
"""ASCII's capitals; other letters stay, so that no place moves."""
_IDLE = {"and", "or", "the", "your", "final", "answer", "here", "number"}
_IDLE_COMMANDS = ("\\ldots", "\\dots", "\\cdots", "\\quad", "\\square", "\\text{}", "\\text{ }")


def spoken(text: str) -> str:
    """The reply without its thoughts; "" where it ends inside one."""
    *ended, rest = marked(text.replace(OPENS, " ").replace(CLOSES, " ")).split(CLOSES)
    said = ""
    for piece in ended:
        before, opened, _ = piece.partition(OPENS)
        said = said + before if opened else ""
    return "" if OPENS in rest else _without_turn_end(said + rest)


def marked(text: str) -> str:
    """The text with one sign for each mark that opens a thought, and one for each that ends it."""
    for mark, sign in _MARKS:
        text = swapped(text, mark, sign)
    return _tags_swapped(text)


def _tags_swapped(text: str) -> str:
    """The text with one sign for each tag that opens or closes a thought, attributes or not."""
    first, *pieces = text.split("<")
    said = [first]
    for piece in pieces:
        inside, closed, rest = piece.partition(">")
        words = inside.replace("/", " / ").split() if closed and len(inside) < LONGEST_TAG else []
        whole = inside[:1].strip() and "\n" not in inside.rstrip()
        words = words if whole else []
        words = [word for word in (one.strip("|").lower() for one in words) if word]
        ends = words[:1] == ["/"]
        named = words[ends : ends + 1]
        if named and named[0] in _NAMES:
            said.append((CLOSES if ends else OPENS) + rest)
        else:
            said.append("<" + piece)
    return "".join(said)


def swapped(text: str, mark: str, sign: str) -> str:
    """The text with another sign for a mark in small or capital letters."""
    small = text.translate(_SMALL)
    if mark not in small:
        return text
    pieces, after = [], 0
    while (place := small.find(mark, after)) >= 0:
        pieces.append(text[after:place])
        after = place + len(mark)
    return sign.join([*pieces, text[after:]])


def _without_turn_end(text: str) -> str:
    text = text.rstrip()
    for _ in range(8):
        end = next((end for end in _TURN_ENDS if text.endswith(end)), None)
        if end is None:
            break
        text = text.removesuffix(end).rstrip()
    return text


def boxed_pieces(text: str) -> list[tuple[int, str]]:
    r"""Where each ``\boxed{`` ends, and its content; one that does not close holds nothing."""
    for written in ("\\fbox{", "\\boxed {", "\\fbox {"):
        text = text.replace(written, "\\boxed{")
    found, place = [], 0
    for number, piece in enumerate(text.split("\\boxed{")):
        if number:
            end = closing(piece)
            found.append((place, piece[:end] if end >= 0 else ""))
        place += len(piece) + len("\\boxed{")
    return found


def breaks_off(text: str) -> bool:
    r"""Whether the last ``\boxed{`` of a text never closes."""
    last = text.replace("\\fbox", "\\boxed").replace("\\boxed {", "\\boxed{")
    return "\\boxed{" in last and closing(last.split("\\boxed{")[-1]) < 0


def tagged_pieces(text: str) -> list[tuple[int, str]]:
    """Where each ``<answer>`` that closes ends, and its content."""
    text = swapped(swapped(text, "<answer>", "<answer>"), "</answer>", "</answer>")
    found, place = [], 0
    for number, piece in enumerate(text.split("<answer>")):
        content, closed, _ = piece.partition("</answer>")
        if number and closed:
            found.append((place, content))
        place += len(piece) + len("<answer>")
    return found


def closing(text: str) -> int:
    """The place of the brace that closes one opened before the text; -1 if none does."""
    depth, escaped = 1, False
    for place, character in enumerate(text):
        if not escaped:
            depth += (character == "{") - (character == "}")
        if depth == 0:
            return place
        escaped = character == "\\" and not escaped
    return -1


def says_nothing(content: str) -> bool:
    """Whether a marker's content is spaces, dots or the words that show a marker."""
    if len(content) > 200:
        return False
    for command in _IDLE_COMMANDS:
        content = content.replace(command, " ")
    kept = "".join(" " if one in "._?~\u2026$\\ ,;:!" else one for one in content)
    return all(word.lower() in _IDLE for word in kept.split())
