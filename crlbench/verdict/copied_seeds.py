"""Runs of different seeds or tasks: each draws and learns on its own, so that none equals another.

Seeds draw other prompts and other completions, and learn other weights from them. Two honest runs
agree where nothing was drawn, as from frozen answers or by a model with one answer, and where
nothing was learned. There nothing is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from crlbench.contract.experience import SAMPLED, source_of
from crlbench.contract.verification import Finding
from crlbench.disk.names import DIGESTS, RECORD_NAME
from crlbench.verdict.runs import Run

LEAST_NATS = 100.0
"""Entropy of all tokens of an iteration, in nats, from which on no two runs draw the same ones."""
LEAST_FIGURES = 10
"""Iterations with the same loss and the same gradient norm from which on a run was copied, if they
are more than half of all that it learned in."""


def contradict_seeds(runs: Iterable[Run]) -> Iterator[Finding]:
    """Where a run is, or partly is, another seed's or task's; the first such place of each.

    Raises:
        ValidationError: a file is damaged.
    """
    by_digest: dict[tuple[str, str], Run] = {}
    by_figures: dict[tuple[int, float, float], list[Run]] = {}
    for run in runs:
        yield from _same_digest(run, by_digest)
        if source_of(run.record.algo.config) in SAMPLED:
            yield from _same_figures(run, by_figures)


def own_digests(run: Run) -> Iterator[tuple[int, str, str]]:
    """The digests that no other seed, task or model can have: iteration, name and value.

    Raises:
        ValidationError: the file of digests is damaged.
    """
    if source_of(run.record.algo.config) not in SAMPLED:
        return
    has_moved = False
    for i, row in enumerate(run.digests() or ()):
        if _figure(run, "entropy", i) * _figure(run, "tokens", i) >= LEAST_NATS:
            yield row.iteration, "completions", row.completions
        has_moved |= _figure(run, "update_norm", i) > 0
        if has_moved:
            yield row.iteration, "parameters", row.parameters


def _same_digest(run: Run, known: dict[tuple[str, str], Run]) -> Iterator[Finding]:
    """The first digest that another seed or task has."""
    copied = []
    for iteration, name, value in own_digests(run):
        other = known.setdefault((name, value), run)
        if _cell(other) != _cell(run):
            copied.append((iteration, name, value, other))
    for iteration, name, value, other in copied[:1]:
        field = f"{name} of iteration {iteration}"
        why = f"{other.name} has the same, with another {_difference(run, other)}"
        yield Finding(run.name, DIGESTS, field, value[:12], "a digest of its own", why)


def _same_figures(run: Run, known: dict[tuple[int, float, float], list[Run]]) -> Iterator[Finding]:
    """The other seed or task that has loss and gradient norm of most iterations, if one has."""
    learned = [
        (i, loss, norm)
        for i in range(len(run.record.health.get("loss", ())))
        if (norm := _figure(run, "grad_norm", i)) and (loss := _figure(run, "loss", i))
    ]
    alike: Counter[str] = Counter()
    others: dict[str, Run] = {}
    for key in learned:
        for other in known.setdefault(key, []):
            if _cell(other) != _cell(run):
                alike[other.name] += 1
                others[other.name] = other
        known[key].append(run)
    for name, count in alike.most_common(1):
        if count >= LEAST_FIGURES and 2 * count > len(learned):
            stored, expected = f"{count} of {len(learned)} equal", "figures of its own"
            why = f"{name} has the same, with another {_difference(run, others[name])}"
            yield Finding(
                run.name, RECORD_NAME, "health.loss and health.grad_norm", stored, expected, why
            )


def _figure(run: Run, name: str, iteration: int) -> float:
    """A figure of an iteration; 0 where the run has none."""
    column = run.record.health.get(name, ())
    value = column[iteration] if iteration < len(column) else None
    return 0.0 if value is None else float(value)


def _cell(run: Run) -> tuple[str, int]:
    """What decides what a run draws, but for its model: arms and recipes may begin alike."""
    return run.task, run.record.seed.value


def _difference(run: Run, other: Run) -> str:
    return "seed" if run.task == other.task else "task"
