"""Which moment of pretraining `mini` starts from, and which tasks it can rank, by start scores.

    python benchmarks/pilot_starts.py

Reads the lines that `models/tiny/moments.py` wrote for each design, kept in
benchmarks/pilots/mini/moments.jsonl. A family fits a moment if every design scores between .05 and
.6 there, sampled, and answers at least 64 of 256 items wrongly when it is decoded greedily.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

SCORES = Path(__file__).parent / "pilots" / "mini" / "moments.jsonl"
LOW, HIGH, ITEMS, NEW = 0.05, 0.6, 256, 64


def fits(of_designs: list[dict[str, Any]]) -> bool:
    """Whether a family fits, given its scores for each design."""
    inside = all(LOW <= one["sampled"] <= HIGH for one in of_designs)
    return inside and all(round((1 - one["greedy"]) * ITEMS) >= NEW for one in of_designs)


def main() -> None:
    moments: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in SCORES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        moments[row["updates"]][row["model"].rpartition("-")[0]] = row["scores"]
    most = max(map(len, moments.values()))
    whole = {updates: found for updates, found in moments.items() if len(found) == most}
    families = list(next(iter(whole[min(whole)].values())))
    print(f"| updates | design | {' | '.join(families)} |")
    print("|---|---|" + "---|" * len(families))
    for updates, found in sorted(whole.items()):
        for design, scores in sorted(found.items()):
            cells = (f"{scores[f]['sampled']:.2f} / {scores[f]['greedy']:.2f}" for f in families)
            print(f"| {updates:,} | {design} | {' | '.join(cells)} |")
    fitting = {
        updates: [f for f in families if fits([scores[f] for scores in found.values()])]
        for updates, found in sorted(whole.items())
    }
    for updates, names in fitting.items():
        print(f"\n{updates:,} updates: {len(names)} families fit: {', '.join(names)}")
    print(f"\nmoment: {max(fitting, key=lambda updates: (len(fitting[updates]), -updates)):,}")


if __name__ == "__main__":
    main()
