"""What stood before: only results that a base commit holds may be "not checked any more".

A checkout moves on, and an old result's track or task is not the one that it has. What is new is
examined by what the checkout has, or it is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from crlbench.contribute.results.changes import git, git_bytes
from crlbench.disk.names import RECORD_NAME
from crlbench.disk.packed import PACKED, BadArchive, unpack
from crlbench.errors import CrlbenchError
from crlbench.verdict.runs import Run

UPSTREAM = "origin/main"


@dataclass(frozen=True)
class Base:
    """A commit of the checkout around some results."""

    root: Path
    commit: str
    named: bool = False
    """Whether somebody named it (``--since``), rather than git: then what it holds was examined
    when it came, also where the checkout has lost the name of its track since."""
    _by_place: dict[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

    def holds(self, run: Run, folder: Path | None = None) -> bool:
        """Whether a submitted run stood at the commit, as it is.

        Args:
            run: packed, in its entry.
            folder: of the entry, where that is not the one that the run was read from.
        """
        above = (parent.parent for parent in run.folder.parents if parent.name == PACKED)
        place = folder or next(above, None)
        return place is not None and run.record.record_id in self._records(place)

    def _records(self, folder: Path) -> frozenset[str]:
        """The ids of an entry's records at the commit; empty where there was no such entry."""
        try:
            place = (folder.resolve() / PACKED).relative_to(self.root.resolve()).as_posix()
        except ValueError:
            return frozenset()
        if place not in self._by_place:
            self._by_place[place] = frozenset(self._read(place))
        return self._by_place[place]

    def _read(self, place: str) -> list[str]:
        try:
            members = unpack(git_bytes(self.root, "show", f"{self.commit}:{place}")).items()
            return [_record_id(text) for name, text in members if name.endswith(f"/{RECORD_NAME}")]
        except (CrlbenchError, BadArchive, ValueError):
            return []


def _record_id(text: bytes) -> str:
    record = json.loads(text)
    return str(record.get("record_id")) if isinstance(record, dict) else ""


def base_of(folder: Path) -> Base | None:
    """The commit that results in ``folder`` are new since, as git tells it.

    It is where the checkout left the main branch of its origin; in a checkout without one, the
    last commit. None outside of git.
    """
    place = next((one for one in (folder, *folder.absolute().parents) if one.is_dir()), folder)
    try:
        root = Path(git(place, "rev-parse", "--show-toplevel").strip())
    except CrlbenchError:
        return None
    for arguments in (("merge-base", UPSTREAM, "HEAD"), ("rev-parse", "HEAD")):
        try:
            return Base(root, git(root, *arguments).strip())
        except CrlbenchError:
            continue
    return None
