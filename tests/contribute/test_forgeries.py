"""A catalogue of forgeries. A forger can make every hash fit; each one is caught all the same.

``crlbench validate`` reads and leaves with 3; ``crlbench verify`` scores and trains again, and
leaves with 5.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import tests.contribute.forged_figures  # noqa: F401  (adds to the catalogue)
import tests.contribute.forged_records  # noqa: F401
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.conditions import fingerprint
from crlbench.contract.model_card import read_model_card
from crlbench.contribute.results.retract import RETRACTIONS
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from crlbench.disk.names import PLAN_NAME
from crlbench.disk.packed import PACKED, pack, unpack
from tests.contribute.catalogue import (
    CELL,
    FORGERIES,
    PLACEBO,
    SECOND,
    edited,
    every,
    exchanged,
    forgery,
    rechained,
    repacked,
    replaced,
    restated,
)
from tests.contribute.forged_ledgers import event
from tests.contribute.forger import Forger, Json, extended
from tests.contribute.honest import copied, crlbench
from tests.contribute.test_archive import OLD, changed_task, run, sealed_again
from tests.contribute.test_archiving import based, standing
from tests.contribute.test_changes import RESULTS, commit, git, place, repository, validated

__all__ = ["repository"]

MODELS = Path(__file__).parents[2] / "models"

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


# Edits after which every hash fits.


@forgery("validate", r"curve\[3\]\.score: stored 1\.0")
def the_last_score_is_raised(folder: Path) -> None:
    edited(CELL, lambda r: r["curve"][-1].update(score=1.0))(folder)


@forgery("validate", r"splits\.hard\.end: stored 1\.0, expected")
def a_split_is_scored_higher(folder: Path) -> None:
    edited(CELL, lambda r: r["splits"]["hard"].update(end=1.0))(folder)


@forgery("validate", "not a finite number|finite")
def a_score_is_no_number(folder: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        record = json.loads(files[f"{CELL}/record.json"])
        record["curve"][-1]["score"] = float("nan")
        files[f"{CELL}/record.json"] = json.dumps(record).encode()

    repacked(folder, change)


@forgery("validate", "planned and not there: addition seed-01")
def a_bad_seed_is_dropped(folder: Path) -> None:
    forger = Forger(folder)
    forger.drop(SECOND)
    forger.write()


@forgery("validate", "more seeds|planned and not there|More seeds")
def a_bad_seed_is_dropped_from_the_plan_too(folder: Path) -> None:
    forger = Forger(folder)
    for task in ("addition", "counting"):
        forger.drop(f"{task}/real/seed-00")
    forger.declare(arms=forger.plan["arms"] | {"real": 1})
    forger.write()


@forgery("validate", r"seed\.value: stored 12345, expected \d+ \(seeds are derived\)")
def a_luckier_seed_is_taken(folder: Path) -> None:
    edited(CELL, lambda r: r["seed"].update(value=12345))(folder)


@forgery("validate", "holds the record of addition/real/seed-01")
def two_seeds_change_places(folder: Path) -> None:
    forger = Forger(folder)
    forger.runs[CELL], forger.runs[SECOND] = forger.runs[SECOND], forger.runs[CELL]
    forger.write()


@forgery("validate", "ended with another result under the same seed")
def a_seed_is_drawn_until_it_pleases(folder: Path) -> None:
    forger = Forger(folder)
    done = next(e for e in forger.ledger if e["event"] == "done" and e["cell"].endswith(CELL))
    earlier = json.loads(json.dumps(done))
    place = forger.ledger.index(done)
    forger.ledger.insert(place, earlier)
    forger.write()
    # The first of the two ends said something else.
    lines = [json.loads(line) for line in (folder / LEDGER_NAME).read_text().splitlines()]
    lines[place]["detail"]["items_sha256"] = "0" * 64
    again = Forger(folder)
    again.ledger = lines
    rechained(again, folder)


@forgery("validate", "had not been declared|plan")
def the_plan_is_made_after_the_runs(folder: Path) -> None:
    forger = Forger(folder)
    plan = forger.ledger.pop(0)
    forger.ledger.append(plan)
    forger.write()


@forgery("validate", r"expected open \(optimization\.learning_rate = 0\.001 \(track: 0\.0001\)\)")
def another_learning_rate_is_called_closed(folder: Path) -> None:
    forger = Forger(folder)
    name = "conditions.optimization.learning_rate"
    forger.declare(control=forger.plan["control"] | {name: 0.001})
    forger.declare(fingerprint=fingerprint(forger.plan["control"]))
    for cell in forger.runs:
        forger.edit(cell, lambda r: r["fingerprint"]["leaves"].update({name: 0.001}))
    forger.write()


def stating(**changes: int) -> Callable[[Path], None]:
    """An entry of the open division under other conditions, by every hash."""
    leaves = {f"conditions.{name.replace('__', '.')}": value for name, value in changes.items()}

    def forge(folder: Path) -> None:
        forger = Forger(folder)
        forger.declare(control=forger.plan["control"] | leaves, division="open")
        forger.declare(fingerprint=fingerprint(forger.plan["control"]))
        for cell in forger.runs:
            forger.edit(cell, lambda r: r["fingerprint"]["leaves"].update(leaves))
            forger.edit(cell, lambda r: r["protocol"].update(division="open"))
        forger.write()

    return forge


@forgery("validate", r"budget: 320,000 completions an iteration, and nobody can replay more than")
def a_rollout_that_nobody_can_make_again(folder: Path) -> None:
    stating(budget__prompts=80_000)(folder)


@forgery("validate", r"curve\[1\]\.x: stored 16, expected 16000000000")
def iterations_that_nobody_can_count(folder: Path) -> None:
    """It is refused in the time that any other is."""
    stating(budget__iterations_per_point=1_000_000_000)(folder)


@forgery("validate", r"budget: 1,000,000,000,000 completions an iteration")
def a_group_that_nobody_can_make_again(folder: Path) -> None:
    stating(budget__completions=250_000_000_000)(folder)


@forgery("validate", r"first 3 updates take about \S+ h on one core, and nobody replays more than")
def epochs_that_nobody_can_make_again(folder: Path) -> None:
    stating(optimization__epochs=1_000_000_000)(folder)


@forgery("validate", r"first 3 updates take about \S+ h on one core, and nobody replays more than")
def an_evaluation_that_nobody_can_make_again(folder: Path) -> None:
    stating(evaluation__curve_items=10**400)(folder)


@forgery("validate", r"leaves\.tasks\.addition\.verifier: stored e+, expected .* \(track nano ver")
def a_kinder_verifier_is_used(folder: Path) -> None:
    forger = Forger(folder)
    name = "tasks.addition.verifier"
    forger.declare(control=forger.plan["control"] | {name: "e" * 64})
    forger.declare(fingerprint=fingerprint(forger.plan["control"]))
    for cell in forger.runs:
        forger.edit(cell, lambda r: r["fingerprint"]["leaves"].update({name: "e" * 64}))
    forger.write()


@forgery("validate", r"algo\.config\.clip\.high: stored 0\.9, expected 0\.2 \(recipe 'ppo'\)")
def another_recipe_is_called_ppo(folder: Path) -> None:
    forger = Forger(folder)

    def change(config: Json) -> None:
        config["clip"]["high"] = 0.9

    change(forger.plan["recipe"]["config"])
    forger.declare()
    for cell in forger.runs:
        forger.edit(cell, lambda r: change(r["algo"]["config"]))
    forger.write()


@forgery("validate", r"subject\.weights_sha256: stored .*f{64}.*\(the entry here\)")
def other_weights_bear_the_name(folder: Path) -> None:
    forger = Forger(folder)
    other = {"model.safetensors": "f" * 64}
    for cell in forger.runs:
        forger.edit(cell, lambda r: r["subject"]["weights_sha256"].update(other))
    forger.write()


@forgery("validate", "the same measurements as")
def anothers_curve_is_copied(folder: Path) -> None:
    """The runs of tiny-llama-0.3m under the name of tiny-llama, whose entry they state."""
    card = read_model_card(MODELS / "tiny-llama.toml")
    forger = Forger(folder)
    forger.declare(
        model={
            "name": card.slug,
            "revision8": card.revision[:8],
            "entry_sha256": card.digest,
        }
    )
    subject = {
        "slug": card.slug,
        "display_name": card.display_name,
        "family": card.family,
        "kind": card.kind,
        "entry_sha256": card.digest,
        "revision": card.revision,
        "weights_sha256": dict(card.weights_sha256),
    }
    for cell in forger.runs:
        forger.edit(cell, lambda r: r["subject"].update(subject))
    home = f"{card.slug}@{card.revision[:8]}"
    for line in forger.ledger:
        if line["cell"]:
            line["cell"] = line["cell"].replace(folder.parts[-2], home)
    target = folder.parents[1] / home / folder.name
    forger.write(target)


@forgery("validate", "another model or recipe")
def a_run_of_another_entry_is_mixed_in(folder: Path) -> None:
    edited(CELL, lambda r: r["subject"].update(slug="tiny-llama"))(folder)


@forgery("validate", r"curve\[1\]\.x: stored 8, expected 16")
def completions_are_counted_lower(folder: Path) -> None:
    def halve(record: Json) -> None:
        for point in record["curve"]:
            point["x"] //= 2

    edited(CELL, halve)(folder)


@forgery("validate", r"curve")
def the_curve_is_put_into_a_better_order(folder: Path) -> None:
    def reorder(record: Json) -> None:
        record["curve"] = sorted(record["curve"], key=lambda point: point["score"])
        record["curve"][0], record["curve"][-1] = record["curve"][-1], record["curve"][0]

    edited(CELL, reorder)(folder)


@forgery("validate", "n_items|items")
def hard_items_are_left_out(folder: Path) -> None:
    forger = Forger(folder)
    arrays = forger.items(CELL)
    fewer = {n: v[:16] if n.startswith("curve/") else v for n, v in arrays.items()}
    forger.edit(CELL, lambda r: [point.update(n_items=16) for point in r["curve"]])
    forger.put_items(CELL, fewer)
    forger.write()


@forgery("validate", "curve: stored 3, expected 4")
def a_run_is_cut_short_and_called_complete(folder: Path) -> None:
    def cut(record: Json) -> None:
        del record["curve"][-1]

    edited(CELL, cut)(folder)


@forgery("validate", "badge")
def a_record_brings_its_own_badge(folder: Path) -> None:
    badge = {"by": "maintainers", "date": "2026-01-01", "kind": "reproduced"}
    edited(CELL, lambda r: r["verification"].append(badge))(folder)


@forgery("validate", "shortened runs")
def a_smoke_run_is_submitted(folder: Path) -> None:
    edited(CELL, lambda r: r["status"].update(state="partial"))(folder)


@forgery("validate", "losses|updates|digests")
def digests_of_fewer_updates(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "digests.jsonl")
    rows[0]["losses"].pop()
    forger.put_lines(CELL, "digests.jsonl", rows)
    forger.write()


@forgery("validate", "cost|completions")
def a_cheaper_run_is_claimed(folder: Path) -> None:
    edited(CELL, lambda r: r["cost"].update(completions=1))(folder)


@forgery("validate", "no machine of class cpu is so fast")
def a_run_that_took_no_time(folder: Path) -> None:
    def hurry(record: Json) -> None:
        points = len(record["curve"])
        record["volatile"]["wall_s"] = [1 + place * 1e-9 for place in range(points)]

    edited(CELL, hurry)(folder)


@forgery("validate", "wall_s: .* expected 4 rising seconds")
def a_clock_that_runs_backwards(folder: Path) -> None:
    edited(CELL, lambda r: r["volatile"]["wall_s"].reverse())(folder)


def replayed(key: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        forger = Forger(folder)
        for cell in forger.runs:
            rows = forger.lines(cell, "digests.jsonl")
            rows[1][key] = change(rows[1][key])
            forger.put_lines(cell, "digests.jsonl", rows)
        forger.write()

    return forge


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


# What no machine says of itself.


def in_the_ledger(change: Callable[[Json], Any]) -> Callable[[Path], None]:
    """An event changed, of a ledger whose chain fits again."""

    def forge(folder: Path) -> None:
        forger = Forger(folder)
        change(next(event for event in forger.ledger if event["event"] == "done"))
        forger.write()

    return forge


@forgery("validate", "time: .*a time that is past")
def a_run_ended_in_the_year_9999(folder: Path) -> None:
    in_the_ledger(lambda event: event.update(time="9999-12-31T23:59:59Z"))(folder)


@forgery("validate", "time: .*at or after")
def a_run_ended_before_it_was_planned(folder: Path) -> None:
    in_the_ledger(lambda event: event.update(time="2020-01-01T00:00:00Z"))(folder)


@forgery("validate", "time: .*a time of the calendar")
def a_run_ended_on_no_day(folder: Path) -> None:
    in_the_ledger(lambda event: event.update(time="2026-02-31T00:00:00Z"))(folder)


@forgery("validate", r"ledger\.jsonl: line \d+: time: stored <script>")
def a_time_is_a_script(folder: Path) -> None:
    in_the_ledger(lambda event: event.update(time="<script>alert(1)</script>"))(folder)


@forgery("validate", r"line \d+: host: stored")
def a_host_is_a_novel(folder: Path) -> None:
    in_the_ledger(lambda event: event.update(host="once upon a time " * 1000))(folder)


@forgery("validate", r"line \d+: detail\.note: stored")
def an_event_has_a_field_more(folder: Path) -> None:
    in_the_ledger(lambda event: event["detail"].update(note="<script>alert(1)</script>"))(folder)


@forgery("validate", r"volatile\.note: stored")
def what_may_differ_is_a_novel(folder: Path) -> None:
    edited(CELL, lambda r: r["volatile"].update(note="once upon a time " * 4000))(folder)


@forgery("validate", r"volatile\.attempts\.0\.host: stored")
def an_attempt_is_of_a_strange_host(folder: Path) -> None:
    edited(CELL, lambda r: r["volatile"]["attempts"][0].update(host="<img src=x>"))(folder)


@forgery("validate", r"volatile\.attempts: stored .*a time that is past")
def an_attempt_ends_in_the_future(folder: Path) -> None:
    edited(CELL, lambda r: r["volatile"]["attempts"][0].update(end=9e9))(folder)


@forgery("validate", "volatile.peak_memory_bytes: stored 1, expected at least")
def the_weights_took_one_byte(folder: Path) -> None:
    edited(CELL, lambda r: r["volatile"].update(peak_memory_bytes=1))(folder)


@forgery("validate", r"environment\.packages\.<b>x</b>")
def a_package_has_a_hostile_name(folder: Path) -> None:
    edited(CELL, lambda r: r["environment"]["packages"].update({"<b>x</b>": "1.0"}))(folder)


@forgery("validate", r"environment\.cpu: stored")
def a_processor_is_a_page(folder: Path) -> None:
    edited(CELL, lambda r: r["environment"].update(cpu="<img src=x onerror=alert(1)>"))(folder)


@forgery("validate", r"environment\.note: stored")
def a_machine_has_a_field_more(folder: Path) -> None:
    edited(CELL, lambda r: r["environment"].update(note="\u202e"))(folder)


@forgery("validate", r"counts\.<script>")
def an_event_that_nobody_counts(folder: Path) -> None:
    edited(CELL, lambda r: r["counts"].update({"<script>": 1}))(folder)


@forgery("validate", r"crlbench\.git: stored")
def the_commit_is_no_commit(folder: Path) -> None:
    edited(CELL, lambda r: r["crlbench"].update(git="main"))(folder)


# What no verifier pays, and no coin throws.


@forgery("validate", r"items\.npz: end/id: stored 0\.9\d*, expected 0 or 1 \(the verifier of")
def an_item_is_almost_right(folder: Path) -> None:
    forger = Forger(folder)
    arrays = forger.items(CELL)
    arrays["end/id"] = np.where(arrays["end/id"] > 0, 1.0, 0.97).astype(np.float32)
    forger.put_items(CELL, arrays)
    forger.write()


@forgery("validate", "curve/8: stored 0.5, expected 0 or 1|curve/16: stored 0.5, expected 0 or 1")
def half_of_an_answer_is_paid(folder: Path) -> None:
    forger = Forger(folder)
    arrays = forger.items(CELL)
    name = sorted(name for name in arrays if name.startswith("curve/"))[1]
    arrays[name] = np.full(arrays[name].shape, 0.5, np.float32)
    forger.put_items(CELL, arrays)
    forger.write()


@forgery("validate", "addition/placebo/seed-00: the same measurements as")
def the_placebo_arm_is_a_copy_of_the_real_one(folder: Path) -> None:
    """Its curve, digests, health and samples; it has no ends, as a placebo run has none."""
    forger = Forger(folder)
    real, placebo = forger.record(CELL), forger.record(PLACEBO)
    arrays, own = forger.items(CELL), forger.items(PLACEBO)
    curve = {name: vector for name, vector in arrays.items() if name.startswith("curve/")}
    rest = {name: vector for name, vector in own.items() if not name.startswith("curve/")}
    forger.runs[PLACEBO]["digests.jsonl"] = forger.runs[CELL]["digests.jsonl"]
    parts = ("curve", "health", "counts", "cost", "clipped_tokens")
    forger.edit(PLACEBO, lambda r: r.update({part: real[part] for part in parts}))
    forger.put_items(PLACEBO, curve | rest)
    assert placebo["seed"] == real["seed"]
    forger.write()


# What only scoring or training again shows.


@forgery("verify", "mean of the losses in digests.jsonl")
def the_losses_alone_are_invented(folder: Path) -> None:
    replayed("losses", lambda losses: [(float.fromhex(x) * 0.9).hex() for x in losses])(folder)


@forgery("verify", "completion|score")
def a_sample_is_made_right(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "samples.jsonl.zst")
    row = next(row for row in rows if row["score"] == 0.0)
    row.update(completion=row["answer"], score=1.0)
    forger.put_lines(CELL, "samples.jsonl.zst", rows)
    forger.write()


@forgery("verify", "score")
def a_wrong_sample_is_paid(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "samples.jsonl.zst")
    next(row for row in rows if row["score"] == 0.0)["score"] = 1.0
    forger.put_lines(CELL, "samples.jsonl.zst", rows)
    forger.write()


@forgery("verify", "prompt")
def a_prompt_is_made_easier(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "samples.jsonl.zst")
    rows[0]["prompt"] = "<bos>1+1:\n"
    forger.put_lines(CELL, "samples.jsonl.zst", rows)
    forger.write()


@forgery("verify", "answer")
def an_answer_is_exchanged(folder: Path) -> None:
    forger = Forger(folder)
    rows = forger.lines(CELL, "samples.jsonl.zst")
    row = next(row for row in rows if row["score"] == 0.0)
    row.update(answer=row["completion"], score=1.0)
    forger.put_lines(CELL, "samples.jsonl.zst", rows)
    forger.write()


@forgery("verify --updates 3", "update 2: losses")
def losses_are_invented(folder: Path) -> None:
    """And the figure that is their mean with them."""
    replayed("losses", lambda losses: [(float.fromhex(x) * 0.9).hex() for x in losses])(folder)
    forger = Forger(folder)
    for cell in forger.runs:
        mean = np.mean([float.fromhex(x) for x in forger.lines(cell, "digests.jsonl")[1]["losses"]])
        stored = float(f"{mean:.7g}")
        forger.edit(cell, lambda r, stored=stored: r["health"]["loss"].__setitem__(1, stored))
    forger.write()


def hashed(*parts: object) -> str:
    """A digest of its own for each place, as an inventor who knows the rules makes them."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@forgery("verify --updates 3", "update 2: sampled token ids")
