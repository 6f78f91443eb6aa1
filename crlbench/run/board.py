"""From a track's name and a person's changes to the board that runs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError as PydanticError

from crlbench.base.explain import explain
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import find_panel
from crlbench.contract.conditions import (
    PROTOCOL_2,
    Conditions,
    Play,
    Track,
    control_leaves,
    diff,
    leaves,
    override,
)
from crlbench.contract.task_card import TaskCard
from crlbench.disk.hashing import digest as hashed
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError
from crlbench.run.environment import is_range, violations
from crlbench.run.plan import Board
from crlbench.stats.needs import LEAST_NEW, MIN_TASKS, STRICT_DRAWS
from crlbench.suite.versions import is_draft

CALIBRATION = "calibration"
"""Tag of tasks that hyper-parameters are chosen on; a ranked track may not hold them."""

SMOKE = {
    "budget.grid": "3",
    "budget.iterations_per_point": "1",
    "evaluation.curve_every": "1",
    "evaluation.curve_items": "32",
    "evaluation.end_items": "32",
    "evaluation.end_draws": "1",
    "evaluation.retain_items": "8",
}
"""What ``--smoke`` changes: three iterations, evaluations of 32 items."""
SMOKE_DRAWS = 4
"""Draws for pass@k under ``--smoke``, on a track that has any."""
SMOKE_TASKS = 2


@dataclass(frozen=True)
class Request:
    """What a person asked for, beyond the track."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Conditions changed by name, as ``--set`` takes them."""
    tasks: Sequence[str] | None = None
    limit: int | None = None
    """Most items per evaluation."""
    smoke: bool = False
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Tasks of the track that the catalogue has in another version, and the track's own version."""


def load_track(catalog: Catalog, name: str) -> Track:
    """The track called ``name``.

    Raises:
        UsageError: there is none; with the nearest names.
        ValidationError: its file is malformed; or it is ranked and holds a calibration task or a
            draft, or has too little for the axes of protocol CRL-2.
    """
    path = catalog.find("track", name).path
    try:
        track = Track.model_validate(read_toml(path))
    except PydanticError as error:
        raise ValidationError(explain(error, str(path))) from None
    if track.id != name:
        raise ValidationError(
            f"{path}: field id: '{track.id}' must equal the name of its file, '{name}'."
        )
    for package, allowed in track.packages.items():
        if not is_range(allowed):
            raise ValidationError(
                f"{path}: field packages.{package}: {allowed!r:.80} is no range of versions such "
                "as '>=2.13,<2.14'."
            )
    if track.ranked:
        _refuse_calibration(catalog, track, str(path))
        _refuse_drafts(catalog, track, str(path))
        if track.protocol == PROTOCOL_2:
            _require_enough(track, str(path))
    return track


def _refuse_calibration(catalog: Catalog, track: Track, where: str) -> None:
    for task in track.tasks:
        if CALIBRATION in catalog.task_card(task).tags:
            raise ValidationError(
                f"{where}: field tasks: '{task}' is a calibration task: hyper-parameters are "
                "chosen on it, so a ranked track may not hold it. Remove it, or set "
                "ranked = false."
            )


def _refuse_drafts(catalog: Catalog, track: Track, where: str) -> None:
    for task in track.tasks:
        version = catalog.task_card(task).version
        if is_draft(version):
            raise ValidationError(
                f"{where}: field tasks: '{task}' {version} is a draft, which changes freely: a "
                "ranked track holds tasks from version 1.0.0 on. Remove it, or set ranked = false."
            )


def _require_enough(track: Track, where: str) -> None:
    """Refuse a ranked track of protocol CRL-2 that has too little for an axis or an interval."""
    e = track.conditions.evaluation
    for name, number, least, why in (
        ("tasks", len(track.tasks), MIN_TASKS, "an interval for other tasks needs"),
        ("conditions.evaluation.curve_items", e.curve_items, LEAST_NEW, "the learning axis needs"),
        ("conditions.evaluation.pass_draws", e.pass_draws, STRICT_DRAWS, "the strict set needs"),
    ):
        if number < least:
            raise ValidationError(
                f"{where}: field {name}: there {'is' if number == 1 else 'are'} {number}, and "
                f"under {PROTOCOL_2} {why} at least {least}. Raise it, or set ranked = false."
            )


