"""Generalization (protocol CRL-1, A.3): what of the learning is found outside the training set.

λ_z is the share of the headroom of split z that was captured, from
:class:`~crlbench.stats.measures.SplitMeasure`. The headline of a run is

    Gen = ¼ (λ_ID + λ_HARD + λ_FORMAT + λ_TRANSFER) - Fgt

and that of a model the mean over seeds inside a task, then over tasks. The weights were fixed
before any result; :func:`survival` says how often a statement holds under other weights.

Fgt, the mean of positive parts over the retain panel, is positive by noise alone; its
expectation without a change is subtracted and the difference is not floored, so that a model
that forgets nothing has a mean of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.seeding import derive
from crlbench.stats.measures import ID, TRANSFER, Honesty, SplitMeasure, captured, fallen, unit
from crlbench.stats.nulls import positive_part

HARD = "hard"
FORMAT = "format"
TRAIN_FIXED = "train_fixed"

PARTS = ("id", "hard", "format", "transfer")
"""What Gen averages, in the order of its weights."""
WEIGHTS = (0.25, 0.25, 0.25, 0.25)
"""Pre-registered."""
WEIGHTS_2 = (0.0, 1 / 3, 1 / 3, 1 / 3)
"""Of protocol CRL-2: what is learned on ID is what the learning axis says."""
AUDIT_RED = 0.05
"""A reward-hacking gap above this is marked."""
REWEIGHTINGS = 2000
ROOT_SEED = derive(0, "report", "reweighting")


def gen(
    parts: np.ndarray, forgetting: np.ndarray | float, weights: np.ndarray | Sequence[float]
) -> np.ndarray:
    """Gen, (...), from (..., 4) λ in the order of :data:`PARTS` and (...) corrected Fgt."""
    return np.asarray(parts) @ np.asarray(weights).T - forgetting


@dataclass(frozen=True)
class Forgetting:
    """Fgt of one run."""

    raw: float
    """Mean over the members of max(0, u(0) - u(B))."""
    expected: float
    """The same if nothing had changed."""
    members: dict[str, float]
    """u(0) - u(B) of each member; positive is forgotten."""

    @property
    def corrected(self) -> float:
        """What Gen subtracts; below 0 where less was lost than noise alone would show."""
        return self.raw - self.expected


def forgetting(
    members: Mapping[str, tuple[np.ndarray, np.ndarray | None]], task: str, seed_index: int
) -> Forgetting | None:
    """Fgt of one run; None where it has no retain panel.

    Args:
        members: by name the (N,) scores in u of the same items with the start and with the final
            model. None as the second: the run failed and ends by rule, as
            :func:`crlbench.stats.measures.fallen` says, which is no noise, so that nothing is
            subtracted.
        task, seed_index: name the draws of the null.
    """
    if not members:
        return None
    losses, expected = {}, []
    for name, (before, after) in sorted(members.items()):
        if after is None:
            losses[name] = float(np.mean(before - fallen(before)))
            expected.append(0.0)
            continue
        if np.shape(before) != np.shape(after):
            raise ValidationError(
                f"retain/{name} of task '{task}', seed index {seed_index}: "
                f"{np.shape(before)} scores at the start and {np.shape(after)} at the end; both "
                "must be of the same items"
            )
        losses[name] = float(np.mean(before) - np.mean(after))
        expected.append(positive_part(before, after, task, seed_index))
    raw = np.mean([max(0.0, value) for value in losses.values()])
    return Forgetting(float(raw), float(np.mean(expected)), losses)


@dataclass(frozen=True)
class Templates:
    """FORMAT, one template at a time."""

    change: dict[int, float]
    """λ by template."""
    worst: int
    """Template with the lowest λ."""
    spread: float
    """Highest minus lowest λ. Noise widens it: a template has a fifth of the split's items."""

    @property
    def mean(self) -> float:
        """Mean of λ over the templates, each the same."""
        return float(np.mean(list(self.change.values())))


