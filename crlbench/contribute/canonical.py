"""Are the bytes of an entry the ones that ``crlbench submit`` writes?

Whatever says the same in other bytes is refused: a name that is given twice, a byte behind the last
line, a space, a member nobody lists. So no two readers can see two contents, and a result that is
kept and published for ever holds nothing but the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from crlbench import line_ends
from crlbench.attempts import LEDGER_NAME, PLAN_NAME
from crlbench.conditions import canonical_json
from crlbench.contribute.layout import SUBMISSION
from crlbench.packed import PACKED, BadArchive, decompress, members
from crlbench.reading import Malformed, json_value
from crlbench.report.load import MAX_SAMPLE_BYTES
from crlbench.report.npz import BadArchive as BadArrays
from crlbench.report.npz import read_arrays
from crlbench.report.stored import read_bytes
from crlbench.run.store import packed_arrays
from crlbench.verification import VERIFICATION_NAME


def uncanonical(folder: Path) -> Iterator[str]:
    """What in an entry's files differs from what is written there; a sentence for each file.

    Raises:
        ValidationError: a file is missing or too large, or the archive is none.
        EnvironmentUnfit: a file may not be read.
    """
    for name in (PLAN_NAME, LEDGER_NAME, SUBMISSION, VERIFICATION_NAME):
        if (folder / name).exists():
            yield from _fault(name, read_bytes(folder / name), folder / name)
    for name, content in members(folder / PACKED).items():
        yield from (f"{PACKED}/{fault}" for fault in _fault(name, content))


def _fault(name: str, content: bytes, path: Path | None = None) -> Iterator[str]:
    """What is wrong with a content; ``path``: of a file of its own, which git may rewrite."""
    form = _FORMS["".join(PurePosixPath(name).suffixes)]
    try:
        same = form(content) == content
    except (Malformed, BadArchive, BadArrays) as error:
        yield f"{name}: {error}"
    else:
        if same:
            return
        cause = ""
        if path is not None:
            cause = line_ends.rewritten_so_that(path, content, lambda text: form(text) == text)
        said = "not in the bytes that crlbench writes (canonical JSON, plain arrays)"
        yield f"{name}: {said}{'.' * bool(cause)} {cause}".rstrip()


def _text(content: bytes) -> bytes:
    return f"{canonical_json(json_value(content))}\n".encode()


def _lines(content: bytes) -> bytes:
    rows = content.removesuffix(b"\n").split(b"\n") if content else []
    return b"".join(map(_text, rows))


def _packed_lines(content: bytes) -> bytes:
    """The content itself where its lines are canonical: equal text may be packed in many ways."""
    plain = decompress(content, MAX_SAMPLE_BYTES)
    return content if _lines(plain) == plain else plain


_FORMS: dict[str, Callable[[bytes], bytes]] = {
    ".json": _text,
    ".jsonl": _lines,
    ".jsonl.zst": _packed_lines,
    ".npz": lambda content: packed_arrays(read_arrays(content)),
}
"""By the endings of a name: what the content would be if crlbench wrote it."""