def _refuse_relatives(cards: Sequence[TaskCard]) -> None:
    """Tasks that share items on purpose may not stand in one board."""
    families: dict[str, str] = {}
    for card in cards:
        family = card.relative or card.name
        if family in families:
            raise UsageError(
                f"tasks '{families[family]}' and '{card.name}' share items on purpose: what is "
                "trained on in one would be measured in the other. Choose one of them with --tasks."
            )
        families[family] = card.name


def make_board(
    catalog: Catalog,
    track: Track,
    request: Request,
    installed: Mapping[str, str] | None = None,
) -> tuple[Board, list[str], list[str]]:
    """The board of a request, the tasks to train on, and why it is open or partial.

    A changed condition, a task outside the track or in another version than the track's, or a
    package outside the track's ranges moves the board to the ``open`` division; ``smoke`` and a
    ``limit`` that limits also mark it partial. Versions outside of the ranges become leaves of the
    fingerprint, so that such runs never stand beside those made with the versions the track allows.
    ``installed`` are the versions that count, by default those of this machine.

    A task without a training split is measured, as a transfer task of the others, and is not
    among the tasks to train on.

    Raises:
        UsageError: tasks that share items, an unknown condition, task or member of the retain
            panel, an impossible value, no task that can be trained on, process rewards on a
            task whose verifier judges no steps, or conditions of play without an environment.
        ValidationError: a task's files were changed, or are too short for the evaluations.
        EnvironmentUnfit: the rows of a task are not on this machine.
    """
    conditions = _conditions(track, request)
    tasks = list(dict.fromkeys(request.tasks)) if request.tasks else list(track.tasks)
    trained = [*trainable(catalog, tasks)]
    if not trained:
        raise UsageError(
            f"no task to train on: {', '.join(tasks)} {'has' if len(tasks) == 1 else 'have'} no "
            "training split and can only be measured. Add a task to train on, for example "
            f"--tasks {','.join([track.tasks[0], *tasks])}."
        )
    if request.smoke:
        tasks = sorted(tasks, key=lambda name: name not in trained)[:SMOKE_TASKS]
    within = set(tasks) <= set(track.tasks)
    board_tasks = track.tasks if within and not request.smoke else tuple(tasks)
    _refuse_relatives([catalog.task_card(name) for name in board_tasks])
    by_name = {name: catalog.load_task(name) for name in board_tasks}
    panel = find_panel(catalog.roots)
    if conditions.data.reward == "process":
        _require_steps([by_name[name].card for name in tasks if name in trained], catalog)
    _check_counts([task.card for task in by_name.values()], conditions)
    _check_play(by_name.values(), conditions)
    content = {name: _content(task.card, task.digest) for name, task in by_name.items()}
    versions = violations(track.packages, installed)
    control = (
        control_leaves(track, conditions, content)
        | leaves({"retain": panel.content(conditions.evaluation.retain)})
        | {f"packages.{name}": version for name, version in versions.items()}
    )
    reasons = _reasons(track, conditions, versions)
    reasons += [f"task '{n}' is not in track '{track.id}'" for n in tasks if n not in track.tasks]
    reasons += [
        f"task '{name}' is {content[name]['version']} (track: {version})"
        for name, version in request.replaced.items()
        if name in content
    ]
    board = Board(
        track=track,
        conditions=conditions,
        tasks=tuple(board_tasks),
        control=control,
        division="open" if reasons else "closed",
        partial=request.smoke or conditions != override(track.conditions, dict(request.settings)),
    )
    return board, [name for name in tasks if name in trained], reasons


def trainable(catalog: Catalog, tasks: Iterable[str]) -> tuple[str, ...]:
    """The tasks that have a training split, in their order; the others are only measured."""
    return tuple(name for name in tasks if "train" in catalog.task_card(name).splits)