def other_completions_were_trained_on(folder: Path) -> None:
    replayed("completions", hashed)(folder)


@forgery("verify --updates 3", "update 2: parameters")
def other_weights_came_out(folder: Path) -> None:
    replayed("parameters", lambda _: "b" * 64)(folder)


@forgery("verify --updates 3", "update 2: rewards")
def other_rewards_were_paid(folder: Path) -> None:
    replayed("rewards", lambda _: "c" * 64)(folder)


@forgery("validate", r"prompts of iteration 1: stored .* began alike: the same model, task, seed")
def a_seed_is_exchanged_for_another(folder: Path) -> None:
    """Each run of the real arm under the index, and with the value, of the other."""
    forger = Forger(folder)
    for task in ("addition", "counting"):
        one, other = f"{task}/real/seed-00", f"{task}/real/seed-01"
        seeds = forger.record(one)["seed"], forger.record(other)["seed"]
        forger.runs[one], forger.runs[other] = forger.runs[other], forger.runs[one]
        forger.edit(one, lambda r, seed=seeds[0]: r.update(seed=seed))
        forger.edit(other, lambda r, seed=seeds[1]: r.update(seed=seed))
    forger.write()


@forgery("verify --updates 3", r"items of curve/0, \d+ of 32")
def better_answers_are_invented(folder: Path) -> None:
    """Item vectors, scores and hashes agree with one another, and with no run."""
    forger = Forger(folder)
    for cell in forger.runs:
        arrays = forger.items(cell)
        better = {n: np.ones_like(v) if n.startswith("curve/") else v for n, v in arrays.items()}
        forger.put_items(cell, better)
    forger.write()


