"""The files of a published dataset: found in a folder or downloaded, and always checked.

A file counts when its uncompressed bytes have the digest that the task states; where it came
from does not matter then. Nothing here runs a task's code.
"""

from __future__ import annotations

import difflib
import gzip
import http.client
import io
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable
from pathlib import Path

from crlbench.base.wording import listed
from crlbench.contract.task_card import DataSource, SourceFile
from crlbench.disk import line_ends
from crlbench.disk.files import expanded
from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError

TIMEOUT = 60
"""Seconds without an answer after which a download is given up."""
SHOWN = 12
"""Most files that a message lists."""


def given_sources(source: DataSource, task: str, folder: Path) -> dict[str, bytes]:
    """The uncompressed files of a source by name, from a folder that a person names.

    Each file may be there as NAME or NAME.gz, under the name that it has in its repository too, in
    the folder itself or in one of its sub-folders; the first copy whose digest is right is taken.

    Raises:
        UsageError: no such folder, or a file is missing from it.
        ValidationError: every copy of a file has other bytes than the task was frozen from.
    """
    folder = expanded(folder)
    if not folder.is_dir():
        raise UsageError(f"--from {folder}: this folder does not exist.")
    return {name: _find(name, file, task, folder) for name, file in source.files.items()}


def downloaded_sources(source: DataSource, task: str) -> dict[str, bytes]:
    """The uncompressed files of a source by name, from its repository at the pinned commit.

    Raises:
        EnvironmentUnfit: the network or the address does not answer.
        ValidationError: the address gives other bytes than the task was frozen from.
    """
    return {name: _download(file, source, task) for name, file in source.files.items()}


def address(file: SourceFile, source: DataSource) -> str:
    """Where a file can be downloaded: its repository's raw view of the pinned commit."""
    return f"{file.origin or source.origin}/raw/{file.commit or source.commit}/{file.path}"


def file_problem(data: bytes, file: SourceFile) -> str | None:
    """What is wrong with a file's uncompressed bytes, in words; None when they are right."""
    sha256 = sha256_bytes(data)
    if sha256 == file.sha256:
        return None
    return (
        f"has the sha256 {sha256} ({len(data)} bytes), expected {file.sha256} ({file.bytes} bytes)"
    )


def _find(name: str, file: SourceFile, task: str, folder: Path) -> bytes:
    names = dict.fromkeys([name, _name_in_origin(name, file)])
    copies = [path for one in names for path in _places(one, task, folder) if path.is_file()]
    if not copies:
        raise UsageError(f"--from {folder}: holds no {name} or {name}.gz. {_inside(name, folder)}")
    problems, rewritten = [], ""
    for path in copies:
        try:
            data = _read(path, file)
        except ValidationError as error:
            problems.append(str(error).removesuffix("."))
            continue
        problem = file_problem(data, file)
        if problem is None:
            return data
        problems.append(f"{path}: {problem}")
        rewritten = rewritten or line_ends.rewritten_file(path, file.sha256)
    why = rewritten or (
        "These are other data than the task was frozen from, or the file was damaged."
    )
    raise ValidationError(f"task '{task}': {'; '.join(problems)}. {why} Nothing was kept.")


def _name_in_origin(name: str, file: SourceFile) -> str:
    """How a file is called in its repository, behind the folder that its name has here."""
    return (Path(name).parent / Path(file.path.removesuffix(".gz")).name).as_posix()


def _places(name: str, task: str, folder: Path) -> Iterable[Path]:
    """Where a file may be: the folder, a sub-folder named like the task, any sub-folder."""
    own_folders = [folder / task, folder / task.replace("-", "_")]
    try:
        others = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise EnvironmentUnfit(f"--from {folder}: cannot be read: {error.strerror}.") from None
    for place in dict.fromkeys([folder, *own_folders, *others]):
        yield place / name
        yield place / f"{name}.gz"


def _inside(name: str, folder: Path) -> str:
    """What a folder holds instead, nearest names first."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.glob("*") if p.is_file())
    names += sorted(p.relative_to(folder).as_posix() for p in folder.glob("*/*") if p.is_file())
    if not names:
        return "It is empty."
    near = difflib.get_close_matches(name, names, n=SHOWN, cutoff=0.5)
    ordered = [*near, *(other for other in names if other not in near)]
    return f"It holds: {listed(ordered, SHOWN)}."


def _read(path: Path, file: SourceFile) -> bytes:
    """A file's uncompressed bytes, at most one more than expected."""
    try:
        return read_source(path, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValidationError(f"{path}: is not a whole gzip file: {error}.") from None
    except OSError as error:
        raise EnvironmentUnfit(f"{path}: cannot be read: {error.strerror}.") from None


def read_source(path: Path, file: SourceFile) -> bytes:
    """A stored file's uncompressed bytes, at most one more than expected.

    Raises what opening a file and unpacking it raise.
    """
    with path.open("rb") as raw:
        return _unpack(raw, file) if path.suffix == ".gz" else raw.read(file.bytes + 1)


def _unpack(raw: io.BufferedIOBase, file: SourceFile) -> bytes:
    with gzip.GzipFile(fileobj=raw) as content:
        return content.read(file.bytes + 1)


def _download(file: SourceFile, source: DataSource, task: str) -> bytes:
    url = address(file, source)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            data = answer.read(file.bytes + 1)
            if file.path.endswith(".gz"):
                data = _unpack(io.BytesIO(data), file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValidationError(f"task '{task}': {url} is not a gzip file: {error}.") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if type(error) is urllib.error.URLError else error
        raise EnvironmentUnfit(
            f"task '{task}': {url} cannot be downloaded: {reason}. {by_hand(source, task)}"
        ) from None
    problem = file_problem(data, file)
    if problem:
        raise ValidationError(f"task '{task}': {url} {problem}. Nothing was kept.")
    return data


def by_hand(source: DataSource, task: str) -> str:
    """What a person does where the network is not to be had."""
    files = ", ".join(address(file, source) for file in source.files.values())
    return (
        f"On a machine with network download {files}; copy the files into a folder here and "
        f"run: crlbench fetch --task {task} --from DIR"
    )
