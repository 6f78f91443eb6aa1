"""Stored runs in one file: ``runs.tar.zst`` beside the plan and the ledger of an entry.

Runs of one entry share most of what they say, and one solid archive holds them in about a fifth
of their size; ``tar --zstd -xf`` unpacks it. It is a ustar archive with one canonical form:
names in order, no owner, no time. A reader accepts exactly what :func:`pack` writes, so nothing
that archives can do otherwise (links, devices, paths that climb, sparse or extended headers)
exists here, and equal runs give equal tar bytes.
"""

from __future__ import annotations

import io
import re
import stat
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import zstandard

from crlbench.disk.names import PACKED_FILES
from crlbench.disk.unpacking import BadArchive, decompress
from crlbench.errors import EnvironmentUnfit, ValidationError

PACKED = "runs.tar.zst"
MAX_PACKED = 64 * 2**20
MAX_UNPACKED = 128 * 2**20
"""Bytes of an archive, packed and unpacked; an entry of 100 runs unpacks to about 6 MB."""
KEPT = 96
"""Archives that stay unpacked, about 1.3 MB each: a site's worth. Who reads run by run, or page by
page, comes back to each, and one place too few would mean to unpack all of them every time."""
LEVEL = 19

NAME = re.compile(
    r"[a-z0-9][a-z0-9-]{0,63}/(?:real|placebo|mode|stress|wrong)/seed-[0-9]{2,6}/"
    rf"(?:{'|'.join(map(re.escape, PACKED_FILES))})"
)
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


def pack(files: Mapping[str, bytes], level: int = LEVEL) -> bytes:
    """The archive of files by name, ``<task>/<arm>/seed-NN/<file>``.

    Args:
        level: of the compression, which the tar bytes do not depend on.

    Raises:
        ValueError: a name that no run's file has.
    """
    plain = io.BytesIO()
    for name in sorted(files):
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no file of a run")
        content = files[name]
        plain.write(_header(name, len(content)) + content + bytes(-len(content) % _BLOCK))
    plain.write(_END)
    return zstandard.ZstdCompressor(level=level).compress(plain.getvalue())


def unpack(data: bytes) -> dict[str, bytes]:
    """The files of an archive by name.

    Raises:
        BadArchive: the bytes are not what :func:`pack` writes, or unpack to too much.
    """
    plain = decompress(data, MAX_UNPACKED)
    files: dict[str, bytes] = {}
    place, last = 0, ""
    while plain[place : place + _BLOCK] != _END[:_BLOCK]:
        header = plain[place : place + _BLOCK]
        name, size = _read_header(header)
        place += _BLOCK
        content, padding = plain[place : place + size], -size % _BLOCK
        place += size + padding
        if place > len(plain) or plain[place - padding : place].strip(b"\0"):
            raise BadArchive(f"{name} is cut off")
        if name <= last:
            raise BadArchive(f"{name} stands twice, or out of order")
        files[name], last = content, name
    if plain[place:] != _END:
        raise BadArchive("something stands behind its end")
    return files


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def _read_header(header: bytes) -> tuple[str, int]:
    """Name and size of a member whose header is the canonical one."""
    try:
        name = header[:100].rstrip(b"\0").decode("ascii")
        size = int(header[124:135], 8)
    except ValueError:
        raise BadArchive("the header of a member is damaged") from None
    if not NAME.fullmatch(name):
        raise BadArchive(f"{name!r:.80} is no file of a run")
    if size > MAX_UNPACKED or header != _header(name, size):
        raise BadArchive(f"the header of {name} is not as crlbench writes it")
    return name, size


def inside(path: Path) -> tuple[Path, str] | None:
    """The archive and the member that a path such as ``ppo/runs.tar.zst/addition/...`` means."""
    parts = path.parts
    if PACKED not in parts[:-1]:
        return None
    place = parts.index(PACKED) + 1
    return Path(*parts[:place]), "/".join(parts[place:])


def members(archive: Path) -> Mapping[str, bytes]:
    """The files of a stored archive by name; read once as long as it does not change.

    Raises:
        ValidationError: no archive as :func:`pack` writes it.
        EnvironmentUnfit: it may not be read.
    """
    try:
        status = archive.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_PACKED:
            raise ValidationError(f"{archive}: no regular file of at most {MAX_PACKED} bytes")
        return _members(archive, status.st_mtime_ns, status.st_size)
    except BadArchive as error:
        raise ValidationError(
            f"{archive}: not a packed result: {error}. `crlbench submit` writes it."
        ) from None
    except PermissionError:
        raise EnvironmentUnfit(f"{archive}: no permission to read it") from None
    except OSError as error:
        raise ValidationError(f"{archive}: cannot be read: {error.strerror}") from None


def drop_members() -> None:
    """Let go of the archives that stay unpacked: for those who come back to none of them."""
    _members.cache_clear()


@lru_cache(maxsize=KEPT)
def _members(archive: Path, _time: int, _size: int) -> Mapping[str, bytes]:
    return unpack(archive.read_bytes())
