"""Versions in their order: what is archived before it rises, and what is archived too late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crlbench.catalog.find import ARCHIVE, Catalog, Entry
from crlbench.contract.stored import json_object
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.contribute.results.layout import RESULTS
from crlbench.contribute.review.published import (
    facts_at,
    is_published,
    other_versions,
    place_of,
    states,
    tasks_of,
    version_in,
)
from crlbench.disk.names import FROZEN, PLAN_NAME
from crlbench.disk.toml import read_toml
from crlbench.errors import CrlbenchError, UsageError, ValidationError

HEAD = "HEAD"


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
            its version or since results of it were stored; with what to do.
    """
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
    for path in sorted((track.root / RESULTS).glob(f"{track.name}-*/*/*/{PLAN_NAME}")):
        try:
            plan = json_object(path)
        except CrlbenchError:  # which is refused where results are examined
            continue
        board = (plan.get("track"), str(plan.get("track_version")), plan.get("division"))
        if board == (track.name, track.version, "closed"):
            yield str(path.parent), _versions_of(plan), commit


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
