"""What a stored result holds: records, plans, ledgers, item vectors, samples, whole folders."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import shutil
import struct
import zipfile
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crlbench.contract import attempts
from crlbench.contract.conditions import fingerprint
from crlbench.contract.record_files import read_record
from crlbench.contract.records import RunRecord
from crlbench.contract.study import Study
from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import GENESIS
from crlbench.disk.reading import Malformed
from crlbench.disk.unpacking import BadArchive
from crlbench.verdict.attempts import read_attempts
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.study_runs import read_study
from tests.fuzz import corpus
from tests.fuzz.mutate import (
    NUMBERS,
    WORDS,
    Random,
    compressed,
    either,
    json_lines,
    json_text,
    json_tree,
    leaf,
    octets,
    sealed,
    tree,
)
from tests.fuzz.target import Target, put, refuse

REPLICATES = 8
"""Of the bootstrap: what is fuzzed is what reads, not what counts."""


def _record_seal(data: Any) -> dict[str, Any]:
    try:
        leaves = data["fingerprint"]["leaves"]
        data["fingerprint"] |= {"hash": fingerprint(leaves)}
        changed = {"fingerprint": data["fingerprint"]}
    except (TypeError, KeyError, ValueError):
        changed = {}
    try:
        return changed | {"record_id": RunRecord.model_validate(data).content_id()}
    except ValueError:
        kept = {k: v for k, v in data.items() if k not in ("record_id", "volatile")}
        return changed | {"record_id": digest(kept)}


def _plan_seal(data: Any) -> dict[str, Any]:
    return {"plan_hash": attempts.plan_hash(data)}


def _study_seal(data: Any) -> dict[str, Any]:
    return {"id": Study.model_validate(data).identified().id}


def _canonical(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """A record as a run writes it, so that the reader takes its fast way."""
    data = json_tree(_record_seal)(rng, seeds)
    try:
        return (canonical_json(json.loads(data)) + "\n").encode()
    except (ValueError, RecursionError):
        return data


def _chained(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """A ledger whose changed lines follow from one another."""
    previous, lines = GENESIS, []
    for number, line in enumerate(json_lines(rng, seeds).splitlines()):
        try:
            entry = json.loads(line)
            entry |= {"n": number, "previous": previous}
            if entry.get("event") == "plan" and rng.random() < 0.7:
                entry["detail"]["plan_hash"] = attempts.plan_hash(entry["detail"])
            previous = digest({k: v for k, v in entry.items() if k != "hash"})
            lines.append(canonical_json(entry | {"hash": previous}).encode())
        except (ValueError, TypeError, KeyError, RecursionError):
            lines.append(line)
    return b"\n".join(lines) + b"\n"


def _zipped(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """An ``.npz`` whose members are odd arrays: headers, sizes, names, bombs."""
    with zipfile.ZipFile(io.BytesIO(rng.choice(seeds))) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(rng.choice((1, 1, 2))):
        i = rng.randrange(len(members))
        name, content = members[i]
        match rng.randrange(8):
            case 0:
                members[i] = (name, octets(rng, [content]))
            case 1:
                members[i] = (rng.choice(WORDS)[:60000] or "x", content)
            case 2:
                members.insert(i, (name, content))
            case 3:
                members[i] = (name, _npy(rng.choice(HEADERS), content[-64:]))
            case 4:
                members[i] = (name, _npy(_header(rng), bytes(rng.choice((0, 8, 64)))))
            case 5:
                members[i] = (name, _long(rng.choice((2**20, 2**25))))
            case _:
                members[i] = (name, content[: rng.randrange(len(content) + 1)])
    buffer = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members:
            _write(archive, name, content)
    return buffer.getvalue() if rng.random() < 0.8 else octets(rng, [buffer.getvalue()])


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo("x.npy")
    info.filename = name.replace("\0", "") or "y"  # as it is, where a name is not allowed
    info.compress_type = archive.compression
    archive.NameToInfo.pop(info.filename, None)
    try:
        archive.writestr(info, content)
    except (ValueError, UnicodeEncodeError):
        archive.writestr("z.npy", content)


HEADERS = (
    "{'descr': '|O', 'fortran_order': False, 'shape': (8,)}",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 4)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 1000000000000)}",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,)}",
    "{'descr': [('a', '<f8', (10000000000,))], 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-8,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 4)}",
    "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (0,)}",
    "{'descr': 'S0', 'fortran_order': 1, 'shape': [8]}",
    "(" * 5000,
    "[" * 90 + "]" * 90,
    "-" * 60000 + "1",
    "{'descr': '<M8[as]', 'fortran_order': False, 'shape': (8,)}",
    "{'descr': 'float', 'fortran_order': None, 'shape': (8.0,)}",
    "{'a': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (16,)}",
    "9" * 9000,
)


def _long(size: int) -> bytes:
    """An array of zeros, which a deflated member holds in a thousandth."""
    return _npy(repr({"descr": "|u1", "fortran_order": False, "shape": (size,)}), bytes(size))


def _header(rng: Random) -> str:
    kind = rng.choice(
        ("|u1", "<f4", "<f8", ">f8", "<c16", "|b1", "<i8", "<f2", "|S7", "<U3", "<M8")
    )
    shape = tuple(rng.choice((0, 1, 2, 8, 64, 10**12)) for _ in range(rng.choice((0, 1, 2, 40))))
    return repr({"descr": kind, "fortran_order": rng.random() < 0.3, "shape": shape})


def _npy(header: str, content: bytes) -> bytes:
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text) % 65536) + text + content


def _samples(data: bytes, place: Path) -> None:
    from crlbench.verdict.samples import read_samples

    for sample in read_samples(place / "samples.jsonl.zst", data):
        assert sample.uid is not None


# -- whole folders -------------------------------------------------------------------------

_LOADED: dict[str, bytes] = {}


def _folders(seeds: Path) -> list[bytes]:
    """A run folder as a list of steps: the files of the sound one, and nothing else."""
    _LOADED.update(_contents(corpus.runs(seeds)))
    return [b"[]"]


def _contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its name."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {name: path.read_bytes() for name, path in found.items() if path.is_file()}


def _cell() -> str:
    (name,) = (name for name in _LOADED if name.endswith("record.json"))
    return name.removesuffix("record.json")


def _steps(rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Changes of a run folder: contents that fit their digests, and things that are no files."""
    steps: list[list[Any]] = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        rng.choice((_odd_content, _odd_content, _odd_content, _odd_file))(rng, steps)
    return json.dumps(steps).encode()


