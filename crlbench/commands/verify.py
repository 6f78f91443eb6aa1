"""``crlbench verify``: the proof that a stored number was made under the conditions it states."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.base.wording import listed
from crlbench.commands.console import count, note, out, out_json
from crlbench.errors import OK, EnvironmentUnfit, Mismatch, UsageError, ValidationError

if TYPE_CHECKING:
    from crlbench.commands.verify_recompute import Recomputed
    from crlbench.commands.verify_replay import Replayed
    from crlbench.proof.effort import Extent

SHOWN = 20
"""Findings that are listed for people; ``--json`` has all."""
TOLERANCES = ("class", "bitwise")
READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench verify runs/mini-0123456789ab/my-model@89abcdef/ppo
  crlbench verify runs/mini-0123456789ab/my-model@89abcdef/ppo/addition/real/seed-00 --updates all
  crlbench verify runs/mini-0123456789ab --recompute-only --json

Exit code 5: something stored is wrong; each problem is named. 6: the model is not here.
What each step proves, and what no step proves: docs/trust.md.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("result", metavar="RESULT",
        help="a run, an entry (one model with one recipe) or a board; nothing is written into it")
    add("--updates", metavar="R",
        help="retrain the first R updates (3, or up to the first evaluation after the start), or a "
        "whole run: all; an update is an iteration, a rollout and its optimizer steps")
    add("--seed-index", metavar="I", default="random",
        help="seed to replay, for every task and arm: an index, or random; "
        "the choice is printed (random)")
    add("--tolerance", metavar="T", choices=TOLERANCES, default="class",
        help="class: equal bits on the class of machine of the run, a band on others; "
        "bitwise: always equal bits (class)")
    add("--recompute-only", action="store_true", help="replay nothing")
    add("--max-minutes", metavar="M", default="60",
        help="refuse a replay with an estimate above this, in minutes of one core (60)")
    add("--badge", metavar="BY",
        help="for maintainers of a leaderboard: write what was proven, and by whom, to "
        "verification.jsonl beside the plan")


def run(options: Namespace) -> int:
    """Compute a result again, make its first updates again, and say what is proven.

    Returns 0 where everything agrees, 5 where something does not, and 6 where a model or a recipe
    of the result is not here, so that its names were compared with nothing.

    Raises:
        ValidationError: it states a track, a task or a version that this checkout does not know.
    """
    from crlbench.catalog.find import Catalog
    from crlbench.commands.verify_recompute import check_bytes, recompute
    from crlbench.commands.verify_replay import choose_seed, replay, require_budget, write_badges
    from crlbench.contract.retractions import tombstone
    from crlbench.contribute.results.changes import base_of
    from crlbench.proof.entry import homes_of
    from crlbench.verdict.archive import retractions_of
    from crlbench.verdict.load import load_runs

    if (line := tombstone(Path(options.result))) is not None:
        raise UsageError(f"{options.result}: nothing is left to verify. {line.sentence()}")
    extent, minutes = _extent(options.updates), _minutes(options.max_minutes)
    runs, catalog = load_runs(options.result), Catalog(options.catalog)
    homes, retracted = homes_of(runs), retractions_of(runs)
    check_bytes(homes)
    if options.badge is not None and any(run.folder not in homes for run in runs):
        raise UsageError("--badge: give the folder of an entry, which holds plan.json.")
    note(options, f"computing {count(len(runs), 'run')} again...")
    recomputed = recompute(runs, homes, catalog, base_of(Path(options.result)))
    if recomputed.refused:
        raise ValidationError(
            f"{options.result}: cannot be verified, because this checkout does not know what it "
            f"names: {' '.join(recomputed.refused)}"
        )
    if not options.json:
        for entry, sentence in retracted:
            out(f"{entry}: {sentence}")
        _say_recomputed(recomputed, len(runs))
    replays: list[Replayed] = []
    seed = None
    if not options.recompute_only and not recomputed.all_findings:
        seed = choose_seed(options.seed_index, runs.runs)
        how = f", drawn at random; --seed-index {seed} repeats it"
        if not options.json:
            out(f"seed index {seed}{how if options.seed_index == 'random' else ''}:")
        same_seed = [run for run in runs if run.record.seed.index == seed]
        note(options, require_budget(same_seed, catalog, extent, minutes, options.home))
        bitwise = options.tolerance == "bitwise"
        for one in replay(same_seed, homes, recomputed.comparisons, catalog, extent, bitwise):
            replays.append(one)
            if not options.json:
                _say_replayed(one)
    if options.badge is not None:
        write_badges(options.badge, runs.runs, homes, recomputed, replays)
    if options.json:
        sentences = [{"entry": entry, "sentence": sentence} for entry, sentence in retracted]
        out_json(_as_json(recomputed, replays, seed) | {"retracted": sentences})
    elif not recomputed.all_findings:
        _say_open(options, recomputed, replays)
    if recomputed.all_findings or any(one.outcome == "mismatch" for one in replays):
        return Mismatch.exit_code
    return EnvironmentUnfit.exit_code if recomputed.absent else OK


def _extent(text: str | None) -> Extent:
    """How much of each run is made again; None: what a replay makes unless told."""
    from crlbench.proof.effort import Extent

    if text is None or text == "all":
        return Extent(is_whole=text is not None)
    if not text.isdigit() or not int(text):
        raise UsageError(f"--updates {text}: a whole number from 1, or all.")
    return Extent(int(text))


def _minutes(text: str) -> float:
    """The minutes that a replay may take."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise UsageError(f"--max-minutes {text}: a number above 0.")
    return minutes


