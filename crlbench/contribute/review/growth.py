"""What stands is never rewritten: results and retractions only grow, published numbers stay."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from crlbench.catalog.find import ARCHIVE
from crlbench.contract.conditions import diff, leaves
from crlbench.contract.retractions import (
    COMMAND,
    Retraction,
    parse_retractions,
    read_retractions,
    taken_back,
)
from crlbench.contribute.results.changes import MAX_SHOWN, TASK_FILE, Changes, scope_of
from crlbench.contribute.results.layout import ALLOWED, ENTRY_DEPTH, README, RESULTS
from crlbench.contribute.results.packing import check_growth, opened
from crlbench.contribute.results.retract import (
    RETRACTIONS,
    check_new,
    check_records,
    digest_of,
)
from crlbench.contribute.review.published import (
    FROZEN,
    PANEL,
    TRACKS,
    is_published,
    measures_retention,
    order_of,
    tasks_of,
)
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.disk.packed import PACKED
from crlbench.disk.reading import read_bytes
from crlbench.disk.unpacking import BadArchive
from crlbench.errors import CrlbenchError, printable

WORDS = ("summary", "pilot")
"""Fields of a track that say how its numbers were chosen and change none."""
LATER = ("reference", "designs")
"""Fields of a track that come once it stands, and are kept from then on."""

Findings = Iterator[str]


def check_results(changes: Changes) -> list[str]:
    """What of the results was changed though it may only grow."""
    problems, removed = _check_taken_back(changes)
    for entry in changes.entries():
        before = before_of(changes, entry)
        if not before or entry in removed:
            continue
        try:
            old, new = opened(before), opened(_now(changes.root / entry))
        except BadArchive as error:
            problems.append(f"{entry / PACKED}: {error}")
            continue
        problems += [f"{entry}/{line}" for line in check_growth(old, new)]
    results = [path for path in changes.paths if scope_of(path) == "results"]
    outside = [path for path in results if not belongs(path)]
    problems += [f"{path}: not a place for a file of a result" for path in outside[:MAX_SHOWN]]
    foreign = [
        path
        for path in changes.paths
        if path not in changes.deleted and scope_of(path) == "tasks"
        if not TASK_FILE.fullmatch(path)
    ]
    problems += [f"{path}: not a file of a task" for path in foreign[:MAX_SHOWN]]
    return problems + [
        f"{path}: badges are written by the maintainers' checks alone"
        for path in results
        if PurePosixPath(path).name == VERIFICATION_NAME
        if Path(path).parent not in removed
    ]


def _check_taken_back(changes: Changes) -> tuple[list[str], set[Path]]:
    """Entries that changed though they were taken back, and those that the log says are gone."""
    problems: list[str] = []
    removed: set[Path] = set()
    try:
        lines = read_retractions(changes.root / RETRACTIONS.parent)
    except CrlbenchError:  # which is refused by itself
        return problems, removed
    for entry in changes.entries():
        line = taken_back(lines, "/".join(entry.parts[-ENTRY_DEPTH:]))
        if line is None:
            continue
        if line.removed and not _now(changes.root / entry):
            removed.add(entry)
        else:
            problems.append(f"{entry}: was taken back, and no longer changes. {line.sentence()}")
    return problems, removed


def added_retractions(changes: Changes) -> tuple[list[Retraction], list[str]]:
    """The new lines of the log of retractions, and what is wrong with them."""
    path = RETRACTIONS.as_posix()
    if path in changes.deleted:
        return [], [f"{path}: removed; what was taken back stays in sight"]
    if path not in changes.paths:
        return [], []
    before = b"" if path in changes.added else changes.before(path)
    try:
        content = read_bytes(changes.root / path, links=False)
        if not content.startswith(before):
            return [], [f"{path}: what it said was changed; it only grows"]
        start = len(before.splitlines())
        every = parse_retractions(content, RETRACTIONS)
        lines = list(every[start:])
        texts = content.splitlines(keepends=True)[start:]
        wrong = [*_check_dates(lines), *_check_lines(lines, texts)]
        wrong += check_new(every[:start], lines)
        removals = [line for line in lines if line.removed]
        gone = {line.entry for line in removals}
        stay = [line for line in lines if line.entry not in gone]
        wrong += [fault for line in removals for fault in _check_removal(changes, line)]
        return lines, [*wrong, *check_records(changes.root, stay)]
    except CrlbenchError as error:
        return [], [str(error)]


def _check_removal(changes: Changes, line: Retraction) -> Findings:
    """Whether a line says what was removed, and all of it was."""
    where, entry = f"{RETRACTIONS}:{line.n + 1}", RESULTS / line.entry
    before = before_of(changes, entry)
    if not before:
        yield f"{where}: {line.entry}: no such entry in {RESULTS}"
    elif line.digest != digest_of(before):
        yield f"{where}: {line.entry}: digest: not that of the files that were removed"
    if _now(changes.root / entry):
        yield f"{where}: {line.entry}: says that its files were removed, and they are there"


def _check_dates(lines: list[Retraction]) -> Findings:
    """Days that have not come; one more, for clocks of other places."""
    last = datetime.now(UTC).date() + timedelta(days=1)
    for line in lines:
        if date.fromisoformat(line.date) > last:
            yield f"{RETRACTIONS}:{line.n + 1}: date: {line.date} is in the future"


def _check_lines(lines: list[Retraction], texts: list[bytes]) -> Findings:
    """Lines in other bytes than the command writes, or with a reason that moves a cursor."""
    for line, text in zip(lines, texts, strict=True):
        where = f"{RETRACTIONS}:{line.n + 1}"
        if text != line.line():
            yield f"{where}: not in the bytes that {COMMAND} writes"
        if printable(line.reason) != line.reason:
            yield f"{where}: reason: holds a character that is not printed"


def check_versions(changes: Changes) -> list[str]:
    """Tracks, tasks and the retain panel that say other numbers under the version they had."""
    problems: list[str] = []
    for path in (*changes.modified, *changes.deleted):
        what = _kind_of(path)
        if what is None:
            continue
        try:
            before = _facts(changes.before(path))
        except ValueError:  # nothing could be published by it
            continue
        if not is_published(before):
            continue
        if path in changes.deleted:
            problems.append(f"{path}: removed, and {what} {before['version']} was published")
            continue
        try:
            now = _facts(read_bytes(changes.root / path, links=False))
        except (CrlbenchError, ValueError) as error:
            problems.append(f"{path}: cannot be read: {error}")
            continue
        problems += [f"{path}: {fault}" for fault in _check_version(what, before, now)]
    return problems


def check_tracks(changes: Changes) -> list[str]:
    """Published tracks that keep their version while what they rest on rises."""
    rises = dict(_rises(changes))
    problems: list[str] = []
    for path in changes.names_before(TRACKS) if rises else ():
        before, now = _both_facts(changes, path)
        if not is_published(before) or order_of(now) != order_of(before):
            continue
        parts = [*tasks_of(before), *([PANEL] if measures_retention(before) else [])]
        problems += [_fault(changes, path, before, rises[what]) for what in parts if what in rises]
    return problems


def _both_facts(changes: Changes, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file said at the base, and says now; empty where one is gone or unreadable."""
    try:
        now = read_bytes(changes.root / path, links=False)
        return _facts(changes.before(path)), _facts(now)
    except (CrlbenchError, ValueError):  # which is refused by itself
        return {}, {}


