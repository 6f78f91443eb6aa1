"""Where the parcels of entries are kept, and by which key one is found again.

A key is the SHA-256 of everything that a parcel rests on: the bytes of the entry's files, the
retractions, the tracks, and the code that computes it. So an entry, a track or a line of code that
changed has another key, and what was kept before is not found. A parcel that was damaged is made
again.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

import crlbench
from crlbench.contract.retractions import RETRACTIONS_NAME, leaderboard_above
from crlbench.disk.hashing import digest
from crlbench.disk.parcels import BadParcel, Parcel, write_parcel
from crlbench.disk.scratch import Scratch, remove_abandoned
from crlbench.errors import EnvironmentUnfit
from crlbench.verdict.resources import leaderboard_folder

ROOMS = (
    *("__init__.py", "errors.py", "seeding.py", "base", "disk", "contract", "catalog"),
    *("stats", "verdict", "pages", "contribute/results", "site"),
)
"""Code that parcels rest on."""
PACKAGES = ("jinja2", "markdown-it-py", "markupsafe", "numpy", "pydantic", "scipy", "zstandard")
"""Packages that they rest on, by version."""
IN_USE = 3600
"""Seconds; a parcel that was found or written within them may be of a build that runs."""
DAYS_KEPT = 30
"""A parcel that no build used for as long is removed."""
MOST_BYTES = 3 * 10**9
"""Of all parcels, beside those that a build used; 400 entries take 1.6 GB."""
ENDING = ".parcel"
UNFINISHED = f".*{ENDING}-*"
"""Names under which :func:`crlbench.disk.parcels.write_parcel` writes."""
LONGEST_WRITE = 86_400
"""Seconds; what is unfinished for longer belongs to a process that was killed."""
TEMPORARY = ".crlbench-site-"
"""What names of folders begin with that go with a build."""
KEY = "key"
"""The part of every parcel that says which key it belongs to."""


class Cache:
    """A folder of parcels that someone named."""

    lasting = True
    """Whether another build can find them."""
    what = "--cache"
    """Before the folder in messages."""
    remedy = "Free space, name another folder, or give --no-cache."

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            EnvironmentUnfit: the folder cannot be made, or nothing can be written to it.
        """
        self.folder, self._began, self._trusted = folder, time.time(), True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise self._unfit(error) from None

    def _unfit(self, error: OSError) -> EnvironmentUnfit:
        return EnvironmentUnfit(
            f"{self.what} {self.folder}: cannot be written: {error.strerror}. {self.remedy}"
        )

    def place(self, key: str) -> Path:
        """The file of a key."""
        return self.folder / f"{key}{ENDING}"

    def find(self, key: str) -> Parcel | None:
        """The parcel of a key; None where there is none, or it belongs to another key."""
        if not self._trusted:
            return None
        path = self.place(key)
        try:
            parcel = Parcel(path)
            if parcel.part(KEY) != key.encode():
                return None
        except BadParcel:
            return None
        with suppress(OSError):  # a cache of someone else may be read
            os.utime(path)
        return parcel

    def distrust(self) -> None:
        """From now on nothing is found: everything is computed again, and put in its place."""
        self._trusted = False

    def put(self, key: str, parts: Mapping[str, bytes]) -> None:
        """Write the parcel of a key.

        Raises:
            EnvironmentUnfit: it cannot be written.
        """
        try:
            write_parcel(self.place(key), {KEY: key.encode(), **parts})
        except OSError as error:
            raise self._unfit(error) from None

    def drop(self, key: str) -> None:
        """Forget the parcel of a key.

        Raises:
            EnvironmentUnfit: it cannot be removed.
        """
        try:
            self.place(key).unlink(missing_ok=True)
        except OSError as error:
            raise self._unfit(error) from None

    def prune(self) -> None:
        """Remove parcels that no build used for :data:`DAYS_KEPT` days, or that are too many.

        What was found or written since the cache was opened, or for :data:`IN_USE`, stays. What
        killed processes left behind goes.
        """
        left, now = MOST_BYTES, time.time()
        since = int(min(self._began, now - IN_USE))
        for stat, path in self._youngest_first(f"*{ENDING}"):
            left -= stat.st_size
            used = stat.st_mtime >= since
            if not used and (left < 0 or stat.st_mtime < now - DAYS_KEPT * 86_400):
                _remove(path)
        for stat, path in self._youngest_first(UNFINISHED):
            if stat.st_mtime < now - LONGEST_WRITE:
                _remove(path)

    def _youngest_first(self, names: str) -> list[tuple[os.stat_result, Path]]:
        stats = []
        for path in self.folder.glob(names):
            with suppress(OSError):  # another build may remove it
                stats.append((path.stat(), path))
        return sorted(stats, key=lambda one: -one[0].st_mtime)


