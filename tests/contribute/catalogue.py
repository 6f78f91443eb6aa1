"""The catalogue of forgeries, and the edits that most of them are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.conditions import fingerprint
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import GENESIS
from crlbench.disk.names import PLAN_NAME
from crlbench.disk.packed import PACKED, pack, unpack
from tests.contribute.forger import QUICK, Forger, Json

CELL = "addition/real/seed-00"
SECOND = "addition/real/seed-01"
PLACEBO = "addition/placebo/seed-00"
HOME = "tiny-llama-0.3m@24af9561/ppo"
"""Of the entry that is forged, as its ledger names it."""
NOVEL = "<script>once upon a time</script> "
"""What has no place in a result."""

FORGERIES: dict[str, tuple[Callable[[Path], Any], str, str]] = {}
"""By name: what is done to an entry's folder, the command that catches it, and its words."""


def forgery(command: str, words: str) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    def keep(forge: Callable[[Path], Any]) -> Callable[[Path], Any]:
        FORGERIES[forge.__name__] = (forge, command, words)
        return forge

    return keep


def repacked(folder: Path, change: Callable[[dict[str, bytes]], Any]) -> None:
    """Change files of the archive and no hash."""
    files = unpack((folder / PACKED).read_bytes())
    change(files)
    (folder / PACKED).write_bytes(pack(files, QUICK))


def replaced(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)

    return change


def edited(cell: str, change: Callable[[Json], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        forger = Forger(folder)
        forger.edit(cell, change)
        forger.write()

    return forge


def rechained(forger: Forger, folder: Path) -> None:
    """Write the ledger as it is, with a chain that fits."""
    previous, text = GENESIS, ""
    for number, event in enumerate(forger.ledger):
        body = {k: v for k, v in event.items() if k != "hash"} | {"n": number, "previous": previous}
        previous = digest(body)
        text += canonical_json(body | {"hash": previous}) + "\n"
    (folder / LEDGER_NAME).write_text(text)


def restated(folder: Path, leaves: Json, **protocol: Any) -> None:
    """Other leaves and another protocol, in the plan and in every record."""
    forger = Forger(folder)
    forger.declare(control=forger.plan["control"] | leaves)
    forger.declare(fingerprint=fingerprint(forger.plan["control"]))
    known = {name: value for name, value in protocol.items() if name in forger.plan}
    forger.declare(**known)

    def restate(record: Json) -> None:
        record["fingerprint"]["leaves"].update(leaves)
        record["protocol"].update(protocol)

    for cell in forger.runs:
        forger.edit(cell, restate)
    forger.write()


def every(folder: Path, change: Callable[[Json], Any]) -> None:
    """Change every record."""
    forger = Forger(folder)
    for cell in forger.runs:
        forger.edit(cell, change)
    forger.write()


def exchanged(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Another content of a run's file, with every hash made to fit."""

    def forge(folder: Path) -> None:
        forger = Forger(folder)
        forger.runs[CELL][name] = change(forger.runs[CELL][name])
        forger.write()

    return forge


def hashed(*parts: object) -> str:
    """A digest of its own for each place, as an inventor who knows the rules makes them."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def moved(folder: Path) -> Path:
    """The entry in the folder of the board that its plan names."""
    board = folder.parents[1]
    try:
        plan = json.loads((folder / PLAN_NAME).read_text())
        target = board.rename(board.with_name(f"{plan['track']}-{plan['fingerprint']}"))
    except (ValueError, KeyError):
        return folder
    return target / folder.relative_to(board)
