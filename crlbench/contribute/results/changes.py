"""What changed since a commit, what each changed file is, and what stood before.

A checkout moves on, and an old result's track or task is not the one that it has. Only results that
a base commit holds may be "not checked any more". What is new is examined by what the checkout has,
or it is refused.
"""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from crlbench.base.wording import first_of
from crlbench.contribute.results.layout import ENTRY_DEPTH, README, RESULTS
from crlbench.contribute.results.retract import RETRACTIONS
from crlbench.disk.names import RECORD_NAME
from crlbench.disk.packed import PACKED, unpack
from crlbench.errors import CrlbenchError, EnvironmentUnfit, UsageError
from crlbench.verdict.runs import Run

Scope = Literal["results", "retractions", "models", "tasks", "code"]

MAX_SHOWN = 8
UPSTREAM = "origin/main"

NO_FILE = {"120000": "link", "160000": "submodule"}
"""What is no file, by the mode that git has for it."""
OF_MODELS = re.compile(
    r"docs/models\.md|docs/schemas/[^/]+\.json|tests/policy/rendered\.json"
)
"""Tables that a model's entry renews: data, and no code."""
CHECKPOINT = re.compile(
    r"models/(?P<slug>[^/]+)/(?:[^/]+\.(?:safetensors|gguf|json|model|txt|jinja|md)|LICENSE)"
)
"""A file of a checkpoint that is brought with its entry ``models/<slug>.toml``."""
OF_TASKS = ("docs/tasks.md",)
TASK_FILE = re.compile(
    r"tasks/[^/]+/(?:task\.py|README\.md|frozen\.toml|[a-z0-9_-]+\.jsonl(?:\.zst)?"
    r"|reward_model/[^/]+\.(?:safetensors|json|toml))"
)


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
    linked: dict[str, str] = field(default_factory=dict)
    """What is no regular file now: path -> ``link`` or ``submodule``."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(sorted((*self.added, *self.modified, *self.deleted)))

    @property
    def scopes(self) -> dict[Scope, tuple[str, ...]]:
        """The paths by what they are; what a contribution brings along is of its kind."""
        scopes: dict[Scope, list[str]] = {}
        for path in self.paths:
            scopes.setdefault(scope_of(path), []).append(path)
        if "retractions" in scopes:  # a line of the log may say that an entry is gone
            results = scopes.pop("results", [])
            scopes["retractions"] += [path for path in results if path in self.deleted]
            scopes["results"] = [path for path in results if path not in self.deleted]
        for kind in ("models", "tasks"):
            if kind in scopes and "code" in scopes:
                along = [path for path in scopes["code"] if _along(kind, path, scopes[kind])]
                scopes[kind] += along
                scopes["code"] = [path for path in scopes["code"] if path not in along]
        return {kind: tuple(paths) for kind, paths in scopes.items() if paths}

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Paths that no rule judges, because they are code: a person has to read them."""
        scopes = self.scopes
        inside = [path for path in scopes.get("tasks", ()) if path.endswith(".py")]
        return tuple(sorted((*scopes.get("code", ()), *inside)))

    def entries(self) -> list[Path]:
        """Folders of the results that were touched, from the root."""
        inside = [PurePosixPath(p) for p in self.paths if scope_of(p) == "results"]
        depth = len(RESULTS.parts) + ENTRY_DEPTH
        return sorted({Path(*p.parts[:depth]) for p in inside if len(p.parts) > depth})

    def before(self, path: str) -> bytes:
        """A file's bytes at the base.

        Raises:
            UsageError: it had none of that name.
        """
        return git_bytes(self.root, "show", f"{self.base}:{path}")

    def names_before(self, folder: str) -> list[str]:
        """Paths of the files that stood directly in a folder at the base."""
        tree = git(self.root, "ls-tree", "--name-only", "-z", self.base, "--", f"{folder}/")
        return [path for path in tree.split("\0") if path]


def _along(kind: Scope, path: str, entries: Iterable[str]) -> bool:
    """Whether a file is one that a contribution of a kind brings along: exactly named, or not."""
    if kind == "models":
        checkpoint = CHECKPOINT.fullmatch(path)
        return OF_MODELS.fullmatch(path) is not None or (
            checkpoint is not None and f"models/{checkpoint['slug']}.toml" in entries
        )
    return path in OF_TASKS


