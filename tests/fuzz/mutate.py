"""Seeded mutators: of bytes, of lines, of JSON and TOML trees, of compressed streams.

Trees are written by hand where a library would refuse: names that stand twice, NaN, numbers that no
float holds, half characters, brackets a hundred thousand deep.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

import zstandard

from tests.fuzz.target import Maker

Random = random.Random

WORDS = (
    *("", " ", "a", "a" * 300, "ä" * 5000, "x" * 70_000, "\0", "a\0b", "\x1b]0;title\x07", "\r\n"),
    *("\u202eoff", "zero\u200bwidth", "\u2028", "\ufeff", "９", "²", "١", "e\u0301", "😀"),
    *(".", "..", "/", "../../outside/secret", "/etc/passwd", "/dev/zero", "/proc/self/mem"),
    *(
        "~root",
        "$HOME",
        "a/../../b",
        "a\\..\\b",
        "C:\\x",
        "-rf",
        "--out=/x",
        "*",
        "[",
        "?",
        "x" * 256,
    ),
    *("nan", "NaN", "inf", "-inf", "1e999", "true", "null", "none", "None", "0x10", "1_000"),
    *("{{ 7 * 7 }}", "<script>alert(1)</script>", "%s%n", "${x}", "';--", '"', "\\", "{", "}"),
    *(
        "task.py",
        "record.json",
        "items.npz",
        "real",
        "placebo",
        "file:///etc/passwd",
        "git+https://x",
    ),
)
"""Texts that trip readers up."""

NUMBERS = (
    *(0, 1, -1, 2, 7, 255, 65536, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63, 2**64, -(2**63) - 1),
    *(10**20, 10**300, 10**400, 0.0, -0.0, 0.5, 1.5, -1.5, 1e-320, 1e300, 1.7e308, 1e16),
)

RAW = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "1e-999",
        "-0",
        "1" * 5001,
        "-" + "9" * 6000,
    ),
    *('"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', "[" * 100_000, '{"a":' * 50_000),
    "[" + "[]," * 150_000 + "[]]",
    *(
        "[" * 900 + "]" * 900,
        '{"a":' * 600 + "1" + "}" * 600,
        "[[],[],{},0,null]",
        "01",
        "+1",
        ".5",
        "1.",
    ),
)
"""JSON that no dumper writes; the last is refused by every reader."""
DEEP = {i for i, text in enumerate(RAW) if len(text) > 50_000}

TOML_RAW = (
    *("nan", "inf", "-inf", "1e999", "0x" + "f" * 5000, "1" * 5001, "1979-05-27", "07:32:00"),
    *("1979-05-27T07:32:00.999999+23:59", "[" * 20_000, "{a=" * 5000, '"""\n"""', "'\\'", "0o777"),
    *("{}", "[]", "[[]]", "{a={b={c=1}}}", "9999-12-31", ".".join("a" * 3000) + "=1"),
)

_MARK = re.compile(r'"\\ue000(\d+)\\ue000"')
_TWICE = "\ue001"


def octets(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """Bytes cut, flipped, doubled, moved, overwritten or spliced with another seed's."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        rng.choice(_OCTETS)(rng, data, seeds)
    return bytes(data)


def _at(rng: Random, data: bytearray) -> int:
    return rng.randrange(len(data)) if data else 0


