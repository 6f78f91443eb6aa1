"""How a result or a model is cited: a sentence, and an entry for BibTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from crlbench import __version__
from crlbench.base import wording
from crlbench.pages.table import LATEX
from crlbench.site.data import AUTHORS
from crlbench.site.pages import address, entry_path, model_path
from crlbench.site.source import StoredBoard
from crlbench.verdict.entry import Entry

BIBTEX = LATEX | {
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
}
"""As :data:`LATEX`. BibTeX counts braces whether or not a backslash stands before them, so a
brace of a name is written as a word."""


class Citation(NamedTuple):
    """One source in two forms."""

    plain: str
    bibtex: str


def escape_bibtex(content: str) -> str:
    """Text on one line that neither BibTeX nor LaTeX reads as commands; its braces are paired."""
    text = wording.visible(content).replace("\n", " ")
    return "".join(BIBTEX.get(sign, sign) for sign in text)


def cite_result(stored: StoredBoard, entry: Entry, url: str = "") -> Citation:
    """The citation of an entry.

    Args:
        url: of the site, with a slash at its end; empty where it is not known.
    """
    title = f"{entry.full_name} with {entry.recipe} on {stored.label}"
    day = stored.dates[entry.name][:10]
    submitter = stored.submitters[entry.name]
    parts = [f"Result {entry.name} of board {stored.id}"]
    parts += [f"submitted by {submitter}"] if submitter else []
    path = entry_path(stored.id, entry.model, entry.recipe)
    return _cite(f"{stored.id} {entry.name}", title, ", ".join(parts), day, url, path)


def cite_model(
    slug: str, display_name: str, revision: str | None, days: Sequence[str], url: str = ""
) -> Citation:
    """The citation of what the site says of a model.

    Args:
        days: of its results, ISO 8601.
        url: as for :func:`cite_result`.
    """
    title = f"{display_name}: how it learns under reinforcement learning"
    count = wording.count(len(days), "result")
    note = f"Model {slug}, revision {revision or 'not stated'}, {count}"
    return _cite(slug, title, note, max(days, default=""), url, model_path(slug))


def _cite(name: str, title: str, note: str, day: str, url: str, path: str) -> Citation:
    """
    Args:
        day: of the last result, ISO 8601; empty where it is not known.
    """
    whole = f"{note}, {day}" if day else note
    where = f"{url}{address(path)}" if url else ""
    fields = {
        "title": f"{{{escape_bibtex(title)}}}",
        "author": f"{{{AUTHORS}}}",
        "year": day[:4],
        "howpublished": f"crlbench {__version__}",
        "note": escape_bibtex(whole),
        "url": where,
    }
    key = re.sub(r"[^A-Za-z0-9]+", "-", f"crlbench {name}").strip("-")
    lines = [f"  {field} = {{{value}}}" for field, value in fields.items() if value]
    year = f" ({day[:4]})" if day else ""
    told = f"{AUTHORS}{year}. {wording.clean(title)}. {wording.clean(whole)}. "
    return Citation(
        f"{told}crlbench {__version__}.{f' {where}' if where else ''}",
        f"@misc{{{key},\n" + ",\n".join(lines) + "\n}\n",
    )
