"""Forgeries that no hash shows: a spelling of a record, or a field, that no run writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from crlbench.disk.hashing import canonical_json
from crlbench.disk.packed import PACKED
from crlbench.run.store import packed_arrays
from tests.contribute.catalogue import CELL, NOVEL, edited, every, forgery
from tests.contribute.forger import Forger, Json

# One record, two spellings.


@forgery("validate", "record.json: not in the bytes that crlbench writes")
def whole_numbers_are_spelled_as_fractions(folder: Path) -> None:
    edited(CELL, lambda r: [p.update(x=float(p["x"])) for p in r["curve"]])(folder)


@forgery("validate", "record.json: not in the bytes that crlbench writes")
def numbers_are_spelled_as_texts(folder: Path) -> None:
    edited(CELL, lambda r: [p.update(score=str(p["score"])) for p in r["curve"]])(folder)


@forgery("validate", "record.json: not in the bytes that crlbench writes|schema_version")
def the_number_of_the_format_is_true(folder: Path) -> None:
    edited(CELL, lambda r: r.update(schema_version=True))(folder)


@forgery("validate", "record.json: not in the bytes that crlbench writes")
def what_has_a_default_is_left_out(folder: Path) -> None:
    edited(CELL, lambda r: [r.pop(name) for name in ("verification", "submitter")])(folder)


def submission(**changes: Any) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        path = folder / "submission.json"
        said = json.loads(path.read_text()) | changes
        path.write_text(canonical_json(said) + "\n")

    return forge


@forgery("validate", "submission.json: not in the bytes that crlbench writes")
def the_submissions_format_is_a_fraction(folder: Path) -> None:
    submission(schema_version=1.0)(folder)


@forgery("validate", "submission.json: crlbench: String should match")
def the_submission_was_packed_by_a_script(folder: Path) -> None:
    submission(crlbench="<script>alert(1)</script>")(folder)


def vectors(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        forger = Forger(folder)
        items = {name: change(vector) for name, vector in forger.items(CELL).items()}
        forger.runs[CELL]["items.npz"] = packed_arrays(items)
        forger.write()

    return forge


@forgery("validate", "items.npz: not in the bytes that crlbench writes")
def ones_and_zeros_take_eight_bytes(folder: Path) -> None:
    vectors(lambda vector: vector.astype(np.float64))(folder)


@forgery("validate", "items.npz: not in the bytes that crlbench writes")
def a_zero_has_a_sign(folder: Path) -> None:
    vectors(lambda vector: np.where(vector == 0, -0.0, 1.0).astype(np.float32))(folder)


@forgery("validate", r"losses of iteration 1: stored .*expected hexadecimal floats")
def losses_stand_between_spaces(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "digests.jsonl")
    for row in rows:
        row["losses"] = [f" {loss}{' ' * 5000}" for loss in row["losses"]]
    forger.put_lines(CELL, "digests.jsonl", rows)
    forger.write()


@forgery("validate", r"samples\.jsonl\.zst")
def a_sample_scores_beyond_all_numbers(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "samples.jsonl.zst")
    rows[0]["score"] = 10**400
    forger.put_lines(CELL, "samples.jsonl.zst", rows)
    forger.write()


@forgery("validate", "holds blocks of nothing")
def the_archive_holds_blocks_of_nothing(folder: Path) -> None:
    path = folder / PACKED
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(plain).to_bytes(4, "little")
    for place in range(0, len(plain), 2**16):
        part = plain[place : place + 2**16]
        frame += (len(part) << 3).to_bytes(3, "little") + part
        frame += b"".join((2).to_bytes(3, "little") + letter.encode() for letter in NOVEL)
    path.write_bytes(frame + (1).to_bytes(3, "little"))


@forgery("validate", "items.npz: .*could not convert string to float")
def scores_are_words(folder: Path) -> None:
    vectors(lambda vector: np.full(vector.shape, "much"))(folder)


@forgery("validate", r"items\.npz: start/id: stored \(64,\), expected \(2, 32\)")
def draws_are_no_rows(folder: Path) -> None:
    vectors(lambda vector: vector.reshape(-1))(folder)


# Room for what no run writes.


@forgery("validate", r"task\.digests\.note: stored <script>")
def a_task_has_a_digest_more(folder: Path) -> None:
    every(folder, lambda r: r["task"]["digests"].update(note=NOVEL * 500))


@forgery("validate", r"files\.evil\.html")
def a_record_lists_a_file_that_no_run_has(folder: Path) -> None:
    page = {"evil.html": {"sha256": "0" * 64, "bytes": 1}}
    edited(CELL, lambda r: r["files"].update(page))(folder)


@forgery("validate", r"files\.policy\.safetensors\.sha256: stored <script>")
def the_digest_of_the_weights_is_a_novel(folder: Path) -> None:
    policy = {"policy.safetensors": {"sha256": NOVEL * 99, "bytes": -1}}
    edited(CELL, lambda r: r["files"].update(policy))(folder)


@forgery("validate", r"files: stored \['policy\.safetensors'\], expected \[\]")
def nobody_can_compare_the_weights(folder: Path) -> None:
    edited(CELL, lambda r: r["files"].pop("policy.safetensors"))(folder)


@forgery("validate", r"submitter: stored <script>")
def a_record_names_its_submitter(folder: Path) -> None:
    every(folder, lambda r: r.update(submitter=NOVEL))


@forgery("validate", r"algo\.code_sha256: stored <script>")
def the_digest_of_the_algorithms_is_a_novel(folder: Path) -> None:
    every(folder, lambda r: r["algo"].update(code_sha256=NOVEL * 99))


@forgery("validate", r"counts: stored \['great_rows'\], expected \[\] \(no bundled recipe counts")
def an_event_that_no_part_counts(folder: Path) -> None:
    every(folder, lambda r: r["counts"].update(great_rows=7))


@forgery("validate", r"counts: stored \['dropped_rows', .*names that are missing")
def no_event_is_counted(folder: Path) -> None:
    every(folder, lambda r: r["counts"].clear())


@forgery("validate", "clipped_tokens: stored .*expected falling counts from 1")
def more_tokens_were_clipped_than_there_were(folder: Path) -> None:
    tokens = [{"text": NOVEL[:20], "low": 10**12, "high": 10**12}] * 20
    every(folder, lambda r: r.update(clipped_tokens=tokens))


@forgery("validate", r"subject\.params_total: stored 1, expected \d+ \(the entry here\)")
def a_model_of_one_parameter(folder: Path) -> None:
    def shrink(record: Json) -> None:
        cost = record["cost"]
        cost["flops_estimate"] = 2 * cost["generated_tokens"] + 6 * cost["trained_tokens"]
        record["subject"].update(params_total=1, params_trainable=1)

    every(folder, shrink)


@forgery("validate", r"volatile\.attempts: stored .*expected within")
def an_attempt_began_in_1970(folder: Path) -> None:
    every(folder, lambda r: r["volatile"]["attempts"][0].update(start=0.0, end=1.0))


@forgery("validate", r"volatile\.attempts\.0\.start: stored <script>")
def an_attempt_begins_with_a_word(folder: Path) -> None:
    every(folder, lambda r: r["volatile"]["attempts"][0].update(start=NOVEL))


@forgery("validate", r"volatile\.attempts: stored .*expected within")
def an_attempt_ends_before_it_begins(folder: Path) -> None:
    def turn(record: Json) -> None:
        (attempt,) = record["volatile"]["attempts"]
        attempt["start"], attempt["end"] = attempt["end"], attempt["start"] - 3600

    every(folder, turn)


@forgery("validate", r"volatile\.wall_s: stored .*expected at most")
def a_run_took_longer_than_there_was(folder: Path) -> None:
    every(folder, lambda r: r["volatile"].update(wall_s=[1.0, 1e6, 2e6, 3e6]))


@forgery("validate", "submission.json: crlbench: 99.0, and this checkout knows")
def a_later_crlbench_packed_it(folder: Path) -> None:
    submission(crlbench="99.0")(folder)


@forgery("validate", r"volatile\.attempts: stored")
def a_run_was_ended_by_a_thousand_attempts(folder: Path) -> None:
    attempts = [{"start": 1.0, "end": 2.0, "host": "0" * 12}] * 1000
    every(folder, lambda r: r["volatile"].update(attempts=attempts))
