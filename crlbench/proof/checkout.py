"""A record against this checkout: its track, tasks, model entry and recipe as they stand here.

What the checkout or its archive has, must be equal. What it never had (a track's name, a version
above its own) is unknown, and unknown is not fine. What it has not any more (an older version that
was not archived) may be old: whoever asks decides by what stood before. What it has not here (a
model, a recipe of somebody else's) cannot be checked on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from crlbench import __version__
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import PROTOCOL, PROTOCOLS, diff, leaves, stated_values
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import RunRecord
from crlbench.contract.verification import Finding
from crlbench.disk import line_ends
from crlbench.disk.hashing import canonical_json, sha256_file
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import CrlbenchError, UsageError
from crlbench.run.archive import catalog_of, replaced_of
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.plan import Board
from crlbench.run.record import card_fields
from crlbench.run.subject import confined_task
from crlbench.suite.versions import is_draft, parts

NAME = "Name the folder that has it with --catalog."
RELEASES = ("0.1.0",)
"""Versions of crlbench whose records are read; the last one is this version."""
SHOWN = 4
"""Reasons that a finding names."""


@dataclass
class Comparison:
    """What a checkout says of a record."""

    findings: list[Finding] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    """What cannot be checked here, and why; sentences."""
    unknown: list[str] = field(default_factory=list)
    """What this checkout never had, so that nothing made of it can be checked; sentences."""
    outdated: list[str] = field(default_factory=list)
    """What this checkout has in a later version; sentences."""
    card: ModelCard | None = None
    """The model's entry, where the checkout has the one that ran."""
    task: Task | None = None
    """The task, where the checkout has the one that ran; its code is confined."""


def compare(
    record: RunRecord, run: str, model: str, tasks: tuple[str, ...], catalog: Catalog
) -> Comparison:
    """Compare a record with what its names mean here.

    Args:
        record: of the run.
        run: its name, for findings.
        model: the name under which the model was asked for.
        tasks: of its board, by the leaves of its fingerprint.
        catalog: of the checkout.

    Raises:
        EnvironmentUnfit: the rows of a task are not on this machine.
        ValidationError: an entry of the checkout is malformed.
    """
    replaced, catalog = replaced_of(record, catalog), catalog_of(record, catalog)
    found = Comparison()
    _compare_version(found, record)
    _compare_board(found, record, run, tasks, catalog, replaced)
    _compare_task(found, record, run, catalog)
    _compare_model(found, record, run, model, catalog)
    _compare_recipe(found, record, run, catalog)
    return found


def _compare_version(found: Comparison, record: RunRecord) -> None:
    """A newer crlbench, or one that never was, may mean something that this one cannot know."""
    stated = record.crlbench.version
    if stated not in RELEASES:
        found.unknown.append(
            f"version: made by crlbench {stated!r:.40}, and this checkout is {__version__} and "
            f"knows {', '.join(RELEASES)}."
        )


def _compare_board(
    found: Comparison,
    record: RunRecord,
    run: str,
    tasks: tuple[str, ...],
    catalog: Catalog,
    replaced: dict[str, str],
) -> None:
    """``replaced``: tasks of the track that ran in another version than its own, which it names."""
    protocol, where = record.protocol, f"track {record.protocol.track}"
    where += f" version {protocol.track_version}"
    if not _known_track(found, record, where, catalog):
        return
    stated_versions = {
        name: str(record.fingerprint.leaves.get(f"tasks.{name}.version")) for name in tasks
    }
    known = [_known_task(found, "conditions", *one, catalog) for one in stated_versions.items()]
    if not all(known):
        return
    if protocol.division == "closed" and replaced:
        _say_replaced(found, where, stated_versions, replaced)
        return
    installed = record.environment.get("packages")
    versions = canonical_json(installed if isinstance(installed, dict) else {})
    stated = canonical_json(record.fingerprint.leaves)
    try:
        board, reasons = _board(
            catalog,
            protocol.track,
            record.task.name,
            tasks,
            stated,
            versions,
            tuple(sorted(replaced.items())),
        )
    except UsageError as error:
        found.findings.append(
            Finding(run, RECORD_NAME, "fingerprint.leaves", str(error), f"conditions of {where}")
        )
        return
    control = json.loads(canonical_json(board.control))
    for name, (ours, theirs) in diff(control, record.fingerprint.leaves).items():
        finding = Finding(run, RECORD_NAME, f"fingerprint.leaves.{name}", theirs, ours, where)
        found.findings.append(finding)
    if board.division != protocol.division:
        stored, why = protocol.division, "; ".join(reasons[:SHOWN])
        finding = Finding(run, RECORD_NAME, "protocol.division", stored, board.division, why)
        found.findings.append(finding)


def _say_replaced(
    found: Comparison, where: str, stated: Mapping[str, str], replaced: Mapping[str, str]
) -> None:
    """A closed board holds the track's own tasks: with others it may be old, or never was."""
    for name, version in replaced.items():
        sentence = (
            f"conditions: task '{name}' {stated[name]:.20} is not the one of {where} here, which "
            f"has {version}."
        )
        older = _precedes(stated[name], version)
        (found.outdated if older else found.unknown).append(sentence)