def _rises(changes: Changes) -> Iterator[tuple[str, str]]:
    """Published tasks and the retain panel whose version rises, by name, with how in words."""
    for path in changes.modified:
        what = _kind_of(path)
        if what is None or what == "track":
            continue
        before, now = _both_facts(changes, path)
        if is_published(before) and order_of(now) > order_of(before):
            name = PurePosixPath(path).parts[1] if what == "task" else PANEL
            words = f"{what} '{name}'" if what == "task" else what
            yield name, f"{words} from {before['version']} to {_short(now['version'], str)}"


def _fault(changes: Changes, path: str, track: Mapping[str, Any], rise: str) -> str:
    name = PurePosixPath(path).stem
    spec = f"{name}@{track['version']}"
    in_archive = (changes.root / ARCHIVE / spec).is_dir()
    first = "" if in_archive else f"archive it as it was (crlbench archive track {name}), and "
    return (
        f"{path}: track '{name}' stays at version {track['version']} and rests on what rises: "
        f"{rise}. Results of {spec} would mean two things: {first}raise its version"
    )


def _kind_of(path: str) -> str | None:
    """What a file publishes under a version."""
    place = PurePosixPath(path)
    if place.parent.as_posix() == TRACKS and path.endswith(".toml"):
        return "track"
    if path == f"{PANEL}/panel.toml":
        return "retain panel"
    return "task" if place.parts[0] == "tasks" and place.parts[2:] == (FROZEN,) else None


def _facts(content: bytes) -> dict[str, Any]:
    return tomllib.loads(content.decode("utf-8"))


def _check_version(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Findings:
    old = before["version"]
    new = _short(now.get("version"), str)
    if order_of(now) < order_of(before):
        yield f"version: {new}, and {what} {old} was published: a version only rises"
    elif order_of(now) == order_of(before):
        later = tuple(name for name in LATER if name not in before)
        changes = diff(_numbers(what, before), _numbers(what, now)).items()
        names = [(name, pair) for name, pair in changes if name.partition(".")[0] not in later]
        for name, (number, new_number) in names[:MAX_SHOWN]:
            yield (
                f"{name}: {_short(new_number)}, and {what} {old} was published with "
                f"{_short(number)}: other numbers are another version"
            )


def _short(value: Any, text: Callable[[Any], str] = repr) -> str:
    try:
        return text(value)[:80]
    except ValueError:  # Python makes no text of very many digits
        return "a number of very many digits"


def _numbers(what: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What may not change under a version, by dotted name."""
    if what == "task":
        return {"digest": facts.get("digest")}
    words = WORDS if what == "track" else ()
    return leaves({name: value for name, value in facts.items() if name not in words})


def belongs(path: str) -> bool:
    """Whether results have a place for a file of that path, from the root of the checkout."""
    parts = PurePosixPath(path).parts[len(RESULTS.parts) :]
    if parts == (README,):
        return True
    return len(parts) == ENTRY_DEPTH + 1 and parts[-1] in ALLOWED


def before_of(changes: Changes, entry: Path) -> dict[str, bytes]:
    """The files of an entry as they were at the base."""
    paths = changes.names_before(entry.as_posix())
    return {PurePosixPath(path).name: changes.before(path) for path in paths}


def _now(folder: Path) -> dict[str, bytes]:
    """The files of an entry as they are; links and folders are none."""
    if not folder.is_dir():
        return {}
    files = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    return {path.name: path.read_bytes() for path in files}