# What this checkout does not know.


@forgery("validate", "there is no track 'crl-official' here")
def a_track_is_invented(folder: Path) -> None:
    restated(folder, {"track": "crl-official"}, track="crl-official")


@forgery("validate", "track nano version 2 cannot be checked here: this checkout has version 1")
def a_version_of_the_track_is_invented(folder: Path) -> None:
    leaves = {"track_version": 2, "conditions.optimization.learning_rate": 0.01}
    restated(folder, leaves, track_version=2)


@forgery("validate", "track nano version 0 cannot be checked here")
def a_version_before_the_first_is_invented(folder: Path) -> None:
    restated(folder, {"track_version": 0}, track_version=0)


@forgery("validate", "task 'addition' 7.0.0 cannot be checked here: this checkout has")
def a_version_of_a_task_is_invented(folder: Path) -> None:
    restated(folder, {"tasks.addition.version": "7.0.0"})
    forger = Forger(folder)
    for cell in forger.runs:
        if cell.startswith("addition"):
            forger.edit(cell, lambda r: r["task"].update(version="7.0.0"))
    forger.write()


@forgery("validate", "protocol 'CRL-9 1' is not known")
def a_protocol_is_invented(folder: Path) -> None:
    restated(folder, {}, name="CRL-9")


@forgery("validate", "made by crlbench '99.0.0', and this checkout is")
def a_later_crlbench_made_it(folder: Path) -> None:
    every(folder, lambda r: r["crlbench"].update(version="99.0.0"))


