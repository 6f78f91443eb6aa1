"""Forgeries of what stands around the runs: plans, ledgers, completions, checks, conditions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.contract.attempts import plan_hash
from crlbench.contract.conditions import PROTOCOL_LEAF
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from tests.contribute.catalogue import CELL, HOME, NOVEL, edited, forgery, rechained, restated
from tests.contribute.forger import Forger, Json

# Plans and ledgers.


def declaring(change: Callable[[Json], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        forger = Forger(folder)
        change(forger.plan)
        forger.declare()
        forger.write()

    return forge


@forgery("validate", "plan.json: not in the bytes that crlbench writes")
def the_protocol_of_the_plan_is_a_text(folder: Path) -> None:
    declaring(lambda plan: plan.update(protocol="1"))(folder)


@forgery("validate", r"plan\.json: track_version: stored 2, expected 1")
def the_plan_is_of_another_version_of_the_track(folder: Path) -> None:
    declaring(lambda plan: plan.update(track_version=2))(folder)


@forgery("validate", r"plan\.json: seeds: stored .*by its other fields")
def a_plan_lists_seeds_of_its_own(folder: Path) -> None:
    declaring(lambda plan: plan["seeds"]["addition"][0].update(value=1))(folder)


@forgery("validate", r"plan\.json: seeds: stored .*by its other fields")
def a_plan_lists_thousands_of_seeds(folder: Path) -> None:
    more = [{"index": i, "value": i} for i in range(2, 5000)]
    declaring(lambda plan: plan["seeds"]["addition"].extend(more))(folder)


@forgery("validate", r"plan\.json: board_tasks: stored .*<script>")
def a_board_has_a_novel_among_its_tasks(folder: Path) -> None:
    declaring(lambda plan: plan["board_tasks"].append(NOVEL))(folder)


@forgery("validate", r"plan\.json: tasks: stored 3, expected 2")
def a_task_is_planned_twice(folder: Path) -> None:
    declaring(lambda plan: plan["tasks"].append("addition"))(folder)


@forgery("validate", r"plan\.json: model\.revision8|subject\.revision: stored")
def a_plan_names_another_revision(folder: Path) -> None:
    declaring(lambda plan: plan["model"].update(revision8="<script>"))(folder)


def declared_before(change: Callable[[Json], Any]) -> Callable[[Path], None]:
    """Another plan stands in the ledger before the one that was run."""

    def forge(folder: Path) -> None:
        forger = Forger(folder)
        forger.write()
        earlier = json.loads(json.dumps(forger.ledger[0]))
        change(earlier["detail"])
        earlier["detail"]["plan_hash"] = plan_hash(earlier["detail"])
        forger.ledger.insert(0, earlier)
        rechained(forger, folder)

    return forge


@forgery("validate", r"line 1: detail\.(control|fingerprint): stored")
def an_earlier_plan_is_a_novel(folder: Path) -> None:
    declared_before(lambda plan: plan["control"].update(novel=NOVEL * 2000))(folder)


@forgery("validate", r"line 1: detail\.track: stored evil-track")
def an_earlier_plan_is_of_another_board(folder: Path) -> None:
    declared_before(lambda plan: plan.update(track="evil-track"))(folder)


@forgery("validate", r"line 1: detail\.model\.name: stored <script>")
def an_earlier_plan_is_of_another_model(folder: Path) -> None:
    declared_before(lambda plan: plan["model"].update(name="<script>"))(folder)


@forgery("validate", r"line 1: detail\.recipe\.config: stored False")
def an_earlier_recipe_is_a_novel(folder: Path) -> None:
    declared_before(lambda plan: plan["recipe"].update(config={"text": NOVEL * 2000}))(folder)


def event(name: str, cell: str, **detail: Any) -> Callable[[Path], None]:
    """One event more, at the end of the ledger."""

    def forge(folder: Path) -> None:
        forger = Forger(folder)
        forger.write()
        last = dict(forger.ledger[-1])
        forger.ledger.append(last | {"event": name, "cell": cell, "detail": detail})
        rechained(forger, folder)

    return forge


@forgery("validate", r"cell: stored .*seed-77, expected a planned cell|addition seed-77")
def a_run_ended_that_nobody_planned(folder: Path) -> None:
    ended = {"record_id": "0" * 64, "items_sha256": "1" * 64}
    event("done", f"{HOME}/addition/real/seed-77", **ended)(folder)


@forgery("validate", r"cell: stored evil\.html, expected a file of a run")
def a_file_that_no_run_has_was_rebuilt(folder: Path) -> None:
    event("rebuilt", "evil.html", reason="x")(folder)


@forgery("validate", r"detail\.record_id: stored .*Field required")
def the_ends_name_no_records(folder: Path) -> None:
    forger = Forger(folder)
    forger.write()
    for entry in forger.ledger:
        if entry["event"] == "done":
            entry["detail"] = {}
    rechained(forger, folder)


@forgery("validate", r"record\.json: sha256: stored .*the ledger says that the run ended with this")
def the_record_is_another_file_than_the_run_left(folder: Path) -> None:
    """The seconds of a run stand outside of its id, and inside of the digest of its file."""
    forger = Forger(folder)
    forger.write()
    for entry in forger.ledger:
        if entry["event"] == "done":
            entry["detail"]["record_sha256"] = "0" * 64
    rechained(forger, folder)


# Completions, and what is said of a check.


def samples(change: Callable[[Json], Any], copies: int = 1) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        forger = Forger(folder)
        rows = forger.lines(CELL, "samples.jsonl.zst") * copies
        for row in rows:
            change(row)
        forger.put_lines(CELL, "samples.jsonl.zst", rows)
        forger.write()

    return forge


@forgery("validate", r"samples\.jsonl\.zst: \(whole\): stored 6400, expected 64")
def a_hundred_times_as_many_samples(folder: Path) -> None:
    samples(lambda row: None, copies=100)(folder)


@forgery("validate", r"line 1: answer: stored <script>.*expected 29")
def an_answer_is_a_novel(folder: Path) -> None:
    samples(lambda row: row.update(answer=NOVEL))(folder)


@forgery("validate", r"line 1: completion: stored \d+ characters, expected at most \d+ bytes")
def a_completion_is_longer_than_the_cap(folder: Path) -> None:
    samples(lambda row: row.update(completion=row["completion"] + NOVEL * 999))(folder)


@forgery("validate", r"line 1: x: stored 7, expected 0")
def samples_of_another_moment(folder: Path) -> None:
    samples(lambda row: row.update(x=7))(folder)


@forgery("validate", r"line \d+: score: stored 1\.0, expected 0\.0 \(start/id")
def samples_are_paid_more_than_their_items(folder: Path) -> None:
    samples(lambda row: row.update(score=1.0))(folder)


def badge(**changes: Any) -> Callable[[Path], None]:
    """A line of ``verification.jsonl`` with a chain that holds."""

    def forge(folder: Path) -> None:
        body = {
            "record_id": Forger(folder).record(CELL)["record_id"],
            "run": f"{HOME}/{CELL}",
            "kind": "reproduced",
            "by": "maintainers",
            "date": "2026-11-20T00:00:00Z",
            "updates": "all",
            "outcome": "equal",
            "crlbench": "0.1.0",
        }
        line = canonical_json(linked([], body | changes))
        (folder / "verification.jsonl").write_text(f"{line}\n")

    return forge


@forgery("validate", "verification.jsonl:1: expected the fields")
def a_badge_has_a_field_more(folder: Path) -> None:
    badge(note=NOVEL * 999)(folder)


@forgery("validate", r"verification.jsonl:1: record_id: f+\.\.\. is no record of this entry")
def a_badge_of_another_entry(folder: Path) -> None:
    badge(record_id="f" * 64)(folder)


@forgery("validate", "verification.jsonl:1: date: 9999-12-31T23:59:59Z is in the future")
def a_badge_of_the_year_9999(folder: Path) -> None:
    badge(date="9999-12-31T23:59:59Z")(folder)


@forgery("validate", "verification.jsonl:1: by: ")
def a_badge_in_the_name_of_a_script(folder: Path) -> None:
    badge(by="<script>alert(1)</script>")(folder)


# Leaves and protocols that nothing here has.


@forgery("validate", r"fingerprint\.leaves\.retain\.copy\.sha256: stored 0+, expected")
def other_passages_are_retained(folder: Path) -> None:
    restated(folder, {"retain.copy.sha256": "0" * 64})


@forgery("validate", r"fingerprint\.leaves\.tasks\.addition\.note: stored x, expected None")
def a_condition_that_no_track_has(folder: Path) -> None:
    restated(folder, {"tasks.addition.note": "x"})


@forgery("validate", r"fingerprint\.leaves\.protocol: stored 0, expected 1|seeds are derived")
def a_protocol_before_the_first(folder: Path) -> None:
    restated(folder, {"protocol": 0}, version=0)


@forgery("validate", "protocol 'CRL-9 1' is not known: this checkout has 'CRL-1, CRL-2 1'")
def a_protocol_that_nobody_wrote(folder: Path) -> None:
    restated(folder, {PROTOCOL_LEAF: "CRL-9"}, name="CRL-9")


@forgery("validate", r"protocol\.name: stored CRL-9, expected CRL-1")
def runs_name_another_protocol_than_their_conditions(folder: Path) -> None:
    restated(folder, {}, name="CRL-9")


@forgery("validate", r"protocol\.name: stored CRL-1, expected CRL-9")
def conditions_name_another_protocol_than_their_runs(folder: Path) -> None:
    restated(folder, {PROTOCOL_LEAF: "CRL-9"})


@forgery("validate", r"fingerprint\.leaves\.protocol_name: stored CRL-1, expected None")
def the_protocol_is_named_where_it_goes_without_saying(folder: Path) -> None:
    """The same conditions under another fingerprint: a board of one's own."""
    restated(folder, {PROTOCOL_LEAF: "CRL-1"})


@forgery("validate", r"protocol\.name: stored CRL-1, expected None|expected None")
def the_protocol_is_nothing(folder: Path) -> None:
    restated(folder, {PROTOCOL_LEAF: None})


@forgery("validate", r"protocol\.name: stored CRL-9, expected CRL-1|different conditions")
def one_run_names_another_protocol(folder: Path) -> None:
    edited(CELL, lambda record: record["protocol"].update(name="CRL-9"))(folder)
