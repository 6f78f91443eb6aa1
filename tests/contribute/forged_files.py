"""Forgeries of files: edits that a hash shows, and other bytes that say the same."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from crlbench.contract.attempts import LEDGER_NAME
from crlbench.disk.names import PLAN_NAME
from crlbench.disk.packed import PACKED, pack, unpack
from tests.contribute.catalogue import CELL, SECOND, exchanged, forgery, repacked, replaced
from tests.contribute.forger import Forger

# Edits that leave the hashes as they were.


@forgery("validate", "record_id: does not belong to the content")
def a_score_is_edited(folder: Path) -> None:
    repacked(folder, replaced(f"{CELL}/record.json", b'"score":0.', b'"score":1.'))


@forgery("validate", r"items\.npz: sha256 is")
def item_vectors_are_edited(folder: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        content = bytearray(files[f"{CELL}/items.npz"])
        content[200] ^= 1
        files[f"{CELL}/items.npz"] = bytes(content)

    repacked(folder, change)


@forgery("validate", r"samples\.jsonl\.zst: sha256 is")
def samples_are_exchanged(folder: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        files[f"{CELL}/samples.jsonl.zst"] = files[f"{SECOND}/samples.jsonl.zst"]

    repacked(folder, change)


@forgery("validate", r"digests\.jsonl: sha256 is")
def digests_are_edited(folder: Path) -> None:
    repacked(folder, replaced(f"{CELL}/digests.jsonl", b'"iteration":1', b'"iteration":2'))


@forgery("validate", r"without digests\.jsonl")
def digests_are_left_out(folder: Path) -> None:
    repacked(folder, lambda files: files.pop(f"{CELL}/digests.jsonl"))


@forgery("validate", "plan.json: plan_hash: does not belong to the content|never declared")
def the_plan_is_edited(folder: Path) -> None:
    path = folder / PLAN_NAME
    path.write_text(path.read_text().replace('"real":2', '"real":1'))


def ledger_lines(folder: Path, change: Callable[[list[str]], list[str]]) -> None:
    path = folder / LEDGER_NAME
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


@forgery("validate", "ledger was changed or damaged")
def a_line_of_the_ledger_is_edited(folder: Path) -> None:
    ledger_lines(folder, lambda lines: [x.replace('"attempt":1', '"attempt":2') for x in lines])


@forgery("validate", "ledger was changed or damaged")
def a_line_of_the_ledger_is_removed(folder: Path) -> None:
    ledger_lines(folder, lambda lines: lines[:3] + lines[4:])


@forgery("validate", "ledger was changed or damaged")
def lines_of_the_ledger_change_places(folder: Path) -> None:
    ledger_lines(folder, lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]])


@forgery("validate", "does not know how 1 stored run ended")
def the_end_of_the_ledger_is_cut_off(folder: Path) -> None:
    ledger_lines(folder, lambda lines: lines[:-1])


@forgery("validate", "ledger")
def the_ledger_is_left_out(folder: Path) -> None:
    (folder / LEDGER_NAME).unlink()


@forgery("validate", "not a file of a result")
def a_file_is_smuggled_in(folder: Path) -> None:
    (folder / "task.py").write_text("raise SystemExit\n")


@forgery("validate", "not a file of a result")
def a_conftest_is_smuggled_in(folder: Path) -> None:
    """Where pytest would import it."""
    (folder / "conftest.py").write_text("raise SystemExit\n")


class Bomb:
    """What writes a file wherever it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("open('unpickled', 'w').write('x')",))


@forgery("validate", r"items\.npz: .*(object|dtype|kind)")
def item_vectors_are_a_pickle(folder: Path) -> None:
    forger = Forger(folder)
    arrays: dict[str, Any] = forger.items(CELL)
    arrays["curve/0"] = np.array([Bomb()] * 32, dtype=object)
    content = io.BytesIO()
    np.savez(content, **arrays)
    forger.runs[CELL]["items.npz"] = content.getvalue()
    forger.write()


