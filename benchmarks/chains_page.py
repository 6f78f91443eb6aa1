"""docs/studies/ppo-dpo-results.md, from the stored entries of the track ``preference``.

    python benchmarks/chains_page.py             # write the page
    python benchmarks/chains_page.py --check     # compare; exit code 1 where it differs

Its comparisons are those of docs/studies/ppo-dpo.toml. The rules were fixed before the first run
(ppo-dpo.md). ``--results runs/<board>`` reads runs that are not submitted.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from board_pages import update
from board_tables.tables import table

from crlbench.base import wording
from crlbench.base.wording import count, number
from crlbench.contract.spending import sum_charges
from crlbench.errors import CrlbenchError, UsageError
from crlbench.pages.words import span
from crlbench.stats.paired import Paired, paired
from crlbench.verdict.axes import MARGIN
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs
from crlbench.verdict.pairs import paired_axes
from crlbench.verdict.runs import Run

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "docs/studies/ppo-dpo.toml"
PAGE = ROOT / "docs/studies/ppo-dpo-results.md"
RESULTS = ROOT / "leaderboard/results"
BOARDS = (RESULTS / "preference-cdf522896947", RESULTS / "preference-0847728245ed")
"""Stored entries of versions 1 and 0 of the track."""
COMMAND = "python benchmarks/chains_page.py"
SIGNS = {"better": "▲", "worse": "▼", "equivalent": "■", "undecided": "○"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument(
        "--results", type=Path, nargs="+", default=BOARDS, help="folders of boards' entries"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="file that is written")
    options = parser.parse_args(arguments)
    try:
        return update({options.page: page(options.results)}, options.check, COMMAND)
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def page(results: Sequence[Path]) -> str:
    """The whole page.

    Raises:
        UsageError: there is no such folder.
    """
    study, runs, parts = tomllib.loads(STUDY.read_text(encoding="utf-8")), 0, list[str]()
    for folder in results:
        if not folder.is_dir():
            raise UsageError(f"no folder {folder}: run the study and submit it, or give --results.")
        loaded = load_runs(folder, "used")
        board, runs = summarise_board(loaded), runs + len(loaded.runs)
        for model in sorted({entry.model for entry in board.entries}):
            parts += _of_model(model, board, loaded.runs, study)
    head = [
        "# PPO against DPO at equal data: results",
        f"Written by `{COMMAND}` from the stored entries of the track "
        f"`preference` ({count(runs, 'run')}). [ppo-dpo.md](ppo-dpo.md) has the "
        "questions, the rules, and what the numbers mean. ▲ better, ▼ worse, ■ equivalent (within "
        f"±{MARGIN}), ○ undecided.",
    ]
    return "\n\n".join([*head, *parts]) + "\n"


def _of_model(
    model: str, board: Board, runs: Sequence[Run], study: dict[str, Any]
) -> Iterator[str]:
    entries = {entry.recipe: entry for entry in board.entries if entry.model == model}
    own = [run for run in runs if run.model == model]
    version = runs[0].record.fingerprint.leaves["track_version"]
    yield f"## {model.partition('@')[0]}, version {version} of the track"
    yield _chains(entries, own, board.tasks)
    yield (
        "Λ over the completions of the last stage and Λ_F over the FLOPs charged for all stages, "
        "with 95 % intervals over seeds and items. Then the sampled ID score after training, mean "
        "of the seeds; a failed seed counts with its start score. GFLOPs are those of all stages, "
        "the mean of the runs that did not fail; evaluation is free."
    )
    for comparison in study["comparison"]:
        base, versus = comparison["base"], comparison["versus"]
        yield f"**{comparison['name']}**: each chain minus `{base}`; task by task in Λ."
        yield _effects(entries, base, versus, board.tasks)


def _chains(entries: dict[str, Entry], runs: Sequence[Run], tasks: Sequence[str]) -> str:
    """Each chain, by its score."""
    order = sorted(entries, key=lambda name: -(entries[name].lam.value or 0.0))
    rows = []
    for name in order:
        score = entries[name].axes["efficiency"]
        own = [run for run in runs if run.recipe == name]
        failed = sum(run.record.status.state == "failed" for run in own)
        ends = [_end([run for run in own if run.task == task]) for task in tasks]
        rows.append([
            f"`{name}`", f"{number(entries[name].lam.value, 3)} {span(entries[name].lam.interval)}",
            f"{number(score.value, 3)} {span(score.interval)}", *ends, f"{failed} of {len(own)}",
            _flops(own),
        ])  # fmt: skip
    ends = [f"{task}, end" for task in tasks]
    return table(["chain", "Λ [95 %]", "Λ_F [95 %]", *ends, "failed", "GFLOPs"], rows)


def _end(runs: Sequence[Run]) -> str:
    scores = [run.record.splits["id"] for run in runs]
    return number(fmean(s.start if s.end is None else s.end for s in scores), 3) if scores else "–"


def _flops(runs: Sequence[Run]) -> str:
    sound = [run.record for run in runs if run.record.status.state != "failed"]
    charges = [sum_charges(record.lineage or (), record.ledger) for record in sound]
    flops = [one.flops / 1e9 for one in charges if one is not None]
    return wording.grouped(round(fmean(flops))) if flops else "–"


def _effects(
    entries: dict[str, Entry], base: str, versus: Sequence[str], tasks: Sequence[str]
) -> str:
    """The difference of each chain from a base: all tasks, then task by task."""
    rows = []
    for name in versus:
        if not {name, base} <= entries.keys():
            rows.append([f"`{name}`", "not run", "–", *["–"] * len(tasks)])
            continue
        pair = entries[base], entries[name]
        charged = paired_axes(*pair)["efficiency"].effect
        rows.append([
            f"`{name}`", _difference(_paired(*pair, tasks)), _difference(charged),
            *(_difference(_paired(*pair, [task])) for task in tasks),
        ])  # fmt: skip
    return table(["chain", "Λ [95 %]", "Λ_F [95 %]", *tasks], rows)


def _paired(base: Entry, arm: Entry, tasks: Sequence[str]) -> Paired | None:
    """The difference of Λ over completions, whatever the board ranks by; None without a number."""
    parts = [
        (base.evidence.whole_replicates(task), arm.evidence.whole_replicates(task))
        for task in tasks
    ]
    if any(None in pair for pair in parts):
        return None
    return paired(*zip(*parts, strict=True), margin=MARGIN)


def _difference(effect: Paired | None) -> str:
    if effect is None:
        return "–"
    return f"{SIGNS[effect.verdict]} {number(effect.value, 3, signed=True)} {span(effect.interval)}"


if __name__ == "__main__":
    raise SystemExit(main())
