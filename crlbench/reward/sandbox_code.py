"""Programs in completions, judged in the sandbox by the unit tests of a published dataset.

Which part of a completion is its program is a fixed rule for each form that a prompt may ask
for, and never the part that happens to pass:

- ``block``: the first fenced code block; to the end of the text if the fence is never closed,
  the whole text if there is no fence.
- ``bare``: the whole text.
- ``tags``: what stands between the first ``<answer>`` and the next ``</answer>``, with or
  without a fence around it; nothing if they are missing.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

from crlbench.reward.sandbox import Limits, Sandbox

FORMS = ("block", "block", "block", "block", "bare", "tags")
"""The form that each of a task's six templates asks for."""
ASKED = {
    "block": "in one Python code block",
    "bare": "as plain Python code with no code block around it and no other text",
    "tags": "as Python code between <answer> and </answer>",
}
"""The forms in words."""
MAX_BYTES = 8192
"""Longer completions hold no program."""
LIMITS = Limits(cpu_s=3.0)
"""For the program, and again for its tests."""
REMEMBERED = 1 << 12

_FENCED = re.compile(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def code_in(text: str, form: str) -> str:
    """The program of a completion, "" if it holds none."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return ""
    if form == "tags":
        tagged = _TAGGED.search(text)
        text = tagged[1] if tagged else ""
    fenced = None if form == "bare" else _FENCED.search(text)
    return fenced[1] if fenced else text


def wrapped(code: str, form: str) -> str:
    """A completion of this form that holds a program."""
    if form == "bare":
        return code
    return f"```python\n{code}\n```" if form == "block" else f"<answer>\n{code}\n</answer>"


@functools.lru_cache(REMEMBERED)
def parsed(answer: str) -> dict[str, Any]:
    """The facts in a row's answer, which is a JSON object."""
    return json.loads(answer)


def defines(code: str, entry: str) -> bool:
    """Whether a name is defined, assigned or imported at the left edge of a program."""
    name = re.escape(entry)
    form = rf"^(?:(?:async\s+)?def\s+|class\s+|from\s.*\bimport\s.*){name}\b|^{name}\s*[:=]"
    return re.search(form, code, re.MULTILINE) is not None


@functools.lru_cache(REMEMBERED)
def passes(code: str, tests: str, entries: Sequence[str]) -> bool:
    """Whether a program passes tests that call its functions named ``entries`` (a tuple).

    Raises :class:`crlbench.errors.EnvironmentUnfit` where programs cannot be confined.
    """
    return _sandbox().judge(code, tests, entries).passed


@functools.cache
def _sandbox() -> Sandbox:
    return Sandbox(LIMITS)