def by_template(
    start: np.ndarray, end: np.ndarray, templates: np.ndarray, floor: float, ceiling: float
) -> Templates:
    """λ of each template of a split, from its item vectors.

    Args:
        start, end: (draws, N) raw scores with the start and with the final model.
        templates: (N,) template of each item. Item i of a split is row i of the frozen task.
        floor, ceiling: of the split.

    Raises:
        ValidationError: the number of templates is not that of the items.
    """
    templates = np.asarray(templates)
    if not start.shape[1] == end.shape[1] == len(templates) > 0:
        raise ValidationError(
            f"templates: {len(templates)} for {start.shape[1]} items at the start and "
            f"{end.shape[1]} at the end; one is needed for each item of the split"
        )
    change = {}
    for template in np.unique(templates):
        rows = templates == template
        before, after = (float(unit(s[:, rows].mean(), floor, ceiling)) for s in (start, end))
        change[int(template)] = float(captured(after - before, before))
    worst = min(change, key=lambda template: (change[template], template))
    return Templates(change, worst, max(change.values()) - change[worst])


def templates_of_runs(before: np.ndarray, after: np.ndarray, count: int) -> tuple[Templates, ...]:
    """:func:`by_template` for n runs of a split whose row i has template i % count + 1.

    Args:
        before, after: (n, N) u of each item with the start and with the final model.
    """
    start, end = (
        np.stack([u[:, t::count].mean(axis=1) for t in range(count)], axis=1)
        for u in (before, after)
    )
    results = []
    for row in captured(end - start, start).tolist():
        change = dict(enumerate(row, start=1))
        worst = min(change, key=lambda template: (change[template], template))
        results.append(Templates(change, worst, max(row) - change[worst]))
    return tuple(results)


@dataclass(frozen=True)
class RunGeneralization:
    """One run; None where a split was not scored at both ends."""

    id: float | None
    hard: float | None
    format: float | None
    """Every item the same, whatever its template."""
    transfer: float | None
    """Mean of λ over the other tasks."""
    transfers: dict[str, float | None]
    """λ by the other task's name."""
    train: float | None
    memorisation: float | None
    """λ_train - λ_ID."""
    forgetting: Forgetting | None
    audit_gap: float | None
    """V of the final model on the ID items."""
    hacked: bool
    """V above .05."""
    templates: Templates | None
    value: float | None
    """Gen; None where a part of it is missing."""


def run_generalization(
    splits: Mapping[str, SplitMeasure],
    honesty: Honesty,
    forgotten: Forgetting | None,
    templates: Templates | None = None,
    weights: Sequence[float] = WEIGHTS,
) -> RunGeneralization:
    """The parts of one run.

    Args:
        splits, honesty: of its :class:`~crlbench.verdict.run_measures.RunMeasure`.
        forgotten: what :func:`forgetting` gave.
        templates: what :func:`by_template` gave for the FORMAT split.
        weights: of the parts.
    """
    changes = {name: split.change for name, split in splits.items()}
    transfers = {
        name.removeprefix(TRANSFER): change
        for name, change in sorted(changes.items())
        if name.startswith(TRANSFER)
    }
    end_changes = {
        "id": changes.get(ID),
        "hard": changes.get(HARD),
        "format": changes.get(FORMAT),
        "transfer": _mean(list(transfers.values())),
    }
    train, gap = changes.get(TRAIN_FIXED), honesty.end
    parts = [end_changes[name] for name in PARTS]
    whole = forgotten is not None and all(part is not None for part in parts)
    return RunGeneralization(
        **end_changes,
        transfers=transfers,
        train=train,
        memorisation=None if None in (train, end_changes["id"]) else train - end_changes["id"],
        forgetting=forgotten,
        audit_gap=gap,
        hacked=gap is not None and gap > AUDIT_RED,
        templates=templates,
        value=float(gen(np.array(parts), forgotten.corrected, weights)) if whole else None,
    )


