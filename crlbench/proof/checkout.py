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
from typing import Any

from crlbench import __version__
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.charges import Coefficients
from crlbench.contract.conditions import PROTOCOL, PROTOCOLS, diff, leaves, stated_values
from crlbench.contract.experience import OWN_LEAF, leaves_of, own_answers, why_open
from crlbench.contract.model_card import ModelCard
from crlbench.contract.verification import Finding
from crlbench.disk import line_ends
from crlbench.disk.hashing import canonical_json, sha256_file
from crlbench.errors import CrlbenchError, UsageError
from crlbench.proof.facts import finding_in
from crlbench.run.archive import catalog_of, replaced_of
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.plan import Board
from crlbench.run.record import card_fields
from crlbench.run.subject import confined_task
from crlbench.suite.versions import is_draft, parts
from crlbench.verdict.runs import Run

NAME = "Name the folder that has it with --catalog."
RELEASES = ("0.1.0",)
"""Versions of crlbench whose records are read; the last one is this version."""
SHOWN = 4
"""Reasons that a finding names."""


@dataclass
class Comparison:
    """What a checkout says of a run."""

    run: Run
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

    def differ(self, field: str, stored: Any, expected: Any, why: str = "") -> None:
        """Note a value of the record that is another one here."""
        self.findings.append(finding_in(self.run, field, stored, expected, why))

    def lack(self, sentence: str, older: bool = False) -> None:
        """Note what this checkout has not: an older version of something, or what never was."""
        (self.outdated if older else self.unknown).append(sentence)


def compare(run: Run, model: str, tasks: tuple[str, ...], catalog: Catalog) -> Comparison:
    """Compare a record with what its names mean here.

    Args:
        model: The name under which the model was asked for.
        tasks: Tasks of its board, by the leaves of its fingerprint.
        catalog: The catalogue of the checkout.

    Raises:
        EnvironmentUnfit: the rows of a task are not on this machine.
        ValidationError: an entry of the checkout is malformed.
    """
    here = Comparison(run)
    replaced, catalog = replaced_of(run.record, catalog), catalog_of(run.record, catalog)
    _compare_version(here)
    _compare_board(here, tasks, catalog, replaced)
    _compare_task(here, catalog)
    _compare_model(here, model, catalog)
    _compare_teachers(here, catalog)
    _compare_recipe(here, catalog)
    _compare_shared(here, catalog)
    return here


def _compare_version(here: Comparison) -> None:
    """A newer crlbench, or one that never was, may mean something that this one cannot know."""
    version = here.run.record.crlbench.version
    if version not in RELEASES:
        here.lack(
            f"version: made by crlbench {version!r:.40}, and this checkout is {__version__} and "
            f"knows {', '.join(RELEASES)}."
        )


def _compare_board(
    here: Comparison, tasks: tuple[str, ...], catalog: Catalog, replaced: dict[str, str]
) -> None:
    """``replaced``: tasks of the track that ran in another version than its own, which it names."""
    record = here.run.record
    protocol, facts = record.protocol, record.fingerprint.leaves
    where = f"track {protocol.track} version {protocol.track_version}"
    if not _has_track(here, where, catalog):
        return
    versions = {name: str(facts.get(f"tasks.{name}.version")) for name in tasks}
    if not all([_has_task(here, "conditions", *one, catalog) for one in versions.items()]):
        return
    if protocol.division == "closed" and replaced:
        _say_replaced(here, where, versions, replaced)
        return
    packages = record.environment.get("packages")
    try:
        board, reasons = _board(
            catalog,
            protocol.track,
            record.task.name,
            tasks,
            canonical_json(facts),
            canonical_json(packages if isinstance(packages, dict) else {}),
            tuple(sorted(replaced.items())),
        )
    except UsageError as error:
        here.differ("fingerprint.leaves", str(error), f"conditions of {where}")
        return
    control = json.loads(canonical_json(board.control))
    control |= leaves_of(record.algo.config, own_answers(facts))
    for name, (ours, theirs) in diff(control, facts).items():
        here.differ(f"fingerprint.leaves.{name}", theirs, ours, where)
    opened = why_open(record.algo.config, OWN_LEAF in facts)
    division = "open" if opened else board.division
    if division != protocol.division:
        why = "; ".join([*([opened] if opened else []), *reasons][:SHOWN])
        here.differ("protocol.division", protocol.division, division, why)


