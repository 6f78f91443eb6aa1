r"""The program in a reply, and its verdict by the unit tests of a published dataset.

Which part of a reply is its program is a fixed rule for each form that a prompt may ask for, and
never the part that happens to pass:

- A thought is no answer (:mod:`crlbench.reward.answers`): what follows the last closing mark
  counts, and a reply that ends inside a thought holds no program. Inside a fenced block a mark
  counts only where it has a line for itself, and text that is Python as a whole has no marks:
  programs may name them.
- ``block``: the last fenced block that defines the asked function. Blocks that are marked as
  Python, or not marked at all, come first; only where none of them defines it do others count. A
  fence is three or more backticks or tildes, indented or not, and may stay open. Without a fence
  the whole text is the program.
- ``bare``: the whole text.
- ``tags``: what stands between the last ``<answer>`` with content and its ``</answer>``, read as
  a block if it has a fence; nothing if they are missing.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from crlbench.reward.answers import CLOSING, OPENING, last_filled, tags
from crlbench.reward.sandbox import Limits
from crlbench.reward.sandbox_wide import WideSandbox

FORMS = ("block", "block", "block", "block", "bare", "tags")
"""The form that each of a task's six templates asks for."""
ASKED = {
    "block": "in one Python code block",
    "bare": "as plain Python code with no code block around it and no other text",
    "tags": "as Python code between <answer> and </answer>",
}
"""The forms in words."""
MAX_BYTES = 8192
"""Longer replies hold no program."""
LIMITS = Limits(cpu_s=3.0)
"""For the program, and again for its tests."""
PYTHON = ("", "python", "python2", "python3", "py", "py2", "py3", "ipython", "ipython3", "sage")
"""Words behind a fence that mark Python, in any case; a fence without a word may be Python."""
REMEMBERED = 1 << 12
MARK = "\ufeff"
"""Of the byte order: it may stand before a program, and is no part of it."""

_THOUGHT = re.compile(rf"(?P<opens>{OPENING})|(?P<closes>{CLOSING})", re.IGNORECASE)
_RUN = re.compile(r"`{3,}|~{3,}")
_WORD = re.compile(r"[A-Za-z0-9_+#-]+")
_INFO = re.compile(r"\s*\{?\.?[A-Za-z0-9_+#-]+[^\s]*\s*")
DEEPER = 4
"""Columns by which a fence that is further in than the block's own belongs to the program."""


class Block(NamedTuple):
    """A fenced block of a text."""

    start: int
    """Where its first line begins, behind the line of its fence."""
    end: int
    """Where its closing fence begins, or the text ends."""
    indent: str
    """What stands before its fence, where that is no text."""
    word: str
    """The language that its fence names, in lower case; "" where it names none."""

    def code(self, text: str) -> str:
        """The lines of the block without the indent of its fence."""
        lines = text[self.start : self.end].split("\n")
        return textwrap.dedent("\n".join(line.removeprefix(self.indent) for line in lines))


class _Fence(NamedTuple):
    """A fence that opens a block."""

    run: str
    indent: str
    word: str
    start: int


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a text, in order; the last may stay open.

    A block ends at a fence of its kind that is as long and not much further in, and at the end of
    a line that holds code. One that names a language also begins the next block: then the fence
    that should have closed is missing.
    """
    found: list[Block] = []
    fence: _Fence | None = None
    place = 0
    for line in text.split("\n"):
        after = place + len(line) + 1
        if fence is None:
            fence = _opening(line, after)
        elif (run := _closing(line, fence)) is not None:
            behind_code = line[: run.start()].strip(" \t>")
            end = place + (run.start() if behind_code else 0)
            found.append(Block(min(fence.start, end), end, *fence[1:3]))
            again = not line[: run.start()].strip() and _INFO.fullmatch(line[run.end() :])
            fence = _opening(line, after) if again else None
        place = after
    if fence is not None:
        found.append(Block(min(fence.start, len(text)), len(text), *fence[1:3]))
    return found


def _opening(line: str, after: int) -> _Fence | None:
    """The fence of a line whose block begins on the next one; pairs of one line are none."""
    runs = [
        run
        for run in _RUN.finditer(line)
        if run[0][0] == "`" or not line[: run.start()].strip(" \t>")
    ]
    if len(runs) % 2 == 0:
        return None
    before, info = line[: runs[-1].start()], line[runs[-1].end() :]
    word = _WORD.search(info)
    indent = "" if before.strip(" \t>") else before
    return _Fence(runs[-1][0], indent, word[0].lower() if word else "", after)


def _closing(line: str, fence: _Fence) -> re.Match[str] | None:
    """What of a line ends the block of a fence."""
    runs = [run for run in _RUN.finditer(line) if _is_like(run[0], fence.run)]
    if not runs:
        return None
    if line[: runs[0].start()].strip(" \t>"):  # behind code, at the end of the line
        return runs[-1] if not line[runs[-1].end() :].strip() and len(runs) % 2 else None
    inner = len(line[: runs[0].start()].expandtabs()) - len(fence.indent.expandtabs())
    return runs[0] if inner < DEEPER else None


def _is_like(run: str, other: str) -> bool:
    return run[0] == other[0] and len(run) >= len(other)


def spoken(text: str) -> str:
    """A reply without its thoughts; "" where it ends inside one.

    >>> spoken("<think>def f(x): return 1</think>def f(x): return 2")
    'def f(x): return 2'
    """
    if _THOUGHT.search(text) is None or tree_of(text) is not None:
        return text
    kept: list[str] = []
    place, thinks = 0, False
    for mark in _marks(text):
        if mark["opens"] is not None:
            if not thinks:
                kept.append(text[place : mark.start()])
            thinks = True
        else:
            if not thinks:
                kept.clear()
            thinks, place = False, mark.end()
    return "" if thinks else "".join(kept) + text[place:]


def _marks(text: str) -> Iterator[re.Match[str]]:
    """The marks of thoughts that are no part of a program, in order."""
    base, inside = 0, blocks(text)
    thinks = False
    for mark in _THOUGHT.finditer(text):
        at = mark.start() - base
        code = not thinks and any(block.start <= at < block.end for block in inside)
        if code and not _alone(text, mark):
            continue
        yield mark
        thinks, base = mark["opens"] is not None, mark.end()
        inside = blocks(text[base:])


def _alone(text: str, mark: re.Match[str]) -> bool:
    before = text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()]
    after = text[mark.end() :].split("\n", 1)[0]
    return not before.strip() and not after.strip()


def program_in(text: str, form: str, entry: str) -> str:
    """The program of a reply, "" if it holds none.

    Args:
        form: one of ``ASKED``.
        entry: the name of the asked function.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return ""
    text = spoken(text.replace("\r\n", "\n").replace("\r", "\n").lstrip(MARK))
    if form == "tags":
        text = last_filled(tags(text))
    text = text.lstrip(MARK)
    if form != "bare" and (fenced := blocks(text)):
        return _chosen([(block.word, block.code(text)) for block in fenced], entry)
    return textwrap.dedent(text) if form == "tags" else text


