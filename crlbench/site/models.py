"""Model pages: what an entry says of itself, and where the model stands on every board.

The pages of a model's entries are made with it, because it shows some of them in full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from crlbench.base import wording
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import Subject
from crlbench.pages.page_axes import place
from crlbench.site.article import article, entry_page
from crlbench.site.facets import badge_words, counted, precision
from crlbench.site.families import families
from crlbench.site.pages import Made, Page, model_path, recipes_path
from crlbench.site.recipes import compared
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.axes import AXES, AXIS_SIGNS, AXIS_WORDS, Axis
from crlbench.verdict.entry import Entry

INDEX = "models/index.html"
Facts = list[tuple[str, str]]
"""Label and text."""


@dataclass(frozen=True)
class Model:
    """A model of the catalogue, of the results, or of both."""

    slug: str
    card: ModelCard | None
    """None where the catalogue has no entry of that name."""
    subject: Subject | None
    """As a record states it; None without results."""
    entries: tuple[tuple[StoredBoard, Entry], ...]
    """Ranked ones first."""

    @property
    def told(self) -> ModelCard | Subject:
        """What says what kind of model it is."""
        return self.card or self.subject  # a model has one of the two

    @property
    def size(self) -> int | None:
        return self.told.params_total


def models(site: Site) -> dict[str, Model]:
    """Every model by its slug."""
    entries: dict[str, list[tuple[StoredBoard, Entry]]] = {}
    subjects: dict[str, Subject] = {}
    for stored in site.boards:
        for entry in stored.board.entries:
            subject = stored.by_entry[entry.name][0].record.subject
            subjects.setdefault(subject.slug, subject)
            entries.setdefault(subject.slug, []).append((stored, entry))
    for own in entries.values():
        own.sort(key=lambda found: not _ranks(*found))
    known = site.catalog.entries("model")
    return {
        slug: Model(
            slug,
            site.catalog.load_model(slug) if slug in known else None,
            subjects.get(slug),
            tuple(entries.get(slug, ())),
        )
        for slug in sorted({*known, *subjects})
    }


def _ranks(stored: StoredBoard, entry: Entry) -> bool:
    found = stored.board.rankings[entry.recipe]["efficiency"].ranking.standings
    return any(standing.model == entry.name for standing in found)


def pages(site: Site) -> Iterator[Made]:
    """The list of models, a page for each, and one for each of its entries."""
    found = models(site)
    yield Page(
        path=INDEX,
        template="models.html.j2",
        title="Models of crlbench",
        about="Every language model that crlbench knows, by family, with its size, kind and "
        "licence, and its results.",
        data={"families": _families(found.values()), "n": len(found)},
        section="models",
    )
    homes = [family.home for family in families(site)]
    told = {stored.id: compared(stored) for stored in homes}
    for model in found.values():
        yield partial(_pages, model, told)


def _pages(model: Model, told: Mapping[str, Collection[str]]) -> Iterator[Page]:
    articles = [
        article(stored, entry, f"entry-{number}")
        for number, (stored, entry) in enumerate(model.entries, start=1)
    ]
    yield _page(model, articles, told)
    yield from map(entry_page, articles)


def _families(found: Sequence[Model]) -> list[tuple[str, list[dict[str, Any]]]]:
    ordered = sorted(found, key=lambda model: (model.told.family, model.size or 0, model.slug))
    return [
        (family, [_listed(model) for model in group])
        for family, group in groupby(ordered, key=lambda model: model.told.family)
    ]


def _listed(model: Model) -> dict[str, Any]:
    return {
        "slug": model.slug,
        "name": model.told.display_name,
        "size": counted(model.size) if model.size else "not stated",
        "kind": model.told.kind,
        "precision": precision(model.told),
        "licence": model.card.licence if model.card else "not stated",
        "standing": _in_short(model),
    }


def _in_short(model: Model) -> str:
    """``mini v1, ppo: Λ 0.588, tier 1``: its first entry, and how many more there are."""
    if not model.entries:
        return "no results yet"
    stored, entry = model.entries[0]
    found = stored.board.rankings[entry.recipe]["efficiency"].ranking.standings
    tier = next((f", tier {s.tier}" for s in found if s.model == entry.name), "")
    more = f"; {len(model.entries) - 1} more" if len(model.entries) > 1 else ""
    value = wording.number(entry.axes["efficiency"].value)
    return f"{_where(stored, entry)}: Λ {value}{tier}{more}"


def _where(stored: StoredBoard, entry: Entry) -> str:
    return f"{stored.board.track} v{stored.board.track_version}, {entry.recipe}"


def _page(
    model: Model, articles: Sequence[dict[str, Any]], told: Mapping[str, Collection[str]]
) -> Page:
    leading = {(stored.id, entry.name) for stored, entry in _leading(model)}
    name = model.told.display_name
    return Page(
        path=model_path(model.slug),
        template="model.html.j2",
        title=f"{name}: how it learns under RL",
        about=f"{name}: its entry, and its sample efficiency, stability and generalization on "
        "every board and recipe.",
        data={
            "model": model,
            "kind": model.told.kind,
            "facts": _facts(model),
            "texts": [] if model.card is None else _texts(model.card),
            "digests": sorted(_digests(model).items()),
            "changed": _changed(model),
            "axes": [(AXIS_SIGNS[axis], AXIS_WORDS[axis].capitalize()) for axis in AXES],
            "rows": [_row(stored, entry) for stored, entry in model.entries],
            "recipes": _recipes(model, told),
            "articles": [
                found for found in articles if (found["stored"].id, found["entry"].name) in leading
            ],
        },
        section="models",
        scripts=("static/recompute.js",),
    )


def _recipes(model: Model, told: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """The pages that set its recipes side by side: board and path.

    Args:
        told: the models that have such a page, by board.
    """
    known = {(stored.id, entry.model): stored.board for stored, entry in model.entries}
    return [
        (f"{board.track} v{board.track_version}", recipes_path(stored, name))
        for (stored, name), board in known.items()
        if name in told.get(stored, ())
    ]


def _leading(model: Model) -> list[tuple[StoredBoard, Entry]]:
    """Of every board the entry with the recipe that most others have too."""
    found = []
    for _, group in groupby(model.entries, key=lambda pair: pair[0].id):
        pairs = list(group)
        order = pairs[0][0].recipes
        found.append(min(pairs, key=lambda pair: order.index(pair[1].recipe)))
    return found


def _row(stored: StoredBoard, entry: Entry) -> dict[str, Any]:
    """Where the model stands with one recipe on one board."""
    return {
        "where": _where(stored, entry),
        "hardware": stored.board.hardware or "hardware not stated",
        "stored": stored,
        "entry": entry,
        "scores": [_score(stored, entry, axis) for axis in AXES],
        "badge": badge_words(stored.badges[entry.name]),
    }


def _score(stored: StoredBoard, entry: Entry, axis: Axis) -> dict[str, Any]:
    score = entry.axes[axis]
    return {
        "value": score.value,
        "interval": score.interval,
        "place": place(entry, stored.board, axis)[0],
    }


def _facts(model: Model) -> Facts:
    """The entry in short, from the catalogue where it is known there."""
    told, card, subject = model.told, model.card, model.subject
    found = [
        ("Family", told.family),
        ("Parameters", counted(model.size) if model.size else "not stated"),
        ("Kind", told.kind),
        ("Weights and adapter", precision(told)),
        ("Prompt frame", told.frame),
    ]
    if subject is not None and subject.adapter is not None:
        found.append(("Trained parameters", counted(subject.params_trainable)))
    if card is None:
        return [*found, ("Licence", "not stated"), *_origin(subject.hf_id, subject.revision)]
    found += [("Licence", card.licence)]
    found += [("Context", f"{card.context:,} tokens")] if card.context else []
    found += [("Released", card.released.isoformat())] if card.released else []
    found += [("Languages", ", ".join(card.languages))] if card.languages else []
    found += _origin(card.source.hf_id, card.revision)
    if card.source.package is not None:
        package = card.source.package
        names = wording.listed(package.names, 2)
        found.append(("Weights from", f"{names} {package.version} ({package.registry})"))
    return [*found, ("Contact", card.contact)]


def _origin(hub: str | None, revision: str | None) -> Facts:
    found = [("Hub", hub)] if hub else []
    return found + ([("Revision", revision)] if revision else [])


def _texts(card: ModelCard) -> Facts:
    found = [
        ("Known training data", card.known_training_data),
        ("Contamination", card.contamination_note),
    ]
    return found + ([("Citation", card.citation)] if card.citation else [])


def _digests(model: Model) -> Mapping[str, str]:
    """Of the weights, by file: those that ran, or those of the entry."""
    if model.subject is not None:
        return model.subject.weights_sha256
    return {} if model.card is None else model.card.weights_sha256


def _changed(model: Model) -> str:
    """What has become of the entry since the runs; empty where it is the same."""
    if model.subject is None:
        return ""
    if model.card is None:
        return (
            "The catalogue has no entry of this name. This page shows what the records of the runs "
            "state."
        )
    ran = {
        stored.by_entry[entry.name][0].record.subject.entry_sha256
        for stored, entry in model.entries
    }
    if ran == {model.card.digest}:
        return ""
    return (
        "The entry in the catalogue has changed since some of these runs. Results belong to the "
        "weights and settings that their records state."
    )
