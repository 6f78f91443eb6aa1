"""Messages between this process and confined code: a length, then JSON or plain bytes.

What arrives was written by an enemy: it is bounded in length before it is read and in time
while it is read, and JSON makes nothing but plain values of it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

LENGTH_BYTES = 8
SMALL_BYTES = 1 << 20
"""Longest message where no other limit is named."""
Channel = socket.socket | int
"""A stream. A confined process may read and write a descriptor, and make no call for sockets."""


class Gone(Exception):
    """The other side has ended."""


class Late(Exception):
    """The other side did not speak in time."""


class Garbled(Exception):
    """A message that is too long or no JSON."""


def send(channel: Channel, content: Any, deadline: float | None = None) -> None:
    """Send a JSON value; ``deadline`` is a time of ``time.monotonic``."""
    send_bytes(channel, json.dumps(content, separators=(",", ":")).encode(), deadline)


def send_bytes(channel: Channel, data: bytes, deadline: float | None = None) -> None:
    """Send plain bytes."""
    rest = memoryview(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    try:
        while rest:
            _limit(channel, deadline)
            rest = rest[_write(channel, rest) :]
    except TimeoutError:
        raise Late("it took nothing in") from None
    except OSError as error:
        raise Gone(str(error)) from None


def receive(channel: Channel, limit: int = SMALL_BYTES, deadline: float | None = None) -> Any:
    """The next JSON value of at most ``limit`` bytes.

    Raises:
        Gone: the other side has ended.
        Late: it was not there in time.
        Garbled: it is too long, or no JSON.
    """
    data = receive_bytes(channel, limit, deadline)
    try:
        return json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Garbled(f"{type(error).__name__} in a message") from None


def receive_bytes(channel: Channel, limit: int, deadline: float | None = None) -> bytes:
    """The next plain bytes; raises as :func:`receive`."""
    length = int.from_bytes(_exactly(channel, LENGTH_BYTES, deadline), "big")
    if length > limit:
        raise Garbled(f"a message of {length} bytes; allowed: {limit}")
    return _exactly(channel, length, deadline)


def _exactly(channel: Channel, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    try:
        while len(data) < count:
            _limit(channel, deadline)
            part = _read(channel, min(count - len(data), 1 << 18))
            if not part:
                raise Gone("end of stream")
            data += part
    except TimeoutError:
        raise Late("it said nothing") from None
    except OSError as error:
        raise Gone(str(error)) from None
    return bytes(data)


def _limit(channel: Channel, deadline: float | None) -> None:
    """Let the next call wait until the deadline at most."""
    if deadline is None or isinstance(channel, int):
        return
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise Late("it was not done in time")
    channel.settimeout(seconds)


def _write(channel: Channel, data: memoryview) -> int:
    return os.write(channel, data) if isinstance(channel, int) else channel.send(data)


def _read(channel: Channel, count: int) -> bytes:
    return os.read(channel, count) if isinstance(channel, int) else channel.recv(count)
