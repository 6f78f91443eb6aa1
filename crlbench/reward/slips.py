"""Answers of mathematics with one slip in them, each of another value than the right one."""

from __future__ import annotations

import re

_FINE = re.compile(r"\.[0-9]{6,}$")
"""What stands before a digit that is too small to count: decimals are compared to six places."""
_KEPT = re.compile(r"\\(?:begin|end)\{[a-z]+\}|\\[A-Za-z]+|\\.|[0-9]|[+-]|[A-Za-z]")


def slips(answer: str) -> list[str]:
    """The gold completion with one digit, one sign or one letter replaced; commands stay."""
    opening = re.match(r"\\boxed\{|<answer>|Answer: |", answer)[0]  # type: ignore[index]
    closing = {"\\boxed{": "}", "<answer>": "</answer>"}.get(opening, "")
    body = answer[len(opening) : len(answer) - len(closing)]
    found = set()
    for match in _KEPT.finditer(body):
        fine = match[0].isdigit() and _FINE.search(body[: match.start()])
        other = "" if fine else _other(match[0])
        if other:
            found.add(f"{opening}{body[: match.start()]}{other}{body[match.end() :]}{closing}")
    return sorted(found)


def _other(sign: str) -> str:
    if sign.isdigit():
        return str((int(sign) + 1) % 10)
    if sign in "+-":
        return "-" if sign == "+" else "+"
    if len(sign) == 1:
        return chr(ord(sign) - 1) if sign in "zZ" else chr(ord(sign) + 1)
    return ""
