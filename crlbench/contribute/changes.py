"""What changed since a commit: one kind of thing at a time, and nothing that stood is rewritten."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from crlbench.contribute.layout import ALLOWED, RESULTS
from crlbench.contribute.packing import grown, opened
from crlbench.contribute.retract import RETRACTIONS, unfounded
from crlbench.errors import CrlbenchError, EnvironmentUnfit, UsageError
from crlbench.packed import PACKED, BadArchive
from crlbench.reading import read_bytes
from crlbench.retractions import parse_retractions
from crlbench.verification import VERIFICATION_NAME

Scope = Literal["results", "models", "tasks", "code"]

ALONG: dict[Scope, tuple[str, ...]] = {
    "models": ("docs/models.md", "docs/schemas/", "tests/policy/rendered.json"),
    "tasks": (),
}
"""What a contribution of a kind brings along: files and folders of data. Python files are code
wherever they are, because a workflow that runs the tests runs them."""
DATA = (".json", ".md", ".toml")
"""Endings of files that nothing executes."""
MAX_SHOWN = 8
ENTRY_DEPTH = 3
"""Levels of an entry's folder below the results."""


@dataclass(frozen=True)
class Changes:
    """The files that differ from a commit, by their path from the root of the checkout."""

    root: Path
    base: str
    """The commit that both sides share."""
    added: tuple[str, ...]
    modified: tuple[str, ...]
    """Changed, or of another type."""
    deleted: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(sorted((*self.added, *self.modified, *self.deleted)))

    @property
    def scopes(self) -> dict[Scope, tuple[str, ...]]:
        """The paths by what they are; what a contribution brings along is of its kind."""
        found: dict[Scope, list[str]] = {}
        for path in self.paths:
            found.setdefault(scope_of(path), []).append(path)
        for kind, along in ALONG.items():
            if kind in found and "code" in found:
                own = [p for p in found["code"] if _along(p, along)]
                found[kind] += own
                found["code"] = [p for p in found["code"] if p not in own]
        return {kind: tuple(paths) for kind, paths in found.items() if paths}

    def entries(self) -> list[Path]:
        """Folders of the results that were touched, from the root."""
        inside = [PurePosixPath(p) for p in self.paths if scope_of(p) == "results"]
        depth = len(RESULTS.parts) + ENTRY_DEPTH
        return sorted({Path(*p.parts[:depth]) for p in inside if len(p.parts) > depth})


def _along(path: str, along: tuple[str, ...]) -> bool:
    names = [a for a in along if path == a or (a.endswith("/") and path.startswith(a))]
    return bool(names) and PurePosixPath(path).suffix in DATA


def changes_since(reference: str, folder: Path) -> Changes:
    """What the checkout around ``folder`` changed since it left ``reference``.

    Files that git does not know yet count as added; ignored ones do not.

    Raises:
        UsageError: no such commit, or no git checkout.
        EnvironmentUnfit: git is not installed.
    """
    root = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    if reference.startswith("-"):
        raise UsageError(f"--since {reference}: no name of a commit.")
    base = _git(root, "merge-base", reference, "HEAD").strip()
    listed = _git(root, "diff", "--name-status", "--no-renames", "-z", base, "--").split("\0")
    status = dict(zip(listed[1::2], listed[::2], strict=False))
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    by_kind = {kind: sorted(p for p, s in status.items() if s == kind) for kind in "AD"}
    rest = sorted(p for p, s in status.items() if s not in "AD")
    added = sorted({*by_kind["A"], *filter(None, untracked)})
    return Changes(root, base, tuple(added), tuple(rest), tuple(by_kind["D"]))


def _git(folder: Path, *arguments: str) -> str:
    return _git_bytes(folder, *arguments).decode("utf-8", "surrogateescape")


def _git_bytes(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True)
    except FileNotFoundError:
        raise EnvironmentUnfit("git is not installed, and --since compares commits.") from None
    if done.returncode:
        raise UsageError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def scope_of(path: str) -> Scope:
    """What a changed file is."""
    parts = PurePosixPath(path).parts
    if parts[: len(RESULTS.parts)] == RESULTS.parts:
        return "results"
    if parts[0] == "models" and len(parts) == 2 and path.endswith(".toml"):
        return "models"
    if parts[0] == "tasks" and len(parts) > 2:
        return "tasks"
    return "code"