def changes_since(reference: str, folder: Path) -> Changes:
    """What the checkout around ``folder`` changed since it left ``reference``.

    Files that git does not know yet count as added; ignored ones do not.

    Raises:
        UsageError: no such commit, or no git checkout.
        EnvironmentUnfit: git is not installed.
    """
    root = Path(git(folder, "rev-parse", "--show-toplevel").strip())
    if reference.startswith("-"):
        raise UsageError(f"--since {reference}: no name of a commit.")
    base = git(root, "merge-base", reference, "HEAD").strip()
    diff = git(root, "diff", "--raw", "--no-renames", "-z", base, "--").split("\0")
    status, linked = {}, {}
    for facts, path in zip(diff[::2], diff[1::2], strict=False):
        _, mode, _, _, letter = facts.split(" ")
        status[path] = letter[0]
        if mode in NO_FILE:
            linked[path] = NO_FILE[mode]
    untracked = git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    for path in filter(None, untracked):
        status[path] = "A"
        if (kind := _kind_on_disk(root / path)) is not None:
            linked[path] = kind
    by_kind = {
        kind: tuple(sorted(p for p, s in status.items() if s == kind)) for kind in "AD"
    }
    rest = tuple(sorted(p for p, s in status.items() if s not in "AD"))
    return Changes(root, base, by_kind["A"], rest, by_kind["D"], linked)


def _kind_on_disk(path: Path) -> str | None:
    """The kind of a path that git does not know yet; a repository inside is listed as a folder."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "link"
    return "submodule" if stat.S_ISDIR(mode) else None


def git(folder: Path, *arguments: str) -> str:
    """What a git command prints.

    Raises:
        UsageError: it failed; with its words.
        EnvironmentUnfit: git is not installed.
    """
    return git_bytes(folder, *arguments).decode("utf-8", "surrogateescape")


def git_bytes(folder: Path, *arguments: str) -> bytes:
    """The bytes that a git command prints; raises as :func:`git`."""
    try:
        process = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True)
    except FileNotFoundError:
        raise EnvironmentUnfit("git is not installed, and --since compares commits.") from None
    if process.returncode:
        words = process.stderr.decode(errors="replace").strip()
        raise UsageError(f"git {arguments[0]}: {words}")
    return process.stdout


def scope_of(path: str) -> Scope:
    """What a changed file is."""
    parts = PurePosixPath(path).parts
    if parts[: len(RESULTS.parts)] == RESULTS.parts:
        return "code" if parts == (*RESULTS.parts, README) else "results"  # a page, for a person
    if path == RETRACTIONS.as_posix():
        return "retractions"
    if parts[0] == "models" and len(parts) == 2 and path.endswith(".toml"):
        return "models"
    if parts[0] == "tasks" and len(parts) > 2:
        return "tasks"
    return "code"


def check_kinds(scopes: Iterable[Scope]) -> list[str]:
    """Why changes of several kinds cannot be taken at once."""
    kinds = sorted(scopes)
    for alone in ("results", "retractions"):
        if alone in kinds and len(kinds) > 1:
            return [
                f"{alone} stand alone in a pull request, and this one also touches "
                f"{', '.join(k for k in kinds if k != alone)}: open one for each"
            ]
    others = [kind for kind in kinds if kind != "code"]
    if len(others) > 1:
        return [f"touches {' and '.join(others)}: open one pull request for each"]
    return []


def check_only(scopes: Mapping[Scope, Sequence[str]], only: Scope) -> list[str]:
    """What was changed besides the one kind that may change."""
    paths = [path for kind, paths in sorted(scopes.items()) if kind != only for path in paths]
    if not paths:
        return []
    return [
        f"only {only} may change here (--only), and this also touches {first_of(paths, MAX_SHOWN)}"
    ]


def check_strays(changes: Changes) -> list[str]:
    """Code that comes with a model or a task and is not the test of that task."""
    scopes = changes.scopes
    kind = next((kind for kind in ("models", "tasks") if kind in scopes), None)
    if kind is None:
        return []
    names = {path.split("/")[1] for path in scopes[kind] if path.startswith("tasks/")}
    tests = {f"tests/tasks/test_{name.replace('-', '_')}.py" for name in names}
    strays = [path for path in scopes.get("code", ()) if path not in tests]
    if not strays:
        return []
    return [
        f"{kind} stand alone in a pull request, and this one also touches "
        f"{first_of(strays, MAX_SHOWN)}: open one for the code. A model's entry brings its "
        "checkpoint and the tables of docs/, a task its test."
    ]


def check_links(changes: Changes) -> list[str]:
    """Links and submodules where files belong that are read."""
    return [
        f"{path}: is a {kind}, and only regular files stand there"
        for path, kind in sorted(changes.linked.items())
        if path.split("/")[0] in ("leaderboard", "models", "tasks") or scope_of(path) != "code"
    ][:MAX_SHOWN]


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
        except (CrlbenchError, ValueError):
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