def _say_replaced(
    here: Comparison, where: str, versions: Mapping[str, str], replaced: Mapping[str, str]
) -> None:
    """A closed board holds the track's own tasks: with others it may be old, or never was."""
    for name, version in replaced.items():
        here.lack(
            f"conditions: task '{name}' {versions[name]:.20} is not the one of {where} here, which "
            f"has {version}.",
            older=_precedes(versions[name], version),
        )


def _has_track(here: Comparison, where: str, catalog: Catalog) -> bool:
    """Whether this checkout has the track of a record at its version; says so where it has not."""
    protocol = here.run.record.protocol
    if protocol.name not in PROTOCOLS or protocol.version > PROTOCOL:
        name = f"{protocol.name} {protocol.version}"
        here.lack(
            f"conditions: protocol {name!r:.40} is not known: "
            f"this checkout has '{', '.join(PROTOCOLS)} {PROTOCOL}'."
        )
        return False
    if protocol.track not in catalog.list("track"):
        here.lack(f"conditions: there is no track {protocol.track!r:.60} here. {NAME}")
        return False
    version = load_track(catalog, protocol.track).version
    if version != protocol.track_version:
        here.lack(
            f"conditions: {where} cannot be checked here: this checkout has version {version}.",
            older=1 <= protocol.track_version < version,
        )
    return version == protocol.track_version


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
    values, defaults = stated_values(json.loads(stated)), track.conditions.values()
    changes = {n: canonical_json(value) for n, value in values.items() if defaults.get(n) != value}
    within = set(tasks) == set(track.tasks)
    request = Request(
        settings=changes,
        tasks=[task] if within else [task, *(other for other in tasks if other != task)],
        smoke=set(tasks) < set(track.tasks),
        replaced=dict(replaced),
    )
    board, _, reasons = make_board(catalog, track, request, json.loads(versions))
    return board, reasons


def _compare_task(here: Comparison, catalog: Catalog) -> None:
    ref = here.run.record.task
    if not _has_task(here, "samples", ref.name, ref.version, catalog):
        return
    task = confined_task(ref.name, tuple(map(str, catalog.extra)))
    if task.digest == ref.digests.get("task"):
        here.task = task
    else:
        here.differ("task.digests.task", ref.digests.get("task"), task.digest)


def _has_task(here: Comparison, what: str, name: str, version: str, catalog: Catalog) -> bool:
    """Whether this checkout has a task at a version; says so where it has not."""
    if name not in catalog.list("task"):
        here.lack(f"{what}: there is no task {name!r:.60} here. {NAME}")
        return False
    frozen = catalog.task_card(name).version
    if frozen != version:
        here.lack(
            f"{what}: task '{name}' {version:.20} cannot be checked here: this checkout has "
            f"{frozen}.",
            older=_precedes(version, frozen),
        )
    return frozen == version


def _precedes(version: str, other: str) -> bool:
    """Whether a task's version may have been frozen before another one."""
    try:
        return not is_draft(version) and parts(version) < parts(other)
    except ValueError:
        return False


def _compare_model(here: Comparison, model: str, catalog: Catalog) -> None:
    subject = here.run.record.subject
    try:
        card = catalog.load_model(subject.spec if subject.listed else model)
        if card.unlisted:
            from crlbench.run.admission import admit, as_filed

            card = as_filed(admit(card).card, subject.entry_sha256)
    except CrlbenchError as error:
        here.gaps.append(f"model: {error}")
        return
    stored, why = subject.model_dump(mode="json"), "the entry here"
    for name, value in json.loads(canonical_json(card_fields(card))).items():
        if stored.get(name) != value:
            here.differ(f"subject.{name}", stored.get(name), value, why)
    if not _may_have(card, subject.params_total):
        here.differ("subject.params_total", subject.params_total, card.params_total, why)
    if card.digest == subject.entry_sha256:
        here.card = card
        _compare_flops(here, card)


def _compare_flops(here: Comparison, card: ModelCard) -> None:
    """FLOPs of a token of the policy, of a chain, as its architecture here has them."""
    ledgers = [stage.ledger for stage in here.run.record.lineage or ()] + [here.run.record.ledger]
    stated = [one.coefficients["policy"] for one in ledgers if one and "policy" in one.coefficients]
    if stated:
        _compare_coefficients(here, "ledger.coefficients.policy", stated[0], card)


