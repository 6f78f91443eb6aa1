"""``python -m tests.fuzz --inputs 1000000``, and ``--replay FILE`` for an input that failed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import campaign, guard
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import attempt, prepared

FAILURES = Path("build/fuzz")


def main() -> int:
    """0 where every input was read or refused; 1 where one broke something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000, help="of all targets together")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=campaign.processes())
    parser.add_argument("--failures", type=Path, default=FAILURES, help="where inputs are saved")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="read a saved input again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        if options.replay is not None:
            return replay(options.replay.resolve(), Path(root))
        begun = time.monotonic()
        chosen = [TARGETS[name] for name in options.target or TARGETS]
        failures = options.failures.resolve()
        found = campaign.run(
            chosen, options.inputs, options.seed, Path(root), failures, options.jobs
        )
    print(campaign.table(found))
    print(f"\n{time.monotonic() - begun:.0f} s, seed {options.seed}, {options.jobs} processes")
    broken = [(n, w, f) for n, one in found.items() for w, f in sorted(one.failures.items())]
    for name, what, files in broken:
        print(f"\n{name}: {what}", *(f"\n  python -m tests.fuzz --replay {f}" for f in files[:3]))
    return 1 if broken else 0


def replay(path: Path, root: Path) -> int:
    """Read one saved input and say what happens, with a traceback; 1 where it still breaks."""
    target = TARGETS[path.name.split(".")[0]]
    place = guard.make_places(root)
    (root / "corpus").mkdir()
    prepared(target, root / "corpus", place)
    what, seconds = attempt(target, path.read_bytes(), place, guard.Guard(place), show=True)
    said = "read" if what is None else what or "refused"
    print(f"{target.name}: {said} ({seconds:.2f} s of CPU time)", file=sys.stderr)
    return 0 if what in (None, "") else 1


if __name__ == "__main__":
    sys.exit(main())