def _odd_content(rng: random.Random, steps: list[list[Any]]) -> None:
    cell = _cell()
    record = json.loads(_LOADED[cell + "record.json"])
    match rng.randrange(9):
        case 7 | 8:
            _odd_condition(rng, record)
        case 0 | 1 | 2:
            record = sealed(rng, tree(rng, record), _record_seal)
        case 3:
            _exchange(rng, steps, record, "items.npz", either(octets, _zipped))
        case 4:
            _exchange(rng, steps, record, "samples.jsonl.zst", compressed(json_lines))
        case 5:
            plan = either(octets, json_tree(_plan_seal))(rng, [_LOADED["plan.json"]])
            steps.append(["file", "plan.json", _coded(plan)])
        case 6:
            ledger = either(octets, _chained)(rng, [_LOADED["ledger.jsonl"]])
            steps.append(["file", "ledger.jsonl", _coded(ledger)])
    steps.append(["file", cell + "record.json", _coded(json_text(record).encode())])


def _odd_condition(rng: random.Random, record: Any) -> None:
    """A leaf of the conditions is another number, in a run that failed or one that did not."""
    leaves = record["fingerprint"]["leaves"]
    for name in rng.choices(sorted(leaves), k=rng.choice((1, 2))):
        leaves[name] = rng.choice(NUMBERS) if rng.random() < 0.8 else leaf(rng, leaves[name])
    if rng.random() < 0.5:
        at = rng.choice((0, 1, 2, *NUMBERS))
        record["status"] = {"state": "failed", "rule": "kl", "at": at}
    record |= sealed(rng, record, _record_seal)