@forgery("validate", "no file of a run")
def a_file_is_smuggled_into_the_archive(folder: Path) -> None:
    files = unpack((folder / PACKED).read_bytes())
    name = "addition/real/seed-00/record.json"
    packed = pack({name: files[name]})
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    (folder / PACKED).write_bytes(zstandard.compress(plain.replace(b"record.json", b"sneaky.json")))


# What says the same, or more, in other bytes.


@forgery("validate", "bytes stand behind its zstandard frame")
def a_script_stands_behind_the_archive(folder: Path) -> None:
    path = folder / PACKED
    path.write_bytes(path.read_bytes() + b"<script>alert(1)</script>" * 2000)


@forgery("validate", "does not begin with a zstandard frame")
def a_frame_that_readers_skip_stands_before_the_archive(folder: Path) -> None:
    path = folder / PACKED
    skipped = b"<script>alert(1)</script>"
    frame = b"\x50\x2a\x4d\x18" + len(skipped).to_bytes(4, "little") + skipped
    path.write_bytes(frame + path.read_bytes())


@forgery("validate", "something stands between its members, or before them")
def a_page_stands_before_the_item_vectors(folder: Path) -> None:
    def change(content: bytes) -> bytes:
        page, file = b"<html><script>alert(1)</script>", io.BytesIO()
        file.write(page)
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "a") as new:
            for member in old.infolist():
                new.writestr(member, old.read(member))
        return file.getvalue()

    exchanged("items.npz", change)(folder)


@forgery("validate", "items.npz: compression method 8, and a run uses none")
def the_item_vectors_are_packed_otherwise(folder: Path) -> None:
    def change(content: bytes) -> bytes:
        with np.load(io.BytesIO(content)) as stored:
            arrays = {name: stored[name] for name in stored.files}
        np.savez_compressed(file := io.BytesIO(), **arrays)
        return file.getvalue()

    exchanged("items.npz", change)(folder)


@forgery("validate", "bytes stand behind its zstandard frame")
def a_script_stands_behind_the_samples(folder: Path) -> None:
    exchanged("samples.jsonl.zst", lambda content: content + b"<script>alert(1)</script>")(folder)


@forgery("validate", "'note': no field of a sample")
def a_sample_has_a_field_more(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "samples.jsonl.zst")
    rows[0]["note"] = "x" * 10_000
    forger.put_lines(CELL, "samples.jsonl.zst", rows)
    forger.write()


@forgery("validate", "the name 'curve' stands twice in one object")
def a_record_says_two_things(folder: Path) -> None:
    name = f"{CELL}/record.json"
    repacked(folder, replaced(name, b'"curve":[', b'"curve":[],"curve":['))


@forgery("validate", "the name 'env' stands twice|the name 'host' stands twice")
def an_attempt_says_two_things(folder: Path) -> None:
    name = f"{CELL}/record.json"
    repacked(folder, replaced(name, b'"host":"', b'"host":"000000000000","host":"'))


@forgery("validate", "the name 'event' stands twice|was changed or damaged")
def a_line_of_the_ledger_says_two_things(folder: Path) -> None:
    path = folder / LEDGER_NAME
    path.write_text(path.read_text().replace('"event":"done"', '"event":"failed","event":"done"'))


@forgery("validate", "not in the bytes that crlbench writes")
def a_record_is_spelled_with_spaces(folder: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        name = f"{CELL}/record.json"
        files[name] = json.dumps(json.loads(files[name]), indent=1).encode()

    repacked(folder, change)


@forgery("validate", "ledger.jsonl: not")
def more_stands_behind_the_ledgers_last_line(folder: Path) -> None:
    path = folder / LEDGER_NAME
    path.write_bytes(path.read_bytes() + b"<script>" * 12_500)


@forgery("validate", "plan.json: not in the bytes|submission.json: not in the bytes")
def plan_and_submission_are_padded(folder: Path) -> None:
    for name in (PLAN_NAME, "submission.json"):
        path = folder / name
        path.write_bytes(path.read_bytes() + b"\n" * 5000)


@forgery("validate", r"plan\.json: note: stored")
def a_plan_has_a_field_more(folder: Path) -> None:
    forger = Forger(folder)
    forger.declare(note="<script>alert(1)</script>")
    forger.write()
