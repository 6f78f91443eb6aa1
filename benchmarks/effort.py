"""The seconds that the runs of the leaderboard took, against what is estimated from plain data.

    python benchmarks/effort.py [RESULTS]

One line an entry: units of cost (``crlbench/run/cost.py``) that a core did in a second, which is
``RATE`` of ``crlbench/proof/effort.py``. The seconds are those that the records state.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from crlbench.contribute.results.layout import RESULTS, find_entries
from crlbench.proof.effort import RATE, replay_seconds
from crlbench.verdict.load import load_runs


def main(results: Path) -> None:
    rates = []
    for entry in find_entries(results):
        found = []
        for run in load_runs(entry):
            record = run.record
            if record.status.state == "completed":
                wall = record.volatile["wall_s"]
                estimate = replay_seconds(record, record.subject.slug, None, ())
                found.append(RATE * estimate / (wall[-1] - wall[0]))
        rates.append(statistics.median(found))
        print(f"{rates[-1]:.2e}  {'/'.join(entry.parts[-3:])}")
    print(f"{min(rates):.2e} to {max(rates):.2e}, half below {statistics.median(rates):.2e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
