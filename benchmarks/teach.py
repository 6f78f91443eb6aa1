"""The study "Does RL teach or elicit?": make what is missing, or write its page from the records.

    python benchmarks/teach.py size      cells and processor hours of the design
    python benchmarks/teach.py try       every step once at a tiny size, in minutes (--work DIR)
    python benchmarks/teach.py run       pretrain, train, and keep the records (--jobs N,
                                         --max-hours H; --dry-run prints what would run)
    python benchmarks/teach.py report    tables and figures, once every cell has a record

docs/studies/teach-or-elicit.md says what was fixed before the first run. ``run`` goes on where it
stopped, and prints no score. ``report`` refuses to look while cells are missing.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from teaching import tables
from teaching.design import DESIGN, TRIAL, Design, expected_seconds
from teaching.running import Study

from crlbench.errors import CrlbenchError, Incomplete, UsageError

ROOT = Path(__file__).parents[1]
RECORDS = Path(__file__).parent / "teaching" / "records"


def main(arguments: list[str] | None = None, design: Design = DESIGN) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("size", "try", "run", "report"))
    parser.add_argument("--work", type=Path, default=Path("runs/teach"),
        help="folder of weights and runs, which are not kept (runs/teach); try: of everything")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where report writes")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side (1)")
    parser.add_argument("--max-hours", type=float, help="stop after this time; run continues")
    parser.add_argument("--dry-run", action="store_true", help="print the commands of run")
    options = parser.parse_args(arguments)
    try:
        if options.max_hours is not None and not options.max_hours > 0:
            raise UsageError(f"--max-hours {options.max_hours}: must be above 0.")
        if options.what == "try":
            design, work = TRIAL, options.work / "try"
            options.work, options.records, options.docs = work, work / "records", work / "docs"
        end = None if options.max_hours is None else time.monotonic() + 3600 * options.max_hours
        study = Study(design, options.work, options.records, options.jobs, end)
        if options.what == "size":
            size(study)
        if options.what in ("run", "try"):
            run(study, options.dry_run)
        if options.what == "report" or options.what == "try" and not options.dry_run:
            for path in report(study, options.docs):
                print(path)
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run(study: Study, dry_run: bool) -> None:
    """Make what is missing, or print how.

    Raises:
        Incomplete: the time was over.
    """
    if dry_run:
        study.check_track()
        for what, command in study.steps():
            print(f"# {what}\n{shlex.join([sys.executable, *command])}")
        size(study)
        return
    if not study.run():
        raise Incomplete("out of time (--max-hours); the same command continues")
    print(f"complete: {study.spent / 3600:.1f} processor hours noted")


def size(study: Study) -> None:
    """Print the size of the design, and what is missing of it."""
    design = study.design
    starts = [start for moment in study.moments for start in design.starts(moment)]
    cells, missing = len(starts) * design.cells_of_start, sum(len(study.missing(s)) for s in starts)
    print(f"{len(starts)} starts, {cells} cells, {missing} without a record")
    print(f"expected: {expected_seconds(design) / 3600:.1f} processor hours of {design.hours:g}")
    print(f"spent: {study.spent / 3600:.1f}")


def report(study: Study, docs: Path) -> list[Path]:
    """Write the page and its figures.

    Raises:
        Incomplete: cells are missing, and nobody looks before the end.
    """
    starts = [start for moment in study.moments for start in study.design.starts(moment)]
    missing = sum(len(study.missing(start)) for start in starts)
    if missing:
        raise Incomplete(
            f"{missing} of {len(starts) * study.design.cells_of_start} cells have no record, and "
            "the plan allows no look before the end. Run: python benchmarks/teach.py run"
        )
    records = {start: study.read(start) for start in starts}
    return tables.write(records, study.design, study.left_out, docs)


if __name__ == "__main__":
    sys.exit(main())
