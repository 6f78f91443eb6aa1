"""Forgeries of what a run came to, or was made by, after which every hash fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.conditions import fingerprint
from crlbench.contract.model_card import read_model_card
from tests.contribute.catalogue import (
    CELL,
    PLACEBO,
    SECOND,
    edited,
    forgery,
    hashed,
    rechained,
    repacked,
)
from tests.contribute.forger import Forger, Json

MODELS = Path(__file__).parents[2] / "models"

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


@forgery("verify --recompute-only", "real arm: planned and not there: addition seed-01")
def a_bad_seed_is_dropped_from_archive_and_ledger(folder: Path) -> None:
    a_bad_seed_is_dropped(folder)


@forgery("verify --recompute-only", "real arm: ended, says the ledger, .*: addition seed-01")
def a_bad_seed_is_dropped_from_the_archive(folder: Path) -> None:
    forger = Forger(folder)
    del forger.runs[SECOND]
    forger.write()


@forgery("validate", "placebo arm: ended, says the ledger, .*: addition seed-00, addition seed-01")
def a_whole_arm_is_dropped_from_the_archive(folder: Path) -> None:
    forger = Forger(folder)
    forger.runs = {cell: run for cell, run in forger.runs.items() if "/placebo/" not in cell}
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


@forgery("validate", r"the same parameters of iteration \d as .*: one was copied")
def anothers_curve_is_copied_but_for_a_bit(folder: Path) -> None:
    """Of each run one item of one evaluation and the digests of the last iteration are others."""
    forger = Forger(folder)
    for cell in forger.runs:
        arrays = forger.items(cell)
        ref = forger.record(cell)["curve"][1]["items_ref"]
        arrays[ref] = arrays[ref].copy()
        arrays[ref][-1] = 1 - arrays[ref][-1]
        forger.put_items(cell, arrays)
        rows = forger.lines(cell, "digests.jsonl")
        rows[-1]["parameters"] = hashed(cell)
        forger.put_lines(cell, "digests.jsonl", rows)
    forger.write()
    anothers_curve_is_copied(folder)


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