def _known_track(found: Comparison, record: RunRecord, where: str, catalog: Catalog) -> bool:
    """Whether this checkout has the track of a record at its version; says so where it has not."""
    protocol = record.protocol
    if protocol.name not in PROTOCOLS or protocol.version > PROTOCOL:
        stated, known = f"{protocol.name} {protocol.version}", ", ".join(PROTOCOLS)
        found.unknown.append(
            f"conditions: protocol {stated!r:.40} is not known: this checkout has "
            f"'{known} {PROTOCOL}'."
        )
        return False
    if protocol.track not in catalog.list("track"):
        found.unknown.append(f"conditions: there is no track {protocol.track!r:.60} here. {NAME}")
        return False
    version = load_track(catalog, protocol.track).version
    if version == protocol.track_version:
        return True
    older = 1 <= protocol.track_version < version
    sentence = (
        f"conditions: {where} cannot be checked here: this checkout has version {version}."
    )
    (found.outdated if older else found.unknown).append(sentence)
    return False


@lru_cache(maxsize=64)
def _board(
    catalog: Catalog,
    name: str,
    task: str,
    tasks: tuple[str, ...],
    stated: str,
    versions: str,
    replaced: tuple[tuple[str, str], ...],
) -> tuple[Board, list[str]]:
    """The board that gives these leaves (JSON) here, if anything does, and why it is open."""
    track = load_track(catalog, name)
    told, own = stated_values(json.loads(stated)), track.conditions.values()
    changed = {n: canonical_json(value) for n, value in told.items() if own.get(n) != value}
    within = set(tasks) == set(track.tasks)
    request = Request(
        settings=changed,
        tasks=[task] if within else [task, *(other for other in tasks if other != task)],
        smoke=set(tasks) < set(track.tasks),
        replaced=dict(replaced),
    )
    board, _, reasons = make_board(catalog, track, request, json.loads(versions))
    return board, reasons


def _compare_task(found: Comparison, record: RunRecord, run: str, catalog: Catalog) -> None:
    ref = record.task
    if not _known_task(found, "samples", ref.name, ref.version, catalog):
        return
    task = confined_task(ref.name, tuple(map(str, catalog.extra)))
    if task.digest != ref.digests.get("task"):
        found.findings.append(
            Finding(run, RECORD_NAME, "task.digests.task", ref.digests.get("task"), task.digest)
        )
    else:
        found.task = task


def _known_task(
    found: Comparison, what: str, name: str, version: str, catalog: Catalog
) -> bool:
    """Whether this checkout has a task at a version; says so where it has not."""
    if name not in catalog.list("task"):
        found.unknown.append(f"{what}: there is no task {name!r:.60} here. {NAME}")
        return False
    frozen = catalog.task_card(name).version
    if frozen == version:
        return True
    sentence = (
        f"{what}: task '{name}' {version:.20} cannot be checked here: this checkout has {frozen}."
    )
    (found.outdated if _precedes(version, frozen) else found.unknown).append(sentence)
    return False


def _precedes(version: str, other: str) -> bool:
    """Whether a task's version may have been frozen before another one."""
    try:
        return not is_draft(version) and parts(version) < parts(other)
    except ValueError:
        return False


def _compare_model(
    found: Comparison, record: RunRecord, run: str, model: str, catalog: Catalog
) -> None:
    subject = record.subject
    try:
        card = catalog.load_model(subject.slug if subject.listed else model)
        if card.unlisted:
            from crlbench.run.admission import admit, as_filed

            card = as_filed(admit(card).card, subject.entry_sha256)
    except CrlbenchError as error:
        found.gaps.append(f"model: {error}")
        return
    stored = subject.model_dump(mode="json")
    expected = json.loads(canonical_json(card_fields(card)))
    why = "the entry here"
    for name, value in expected.items():
        if stored[name] != value:
            finding = Finding(run, RECORD_NAME, f"subject.{name}", stored[name], value, why)
            found.findings.append(finding)
    if not _counted(subject.params_total, card):
        total, stated = subject.params_total, card.params_total
        found.findings.append(Finding(run, RECORD_NAME, "subject.params_total", total, stated, why))
    if card.digest == subject.entry_sha256:
        found.card = card


def _counted(stored: int, card: ModelCard) -> bool:
    """Whether a model may have that many parameters: those of its entry, and of an adapter."""
    if card.params_total is None or card.quantisation != "none":
        return True
    adapted = card.adapter is not None and card.params_total <= stored <= 2 * card.params_total
    return stored == card.params_total or adapted


def _compare_recipe(found: Comparison, record: RunRecord, run: str, catalog: Catalog) -> None:
    from crlbench.algo import recipes
    from crlbench.algo.recipe import to_config

    algo = record.algo
    try:
        recipe = recipes.load(algo.name, catalog.extra)
        file = recipes.python_file(algo.name, catalog.extra)
    except UsageError as error:
        found.gaps.append(f"recipe: {error}")
        return
    ours = leaves(json.loads(canonical_json(to_config(recipe))))
    for name, (expected, stored) in diff(ours, leaves(dict(algo.config))).items():
        field, why = f"algo.config.{name}", f"recipe '{algo.name}'"
        found.findings.append(Finding(run, RECORD_NAME, field, stored, expected, why))
    expected = None if file is None else sha256_file(file)
    if expected != algo.recipe_sha256:
        rewritten = file and line_ends.rewritten_file(file, algo.recipe_sha256 or "")
        whose = f"its file. {rewritten}" if rewritten else "its file"
        found.findings.append(
            Finding(run, RECORD_NAME, "algo.recipe_sha256", algo.recipe_sha256, expected, whose)
        )
