"""Who may bring a change: an entry is extended by those who submitted it, and by maintainers."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from crlbench.contract.retractions import Retraction
from crlbench.contribute.results.changes import Changes
from crlbench.contribute.results.layout import RESULTS, SUBMISSION, read_submission
from crlbench.contribute.review.growth import before_of
from crlbench.disk.files import write_all
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.errors import CrlbenchError, UsageError, ValidationError
from crlbench.verdict.archive import Archive
from crlbench.verdict.board_conditions import board_tasks
from crlbench.verdict.census import Standing, take_census
from crlbench.verdict.load import load_runs

MAINTAINERS = RESULTS.parent / "maintainers.toml"
"""Path from the root of a checkout."""
HANDLE = re.compile(r"@[A-Za-z0-9][A-Za-z0-9-]{0,38}")
STANDINGS: tuple[Standing, ...] = get_args(Standing)
"""All standings, the weakest first."""


@dataclass(frozen=True)
class Author:
    """Who brings a change, as the platform says and nobody's file does."""

    handle: str | None
    """None where nobody said; then nothing is taken that needs to know."""
    maintainers: frozenset[str]

    @property
    def keeps(self) -> bool:
        """Whether they keep the leaderboard."""
        return self.handle is not None and _plain(self.handle) in self.maintainers

    def speaks_for(self, handle: str) -> bool:
        """Whether they are that person, or keep the leaderboard."""
        return self.keeps or (self.handle is not None and _plain(self.handle) == _plain(handle))


def author_of(changes: Changes, handle: str | None) -> Author:
    """The author of a change, beside the maintainers as they were at its base.

    Raises:
        UsageError: no GitHub handle.
        ValidationError: the list of maintainers is malformed.
    """
    if handle is not None and not _plain(handle):
        raise UsageError(f"--author {handle!r:.80}: a GitHub handle, such as @some-name.")
    path = MAINTAINERS.as_posix()
    if path not in changes.names_before(RESULTS.parent.as_posix()):
        return Author(handle, frozenset())
    try:
        handles = tomllib.loads(changes.before(path).decode())["handles"]
        return Author(handle, frozenset(map(_plain, handles)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValidationError(f"{path}: handles: expected a list of handles: {error}") from None


def _plain(handle: str) -> str:
    """Without the sign; GitHub tells no case apart."""
    return handle.removeprefix("@").lower()


def check_author(
    changes: Changes, author: Author, retractions: Sequence[Retraction]
) -> tuple[list[str], tuple[str, ...]]:
    """Whether entries and retractions come from those who may bring them.

    Args:
        retractions: The new lines of the log.

    Returns:
        What is wrong, and what a reader must know.
    """
    findings: list[str] = []
    notes: list[str] = []
    for entry in changes.entries():
        try:
            before = before_of(changes, entry)
            rule = _may_extend if before else _may_bring
            for refused, sentence in rule(changes, entry, before, author):
                (findings if refused else notes).append(sentence)
        except CrlbenchError as error:  # an entry that cannot be read is refused by name elsewhere
            notes.append(f"{entry}: cannot tell who may bring it: {error}")
    for line in retractions:
        try:
            folder = changes.root / RESULTS / line.entry
            for refused, sentence in _may_retract(folder, line, author):
                (findings if refused else notes).append(sentence)
        except CrlbenchError as error:
            findings.append(f"{line.entry}: cannot tell who may retract it: {error}")
    return findings, tuple(dict.fromkeys(notes))


def _may_retract(folder: Path, line: Retraction, author: Author) -> Iterator[tuple[bool, str]]:
    """Whether the author may take back what a line takes back; yields (refused, sentence)."""
    if not HANDLE.fullmatch(line.by):
        yield True, f"{line.entry}: by: {line.by!r:.80}, expected a GitHub handle, such as @someone"
    submitter = read_submission(folder).submitter if folder.is_dir() else line.by
    owner = Author(line.by, author.maintainers)
    if line.removed and not owner.keeps:
        yield True, f"{line.entry}: removed by {line.by}: only a maintainer removes an entry"
    if not owner.speaks_for(submitter):
        yield True, (
            f"{line.entry}: taken back by {line.by}: {submitter} submitted it, and only they or a "
            "maintainer take it back"
        )
    if author.handle is None:
        yield False, f"{line.entry}: whether {line.by} takes it back was not asked (--author)."
    elif not author.speaks_for(line.by):
        yield True, (
            f"{line.entry}: taken back by {line.by}, and {author.handle} brings it: a line is "
            "brought by the person it names, or by a maintainer"
        )


def _may_bring(
    changes: Changes, entry: Path, before: Mapping[str, bytes], author: Author
) -> Iterator[tuple[bool, str]]:
    """Whether the author may bring a new entry; yields (refused, sentence)."""
    folder = changes.root / entry
    if author.handle is None or not folder.is_dir():
        return
    submitter = read_submission(folder).submitter
    if not author.speaks_for(submitter):
        yield True, (
            f"{entry}/{SUBMISSION}: submitter {submitter}, and {author.handle} brings it: an entry "
            "is brought by the person it names, or by a maintainer"
        )


def _may_extend(
    changes: Changes, entry: Path, before: Mapping[str, bytes], author: Author
) -> Iterator[tuple[bool, str]]:
    """Whether the author may add to an entry; yields (refused, sentence)."""
    if not (changes.root / entry).is_dir():  # which is refused whoever did it
        return
    with tempfile.TemporaryDirectory() as temporary:
        old = Path(temporary) / "before" / entry
        old.mkdir(parents=True)
        write_all({old / name: content for name, content in before.items()})
        submitter = read_submission(old).submitter
        was, now = standing_of(old), standing_of(changes.root / entry)
    lower = STANDINGS.index(now) < STANDINGS.index(was)
    change = f"{entry}: what is added takes its standing from {was} to {now}"
    if author.speaks_for(submitter):
        if lower:
            yield False, f"{change}; {author.handle} may do that."
    elif author.handle is not None:
        yield True, (
            f"{entry}: {author.handle} adds to an entry of {submitter}: only {submitter} or a "
            "maintainer does"
        )
    elif lower:
        yield True, (
            f"{change}: only {submitter} or a maintainer does that (--author says who brings it)"
        )
    else:
        yield False, f"{entry}: whether {submitter} adds to it was not asked (--author)."


def standing_of(folder: Path) -> Standing:
    """The standing of an entry if all its runs count, verified or not.

    Raises:
        CrlbenchError: it cannot be read.
    """
    with tempfile.TemporaryDirectory() as temporary:
        alone = Path(temporary) / RESULTS / Path(*folder.absolute().parts[-3:])
        alone.mkdir(parents=True)
        write_all(
            {
                alone / path.name: path.read_bytes()
                for path in sorted(folder.iterdir())
                if path.is_file() and not path.is_symlink() and path.name != VERIFICATION_NAME
            }
        )
        runs = load_runs(alone)
        real = [run for run in runs if run.record.arm == "real"]
        if not real:
            return "preview"
        return take_census(real, board_tasks(real[0].record), Archive(runs)).standing()[0]
