"""Forgeries of what runs say of machines, of this checkout and of how they began."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contribute.catalogue import CELL, edited, every, forgery, hashed, restated
from tests.contribute.forger import Forger, Json

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


@forgery(
    "verify --recompute-only",
    r"splits\.transfer/counting\.start: .* items are others than in start/id of .*/ppo/counting/",
)
def the_start_transferred_worse_in_all_runs_of_a_task(folder: Path) -> None:
    forger = Forger(folder)
    for cell in [cell for cell in forger.runs if cell.startswith("addition/")]:
        arrays = forger.items(cell)
        arrays["start/transfer/counting"] = 1 - arrays["start/transfer/counting"]
        forger.put_items(cell, arrays)
    forger.write()


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