def _exchange(rng: random.Random, steps: list[Any], record: Any, name: str, maker: Any) -> None:
    data = maker(rng, [_LOADED[_cell() + name]])
    steps.append(["file", _cell() + name, _coded(data)])
    record["files"][name] = corpus.file_entry(data)
    record |= _record_seal(record)


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _odd_file(rng: random.Random, steps: list[list[Any]]) -> None:
    name = rng.choice([*_LOADED, _cell().rstrip("/"), "addition", "x", "addition/real"])
    match rng.randrange(10):
        case 0:
            target = ("../../outside/secret", "/etc/passwd", "/dev/zero", ".", "record.json", name)
            steps.append(["link", name, rng.choice(target)])
        case 1:
            steps.append(["fifo", name])
        case 2:
            steps.append(["mode", name, rng.choice((0, 0o200, 0o400))])
        case 3:
            steps.append(["sparse", name, rng.choice((2**20, 2**27, 2**33, 2**43))])
        case 4:
            steps.append(["folder", name])
        case 5:
            steps.append(["drop", name])
        case 6:
            steps.append(["copy", name, rng.choice([*_LOADED, "other", "addition/real/seed-01"])])
        case 7:
            steps.append(
                ["move", name, rng.choice((*_LOADED, "addition/real/seed-9999999", "a\n"))]
            )
        case 8:
            steps.append(["file", rng.choice(sorted(_LOADED)) + ".tmp", ""])
        case 9:
            steps.append(["cut", name, rng.choice((0, 1, 100))])


def _apply(place: Path, step: list[Any]) -> None:
    kind, name, *rest = step
    path = place / name
    _stay(place, path if kind in ("mode", "sparse", "cut", "copy") else path.parent)
    if kind in ("copy", "move"):
        _stay(place, place / rest[0], path)
    if kind in ("link", "fifo", "folder", "drop"):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(True)
    match kind:
        case "file":
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(rest[0]))
        case "link":
            path.symlink_to(rest[0])
        case "fifo":
            os.mkfifo(path)
        case "mode":
            path.chmod(rest[0])
        case "sparse" | "cut":
            os.truncate(path, rest[0])
        case "folder":
            path.mkdir()
        case "copy" if path.is_dir():
            shutil.copytree(path, place / rest[0], symlinks=True, dirs_exist_ok=True)
        case "copy":
            shutil.copy(path, place / rest[0])
        case "move":
            path.rename(place / rest[0])


def _stay(place: Path, path: Path, source: Path | None = None) -> None:
    """Refuse a step that would leave the folder through a link of the step before, or copy a folder
    into itself: it is the reader that is tried, not this."""
    real = path.resolve()
    if not real.is_relative_to(place.resolve()) or source and real.is_relative_to(source.resolve()):
        raise ValueError("no place for a step")


def _folder(data: bytes, place: Path) -> None:
    """Everything that a report makes of a folder."""
    for name, content in _LOADED.items():
        put(place / "run", name, content)
    for step in json.loads(data):
        try:
            _apply(place / "run", step)
        except (OSError, shutil.Error, ValueError):
            pass  # the step before took the file away
    _report(place / "run")
    _listed(place / "run")


def _report(folder: Path) -> None:
    from crlbench.pages.report import render_page

    runs = load_runs(folder)
    board = summarise_board(runs, REPLICATES)
    json.dumps(board.summary(), allow_nan=False)
    render_page(runs, board)


def _listed(folder: Path) -> None:
    from crlbench.commands.fingerprint import _of_run

    _of_run(folder)
    for path in folder.rglob("record.json"):
        read_record(path, own=True)