@forgery("validate", "environment.hardware_class: stored gpu-9000")
def a_class_of_hardware_is_invented(folder: Path) -> None:
    every(folder, lambda r: r["environment"].update(hardware_class="gpu-9000", device="H9000"))


# What runs that began alike do not agree in.


def first_digests(folder: Path, arm: str, key: str, change: Callable[..., Any]) -> None:
    """Change a digest of the first iteration of the runs of an arm."""
    forger = Forger(folder)
    for cell in forger.runs:
        if f"/{arm}/" in cell:
            rows = forger.lines(cell, "digests.jsonl")
            rows[0][key] = change(cell, rows[0][key])
            forger.put_lines(cell, "digests.jsonl", rows)
    forger.write()


@forgery("validate", "completions of iteration 1: .* began alike: the same model, task, seed")
def one_arm_drew_other_completions(folder: Path) -> None:
    first_digests(folder, "placebo", "completions", hashed)


@forgery("validate", r"tokens here, .*: one of the digests is invented")
def one_digest_serves_all_runs(folder: Path) -> None:
    for arm in ("real", "placebo"):
        first_digests(folder, arm, "completions", lambda *_: "c" * 64)


@forgery("validate", r"splits\.hard\.start: .* items are others than in")
def the_start_was_worse_in_one_run(folder: Path) -> None:
    forger = Forger(folder)
    arrays = forger.items(CELL)
    arrays["start/hard"] = 1 - arrays["start/hard"]
    forger.put_items(CELL, arrays)
    forger.write()