def _compare_teachers(here: Comparison, catalog: Catalog) -> None:
    """The same of the teachers of a chain, by their entries here."""
    record = here.run.record
    stages = record.algo.config.get("stages") or ()
    tables = [table for table in stages if isinstance(table, Mapping)]
    ledgers = {stage.name: stage.ledger for stage in record.lineage or ()}
    for table in tables:
        name, entry = str(table.get("name")), table.get("teacher")
        last = table is tables[-1]
        ledger = record.ledger if last else ledgers.get(name)
        if entry is None or ledger is None or "teacher" not in ledger.coefficients:
            continue
        place = "ledger" if last else f"lineage.{name}.ledger"
        try:
            card = catalog.load_model(str(entry))
        except CrlbenchError as error:
            here.gaps.append(f"teacher of stage '{name}': {error}")
            continue
        field = f"{place}.coefficients.teacher"
        _compare_coefficients(here, field, ledger.coefficients["teacher"], card)


def _compare_coefficients(
    here: Comparison, field: str, stated: Coefficients, card: ModelCard
) -> None:
    from crlbench.policy.weights.flops import measure_flops
    from crlbench.policy.weights.shape import config_of
    from crlbench.run.admission import admit

    try:
        files = admit(card)
        expected = measure_flops(config_of(files.card, files.location))
    except CrlbenchError as error:
        here.gaps.append(f"FLOPs of a token: {error}")
        return
    if stated != expected:
        here.differ(field, str(stated), str(expected), "its architecture here")


def _may_have(card: ModelCard, parameters: int) -> bool:
    """Whether a model may have that many parameters: those of its entry, and of an adapter."""
    total = card.params_total
    if total is None or card.quantisation != "none":
        return True
    return parameters == total or (card.adapter is not None and total <= parameters <= 2 * total)


def _compare_recipe(here: Comparison, catalog: Catalog) -> None:
    from crlbench.algo import recipes
    from crlbench.algo.recipe import to_config
    from crlbench.run.teacher_entry import pinned

    algo = here.run.record.algo
    try:
        recipe = pinned(recipes.load(algo.name, catalog.extra), catalog)
        file = recipes.python_file(algo.name, catalog.extra)
    except UsageError as error:
        here.gaps.append(f"recipe: {error}")
        return
    ours = leaves(json.loads(canonical_json(to_config(recipe))))
    for name, (value, stored) in diff(ours, leaves(dict(algo.config))).items():
        here.differ(f"algo.config.{name}", stored, value, f"recipe '{algo.name}'")
    sha256 = None if file is None else sha256_file(file)
    if sha256 != algo.recipe_sha256:
        rewritten = file and line_ends.rewritten_file(file, algo.recipe_sha256 or "")
        why = f"its file. {rewritten}" if rewritten else "its file"
        here.differ("algo.recipe_sha256", algo.recipe_sha256, sha256, why)


def _compare_shared(here: Comparison, catalog: Catalog) -> None:
    """Stages of a chain that its track shares are spelled as the track has them."""
    stages = here.run.record.algo.config.get("stages") or ()
    own = {str(one.get("name")): one for one in stages if isinstance(one, Mapping)}
    shared = here.run.record.fingerprint.leaves.get("conditions.preference.shared")
    tables = [one for one in shared or () if isinstance(one, Mapping) and one.get("name") in own]
    if not tables:
        return
    from crlbench.algo import recipes
    from crlbench.algo.chain import differing_field
    from crlbench.algo.chain_files import read_stage

    for table in tables:
        name = str(table["name"])
        try:
            stage = read_stage(table, lambda recipe: recipes.load(recipe, catalog.extra)).plain()
        except CrlbenchError as error:
            here.gaps.append(f"shared stage '{name}': {error}")
            continue
        ours, theirs = _spelled(stage), _spelled(own[name])
        if field := differing_field(ours, theirs):
            why = f"the track shares the stage '{name}'"
            place = f"algo.config.stages.{name}.{field}"
            here.differ(place, theirs.get(field), ours.get(field), why)


def _spelled(stage: Mapping[str, Any]) -> dict[str, Any]:
    """A stage as JSON has it, without the digest of its teacher's entry, which a plan adds."""
    plain: dict[str, Any] = json.loads(canonical_json(dict(stage)))
    recipe = plain.get("recipe")
    if isinstance(recipe, dict) and isinstance(recipe.get("teacher"), dict):
        recipe["teacher"].pop("sha256", None)
    return plain