def _stored(data: bytes, place: Path) -> None:
    """The readers of the run side, which continue what stands in a folder."""
    from crlbench.run import store

    kind, content = data[:1], data[1:]
    if kind == b"n":
        store.read_npz(put(place, "a.npz", content))
    elif kind == b"z":
        with suppress(BadArchive, Malformed):
            store.rows_of(content)
    else:
        store.read_json(put(place, "a.json", content))


def _stored_seeds(seeds: Path) -> list[bytes]:
    cell = corpus.cell(seeds)
    return [
        b"n" + (cell / "items.npz").read_bytes(),
        b"z" + (cell / "samples.jsonl.zst").read_bytes(),
        b"j" + (cell / "record.json").read_bytes(),
    ]


def _stored_make(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    seed = rng.choice(seeds)
    makers = {b"n": _zipped, b"z": compressed(json_lines), b"j": json_tree()}
    return seed[:1] + either(octets, makers[seed[:1]])(rng, [seed[1:]])


def _study(data: bytes, place: Path) -> None:
    read_study(put(place, "study.json", data))


def _studied(data: bytes, place: Path) -> None:
    """A study with its runs beside it."""
    from crlbench.verdict.ablation import summarise_study

    for name, content in _STUDY.items():
        put(place, name, data if name.endswith("study.json") else content)
    (stored,) = place.rglob("study.json")
    summarise_study(stored.parent)


_STUDY: dict[str, bytes] = {}


def _studied_seeds(seeds: Path) -> list[bytes]:
    stored = corpus.study(seeds) / "study.json"
    _STUDY.update(_contents(stored.parents[2]))
    return [stored.read_bytes()]


def _ledger(data: bytes, place: Path) -> None:
    put(place, "ledger.jsonl", data)
    read_attempts(place)
    attempts.salvaged(data)
    attempts.sound_lines(data)


def _plan(data: bytes, place: Path) -> None:
    from crlbench.commands.fingerprint import _of_run, _print_leaves
    from crlbench.commands.list_rows import _runs
    from crlbench.commands.stored_entries import find_entry
    from crlbench.verdict.load import _read_plan

    path = put(place, "board/model@1/recipe/plan.json", data)
    find_entry("model", place)
    _print_leaves(Namespace(json=False, quiet=False), _of_run(path))
    _runs(Namespace(out=str(place)), refuse)
    _read_plan(path)


TARGETS = (
    Target(
        "record",
        lambda seeds: [(corpus.cell(seeds) / "record.json").read_bytes()],
        lambda data, place: read_record(put(place, "record.json", data)),
        either(octets, json_tree(_record_seal), _canonical),
        10,
    ),
    Target(
        "plan",
        lambda seeds: [(corpus.runs(seeds) / "plan.json").read_bytes()],
        _plan,
        either(octets, json_tree(_plan_seal)),
        8,
    ),
    Target(
        "ledger",
        lambda seeds: [(corpus.runs(seeds) / "ledger.jsonl").read_bytes()],
        _ledger,
        either(octets, json_lines, _chained, _chained),
        8,
    ),
    Target(
        "items",
        lambda seeds: [(corpus.cell(seeds) / "items.npz").read_bytes()],
        lambda data, place: read_arrays(data),
        either(octets, octets, _zipped),
        14,
        (BadArrays,),
    ),
    Target(
        "samples",
        lambda seeds: [(corpus.cell(seeds) / "samples.jsonl.zst").read_bytes()],
        _samples,
        compressed(json_lines),
        12,
    ),
    Target("run-folder", _folders, _folder, _steps, 1.5),
    Target("run-side", _stored_seeds, _stored, _stored_make, 4),
    Target(
        "study",
        lambda seeds: [(corpus.study(seeds) / "study.json").read_bytes()],
        _study,
        either(octets, json_tree(_study_seal), json_tree(_study_seal)),
        6,
    ),
    Target("study-folder", _studied_seeds, _studied, json_tree(_study_seal), 0.2, seconds=5.0),
)
