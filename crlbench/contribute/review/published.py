"""What was published stays as it is: the states that a main line had, and archives of them.

Only first parents are followed. A commit inside a branch that was merged was never published.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from crlbench.base.wording import listed
from crlbench.catalog.find import ARCHIVE, Catalog, Entry, Kind
from crlbench.contract.stored import json_object
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.contribute.results.changes import MAX_SHOWN, NO_FILE, Changes, git
from crlbench.contribute.results.layout import RESULTS
from crlbench.disk import seal
from crlbench.disk.names import FROZEN, PLAN_NAME
from crlbench.disk.toml import read_toml
from crlbench.errors import CrlbenchError, UsageError, ValidationError
from crlbench.run.archive import is_left_out, require_own_content

TRACKS = "leaderboard/tracks"
PANEL = "leaderboard/retain"
HEAD = "HEAD"
LONGEST = 9
"""Most digits of a part of a version."""
DEPTH = len(PurePosixPath(ARCHIVE).parts) + 1
"""Levels of an archive's own folder, from the root of the checkout."""
_ADVICE = (
    "Remove the folder; then run `crlbench archive` in a checkout of a commit that published the "
    "version, and bring what it writes."
)


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
    """Whether a version was published: 0 and 0.x.y are drafts, as is a track that never ranks."""
    return order_of(facts) >= (1,) and facts.get("ranked") is not False


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
        blobs = {
            path: blob
            for folder in folders
            for path, blob in self._blobs(f"{folder}/")
            if not is_left_out(PurePosixPath(path).relative_to(folder))
        }
        if self.kind == "track":
            blobs |= self._blobs(place_of("track", self.name))
        return blobs

    def _blobs(self, place: str) -> list[tuple[str, str]]:
        tree = git(self.root, "ls-tree", "-r", "-z", self.commit, "--", place)
        rows = [row.partition("\t") for row in tree.split("\0") if row]
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
    value: Any = facts
    for part in ("conditions", "evaluation", "retain"):
        value = value.get(part) if isinstance(value, Mapping) else None
    return bool(value)


def states(
    root: Path, kind: Kind, name: str, version: str, tip: str, also: Iterable[str] = ()
) -> Iterator[State]:
    """The states up to a commit in which a track or task had a version, the newest first.

    Args:
        root: a catalogue's folder in a checkout.
        also: tasks whose changes make another state, besides those of the track at ``tip``.
    """
    place = place_of(kind, name)
    places = [f"tasks/{name}"]
    if kind == "track":
        tasks = {*also, *tasks_of(facts_at(root, tip, place) or {})}
        places = [place, PANEL, *(f"tasks/{task}" for task in sorted(tasks))]
    commits = git(root, "rev-list", "--first-parent", tip, "--", *places)
    for commit in commits.split():
        facts = facts_at(root, commit, place)
        if facts is not None and version_in(facts) == version:
            yield State(root, commit, kind, name, facts)