def _conditions(track: Track, request: Request) -> Conditions:
    """The track's conditions, then the settings, then what ``limit`` and ``smoke`` ask."""
    conditions = override(track.conditions, dict(request.settings))
    if request.limit is not None:
        if request.limit < 1:
            raise UsageError(f"--limit {request.limit}: must be at least 1 item.")
        few = {
            f"evaluation.{name}": str(min(request.limit, getattr(conditions.evaluation, name)))
            for name in ("curve_items", "end_items", "retain_items")
        }
        conditions = override(conditions, few)
    if not request.smoke:
        return conditions
    draws = min(SMOKE_DRAWS, conditions.evaluation.pass_draws)
    return override(conditions, SMOKE | {"evaluation.pass_draws": str(draws)})


def _require_steps(cards: list[TaskCard], catalog: Catalog) -> None:
    without = [card.name for card in cards if not card.verifier.steps]
    if without:
        able = [
            name
            for name in catalog.list("task")
            if catalog.rows_state(name) != "draft" and catalog.task_card(name).verifier.steps
        ]
        raise UsageError(
            f"data.reward = process: the verifier of task '{without[0]}' judges no steps. Tasks "
            f"whose verifier does: {', '.join(able) or 'none'}. Choose them with --tasks, or set "
            "data.reward=outcome."
        )


def _content(card: TaskCard, digest: str) -> dict[str, Any]:
    """What of a task enters the fingerprint; the parts show which one changed.

    Floors and ceilings let a record's splits be read without the task; a reward model tells
    learned rewards from verified ones.
    """
    model = card.reward_model
    paid = {} if model is None else {"reward_model": hashed(model.model_dump(mode="json"))}
    return {
        **paid,
        "version": card.version,
        "digest": digest,
        "verifier": card.verifier.sha256,
        "splits": {name: split.sha256 for name, split in card.splits.items()},
        "bounds": {
            name: {"floor": split.floor, "ceiling": split.ceiling}
            for name, split in card.splits.items()
        },
    }


def _check_play(tasks: Iterable[Task], conditions: Conditions) -> None:
    """Refuse conditions of play that no task has a use for, or that one cannot be played under."""
    if conditions.play == Play():
        return
    from crlbench.play.seats import under

    environments = [task for task in tasks if task.card.kind == "environment"]
    if not environments:
        names = ", ".join(f"play.{name}" for name in conditions.play.model_dump())
        raise UsageError(
            f"{names}: none of these tasks is an environment, which has turns and rivals; leave it "
            "out."
        )
    for task in environments:
        under(conditions.play, task.environment, task.name)


def _check_counts(cards: list[TaskCard], conditions: Conditions) -> None:
    """Refuse to ask a split for more items than it has, with the conditions that all tasks fill."""
    evaluation = conditions.evaluation
    short = []
    counts = {"curve_items": [evaluation.curve_items], "end_items": [evaluation.end_items]}
    for card in cards:
        for split in ("id", "hard", "format", "train_fixed"):
            items = max(evaluation.end_items, evaluation.curve_items if split == "id" else 0)
            if split not in card.splits:
                continue
            count = card.splits[split].count
            counts["end_items"].append(count)
            if split == "id":
                counts["curve_items"].append(count)
            if items > count:
                short.append(
                    f"the conditions ask for {items} items of the split '{split}' of task "
                    f"'{card.name}', which has {count}"
                )
    if short:
        flags = [f"--set evaluation.{name}={min(sizes)}" for name, sizes in counts.items()
                 if min(sizes) < sizes[0]]  # fmt: skip
        raise UsageError(f"{short[0]}. Add to the command: {' '.join(flags)}.")


def _reasons(track: Track, conditions: Conditions, versions: dict[str, str | None]) -> list[str]:
    """What of a board is not as the track says, besides its tasks."""
    changed = diff(track.conditions.values(), conditions.values())
    reasons = [f"{name} = {new} (track: {old})" for name, (old, new) in changed.items()]
    return reasons + [
        f"{name} {version or '(absent)'} is installed (track: {track.packages[name]})"
        for name, version in versions.items()
    ]