def _chosen(programs: list[tuple[str, str]], entry: str) -> str:
    """The last block that defines the function, of Python's blocks if one of them does."""
    defining = [(word, code) for word, code in programs if defines(code, entry)]
    python = [code for word, code in defining if word in PYTHON]
    return (python or [code for _, code in defining] or [""])[-1].lstrip(MARK)


def wrapped(code: str, form: str) -> str:
    """A completion of this form that holds a program."""
    if form == "bare":
        return code
    return f"```python\n{code}\n```" if form == "block" else f"<answer>\n{code}\n</answer>"


@functools.lru_cache(REMEMBERED)
def parsed(answer: str) -> dict[str, Any]:
    """The facts in a row's answer, which is a JSON object."""
    return json.loads(answer)


@functools.lru_cache(REMEMBERED)
def tree_of(source: str) -> ast.Module | None:
    """The syntax tree of a program; None for text that is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def defines(source: str, entry: str) -> bool:
    """Whether a program binds a name outside of its functions and classes.

    An import counts where it is from the standard library: a block that imports the function
    from elsewhere only shows how it is used.
    """
    tree = tree_of(source.lstrip(MARK))
    return tree is not None and any(entry in _bound(node) for node in _outside(tree.body))


def _outside(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those inside of ``if``, ``try``, ``with``, ``match`` and loops."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                waiting += getattr(node, field, [])
            parts = [*getattr(node, "handlers", []), *getattr(node, "cases", [])]
            waiting += [statement for part in parts for statement in part.body]


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.ImportFrom):
        known = (node.module or "").split(".")[0] in sys.stdlib_module_names
        return {alias.asname or alias.name for alias in node.names} if known else set()
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.For | ast.AsyncFor):
        targets = [node.target]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    elif isinstance(node, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    names = [n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def with_before(helpers: str, source: str) -> str:
    """A program with other code before it: behind its docstring and its ``__future__`` imports,
    which must stand first.

    >>> with_before("import math", "from __future__ import annotations\nx = math.pi")
    'from __future__ import annotations\nimport math\n\nx = math.pi'
    """
    source = source.lstrip(MARK)
    tree = tree_of(source)
    if tree is None or not helpers:
        return f"{helpers}\n{source}"
    first = [node for i, node in enumerate(tree.body) if _stands_first(node, i)]
    future = [node for node in first if isinstance(node, ast.ImportFrom)]
    if not future:
        return f"{helpers}\n{source}"
    lines = source.encode().split(b"\n")
    line, column = future[-1].end_lineno or 1, future[-1].end_col_offset or 0
    before = b"\n".join([*lines[: line - 1], lines[line - 1][:column]]).decode()
    after = b"\n".join([lines[line - 1][column:], *lines[line:]]).decode()
    rest = after.lstrip(" \t;")
    return f"{before}\n{helpers}\n{rest}"


def _stands_first(node: ast.stmt, place: int) -> bool:
    """Whether a statement is the module's docstring or an import of ``__future__``."""
    if isinstance(node, ast.Expr):
        return place == 0 and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


@functools.lru_cache(REMEMBERED)
def passes(code: str, tests: str, entries: Sequence[str]) -> bool:
    """Whether a program passes tests that call its functions named ``entries`` (a tuple).

    Raises :class:`crlbench.errors.EnvironmentUnfit` where programs cannot be confined.
    """
    return _sandbox().judge(code, tests, entries).passed


@functools.cache
def _sandbox() -> WideSandbox:
    return WideSandbox(LIMITS)
