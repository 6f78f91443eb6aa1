"""What was published: the states in which a checkout's main line had a version.

Only first parents are followed. A commit inside a branch that was merged was never published.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from crlbench.catalog.find import Kind
from crlbench.contribute.results.changes import NO_FILE, git
from crlbench.disk.names import FROZEN
from crlbench.errors import CrlbenchError
from crlbench.run.archive import is_left_out

TRACKS = "leaderboard/tracks"
PANEL = "leaderboard/retain"
LONGEST = 9
"""Digits of a part of a version, at most."""


def place_of(kind: Kind, name: str) -> str:
    """The file that states the version of a track or a task, from the root of a catalogue."""
    return f"{TRACKS}/{name}.toml" if kind == "track" else f"tasks/{name}/{FROZEN}"


def facts_at(root: Path, commit: str, place: str) -> dict[str, Any] | None:
    """What a TOML file said at a commit; None where it was none, or there is no git."""
    try:
        return tomllib.loads(git(root, "show", f"{commit}:./{place}"))
    except (CrlbenchError, ValueError):
        return None


def version_in(facts: Mapping[str, Any] | None) -> str:
    """The version that a file states; "" where it states none."""
    return "" if facts is None else str(facts.get("version", ""))


def is_published(facts: Mapping[str, Any]) -> bool:
    """Whether a version was published: 0, and 0.x.y, are drafts."""
    return order_of(facts) >= (1,)


def order_of(facts: Mapping[str, Any]) -> tuple[int, ...]:
    """The stated version as numbers that compare; empty where it is none. 1.0 is 1."""
    version = facts.get("version", "")
    if type(version) is int and abs(version) < 10**LONGEST:
        version = str(version)
    parts = version.split(".") if isinstance(version, str) else [""]
    if not all(part.isdecimal() and len(part) <= LONGEST for part in parts):
        return ()
    numbers = [*map(int, parts)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


@dataclass(frozen=True)
class State:
    """A catalogue as it was at a commit, in which a track or a task had a version."""

    root: Path
    commit: str
    kind: Kind
    name: str
    facts: Mapping[str, Any]
    """The track's file, or the task's ``frozen.toml``."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that belong to it."""
        return tasks_of(self.facts) if self.kind == "track" else (self.name,)

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions of its tasks, by name."""
        return {
            name: version_in(facts_at(self.root, self.commit, place_of("task", name)))
            for name in self.tasks
        }

    @cached_property
    def files(self) -> dict[str, str]:
        """All that an archive of it holds: git's name of each content, by path."""
        folders = [f"tasks/{name}" for name in self.tasks]
        if self.kind == "track" and measures_retention(self.facts):
            folders.append(PANEL)
        found = {
            path: blob
            for folder in folders
            for path, blob in self._listed(f"{folder}/")
            if not is_left_out(PurePosixPath(path).relative_to(folder))
        }
        if self.kind == "track":
            found |= self._listed(place_of("track", self.name))
        return found

    def _listed(self, place: str) -> list[tuple[str, str]]:
        listed = git(self.root, "ls-tree", "-r", "-z", self.commit, "--", place)
        rows = [row.partition("\t") for row in listed.split("\0") if row]
        return [
            (path, facts.split()[2] if facts.split()[0] not in NO_FILE else "")
            for facts, _, path in rows
        ]


def tasks_of(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The tasks that a track's file names; none where it is malformed."""
    tasks = facts.get("tasks")
    return tuple(map(str, tasks)) if isinstance(tasks, list) else ()


def measures_retention(facts: Mapping[str, Any]) -> bool:
    """Whether a track's file asks for members of the retain panel."""
    found: Any = facts
    for part in ("conditions", "evaluation", "retain"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return bool(found)


def states(
    root: Path, kind: Kind, name: str, version: str, tip: str, also: Iterable[str] = ()
) -> Iterator[State]:
    """The states up to a commit in which a track or task had a version, the newest first.

    Args:
        root: a catalogue's folder in a checkout.
        also: tasks whose changes make another state, besides those of the track at ``tip``.
    """
    own = place_of(kind, name)
    places = [own, PANEL] if kind == "track" else [f"tasks/{name}"]
    if kind == "track":
        held = {*also, *tasks_of(facts_at(root, tip, own) or {})}
        places += [f"tasks/{task}" for task in sorted(held)]
    found = git(root, "rev-list", "--first-parent", tip, "--", *places)
    for commit in found.split():
        facts = facts_at(root, commit, own)
        if facts is not None and version_in(facts) == version:
            yield State(root, commit, kind, name, facts)


def moved(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Published tasks in another version than then, in words; empty where there are none."""
    return ", ".join(
        f"{name} {then[name]} (not {now[name]})"
        for name in sorted(then.keys() & now.keys())
        if then[name] != now[name] and is_published({"version": then[name]})
    )
