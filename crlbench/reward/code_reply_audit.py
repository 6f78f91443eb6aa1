"""A second opinion on programs in replies: read line by line, judged one test at a time.

Written apart from :mod:`crlbench.reward.code_reply`, by the same rules. Every test has a fresh
process, the last test comes first, so that a program which counts its calls or remembers its
inputs gains nothing.
"""

from __future__ import annotations

import ast
import re
import symtable
import sys
import textwrap
import warnings
from collections.abc import Sequence

from crlbench.reward import answers_audit
from crlbench.reward.sandbox import Limits
from crlbench.reward.sandbox_wide import WideSandbox

LONGEST = 8192
"""Bytes of a reply; longer ones offer no program."""
DIALECTS = {"", "python", "py", "ipython", "sage"}
"""Words behind a fence that say Python, without the digit of a version."""
_OPENED: list[WideSandbox] = []


class _Scan:
    """Where in a reply its lines are: in a block, in a thought, or between."""

    def __init__(self) -> None:
        self.fence, self.prefix, self.word = "", "", ""
        self.lines: list[str] = []
        self.found: list[tuple[str, str]] = []

    def feed(self, line: str) -> None:
        """Take the next line of what is said."""
        if not self.fence:
            self._open(line)
        elif (cut := self.cut(line)) is None:
            self.lines.append(line)
        else:
            before, after = line[:cut], line[cut:].lstrip(self.fence[0])
            if before.strip(" \t>"):
                self.lines.append(before)
            self.end()
            if not before.strip() and after.strip() and len(after.split()) == 1:
                self._open(line)

    def end(self) -> None:
        """Close the block that is open, if one is."""
        if self.fence:
            kept = [line.removeprefix(self.prefix) for line in self.lines]
            self.found.append((self.word, textwrap.dedent("\n".join(kept))))
        self.fence, self.lines = "", []

    def _open(self, line: str) -> None:
        pieces = re.split("`{3,}", line)
        if line.lstrip(" \t>").startswith("~~~"):
            before, sign = line.partition("~~~")[0], "~"
        elif len(pieces) % 2 == 0:
            before, sign = line.removesuffix(pieces[-1]).rstrip("`"), "`"
        else:
            return
        rest = line[len(before) :]
        info = rest.lstrip(sign)
        self.fence = rest[: len(rest) - len(info)]
        self.prefix = "" if before.strip(" \t>") else before
        words = re.split(r"[^A-Za-z0-9_+#-]+", info.lower())
        self.word = next((word for word in words if word), "")

    def split(self, line: str) -> tuple[str, str]:
        """What of a line belongs to the open block, its closing fence included, and the rest."""
        cut = self.cut(line)
        if cut is None:
            return line, ""
        rest = line[cut:].lstrip(self.fence[0])
        return line.removesuffix(rest), rest

    def cut(self, line: str) -> int | None:
        """The place of the fence that ends the block on this line."""
        cut = line.find(self.fence)
        if cut < 0:
            return None
        before = line[:cut]
        if before.strip(" \t>"):
            kept = line.rstrip().rstrip(self.fence[0])
            last = line[len(kept) :].strip()
            alike = [run for run in re.findall("`{3,}|~{3,}", line) if run.startswith(self.fence)]
            return len(kept) if last.startswith(self.fence) and len(alike) % 2 else None
        deeper = len(before.expandtabs()) - len(self.prefix.expandtabs())
        return cut if deeper < 4 else None


def _said(text: str) -> str:
    """The reply without its thoughts, with marks left where they are code."""
    if not _signed(text)[1] or _names(text) is not None:
        return text
    kept: list[str] = []
    thinks, scan = False, _Scan()
    for line in text.split("\n"):
        signs, marked = _signed(line)
        alone = len(signs.strip()) == 1
        if scan.fence and not thinks and not alone:
            code, rest = scan.split(line)
            signs, marked = _signed(rest)
            kept += [code] if marked else []
        if not marked:
            if not thinks:
                kept.append(line + "\n")
                scan.feed(line)
            continue
        for piece in re.split(f"([{answers_audit.OPENS}{answers_audit.CLOSES}])", signs):
            if piece == answers_audit.OPENS:
                thinks = True
            elif piece == answers_audit.CLOSES:
                if not thinks:
                    kept.clear()
                thinks = False
            elif not thinks:
                kept.append(piece)
        kept += [] if thinks else ["\n"]
        scan = _Scan()
        if not thinks:
            scan.feed(re.split(f"[{answers_audit.OPENS}{answers_audit.CLOSES}]", signs)[-1])
    return "" if thinks else "".join(kept)


def _signed(text: str) -> tuple[str, bool]:
    """A text with one sign for each mark of a thought, and whether it holds any."""
    text = answers_audit.marked(text)
    return text, answers_audit.OPENS in text or answers_audit.CLOSES in text


def read_program(text: str, form: str, entry: str) -> str:
    """The source text that a reply of this form offers for a function, "" if it offers none."""
    if len(text.encode("utf-8", "surrogatepass")) > LONGEST:
        return ""
    plain = "\n".join(re.split("\r\n|\r", text)).lstrip("\ufeff")
    for sign in (answers_audit.OPENS, answers_audit.CLOSES):
        plain = plain.replace(sign, " ")
    said = _said(plain)
    if form == "tags":
        contents = [content for _, content in answers_audit.tagged_pieces(said)]
        filled = [one for one in contents if not answers_audit.says_nothing(one)]
        said = textwrap.dedent(filled[-1]) if filled else ""
    said = said.lstrip("\ufeff")
    if form == "bare":
        return said
    scan = _Scan()
    for line in said.split("\n"):
        scan.feed(line)
    scan.end()
    if not scan.found:
        return said
    for dialects in (True, False):
        for word, code in reversed(scan.found):
            if (word.rstrip("23") in DIALECTS or not dialects) and entry in top_level_names(code):
                return code.lstrip("\ufeff")
    return ""


def top_level_names(source: str) -> set[str]:
    """Names that a program binds at its top level; none if it does not parse."""
    return _names(source.lstrip("\ufeff")) or set()


def _names(source: str) -> set[str] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
            symbols = symtable.symtable(source, "program", "exec").get_symbols()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    known = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] in sys.stdlib_module_names
        for alias in node.names
    }
    bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned()}
    return bound | known & {symbol.get_name() for symbol in symbols if symbol.is_imported()}


def behind_header(before: Sequence[ast.stmt], source: str) -> str:
    """A program with other statements behind its docstring and its ``__future__`` imports."""
    tree = ast.parse(source)
    header = 0
    for place, node in enumerate(tree.body):
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        said = place == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not future and not said:
            break
        header = place + 1
    tree.body[header:header] = before
    return ast.unparse(tree)


def passes_each(source: str, tests: Sequence[str], entries: Sequence[str]) -> bool:
    """Whether a program passes every test, the last one first, each in processes of its own."""
    if not source or not {*entries} <= top_level_names(source):
        return False
    if not _OPENED:
        _OPENED.append(WideSandbox(Limits(cpu_s=3.0)))
    return all(_OPENED[0].judge(source, one, entries).passed for one in reversed(tests))