def mixed(scopes: Iterable[Scope]) -> list[str]:
    """Why changes of several kinds cannot be taken at once."""
    kinds = sorted(scopes)
    contributed = [kind for kind in kinds if kind != "code"]
    if "results" in kinds and len(kinds) > 1:
        return [
            f"results stand alone in a pull request, and this one also touches "
            f"{', '.join(k for k in kinds if k != 'results')}: open one for each"
        ]
    if len(contributed) > 1:
        return [f"touches {' and '.join(contributed)}: open one pull request for each"]
    return []


def besides(scopes: Mapping[Scope, Sequence[str]], only: Scope | None) -> list[str]:
    """What was changed besides the one kind that may change; nothing where any may."""
    found = [path for kind, paths in sorted(scopes.items()) if kind != only for path in paths]
    if only is None or not found:
        return []
    shown = ", ".join(found[:MAX_SHOWN]) + (" ..." if len(found) > MAX_SHOWN else "")
    return [f"only {only} may change here (--only), and this also touches {shown}"]


def code_unread(scopes: Mapping[Scope, Sequence[str]]) -> tuple[str, ...]:
    """What a reader must know of code that comes with a contribution of another kind."""
    code = scopes.get("code", ())
    if not code or len(scopes) == 1:
        return ()
    shown = ", ".join(code[:MAX_SHOWN]) + (" ..." if len(code) > MAX_SHOWN else "")
    return (f"code comes along that no rule examines: read it before it runs: {shown}",)


def rewritten(changes: Changes) -> list[str]:
    """What of the results was changed though it may only grow."""
    found = _retractions(changes)
    for entry in changes.entries():
        before = _before(changes, entry)
        if not before:
            continue
        try:
            old, new = opened(before), opened(_now(changes.root / entry))
        except BadArchive as error:
            found.append(f"{entry / PACKED}: {error}")
            continue
        found += [f"{entry}/{line}" for line in grown(old, new)]
    outside = [p for p in changes.paths if scope_of(p) == "results" and not _belongs(p)]
    found += [f"{path}: not a place for a file of a result" for path in outside[:MAX_SHOWN]]
    names = {PurePosixPath(path): path for path in changes.paths if scope_of(path) == "results"}
    return found + [
        f"{path}: badges are written by the maintainers' checks alone"
        for parts, path in names.items()
        if parts.name == VERIFICATION_NAME
    ]


def _retractions(changes: Changes) -> list[str]:
    """What is wrong with the log of retractions, where it was touched."""
    path = RETRACTIONS.as_posix()
    if path in changes.deleted:
        return [f"{path}: removed; what was taken back stays in sight"]
    if path not in changes.paths:
        return []
    before = b""
    if path not in changes.added:
        before = _git_bytes(changes.root, "show", f"{changes.base}:{path}")
    try:
        content = read_bytes(changes.root / path, links=False)
        if not content.startswith(before):
            return [f"{path}: what it said was changed; it only grows"]
        lines = parse_retractions(content, RETRACTIONS)
        return [*unfounded(changes.root, lines[len(before.splitlines()) :])]
    except CrlbenchError as error:
        return [str(error)]


def _belongs(path: str) -> bool:
    parts = PurePosixPath(path).parts[len(RESULTS.parts) :]
    if parts == ("README.md",):
        return True
    return len(parts) == ENTRY_DEPTH + 1 and parts[-1] in ALLOWED


def _before(changes: Changes, entry: Path) -> dict[str, bytes]:
    """The files of an entry as they were at the base."""
    spec = f"{entry.as_posix()}/"
    listed = _git(changes.root, "ls-tree", "--name-only", "-z", changes.base, "--", spec)
    names = [PurePosixPath(path).name for path in listed.split("\0") if path]
    return {
        name: _git_bytes(changes.root, "show", f"{changes.base}:{spec}{name}") for name in names
    }


def _now(folder: Path) -> dict[str, bytes]:
    """The files of an entry as they are; links and folders are none."""
    if not folder.is_dir():
        return {}
    files = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    return {path.name: path.read_bytes() for path in files}

