"""What a pull request with results holds: archives, badges, submissions, retractions, entries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.contract.retractions import read_retractions
from crlbench.contract.verification import read_verifications
from crlbench.contribute.results.layout import read_submission
from crlbench.contribute.results.result import Examiner
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import GENESIS, linked, parsed
from crlbench.disk.names import RUN_FILES
from crlbench.disk.packed import PACKED, pack, unpack
from crlbench.disk.unpacking import BadArchive
from tests.fuzz import corpus
from tests.fuzz.mutate import compressed, either, json_lines, json_tree, octets
from tests.fuzz.target import Target, bundled, put, unbundled
from tests.fuzz.targets.runs import _record_seal

PLACE = "board/model@00000000/ppo"


def _files(seeds: Path) -> dict[str, bytes]:
    home = corpus.runs(seeds)
    found = [path for path in sorted(home.rglob("*")) if path.name in RUN_FILES]
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in found}


def _archive(seeds: Path) -> list[bytes]:
    return [pack(_files(seeds))]


def _badges(_: Path) -> list[bytes]:
    previous, lines = GENESIS, []
    for number, kind in enumerate(("recomputed", "replayed")):
        body: dict[str, Any] = {
            "record_id": "0" * 64,
            "run": "m/ppo/addition/real/seed-00",
            "kind": kind,
            "by": "maintainers",
            "date": "2026-01-01T00:00:00Z",
            "updates": 3 * number,
            "outcome": "equal",
            "crlbench": "0.1.0",
            "n": number,
            "previous": previous,
        }
        previous = digest(body)
        lines.append(canonical_json(body | {"hash": previous}))
    return ["\n".join([*lines, ""]).encode()]


def _retractions(_: Path) -> list[bytes]:
    lines: list[dict[str, Any]] = []
    for records in ("all", ["0" * 64, "1" * 64]):
        body = {
            "entry": PLACE,
            "records": records,
            "date": "2026-01-01",
            "reason": "the wrong weights",
            "by": "@me",
        }
        lines.append(linked(lines, body))
    return ["".join(canonical_json(line) + "\n" for line in lines).encode()]


def _relinked(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Changed lines whose chain mostly holds, so that what it protects is reached."""
    data = json_lines(rng, seeds)
    lines: list[dict[str, Any]] = []
    if rng.random() < 0.75:
        for body in map(parsed, data.splitlines()):
            try:
                lines.append(linked(lines, {k: v for k, v in body.items() if k != "hash"}))
            except (ValueError, RecursionError):
                return data
    return "".join(canonical_json(line) + "\n" for line in lines).encode() or data


_SOUND: dict[str, bytes] = {}


def _entry(seeds: Path) -> list[bytes]:
    _SOUND.update(_files(seeds))
    for name in ("plan.json", "ledger.jsonl"):
        _SOUND[name] = (corpus.runs(seeds) / name).read_bytes()
    return [b"{}"]


def _changed(rng: random.Random, _: Sequence[bytes]) -> bytes:
    """One file of a sound entry exchanged; records are sealed again."""
    name = rng.choice(sorted(_SOUND))
    make = octets if rng.random() < 0.3 or not name.endswith("json") else json_tree(_record_seal)
    return bundled({name: make(rng, [_SOUND[name]])})


def _examined(data: bytes, place: Path) -> None:
    files = _SOUND | unbundled(data)
    packed = {name: content for name, content in files.items() if name.endswith(RUN_FILES)}
    entry = put(place, f"{PLACE}/{PACKED}", pack(packed)).parent
    for name in files.keys() - packed.keys():
        put(entry, name, files[name])
    put(entry, "submission.json", b'{"schema_version":1,"submitter":"@me","crlbench":"0.1.0"}')
    for line in Examiner(Catalog()).examine(entry).lines():
        assert line


def _submitted(data: bytes, place: Path) -> None:
    read_submission(put(place, "submission.json", data).parent)


TARGETS = (
    Target(
        "packed",
        _archive,
        lambda data, place: unpack(data),
        compressed(octets),
        8,
        (BadArchive,),
    ),
    Target(
        "badges",
        _badges,
        lambda data, place: read_verifications(put(place, "verification.jsonl", data)),
        either(octets, json_lines),
        4,
    ),
    Target(
        "retractions",
        _retractions,
        lambda data, place: read_retractions(put(place, "retractions.jsonl", data).parent),
        either(octets, _relinked),
        4,
    ),
    Target(
        "submission",
        lambda seeds: [b'{"schema_version":1,"submitter":"@me","crlbench":"0.1.0"}'],
        _submitted,
        either(octets, json_tree()),
        4,
    ),
    Target("entry", _entry, _examined, _changed, 0.3),
)
"""Of a submitted result."""