# Another machine is named, which rounds differently: a name excuses nothing but rounding.


def elsewhere(folder: Path, change: Callable[[Forger, str], Any], source: bool = False) -> None:
    """Runs that state another processor, or other sources, and are changed otherwise too."""
    forger = Forger(folder)
    for cell in forger.runs:
        change(forger, cell)
        if source:
            forger.edit(cell, lambda r: r["crlbench"].update(source_tree_sha256="5" * 64))
        else:
            forger.edit(cell, lambda r: r["environment"].update(cpu="AMD EPYC 9754"))
    forger.write()


def digest_lines(change: Callable[[str, int, Json], Any]) -> Callable[[Forger, str], None]:
    """Change each line of the digests of a run; its mean loss follows."""

    def apply(forger: Forger, cell: str) -> None:
        rows = forger.lines(cell, "digests.jsonl")
        for row in rows:
            change(cell, row["iteration"], row)
        forger.put_lines(cell, "digests.jsonl", rows)
        means = [np.mean([float.fromhex(x) for x in row["losses"]]) for row in rows]
        stored = [float(f"{mean:.7g}") for mean in means]
        forger.edit(cell, lambda r: r["health"].update(loss=[*stored, *r["health"]["loss"][3:]]))

    return apply


def invented(*names: str) -> Callable[[str, int, Json], None]:
    """Digests of these names that belong to nothing, one of its own for each place."""

    def change(cell: str, iteration: int, row: Json) -> None:
        # What runs that began alike have in common is invented for all of them alike.
        task, _, seed = cell.split("/")
        place = (task, seed) if iteration == 1 else (cell, iteration)
        for name in names:
            row[name] = hashed(*place, name)

    return change