def _say_recomputed(recomputed: Recomputed, runs: int) -> None:
    findings = recomputed.all_findings
    if findings:
        out(f"MISMATCH: {count(len(findings), 'value')} of {count(runs, 'run')}:")
        for finding in findings[:SHOWN]:
            out(f"  {finding}")
        if len(findings) > SHOWN:
            out(f"  and {len(findings) - SHOWN} more (--json lists all)")
        return
    out(f"recomputed: {count(runs, 'run')}: scores, curve, figures, status and names agree")
    judges = ", ".join(sorted(recomputed.verifiers))
    if recomputed.samples:
        out(f"verified again: {count(recomputed.samples, 'stored completion')} ({judges})")
    if recomputed.episodes:
        out(f"played again: {count(recomputed.episodes, 'stored episode')}, turn by turn")


def _say_replayed(one: Replayed) -> None:
    length = "the whole run" if one.whole else f"{count(one.updates, 'update')}"
    extent = f"{length}, {count(one.evaluations, 'evaluation')}"
    if one.outcome == "equal":
        out(f"  replayed: {one.run.name}: {extent}: equal to the last bit")
        return
    first = next((d for d in one.differences if not d.within), one.differences[0])
    if one.outcome == "within":
        out(f"  within a band: {one.run.name}: {extent}: no proof until a second witness agrees")
        out(f"    first difference: {one.differences[0]}")
        out(f"    the machines differ in {_machines(one.elsewhere)}")
        return
    out(f"  MISMATCH: {one.run.name}: {extent}")
    out(f"    first difference: {one.differences[0]}")
    if first is not one.differences[0]:
        out(f"    beyond the band: {first}")
    elsewhere = _machines(one.elsewhere) if one.elsewhere else "nothing that explains it"
    out(f"    the machines differ in {elsewhere}")


def _machines(elsewhere: Any) -> str:
    pairs = [f"{name} ({_short(a)}; here {_short(b)})" for name, (a, b) in elsewhere.items()]
    return listed(pairs, 4)


def _short(value: Any) -> str:
    return str(value) if len(str(value)) <= 40 else f"{str(value)[:12]}..."


def _say_open(options: Namespace, recomputed: Recomputed, replays: Sequence[Replayed]) -> None:
    """What was not proven."""
    for gap in recomputed.gaps:
        out(f"not checked: {gap}")
    if any(one.outcome == "within" for one in replays):
        out(
            "not proven: runs that are within a band. Equal bits prove a run; two machines round "
            "differently. Replay it on the machine that it names (--tolerance bitwise), or ask "
            "somebody else to replay it on another."
        )
    if without := [one for one in replays if one.lacks_evaluation]:
        first = max(one.first_evaluation for one in without)
        out(
            f"not proven: any score after the start of {count(len(without), 'replayed run')}, "
            f"whose first evaluation comes after update {first} (--updates {first} makes it)"
        )
    if options.recompute_only:
        out("not proven: that the curve and the vectors came from training under these conditions")
    elif options.updates != "all":
        out("not proven: what came after the replayed updates (--updates all makes a whole run)")


def _as_json(
    recomputed: Recomputed, replays: Sequence[Replayed], seed: int | None
) -> dict[str, Any]:
    return {
        "runs": list(recomputed.findings),
        "findings": [asdict(finding) for finding in recomputed.all_findings],
        "not_checked": recomputed.gaps,
        "samples": recomputed.samples,
        "episodes": recomputed.episodes,
        "prompts": recomputed.prompts,
        "seed_index": seed,
        "replays": [
            {
                "run": one.run.name,
                "record_id": one.run.record.record_id,
                "updates": "all" if one.whole else one.updates,
                "evaluations": one.evaluations,
                "first_evaluation": one.first_evaluation,
                "outcome": one.outcome,
                "other_class": {name: list(pair) for name, pair in one.elsewhere.items()},
                "differences": [asdict(d) for d in one.differences],
            }
            for one in replays
        ],
    }
