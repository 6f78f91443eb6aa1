"""What a reader needs to be fuzzed: seeds, a mutator, the call, and how it may refuse."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crlbench.errors import CrlbenchError

Maker = Callable[[random.Random, Sequence[bytes]], bytes]
"""Makes one input from a generator and the seeds."""


def refuse(error: CrlbenchError) -> None:
    """What a list is given to say what it cannot read."""
    raise error


@dataclass(frozen=True)
class Target:
    """One reader of untrusted bytes."""

    name: str
    seeds: Callable[[Path], Sequence[bytes]]
    """Sound inputs, from the folder of the corpus (:mod:`tests.fuzz.corpus`)."""
    read: Callable[[bytes, Path], object]
    """Reads one input; the folder is empty, the working folder, and all that may be touched."""
    make: Maker
    share: float = 1.0
    """How many inputs it gets, relative to others."""
    refusals: tuple[type[BaseException], ...] = (CrlbenchError,)
    """What it may raise; anything else is a failure."""
    seconds: float = 1.0
    """CPU time that one input may take."""
    typed: bool = False
    """Whether inputs are typed by the user, who may name any file to read: what is outside of the
    folder is then a file without permission."""
    imports: tuple[str, ...] = ()
    """Heavy modules that it needs: imported once, before processes are forked."""


def bundled(files: Mapping[str, bytes]) -> bytes:
    """Several files as one input."""
    return json.dumps({name: data.decode("latin-1") for name, data in files.items()}).encode()


def unbundled(data: bytes) -> dict[str, bytes]:
    """The files of an input by their names."""
    return {name: text.encode("latin-1") for name, text in json.loads(data).items()}


def put(place: Path, name: str, data: bytes) -> Path:
    """The file ``place``/name with these bytes; its folder is made."""
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
