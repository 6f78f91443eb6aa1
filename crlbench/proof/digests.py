"""The digests of the first iterations: whole, in order, and of the losses that health states.

Whether the tensors were what they say is only seen by running the iterations again
(:mod:`crlbench.proof.replay`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

from crlbench.contract.records import DIGESTED_ITERATIONS, IterationDigest
from crlbench.contract.verification import Finding
from crlbench.disk.names import DIGESTS
from crlbench.proof.facts import Facts
from crlbench.proof.figures import ROUNDED


def digests(facts: Facts) -> Iterator[Finding]:
    """One line for each digested iteration, under the root that the record states."""
    record, content = facts.record, facts.run.content(DIGESTS)
    if content is None:
        yield facts.finding("(whole)", "missing", "the file", "nothing can be replayed", DIGESTS)
        return
    root = hashlib.sha256(content).hexdigest()
    yield from facts.differs("digest_root", record.digest_root, root, f"sha256 of {DIGESTS}")
    rows = facts.run.digests() or ()
    expected = [*range(1, min(DIGESTED_ITERATIONS, facts.iterations) + 1)]
    numbers = [row.iteration for row in rows]
    yield from facts.differs("iteration", numbers, expected, "a line each", DIGESTS)
    if numbers == expected:
        yield from _losses(facts, rows)


def _losses(facts: Facts, rows: Sequence[IterationDigest]) -> Iterator[Finding]:
    means, updates = facts.record.health.get("loss", []), 0
    for i, row in enumerate(rows):
        field = f"losses of iteration {row.iteration}"
        try:
            losses = [float.fromhex(loss) for loss in row.losses]
            plain = [loss.hex() for loss in losses] == row.losses
        except (ValueError, OverflowError):
            plain = False
        if not plain:
            yield facts.finding(field, row.losses, "hexadecimal floats", file=DIGESTS)
            return
        if len(losses) > facts.most_updates:
            most = f"at most {facts.most_updates}"
            yield facts.finding(field, len(losses), most, "updates", DIGESTS)
        updates += len(losses)
        point = facts.point_at(row.iteration)
        if point is not None and point.updates != updates:
            why = f"losses in {DIGESTS} up to there"
            yield facts.finding(f"curve, x = {point.x}: updates", point.updates, updates, why)
        mean = sum(losses) / len(losses) if losses else math.nan
        if i < len(means) and not _same(means[i], mean):
            why = f"the mean of the losses in {DIGESTS}"
            yield facts.finding(f"health.loss[{i}]", means[i], mean, why)


def _same(stored: float | int | None, mean: float) -> bool:
    if stored is None:
        return not math.isfinite(mean)
    return math.isclose(stored, mean, rel_tol=ROUNDED)