@forgery("verify --updates 3", "update 1: sampled token ids")
def another_processor_made_it_all_up(folder: Path) -> None:
    """Every digest and loss is invented, and the health says that there was nothing to learn."""

    def change(cell: str, iteration: int, row: Json) -> None:
        invented("completions", "rewards", "parameters")(cell, iteration, row)
        row["losses"] = [(-37 * float.fromhex(x) + 5).hex() for x in row["losses"]]

    def all_of_it(forger: Forger, cell: str) -> None:
        digest_lines(change)(forger, cell)
        nothing = {"uniform_groups": [1.0] * 3, "group_variance": [0.0] * 3}
        forger.edit(cell, lambda r: r["health"].update(nothing))

    elsewhere(folder, all_of_it)


@forgery("verify --updates 3", "update 1: sampled token ids.*no draw of the replay lies near")
def another_processor_drew_other_completions(folder: Path) -> None:
    elsewhere(folder, digest_lines(invented("completions")))


@forgery("verify --updates 3", "update 1: rewards.*the same completions are paid the same")
def another_processor_paid_other_rewards(folder: Path) -> None:
    elsewhere(folder, digest_lines(invented("rewards")))


@forgery("verify --updates 3", "update 1: parameters.*every loss and figure is equal")
def other_sources_gave_other_weights(folder: Path) -> None:
    elsewhere(folder, digest_lines(invented("parameters")), source=True)


@forgery("verify --updates 3", r"update 1: losses\[")
def another_processor_lost_otherwise(folder: Path) -> None:
    def change(cell: str, iteration: int, row: Json) -> None:
        row["losses"] = [(float.fromhex(x) + 0.004).hex() for x in row["losses"]]

    elsewhere(folder, digest_lines(change))


@forgery("verify --updates 3", r"update 1: health\.entropy")
def other_sources_were_less_certain(folder: Path) -> None:
    def change(forger: Forger, cell: str) -> None:
        forger.edit(cell, lambda r: r["health"].update(
            entropy=[1.2 * value for value in r["health"]["entropy"]]
        ))

    elsewhere(folder, change, source=True)


def continued(forger: Forger) -> None:
    """Say of every run that it was continued from a checkpoint."""
    starts = [event for event in forger.ledger if event["event"] == "start"]
    for start in starts:
        resumed = json.loads(json.dumps(start)) | {"event": "resume"}
        forger.ledger.insert(forger.ledger.index(start) + 1, resumed)


@forgery("verify --updates 3", "update 1: parameters")
def a_continued_run_came_to_other_weights(folder: Path) -> None:
    forger = Forger(folder)
    continued(forger)
    for cell in forger.runs:
        digest_lines(invented("parameters"))(forger, cell)
    forger.write()


@forgery("verify --updates 3", r"update 2: losses\[")
def a_continued_run_lost_otherwise(folder: Path) -> None:
    """By as little as another machine might: its own one is named, which rounds as it does."""

    def change(cell: str, iteration: int, row: Json) -> None:
        if iteration > 1:
            row["losses"] = [(float.fromhex(x) + 1e-7).hex() for x in row["losses"]]

    forger = Forger(folder)
    continued(forger)
    for cell in forger.runs:
        digest_lines(change)(forger, cell)
    forger.write()


# A whole run of eight iterations, invented after those that are digested.


def forged_later(
    change: Callable[[Json, dict[str, np.ndarray]], Any],
) -> Callable[[Path], None]:
    """Item vectors after the third iteration are changed, under another processor's name."""

    def forge(folder: Path) -> None:
        def apply(forger: Forger, cell: str) -> None:
            arrays = {name: vector.copy() for name, vector in forger.items(cell).items()}
            change(forger.record(cell), arrays)
            forger.put_items(cell, arrays)

        elsewhere(folder, apply)

    return forge


def later_points(record: Json) -> list[str]:
    return [point["items_ref"] for point in record["curve"][4:]]


@forgery("verify --updates all", r"items of curve/\d+, \d+ of 32: stored 1\.0|Λ")
def the_curve_jumps_after_the_digests(folder: Path) -> None:
    def solved(record: Json, arrays: dict[str, np.ndarray]) -> None:
        for ref in later_points(record):
            arrays[ref][:] = 1

    forged_later(solved)(folder)


