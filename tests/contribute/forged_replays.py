"""Forgeries that hold together: scoring or training again shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.contribute.catalogue import CELL, forgery, hashed
from tests.contribute.forger import Forger, Json


def replayed(key: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        forger = Forger(folder)
        for cell in forger.runs:
            rows = forger.lines(cell, "digests.jsonl")
            rows[1][key] = change(rows[1][key])
            forger.put_lines(cell, "digests.jsonl", rows)
        forger.write()

    return forge


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


@forgery("verify --updates 3", "update 2: sampled token ids")
def other_completions_were_trained_on(folder: Path) -> None:
    replayed("completions", hashed)(folder)


@forgery("verify --updates 3", "update 2: parameters")
def other_weights_came_out(folder: Path) -> None:
    replayed("parameters", hashed)(folder)


@forgery("verify --updates 3", "update 2: rewards")
def other_rewards_were_paid(folder: Path) -> None:
    replayed("rewards", lambda _: "c" * 64)(folder)


@forgery("verify --updates 3", r"items of curve/0, \d+ of 32")
def better_answers_are_invented(folder: Path) -> None:
    """Every third item; all of them would contradict the other draws of start and end."""
    forger = Forger(folder)
    for cell in forger.runs:
        arrays = forger.items(cell)
        for name in [name for name in arrays if name.startswith("curve/")]:
            arrays[name] = arrays[name].copy()
            arrays[name][::3] = 1
        forger.put_items(cell, arrays)
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