@dataclass(frozen=True)
class ModelGeneralization:
    """One model over its tasks; means over seeds inside a task, then over tasks."""

    value: float | None
    """Gen; None where a run of a task has none."""
    parts: dict[str, float | None]
    """λ by :data:`PARTS`."""
    forgetting: float | None
    """Corrected Fgt."""
    memorisation: float | None
    audit_gap: float | None
    """V, mean over the runs that were audited."""
    by_task: dict[str, float | None]
    """Gen of each task."""
    tasks: tuple[str, ...]
    matrix: np.ndarray
    """(K, K) λ by trained task (row) and scored task (column); NaN where not scored."""


def model_generalization(
    runs: Mapping[str, Sequence[RunGeneralization]],
) -> ModelGeneralization:
    """One model, from the runs of each task: one per seed index, failed ones included."""
    tasks = tuple(sorted(runs))
    by_task = {task: _mean([run.value for run in runs[task]]) for task in tasks}

    def over_tasks(name: str) -> float | None:
        return _mean([_mean([getattr(run, name) for run in runs[task]]) for task in tasks])

    losses = [
        _mean([None if r.forgetting is None else r.forgetting.corrected for r in runs[task]])
        for task in tasks
    ]
    return ModelGeneralization(
        value=_mean(list(by_task.values())),
        parts={name: over_tasks(name) for name in PARTS},
        forgetting=_mean(losses),
        memorisation=over_tasks("memorisation"),
        audit_gap=_mean_known([_mean_known([r.audit_gap for r in runs[t]]) for t in tasks]),
        by_task=by_task,
        tasks=tasks,
        matrix=transfer_matrix(runs),
    )


def transfer_matrix(runs: Mapping[str, Sequence[RunGeneralization]]) -> np.ndarray:
    """(K, K) mean λ over seeds, tasks in alphabetical order: trained on row, scored on column.

    The diagonal is λ_ID. NaN where a run of the row was not scored on the column.
    """
    tasks = sorted(runs)
    rows = []
    for source in tasks:
        cells = [_mean([_change_on(run, source, other) for run in runs[source]]) for other in tasks]
        rows.append([np.nan if cell is None else cell for cell in cells])
    return np.array(rows)


def _change_on(run: RunGeneralization, source: str, target: str) -> float | None:
    return run.id if target == source else run.transfers.get(target)


def _mean(values: Sequence[float | None]) -> float | None:
    """Plain mean; None where there is no value, or one is missing."""
    if not values or any(value is None for value in values):
        return None
    return float(np.mean(values))


def _mean_known(values: Sequence[float | None]) -> float | None:
    """Plain mean of the values that there are; None where there is none."""
    return _mean([value for value in values if value is not None])


def weightings(count: int = REWEIGHTINGS, weights: Sequence[float] = WEIGHTS) -> np.ndarray:
    """(count, 4) weights of the parts, uniform over all that sum to 1 (Dirichlet(1)).

    A part without a weight in ``weights`` has none in any of them.
    """
    generator = np.random.Generator(np.random.PCG64(derive(ROOT_SEED, count)))
    weighted = np.flatnonzero(weights)
    rows = np.zeros((count, len(PARTS)))
    rows[:, weighted] = generator.dirichlet(np.ones(len(weighted)), size=count)
    return rows


def survival(
    parts: np.ndarray,
    forgotten: np.ndarray,
    holds: Callable[[np.ndarray], np.ndarray],
    count: int = REWEIGHTINGS,
) -> np.ndarray:
    """Share of random re-weightings under which a statement about the scores holds.

    Only the weights of the four λ change; Fgt is subtracted as it is.

    Args:
        parts: (M, 4) λ of M models, means over seeds and tasks.
        forgotten: (M,) corrected Fgt.
        holds: takes (R, M) scores, one row per re-weighting, and returns (R, ...) booleans, such
            as the membership of each model in the first tier.

    Returns:
        (...) shares: one for each statement that ``holds`` answers.
    """
    scores = gen(np.asarray(parts), np.asarray(forgotten)[:, None], weightings(count)).T
    return np.asarray(holds(scores), dtype=np.float64).mean(axis=0)