def _remove(path: Path) -> None:
    with suppress(OSError):  # of someone else, or removed by another build
        path.unlink()


class TemporaryCache(Cache):
    """Parcels that go with the object; what killed builds left of theirs goes when it is made."""

    lasting = False
    what = "temporary files in"
    remedy = "Free space there."

    def __init__(self, above: Path | None = None) -> None:
        """
        Args:
            above: the folder that it is made in; None for that of temporary files.

        Raises:
            EnvironmentUnfit: it cannot be made.
        """
        self.folder = Path(tempfile.gettempdir() if above is None else above)
        remove_abandoned(self.folder, TEMPORARY, unlocked=True)
        try:
            self._scratch = Scratch(self.folder, TEMPORARY)
        except OSError as error:
            raise self._unfit(error) from None
        super().__init__(self._scratch.path)


class SparedCache(Cache):
    """A folder of parcels that nobody named: what cannot be written there goes with the object."""

    what = "what is kept in"
    remedy = "Free space there, or name another folder with --cache."

    def __init__(self, folder: Path, spare: TemporaryCache, say: Callable[[str], object]) -> None:
        """
        Args:
            spare: takes what cannot be written.
            say: takes a sentence, the first time that something cannot be.

        Raises:
            EnvironmentUnfit: as :class:`Cache`.
        """
        super().__init__(folder)
        self._spare, self._say = spare, say

    def place(self, key: str) -> Path:
        """The file of a key: the spare one where there is one."""
        spare = self._spare.place(key)
        return spare if spare.exists() else super().place(key)

    def put(self, key: str, parts: Mapping[str, bytes]) -> None:
        """Write the parcel of a key.

        Raises:
            EnvironmentUnfit: it can be written in neither folder.
        """
        try:
            super().put(key, parts)
        except EnvironmentUnfit as error:
            with suppress(FileExistsError):  # any process may be the first
                (self._spare.folder / "said").touch(exist_ok=False)
                self._say(f"{error} The build goes on; what it computes is not all kept.")
            self._spare.put(key, parts)


def key_of(folder: Path, surroundings: str) -> str:
    """The key of an entry.

    Args:
        folder: ``<board>/<model>/<recipe>``.
        surroundings: what :func:`surroundings_of` gives.
    """
    files = digest_files(sorted(path for path in folder.iterdir() if path.is_file()), folder)
    return digest([surroundings, folder.absolute().parts[-3:], files, _retractions(folder)])


def _retractions(folder: Path) -> str:
    """Digest of the log that may take back an entry; empty where there is none."""
    above = leaderboard_above(folder)
    if above is None or not (above / RETRACTIONS_NAME).is_file():
        return ""
    return digest_files([above / RETRACTIONS_NAME], above)


def results_name(results: Path) -> str:
    """The name under which pairs and rankings of a folder of results are kept."""
    return f"results-{digest(str(results.absolute()))[:32]}"


def surroundings_of(tracks: Sequence[Path], options: Sequence[str]) -> str:
    """Digest of what all entries of a build rest on beside their own files.

    Args:
        tracks: files of the catalogue's tracks.
        options: what else is written into pages.
    """
    frozen = leaderboard_folder()
    named = [*sorted(frozen.glob("tracks/*.toml")), *sorted(frozen.glob("archive/*/**/*.toml"))]
    catalogue = [[path.stem, digest_files([path], path.parent)] for path in tracks]
    return digest([code_digest(), digest_files(named, frozen), catalogue, list(options)])


@cache
def code_digest() -> str:
    """Digest of the code that computes parcels, its templates, its packages and the processor.

    Numbers of one processor can differ from another's in their last bit.
    """
    root = Path(crlbench.__file__).resolve().parent
    sources = [
        path
        for room in ROOMS
        for path in ([root / room] if room.endswith(".py") else sorted((root / room).rglob("*.py")))
    ]
    frozen, glossary = leaderboard_folder(), root.parent / "docs" / "glossary.md"
    templates = [
        path
        for name in ("static", "templates")
        for path in sorted((frozen / name).rglob("*"))
        if path.is_file()
    ]
    features = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return digest(
        [
            digest_files(sources, root),
            digest_files(templates, frozen),
            digest_files([glossary], glossary.parent),
            [[name, version(name)] for name in PACKAGES],
            [platform.python_version(), platform.machine(), processor(), features],
        ]
    )


def processor() -> str:
    """The model of the processor, as the system names it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def digest_files(paths: Iterable[Path], root: Path) -> str:
    """Digest of the names and bytes of files.

    Args:
        root: names are relative to it.
    """
    whole = hashlib.sha256()
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:  # whoever needs the file says so
            content = str(error).encode()
        name = path.relative_to(root).as_posix()
        whole.update(f"{len(name)} {len(content)} {name}\n".encode())
        whole.update(content)
    return whole.hexdigest()
