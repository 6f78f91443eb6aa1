"""The documents at stable addresses: every board, entry, model and task as canonical JSON.

:mod:`crlbench.contract.published` says what they hold. ``json/index.json`` has all addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from crlbench.contract.published import (
    Address,
    PublishedBoard,
    PublishedEntry,
    PublishedIndex,
    PublishedLearner,
    PublishedModel,
    PublishedRanking,
    PublishedResult,
    PublishedRow,
    PublishedScore,
    PublishedTask,
    PublishedTaskScore,
)
from crlbench.contract.task_card import TaskCard
from crlbench.disk.hashing import canonical_json
from crlbench.site.models import Model, models
from crlbench.site.pages import (
    File,
    address,
    archive_path,
    board_json_path,
    entry_json_path,
    entry_path,
    model_json_path,
    model_path,
    task_json_path,
    task_path,
)
from crlbench.site.source import Site, StoredBoard
from crlbench.site.tasks import Learner, frozen_cards, learners
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AXES, Axis
from crlbench.verdict.declared_designs import declared_designs
from crlbench.verdict.entry import Entry

INDEX = "json/index.json"


def pages(site: Site) -> Iterator[File]:
    """Every document, then the one that lists them."""
    for stored in site.boards:
        yield _file(board_json_path(stored.id), board(stored))
        for one in stored.board.entries:
            yield _file(_entry_path(stored, one), entry(stored, one))
    for slug, found in models(site).items():
        yield _file(model_json_path(slug), model(found))
    cards, learning = frozen_cards(site), learners(site)
    for name in sorted({*cards, *learning}):
        document = task(name, cards.get(name), learning.get(name, ()))
        yield _file(task_json_path(name), document)
    yield _file(
        INDEX, PublishedIndex(updated=site.stamp, records=site.records, **addresses(site))
    )


def addresses(site: Site) -> dict[str, list[Address]]:
    """Where the documents are: of boards, models, tasks and entries."""
    entries = [(stored, one) for stored in site.boards for one in stored.board.entries]
    slugs = {stored.by_entry[one.name][0].subject.slug for stored, one in entries}
    tasks = {task for _, one in entries for task in one.task_names}
    paths = {
        "boards": {stored.id: board_json_path(stored.id) for stored in site.boards},
        "models": {
            slug: model_json_path(slug)
            for slug in sorted({*site.catalog.entries("model"), *slugs})
        },
        "tasks": {
            name: task_json_path(name) for name in sorted({*site.catalog.list("task"), *tasks})
        },
        "entries": {
            f"{stored.id}/{one.name}": _entry_path(stored, one) for stored, one in entries
        },
    }
    return {
        kind: [Address(name=name, path=address(path)) for name, path in of_kind.items()]
        for kind, of_kind in paths.items()
    }


def _file(path: str, document: BaseModel) -> File:
    """A document in its canonical bytes."""
    text = canonical_json(document.model_dump(mode="json", by_alias=True))
    return File(path, f"{text}\n".encode())


def _entry_path(stored: StoredBoard, one: Entry) -> str:
    return entry_json_path(stored.id, one.model, one.recipe)


def entry(stored: StoredBoard, one: Entry) -> PublishedEntry:
    """The document of an entry."""
    found = stored.board
    return PublishedEntry(
        entry=one.name,
        board=stored.id,
        track=found.track,
        track_version=found.track_version,
        division=found.division,
        fingerprint=found.fingerprint,
        hardware=found.hardware,
        model=one.model,
        slug=stored.by_entry[one.name][0].subject.slug,
        display_name=one.display_name,
        recipe=one.recipe,
        standing=one.standing,
        badge=stored.badges[one.name],
        submitter=stored.submitters[one.name].removeprefix("@"),
        date=stored.dates[one.name],
        seeds=one.n,
        failed=len(one.failed),
        vanished=len(one.vanished),
        axes=_scores(stored, one),
        tasks={name: _task_score(stored, one, name) for name in one.task_names},
        page=address(entry_path(stored.id, one.model, one.recipe)),
    )


def _scores(stored: StoredBoard, one: Entry) -> dict[str, PublishedScore]:
    return {axis: _score(stored, one, axis) for axis in AXES}


def _score(stored: StoredBoard, one: Entry, axis: Axis) -> PublishedScore:
    score, ranking = one.axes[axis], stored.board.rankings[one.recipe][axis].ranking
    place = ranking.standing(one.name)
    why = score.reason or stored.board.unranked or ranking.reason or " ".join(one.why)
    return PublishedScore(
        sign=score.sign,
        value=score.value,
        interval=_ends(score.interval),
        wider=_ends(score.wider),
        tier=None if place is None else place.tier,
        ranks=None if place is None else place.ranks,
        of=len(ranking.standings),
        unranked=(why or "") if place is None else "",
    )


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.low, interval.high)


def _task_score(stored: StoredBoard, one: Entry, name: str) -> PublishedTaskScore:
    known: dict[str, Any] = stored.brief(one)["tasks"][name]
    return PublishedTaskScore(
        lam=known["lam"].value,
        interval=_ends(known["lam"].interval),
        start=known["start"],
        end=known["end"],
        seeds=known["seeds"],
        failed=known["failed"],
    )


def _result(stored: StoredBoard, one: Entry) -> PublishedResult:
    return PublishedResult(
        entry=one.name,
        board=stored.id,
        recipe=one.recipe,
        standing=one.standing,
        axes=_scores(stored, one),
        path=address(_entry_path(stored, one)),
    )


def board(stored: StoredBoard) -> PublishedBoard:
    """The document of a board."""
    found = stored.board
    by_recipe = {name: declared_designs(found, name) for name in sorted(found.rankings)}
    declared = {name: designs for name, designs in by_recipe.items() if designs is not None}
    return PublishedBoard(
        board=stored.id,
        track=found.track,
        track_version=found.track_version,
        status=stored.track,
        division=found.division,
        fingerprint=found.fingerprint,
        hardware=found.hardware,
        tasks=list(found.tasks),
        margin=found.margin,
        alpha=found.alpha,
        unranked=found.unranked or "",
        rankings={
            recipe: {axis: _ranking(stored, recipe, axis) for axis in AXES}
            for recipe in sorted(found.rankings)
        },
        entries=[_result(stored, one) for one in found.entries],
        designs=list(next(iter(declared.values())).designs) if declared else [],
        missing_designs={name: list(designs.missing) for name, designs in declared.items()},
        conditions=stored.leaves,
        page=address(archive_path(stored.id)),
    )


def _ranking(stored: StoredBoard, recipe: str, axis: Axis) -> PublishedRanking:
    found = stored.board.rankings[recipe][axis].ranking
    rows = [
        PublishedRow(name=one.model, tier=one.tier, ranks=one.ranks, estimate=one.estimate)
        for one in found.standings
    ]
    reason = stored.board.unranked or found.reason or ""
    return PublishedRanking(sign=stored.board.signs[axis], rows=rows, reason=reason)


def model(found: Model) -> PublishedModel:
    """The document of a model, from the catalogue where it is known there."""
    card, identity, subject = found.card, found.identity, found.subject
    origin = card.source.hf_id if card else subject and subject.hf_id
    return PublishedModel(
        slug=found.slug,
        display_name=identity.display_name,
        family=identity.family,
        kind=identity.kind,
        parameters=found.size,
        licence=card.licence if card else None,
        hub=origin,
        revision=identity.revision,
        results=[_result(stored, one) for stored, one in found.entries],
        page=address(model_path(found.slug)),
    )


def task(name: str, card: TaskCard | None, found: Sequence[Learner]) -> PublishedTask:
    """The document of a task."""
    return PublishedTask(
        task=name,
        task_version=card.version if card else None,
        summary=card.summary if card else "",
        licence=card.licence if card else None,
        floor=card.floor if card else None,
        ceiling=card.ceiling if card else None,
        results=[
            PublishedLearner(
                entry=one.entry.name,
                board=one.stored.id,
                recipe=one.entry.recipe,
                score=_task_score(one.stored, one.entry, name),
                path=address(_entry_path(one.stored, one.entry)),
            )
            for one in found
        ],
        page=address(task_path(name)),
    )