def _flip(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    if data:
        data[_at(rng, data)] ^= 1 << rng.randrange(8)


def _set(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    if data:
        data[_at(rng, data)] = rng.choice((0, 1, 9, 10, 34, 45, 91, 123, 127, 128, 255))


def _cut(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    del data[_at(rng, data) :]


def _delete(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    start = _at(rng, data)
    del data[start : start + rng.choice((1, 2, 4, 16, 200))]


def _double(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    start = _at(rng, data)
    piece = data[start : start + rng.choice((1, 4, 30, 300))]
    data[start:start] = piece * rng.choice((1, 1, 2, 40))


def _whole(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    """A binary whole number of 2, 4 or 8 bytes becomes another."""
    width, start = rng.choice((2, 4, 8)), _at(rng, data)
    value = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(data), 0x504B0304))
    order = rng.choice(("little", "big"))
    data[start : start + width] = (value % 256**width).to_bytes(width, order)


def _decimal(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    """A number in the text becomes another."""
    start = _at(rng, data)
    if found := re.compile(rb"-?\d+").search(data, start):
        data[found.start() : found.end()] = str(rng.choice(NUMBERS)).encode()


def _word(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    start = _at(rng, data)
    data[start : start + rng.choice((0, 1, 8))] = rng.choice(WORDS).encode("utf-8", "surrogatepass")


def _noise(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    start = _at(rng, data)
    data[start : start + rng.choice((0, 4))] = rng.randbytes(rng.choice((1, 4, 32)))


def _splice(rng: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    data[_at(rng, data) :] = other[rng.randrange(len(other) + 1) :]


_OCTETS: tuple[Callable[[Random, bytearray, Sequence[bytes]], None], ...] = (
    *(_flip, _flip, _set, _set, _cut, _delete, _double, _whole, _decimal, _decimal, _word, _noise),
    _splice,
)


def either(*makers: Maker) -> Maker:
    """One of several mutators each time."""

    def make(rng: Random, seeds: Sequence[bytes]) -> bytes:
        return rng.choice(makers)(rng, seeds)

    return make


def tree(rng: Random, value: Any) -> Any:
    """A parsed tree with one to a few of its nodes changed, in place where it can be."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _changed(rng, value)
    return value


def _changed(rng: Random, value: Any) -> Any:
    """Walk down at random; change what is met where the walk ends."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        match rng.randrange(24):
            case 0:
                del value[key]
            case 1:
                value[rng.choice(WORDS)] = value.pop(key)
            case 2:
                value[key + _TWICE] = value[rng.choice(list(value))]
            case 3:
                value[rng.choice((*WORDS, *value))] = leaf(rng)
            case 4:
                other = rng.choice(list(value))
                value[key], value[other] = value[other], value[key]
            case _:
                value[key] = _changed(rng, value[key])
        return value
    if isinstance(value, list) and value and rng.random() < 0.85:
        i = rng.randrange(len(value))
        match rng.randrange(12):
            case 0:
                del value[i]
            case 1:
                value[i:i] = [value[i]] * rng.choice((1, 2, 300))
            case 2:
                value[i] = leaf(rng)
            case 3:
                del value[i:]
            case _:
                value[i] = _changed(rng, value[i])
        return value
    return leaf(rng, value)


def leaf(rng: Random, before: Any = None) -> Any:
    """Another value: of another type, of the same type and odd, or raw text of the format."""
    if isinstance(before, str) and rng.random() < 0.3:
        at = rng.randrange(len(before) + 1)
        return before[:at] + rng.choice(WORDS) + before[at:]
    if isinstance(before, int | float) and not isinstance(before, bool) and rng.random() < 0.3:
        return rng.choice((-before, before + 1, before * 2, before - 1, -before - 1, str(before)))
    match rng.randrange(8):
        case 0 | 1:
            return rng.choice(WORDS)
        case 2 | 3:
            return rng.choice(NUMBERS)
        case 4:
            return rng.choice((None, True, False, [], {}, [[]], {"a": 1}, [0] * 50, [None]))
        case 5:
            return [before] * rng.choice((1, 2)) if rng.random() < 0.5 else {"": before}
        case _:
            return f"\ue000{_raw(rng)}\ue000"


def _raw(rng: Random) -> int:
    """Seldom the longest ones, which cost most of the time."""
    place = rng.randrange(len(RAW))
    return place if place not in DEEP or rng.random() < 0.1 else 0


def json_text(value: Any) -> str:
    """JSON with the raw pieces in their places and the doubled names doubled."""
    text = json.dumps(value).replace("\\ue001", "")
    return _MARK.sub(lambda found: RAW[int(found[1])], text)


Seal = Callable[[Any], dict[str, Any]]
"""From what a reader will see, fields that must be made to fit it (hashes)."""


def json_tree(seal: Seal | None = None) -> Maker:
    """A JSON document with changed nodes; mostly sealed, so that it passes its own digests."""

    def make(rng: Random, seeds: Sequence[bytes]) -> bytes:
        value = tree(rng, json.loads(rng.choice(seeds)))
        return json_text(sealed(rng, value, seal)).encode()

    return make


def sealed(rng: Random, value: Any, seal: Seal | None) -> Any:
    """The tree with its hashes made to fit, as often as not."""
    if seal is not None and isinstance(value, dict) and rng.random() < 0.75:
        try:
            value |= seal(json.loads(json_text(value)))
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            pass  # what has no digest goes without
    return value


def json_lines(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """A document of a JSON object on each line: a line changed, doubled, moved or lost."""
    lines = rng.choice(seeds).removesuffix(b"\n").split(b"\n")
    for _ in range(rng.choice((1, 1, 2))):
        i = rng.randrange(len(lines)) if lines else 0
        match rng.randrange(10):
            case 0:
                del lines[i : i + 1]
            case 1:
                lines[i:i] = lines[i : i + 1]
            case 2:
                lines[i:i] = [rng.choice((b"", b"{}", b"[]", b"null", b"\xff", b"\r", b" " * 999))]
            case _ if lines:
                try:
                    lines[i] = json_text(tree(rng, json.loads(lines[i]))).encode()
                except ValueError:
                    lines[i] = octets(rng, lines)
    return b"\n".join(lines) + rng.choice((b"\n", b"\n", b"\n", b"", b"\n\n"))


def toml_tree(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """A TOML document with changed nodes, every table written in one line."""
    value = tree(rng, tomllib.loads(rng.choice(seeds).decode()))
    if not isinstance(value, dict):
        value = {"a": value}
    raw = rng.choice(TOML_RAW)
    lines = [f"{_toml_key(key)} = {_toml(item, raw)}" for key, item in value.items()]
    return "\n".join([*lines, ""]).encode("utf-8", "surrogatepass")


def _toml_key(name: str) -> str:
    return json.dumps(name.replace(_TWICE, ""), ensure_ascii=False)


def _toml(value: Any, raw: str) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml_key(k)} = {_toml(v, raw)}" for k, v in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(v, raw) for v in value)}]"
    if isinstance(value, date | datetime):
        return value.isoformat()
    if value is None or isinstance(value, str) and value.startswith("\ue000"):
        return raw
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def compressed(inner: Maker) -> Maker:
    """A zstandard stream: its content changed, its own bytes changed, or a bomb."""

    def make(rng: Random, seeds: Sequence[bytes]) -> bytes:
        if rng.random() < 0.002:
            return BOMBS[rng.randrange(len(BOMBS))]
        if rng.random() < 0.4:
            return octets(rng, seeds)
        content = inner(rng, [unpacked(seed) for seed in seeds])
        return zstandard.ZstdCompressor(level=1).compress(content)

    return make


def unpacked(data: bytes) -> bytes:
    """The content of a zstandard stream."""
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=2**26)


def _bomb(size: int, byte: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([packer.compress(byte * 2**20) for _ in range(size >> 20)]) + packer.flush()


class _Bombs:
    """Small streams that unpack to very much; made when they are first asked for."""

    made: list[bytes] = []

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> bytes:
        if not self.made:
            window = zstandard.ZstdCompressionParameters(window_log=27)
            wide = zstandard.ZstdCompressor(compression_params=window).compress(bytes(2**20))
            small = [_bomb(size, byte) for size, byte in ((2**29, b"\0"), (2**26, b"\n"))]
            stated = zstandard.ZstdCompressor(level=1).compress(b"\n" * 2**26)
            self.made += [*small, _bomb(2**23, b"\n"), wide, stated]
        return self.made[i]


BOMBS = _Bombs()