def other_versions(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Published tasks in another version than then, in words; empty where there are none."""
    return ", ".join(
        f"{name} {then[name]} (not {now[name]})"
        for name in sorted(then.keys() & now.keys())
        if then[name] != now[name] and is_published({"version": then[name]})
    )


def check_archives(changes: Changes) -> list[str]:
    """Archives that were changed, and new ones that are not what was published at one commit."""
    folders: dict[str, list[str]] = {}
    for path in changes.paths:
        if path.startswith(f"{ARCHIVE}/"):
            folders.setdefault("/".join(PurePosixPath(path).parts[:DEPTH]), []).append(path)
    problems: list[str] = []
    for folder, paths in sorted(folders.items()):
        if paths != [folder]:
            problems += [*_check_archive(changes, folder, paths)][:MAX_SHOWN]
    return problems


def _check_archive(changes: Changes, folder: str, paths: Sequence[str]) -> Iterator[str]:
    if changes.names_before(folder):
        yield from (
            f"{path}: an archived version is frozen, and this file of it was "
            f"{'added' if path in changes.added else 'changed or removed'}"
            for path in paths
        )
        return
    try:
        seal.require_intact(changes.root / folder)
        require_own_content(Catalog([changes.root]), changes.root / folder)
    except CrlbenchError as error:
        yield str(error)
        return
    yield from _never_published(changes, folder)


def _never_published(changes: Changes, folder: str) -> Iterator[str]:
    """Why a new archive is not, as a whole, one state in which its version was published."""
    content = _content(changes.root, folder)
    spec = PurePosixPath(folder).name
    name, _, version = spec.partition("@")
    kind: Kind = "track" if place_of("track", name) in content else "task"
    tasks = {PurePosixPath(path).parts[1] for path in content if path.startswith("tasks/")}
    if not is_published({"version": version}) and not (
        kind == "track" and any(_plans_of(changes.root, name, version))
    ):
        yield f"{folder}: {kind} '{name}' {version} is a draft, and nothing of it was published"
        return
    published = [*states(changes.root, kind, name, version, changes.base, tasks)]
    if not published:
        yield (
            f"{folder}: {kind} '{name}' never had version {version} in {place_of(kind, name)} "
            f"up to {changes.base[:12]}, so nothing of it was published. {_ADVICE}"
        )
        return
    first = published[-1]
    nearest = min(published, key=lambda state: len(_differences(content, state.files)))
    if differing := _differences(content, nearest.files):
        yield (
            f"{folder}: is no state in which {kind} '{name}' {version} was published: in the "
            f"nearest, commit {nearest.commit[:12]}, {listed(differing, seal.SHOWN)}. "
            f"{_ADVICE}"
        )
    elif other := other_versions(first.versions, nearest.versions):
        yield (
            f"{folder}: {kind} '{name}' {version} was published in commit {first.commit[:12]} "
            f"with other tasks: {other}. {_ADVICE}"
        )


def _content(root: Path, folder: str) -> dict[str, str]:
    """Git's name of each content of an archive, by its path there; without the list of them."""
    above = root / folder
    paths = sorted(path for path in above.rglob("*") if path.is_file())
    blobs = git(root, "hash-object", "--no-filters", "--", *map(str, paths)).split()
    names = (path.relative_to(above).as_posix() for path in paths)
    return {name: blob for name, blob in zip(names, blobs, strict=True) if name != seal.NAME}


def _differences(content: dict[str, str], state: dict[str, str]) -> list[str]:
    """Files in which an archive differs from a state, with how."""
    words = [(f"{path} is missing", path not in content) for path in state]
    for path, blob in content.items():
        words.append((f"{path} is another", state.get(path, blob) != blob))
        words.append((f"{path} does not belong there", path not in state))
    return sorted(word for word, differs in words if differs)


def require_archived(catalog: Catalog, folder: Path, card: TaskCard) -> list[str]:
    """Refuse to raise a published task while a published track that holds it is not archived.

    Args:
        folder: of the task, as it was frozen before.
        card: what would be frozen there.

    Returns:
        The tracks that hold it and have not risen yet, as ``name@version``; none where the task
        does not rise.

    Raises:
        UsageError: one of them is in no archive; with the command.
    """
    path = folder / FROZEN
    old = read_task_card(path).version if path.is_file() else ""
    if old == card.version or not is_published({"version": old}):
        return []
    tracks = [*_published_with(catalog, folder)]
    missing = [(entry, spec) for entry, spec in tracks if not _is_archived(entry, spec)]
    if missing:
        specs = ", ".join(spec for _, spec in missing)
        commands = "; ".join(f"crlbench archive track {entry.name}" for entry, _ in missing)
        raise UsageError(
            f"task '{card.name}' {old} belongs to published tracks that are not archived: {specs}."
            f" Archive them while they hold it, then run this again: {commands}"
        )
    return [spec for entry, spec in tracks if spec == f"{entry.name}@{entry.version}"]


def _is_archived(track: Entry, spec: str) -> bool:
    return (track.root / ARCHIVE / spec).is_dir()


def _published_with(catalog: Catalog, folder: Path) -> Iterator[tuple[Entry, str]]:
    """Published tracks that hold a task, with their published ``name@version``.

    It is the version of the last commit. Outside of git it is the present one.
    """
    for entry in catalog.entries("track").values():
        try:
            present = read_toml(entry.path)
        except ValidationError:
            continue
        facts = facts_at(entry.root, HEAD, place_of("track", entry.name)) or present
        if is_published(facts) and folder.name in tasks_of(facts):
            if _is_meant(catalog, entry.root, folder):
                yield entry, f"{entry.name}@{version_in(facts)}"


def _is_meant(catalog: Catalog, root: Path, folder: Path) -> bool:
    """Whether tracks of one of a catalogue's folders find a task in a folder."""
    behind = Catalog(catalog.extra[catalog.roots.index(root) :])
    entry = behind.entries("task").get(folder.name)
    return entry is not None and entry.path.resolve() == folder


def require_as_published(catalog: Catalog, entry: Entry) -> None:
    """Refuse to archive a version that is not, or no longer, what was published under it.

    Raises:
        UsageError: the last commit has another version, or tasks have risen since the track got
            its version or since results of it were stored; with what to do. Or it is a draft
            track without a stored result.
    """
    if entry.kind == "track" and entry.version == "0":
        if not any(_plans_of(entry.root, entry.name, entry.version)):
            raise UsageError(
                f"track '{entry.name}' is at version 0, which changes freely, and no result of it "
                "is stored: there is nothing to archive."
            )
    committed = facts_at(entry.root, HEAD, place_of(entry.kind, entry.name))
    if committed is not None and version_in(committed) != entry.version:
        old = version_in(committed)
        raise UsageError(
            f"{entry.kind} '{entry.name}' {entry.version} is not committed: the last commit has "
            f"{old}. {_way_back(entry, HEAD, old)} Commit {entry.version} to archive that."
        )
    if entry.kind == "track":
        _require_its_tasks(catalog, entry)


def _require_its_tasks(catalog: Catalog, track: Entry) -> None:
    present = {
        name: catalog.version_of("task", name) or "" for name in tasks_of(read_toml(track.path))
    }
    for source, versions, commit in _publications(track):
        if other := other_versions(versions, present):
            raise UsageError(
                f"track '{track.name}' {track.version} was published with other tasks ({source}): "
                f"{other}. {_way_back(track, commit, track.version)} Or raise the track's version."
            )


def _publications(track: Entry) -> Iterator[tuple[str, dict[str, str], str]]:
    """What says which tasks a track's version has: where, their versions, a commit with them."""
    try:
        published = [*states(track.root, "track", track.name, track.version, HEAD)]
    except CrlbenchError:  # outside of git
        published = []
    commit = "the commit that published it"
    if published:
        first = published[-1].versions
        same = (one for one in published if not other_versions(first, one.versions))
        commit = next(same).commit[:12]
        yield f"commit {published[-1].commit[:12]}", first, commit
    for path, plan in _plans_of(track.root, track.name, track.version):
        yield str(path.parent), _versions_of(plan), commit


def _plans_of(root: Path, track: str, version: str) -> Iterator[tuple[Path, dict[str, object]]]:
    """The plans of stored results of a track's version, with where they are."""
    for path in sorted((root / RESULTS).glob(f"{track}-*/*/*/{PLAN_NAME}")):
        try:
            plan = json_object(path)
        except CrlbenchError:  # which is refused where results are examined
            continue
        board = (plan.get("track"), str(plan.get("track_version")), plan.get("division"))
        if board == (track, version, "closed"):
            yield path, plan


def _versions_of(plan: dict[str, object]) -> dict[str, str]:
    """The versions of tasks that a plan states, by name."""
    control = plan.get("control")
    leaves = control if isinstance(control, dict) else {}
    return {
        name.removeprefix("tasks.").removesuffix(".version"): str(version)
        for name, version in leaves.items()
        if name.startswith("tasks.") and name.endswith(".version")
    }


def _way_back(entry: Entry, commit: str, version: str) -> str:
    return (
        f"To archive {version}, check out {commit} elsewhere (git worktree add), run `crlbench "
        f"archive {entry.kind} {entry.name}` there, and bring {ARCHIVE}/{entry.name}@{version}."
    )
