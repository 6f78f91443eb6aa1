"""A second opinion on programs in completions: read line by line, judged one test at a time.

Written apart from :mod:`crlbench.reward.sandbox_code`. Every test has a fresh process, the last
test comes first, so that a program which counts its calls or remembers its inputs gains nothing.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence

from crlbench.reward.sandbox import Limits, Sandbox

LONGEST = 8192
_OPENED: list[Sandbox] = []


def read_program(text: str, form: str) -> str:
    """The source text that a completion of this form offers, "" if it offers none."""
    if len(text) > LONGEST:
        return ""
    if form == "tags":
        start = text.find("<answer>")
        end = text.find("</answer>", start + 8)
        text = text[start + 8 : end] if 0 <= start < end else ""
    if form == "bare" or "```" not in text:
        return text
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        head, fence, _ = line.partition("```")
        if inside and fence:
            return "\n".join([*lines, head])
        if inside:
            lines.append(line)
        inside = inside or bool(fence)
    return "\n".join(lines)


def top_level_names(source: str) -> set[str]:
    """Names that a program binds at its top level; none if it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return set()
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names


def passes_each(source: str, tests: Sequence[str], entries: Sequence[str]) -> bool:
    """Whether a program passes every test, the last one first, each in processes of its own."""
    if not source or not {*entries} <= top_level_names(source):
        return False
    if not _OPENED:
        _OPENED.append(Sandbox(Limits(cpu_s=3.0)))
    return all(_OPENED[0].judge(source, one, entries).passed for one in reversed(tests))