@forgery("verify --updates all", r"captured \(Λ\)")
def the_curve_is_a_little_better_throughout(folder: Path) -> None:
    """Every evaluation lies within what one evaluation may be apart; what they add up to not."""

    def better(record: Json, arrays: dict[str, np.ndarray]) -> None:
        for ref in later_points(record):
            wrong = np.flatnonzero(arrays[ref] == 0)[:7]
            arrays[ref][wrong] = 1

    forged_later(better)(folder)


@forgery("verify --updates all", r"items of end/(hard|format), \d+ of 32: stored 1\.0")
def the_end_is_solved(folder: Path) -> None:
    def solved(record: Json, arrays: dict[str, np.ndarray]) -> None:
        for name in ("end/hard", "end/format"):
            arrays[name][:] = 1

    forged_later(solved)(folder)


def by_name() -> Iterator[Any]:
    """Those that a replay of three updates catches take seconds each."""
    for name, (_, command, _) in FORGERIES.items():
        yield pytest.param(name, marks=pytest.mark.slow) if "--updates" in command else name


@pytest.mark.parametrize("name", by_name())
def test_a_forgery_is_caught(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    forge, command, words = FORGERIES[name]
    longer = "long_" if "--updates all" in command else ""
    entry, home = (request.getfixturevalue(f"{longer}{what}") for what in ("entry", "home"))
    folder = copied(entry, tmp_path / "results")
    forge(folder)
    verb, *flags = command.split()
    if name == "anothers_curve_is_copied":
        (folder,) = [p.parent for p in folder.parents[1].rglob(PACKED) if p.parent != folder]
    else:
        folder = moved(folder)
    done = crlbench("--quiet", verb, folder, *flags, catalog=home)
    assert done.returncode == {"validate": 3, "verify": 5}[verb], done.stdout + done.stderr
    assert re.search(words, done.stdout + done.stderr), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def moved(folder: Path) -> Path:
    """The entry in the folder of the board that its plan names."""
    board = folder.parents[1]
    try:
        plan = json.loads((folder / PLAN_NAME).read_text())
        target = board.rename(board.with_name(f"{plan['track']}-{plan['fingerprint']}"))
    except (ValueError, KeyError):
        return folder
    return target / folder.relative_to(board)


def test_there_are_enough() -> None:
    assert len(FORGERIES) >= 195


def test_the_honest_entry_is_accepted(entry: Path, home: Path) -> None:
    done = crlbench("--quiet", "validate", entry, catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "keeps every rule" in done.stdout


def test_files_that_were_made_again_are_accepted(entry: Path, home: Path, tmp_path: Path) -> None:
    folder = copied(entry, tmp_path / "results")
    start = "0123456789ab"
    for name in (f"{start}/addition_id.npz", f"{start}/_retain.npz", f"{CELL}/curve.csv"):
        event("rebuilt", name, reason="it was damaged")(folder)
    done = crlbench("--quiet", "validate", folder, catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr


PULL_REQUESTS: dict[str, tuple[Callable[[Path, Path], Any], tuple[str, ...], str]] = {}
"""What only the base shows: what is done to a checkout with an entry, flags, and the words."""


def brought(words: str, *flags: str) -> Callable[[Callable[[Path, Path], Any]], Any]:
    def add(forge: Callable[[Path, Path], Any]) -> Callable[[Path, Path], Any]:
        PULL_REQUESTS[forge.__name__] = forge, flags, words
        return forge

    return add


@brought("@mallory adds to an entry of @someone", "--author", "@mallory")
def somebody_elses_entry_is_extended(root: Path, entry: Path) -> None:
    extended(entry, 5)


@brought("submitter @someone, and @mallory brings it", "--author", "@mallory")
def an_entry_is_brought_in_anothers_name(root: Path, entry: Path) -> None:
    shutil.copytree(entry, entry.parent / "grpo")


def retracting(root: Path, entry: Path, **changes: str) -> None:
    body = {"entry": "/".join(entry.parts[-3:]), "records": "all", "date": "2026-11-24",
            "reason": "x", "by": "@crlbench-maintainer"}
    line = canonical_json(linked([], body | changes))
    (root / RETRACTIONS).write_text(f"{line}\n")


@brought("taken back by @crlbench-maintainer, and @mallory brings it", "--author", "@mallory")
def an_entry_is_retracted_in_a_maintainers_name(root: Path, entry: Path) -> None:
    retracting(root, entry)


@brought("day is out of range|month must be in 1..12|date")
def an_entry_is_retracted_on_a_day_that_there_is_not(root: Path, entry: Path) -> None:
    retracting(root, entry, date="2026-02-30")


@brought("date: 9999-12-31 is in the future")
def an_entry_is_retracted_on_a_day_to_come(root: Path, entry: Path) -> None:
    retracting(root, entry, date="9999-12-31")


@brought("taken back by @mallory: @someone submitted it, and only they or", "--author", "@mallory")
def an_entry_is_retracted_by_somebody_else(root: Path, entry: Path) -> None:
    retracting(root, entry, by="@mallory")


@brought("by: 'the maintainers', expected a GitHub handle")
def an_entry_is_retracted_by_nobody(root: Path, entry: Path) -> None:
    retracting(root, entry, by="the maintainers")


@brought("reason: holds a character that is not printed")
def a_retraction_turns_its_reason_around(root: Path, entry: Path) -> None:
    retracting(root, entry, by="@someone", reason="all is well\u202e")


@brought("retractions.jsonl:1: not in the bytes that .ci/retract writes")
def a_retraction_is_spelled_with_spaces(root: Path, entry: Path) -> None:
    retracting(root, entry, by="@someone")
    path = root / RETRACTIONS
    path.write_text(json.dumps(json.loads(path.read_text())) + "\n")


@brought("results stand alone in a pull request, and this one also touches code")
def the_page_of_the_results_comes_with_a_result(root: Path, entry: Path) -> None:
    extended(entry, 5)
    (root / RESULTS / "README.md").write_text("All of these are proven.\n")


@brought("README.md: is a link")
def the_page_of_the_results_becomes_a_link(root: Path, entry: Path) -> None:
    (root / RESULTS / "README.md").symlink_to("/etc/passwd")


@brought("tasks/x.*: is a submodule")
def a_task_is_another_repository(root: Path, entry: Path) -> None:
    git(root, "init", "-q", str(root / "tasks/x"))
    git(root / "tasks/x", "commit", "--allow-empty", "-m", "x")


@brought("models stand alone in a pull request, and this one also touches crlbench/proof/audit")
def the_rules_are_removed_beside_a_model(root: Path, entry: Path) -> None:
    for path in ("models/my-model.toml", "crlbench/proof/audit.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


@brought("also touches tests/models/conftest.py")
def a_model_brings_code_for_the_tests(root: Path, entry: Path) -> None:
    for path in ("models/my-model.toml", "tests/models/conftest.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


@brought("version: 1.0, and track 1 was published: a version only rises")
def a_published_track_gets_the_same_version_in_other_words(root: Path, entry: Path) -> None:
    path = root / "leaderboard/tracks/nano.toml"
    text = path.read_text().replace("1e-4", "1e-2")
    path.write_text(text.replace("version = 1\n", "version = 1.0\n"))


@brought("learning_rate: 0.01, and track 1 was published with 0.0001")
def a_published_track_is_made_easier(root: Path, entry: Path) -> None:
    path = root / "leaderboard/tracks/nano.toml"
    path.write_text(path.read_text().replace("1e-4", "1e-2"))


def archived(root: Path) -> Path:
    """A new archive of a track that was published with the tasks that it rests on."""
    run(based(standing(root)), "archive", "track", "nano")
    return root / OLD


@brought("nano@1: is no state in which track 'nano' 1 was published.*README.md is another")
def an_archive_is_put_together_from_two_commits(root: Path, entry: Path) -> None:
    """Each of its files was published; never beside the others."""
    words = (archived(root) / "tasks/addition/README.md").read_bytes()
    shutil.rmtree(root / OLD)
    for task in ("addition", "counting"):
        (root / "tasks" / task / "README.md").write_text("Other words.\n")
    run(based(root), "archive", "track", "nano")
    (root / OLD / "tasks/addition/README.md").write_bytes(words)
    sealed_again(root)


@brought("nano@1: is no state in which .*addition/README.md is missing")
def an_archive_leaves_something_out(root: Path, entry: Path) -> None:
    (archived(root) / "tasks/addition/README.md").unlink()
    sealed_again(root)


@brought("nano@1: is no state in which .*nano.toml is another")
def an_easier_track_is_archived(root: Path, entry: Path) -> None:
    track = archived(root) / "leaderboard/tracks/nano.toml"
    track.write_text(track.read_text().replace("1e-4", "1e-2"))
    sealed_again(root)


@brought("an archive is called name@version after the track that it holds")
def an_archive_is_called_a_later_version(root: Path, entry: Path) -> None:
    archived(root).rename((root / OLD).with_name("nano@2"))


@brought("nano@7: track 'nano' never had version 7")
def a_version_that_was_never_published_is_archived(root: Path, entry: Path) -> None:
    track = archived(root) / "leaderboard/tracks/nano.toml"
    track.write_text(track.read_text().replace("version = 1", "version = 7", 1))
    sealed_again(root)
    (root / OLD).rename((root / OLD).with_name("nano@7"))


@brought("stays at version 1 and rests on what rises: task 'addition' from 1.0.0 to 2.0.0")
def a_task_of_a_published_track_is_raised_alone(root: Path, entry: Path) -> None:
    archived(root)
    changed_task(root)
    run(root, "freeze", "addition", "--bump")


@pytest.mark.parametrize("name", PULL_REQUESTS)
def test_a_pull_request_is_caught(
    name: str, repository: Path, home: Path, entry: Path
) -> None:
    forge, flags, words = PULL_REQUESTS[name]
    track = repository / "leaderboard/tracks/nano.toml"
    track.parent.mkdir(parents=True)
    shutil.copy(home / "leaderboard/tracks/nano.toml", track)
    commit(repository)
    git(repository, "tag", "-f", "base")
    forge(repository, place(repository, entry))
    code, printed = validated(repository, home, *flags)
    assert code == 3 and re.search(words, printed), printed
