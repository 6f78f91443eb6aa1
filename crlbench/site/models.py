"""Model pages: what an entry says of itself, and the results of the model on every board.

The pages of a model's entries are made with it, because it shows some of them in full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crlbench.base import wording
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import Subject
from crlbench.disk.hashing import digest
from crlbench.pages import design_words as say
from crlbench.pages import words
from crlbench.pages.page_axes import place
from crlbench.site.article import article, entry_page, rivals
from crlbench.site.citing import cite_model
from crlbench.site.costs import cost_words, entry_cost
from crlbench.site.design_standings import row_of
from crlbench.site.entering import way_in
from crlbench.site.facets import badge_words, format_count, precision
from crlbench.site.families import families
from crlbench.site.pages import Keyed, Made, Page, model_json_path, model_path, recipes_path
from crlbench.site.pairs import Wanted
from crlbench.site.recipes import list_compared_models
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis
from crlbench.verdict.entry import Entry

INDEX = "models/index.html"
OTHER_CONDITIONS = "Other conditions, never ranked"
"""Title over results of the open division, such as other learning rates."""
Facts = list[tuple[str, str]]
"""Label and text."""


@dataclass(frozen=True)
class Model:
    """A model of the catalogue, of the results, or of both."""

    slug: str
    card: ModelCard | None
    """None where the catalogue has no entry of that name."""
    subject: Subject | None
    """Subject of a record; None without results."""
    entries: tuple[tuple[StoredBoard, Entry], ...]
    """Ranked ones first; of the checkpoints of a design the one with the control arms."""
    digests: frozenset[str] = frozenset()
    """Of the card, and of the cards of its further checkpoints."""

    @property
    def identity(self) -> ModelCard | Subject:
        """Card or subject, which both describe the model."""
        return self.card or self.subject  # a model has one of the two

    @property
    def size(self) -> int | None:
        return self.identity.params_total


def models(site: Site) -> dict[str, Model]:
    """Every model by its slug."""
    entries: dict[str, list[tuple[StoredBoard, Entry]]] = {}
    subjects: dict[str, Subject] = {}
    for stored in site.boards:
        # Of several checkpoints of a design, the one with the control arms comes first.
        for entry in sorted(stored.board.entries, key=lambda e: bool(e.checkpoint) and not e.ranks):
            subject = stored.by_entry[entry.name][0].subject
            subjects.setdefault(subject.slug, subject)
            entries.setdefault(subject.slug, []).append((stored, entry))
    for pairs in entries.values():
        pairs.sort(key=lambda pair: _tier(*pair) is None)
    names = site.catalog.entries("model")
    return {
        slug: Model(
            slug,
            site.catalog.load_model(slug) if slug in names else None,
            subjects.get(slug),
            tuple(entries.get(slug, ())),
            digests_of_cards(site.catalog, slug) if slug in names else frozenset(),
        )
        for slug in sorted({*names, *subjects})
    }


def digests_of_cards(catalog: Catalog, slug: str) -> frozenset[str]:
    """Digests of a model's card, and of the cards of its further checkpoints."""
    labels = catalog.load_model(slug).checkpoints
    return frozenset(
        catalog.load_model(name).digest for name in (slug, *(f"{slug}@{one}" for one in labels))
    )


def _tier(stored: StoredBoard, entry: Entry) -> int | None:
    """Tier of an entry on efficiency; None without a rank."""
    return stored.board.rankings[entry.recipe]["efficiency"].ranking.tier(entry.name)


def pages(site: Site) -> Iterator[Made]:
    """The list of models, a page for each, and one for each of its entries."""
    by_slug = models(site)
    yield Page(
        path=INDEX,
        template="models.html.j2",
        title="Models of crlbench",
        about="Every language model that crlbench knows, by family, with its size, kind and "
        "licence, and its results.",
        data=_list(list(by_slug.values())),
        section="models",
        scripts=("static/tables.js", "static/list.js"),
    )
    homes = [family.home for family in families(site)]
    recipe_pages = {stored.id: list_compared_models(stored) for stored in homes}
    for model in by_slug.values():
        make = partial(_pages, model, recipe_pages, site.url)
        yield Keyed(_key(site, model, recipe_pages), make, _key_of_parts(model))


def _key(site: Site, model: Model, recipe_pages: Mapping[str, Collection[str]]) -> str:
    """Digest of all that the pages of a model and of its entries show."""
    entries = [
        [stored.id, stored.track, stored.later, stored.recipes, stored.board.unranked, entry.name]
        + [entry.evidence.key, stored.key_of(entry.recipe)]
        + [Wanted(other, entry).key for other in rivals(stored, entry)]
        for stored, entry in model.entries
    ]
    if not (site.surroundings and all(all(keys[6:]) for keys in entries)):
        return ""
    card = None if model.card is None else [model.card.digest, model.card.model_dump(mode="json")]
    shown = [model.slug, card, _recipes(model, recipe_pages), entries]
    return digest(["models", site.surroundings, shown])


def _key_of_parts(model: Model) -> str:
    """Digest of the entries of a model, which parts of their pages rest on; empty for none."""
    keys = [entry.evidence.key for _, entry in model.entries]
    return digest([model.slug, keys]) if keys and all(keys) else ""


def _pages(
    model: Model, recipe_pages: Mapping[str, Collection[str]], url: str
) -> Iterator[Page]:
    articles = [
        article(stored, entry, f"entry-{number}", url)
        for number, (stored, entry) in enumerate(model.entries, start=1)
    ]
    yield _page(model, articles, recipe_pages, url)
    yield from map(entry_page, articles)


def _list(every: Sequence[Model]) -> dict[str, Any]:
    """The rows of the list, by family and size, and the smallest and the largest size."""
    sizes = [model.size for model in every if model.size]
    ordered = sorted(every, key=lambda model: (model.identity.family, model.size or 0, model.slug))
    return {
        "models": [_list_row(model) for model in ordered],
        "ends": [format_count(size) for size in (min(sizes), max(sizes))] if sizes else None,
    }


def _list_row(model: Model) -> dict[str, Any]:
    return {
        "slug": model.slug,
        "name": model.identity.display_name,
        "family": model.identity.family,
        "results": len(model.entries),
        "parameters": model.size,
        "size": format_count(model.size) if model.size else "not stated",
        "kind": model.identity.kind,
        "precision": precision(model.identity),
        "licence": model.card.licence if model.card else "not stated",
        "standing": _in_short(model),
    }


def _in_short(model: Model) -> str:
    """``mini v1, ppo: Λ 0.588, tier 1``: its first entry or its design, and how many more there
    are."""
    if not model.entries:
        return "no results yet"
    stored, entry = model.entries[0]
    number = _tier(stored, entry)
    tier = "" if number is None else f", tier {number}"
    row = row_of(stored.board.rankings[entry.recipe]["efficiency"], entry)
    score, told, over = entry.axes["efficiency"], 1, ""
    if row is not None and not row.alone:
        score, told, over = row.score, len(row.checkpoints), f" ({say.checkpoints(row)})"
    more = f"; {len(model.entries) - told} more" if len(model.entries) > told else ""
    value = f"{score.sign} {words.value(score)}"
    return f"{stored.label}, {entry.recipe}: {value}{tier}{over}{more}"


def _where(stored: StoredBoard, entry: Entry) -> str:
    """``mini v2, ppo``; with the label of the checkpoint where the board has several."""
    row = row_of(stored.board.rankings[entry.recipe]["efficiency"], entry)
    label = f", {entry.checkpoint}" if row is not None and len(row.checkpoints) > 1 else ""
    return f"{stored.label}, {entry.recipe}{label}"


def _page(
    model: Model,
    articles: Sequence[dict[str, Any]],
    recipe_pages: Mapping[str, Collection[str]],
    url: str,
) -> Page:
    leading = {(stored.id, entry.name) for stored, entry in _leading(model)}
    name = model.identity.display_name
    return Page(
        path=model_path(model.slug),
        template="model.html.j2",
        title=f"{name}: how it learns under RL",
        about=f"{name}: its entry, and its sample efficiency, stability and generalization on "
        "every board and recipe.",
        data={
            "model": model,
            "kind": model.identity.kind,
            "facts": _facts(model),
            "texts": [] if model.card is None else _texts(model.card),
            "digests": sorted(_digests(model).items()),
            "changed": _describe_change(model),
            "axes": [(_signs(model, axis), AXIS_WORDS[axis].capitalize()) for axis in AXES],
            "rows": _group_rows(model, leading),
            "way": way_in(model.size),
            "recipes": _recipes(model, recipe_pages),
            "citation": cite_model(
                model.slug,
                name,
                model.identity.revision,
                [stored.dates[entry.name][:10] for stored, entry in model.entries],
                url,
            ),
            "articles": [
                entry_article
                for entry_article in articles
                if (entry_article["stored"].id, entry_article["entry"].name) in leading
            ],
        },
        section="models",
        scripts=("static/digits.js", "static/recompute.js"),
        document=model_json_path(model.slug),
    )


def _recipes(model: Model, recipe_pages: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """The pages that set its recipes side by side: board and path.

    Args:
        recipe_pages: the models that have such a page, by board.
    """
    boards = {(stored.id, entry.model): stored for stored, entry in model.entries}
    return [
        (stored.label, recipes_path(board, name))
        for (board, name), stored in boards.items()
        if name in recipe_pages.get(board, ())
    ]


def _leading(model: Model) -> list[tuple[StoredBoard, Entry]]:
    """The entry of every board with the recipe that most others have too; boards that never rank
    have none."""
    by_board: dict[str, list[tuple[StoredBoard, Entry]]] = {}
    for stored, entry in model.entries:
        if not stored.is_open:
            by_board.setdefault(stored.id, []).append((stored, entry))
    return [
        min(pairs, key=lambda pair: pair[0].recipes.index(pair[1].recipe))
        for pairs in by_board.values()
    ]


def _row(stored: StoredBoard, entry: Entry) -> dict[str, Any]:
    """Results of the model with one recipe on one board."""
    return {
        "where": _where(stored, entry),
        "hardware": stored.board.hardware or "hardware not stated",
        "stored": stored,
        "entry": entry,
        "scores": [_score(stored, entry, axis) for axis in AXES],
        "badge": badge_words(stored.badges[entry.name]),
        "cost": cost_words(stored.brief(entry)["cost"]),
        "rank": entry_cost(stored, entry),
    }


def _group_rows(
    model: Model, leading: Collection[tuple[str, str]]
) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows of the results: those that a page opens with, then what it folds, with its title.

    Args:
        leading: board and name of the entries that the page shows in full.
    """
    titles = ("", "Other checkpoints", "Other recipes", OTHER_CONDITIONS)
    groups: dict[str, list[dict[str, Any]]] = {title: [] for title in titles}
    recipes = {(s.id, e.recipe) for s, e in model.entries if (s.id, e.name) in leading}
    for stored, entry in model.entries:
        title = "Other checkpoints" if (stored.id, entry.recipe) in recipes else "Other recipes"
        if stored.is_open:
            title = OTHER_CONDITIONS
        elif (stored.id, entry.name) in leading:
            title = ""
        groups[title].append(_row(stored, entry))
    return [(title, rows) for title, rows in groups.items() if rows]


def _signs(model: Model, axis: Axis) -> str:
    """The symbol of an axis; of boards of two protocols both."""
    return " or ".join(dict.fromkeys(stored.board.signs[axis] for stored, _ in model.entries))


def _score(stored: StoredBoard, entry: Entry, axis: Axis) -> dict[str, Any]:
    score = entry.axes[axis]
    return {
        "sign": score.sign,
        "value": score.value,
        "interval": score.interval,
        # Of a checkpoint without a value the reason says more than that it is a preview.
        "place": (
            f"No value: {score.reason.removesuffix('.')}."
            if score.value is None and score.reason and not entry.ranks
            else place(entry, stored.board, axis)[0]
        ),
    }


def _facts(model: Model) -> Facts:
    """The entry in short, from the catalogue where it is known there."""
    identity, card, subject = model.identity, model.card, model.subject
    rows = [
        ("Family", identity.family),
        ("Parameters", format_count(model.size) if model.size else "not stated"),
        ("Kind", identity.kind),
        ("Weights and adapter", precision(identity)),
        ("Prompt frame", identity.frame),
    ]
    if subject is not None and subject.adapter is not None:
        rows.append(("Trained parameters", format_count(subject.params_trainable)))
    if card is None:
        return [*rows, ("Licence", "not stated"), *_origin(subject.hf_id, subject.revision)]
    rows += [("Licence", card.licence)]
    rows += [("Context", f"{card.context:,} tokens")] if card.context else []
    rows += [("Released", card.released.isoformat())] if card.released else []
    rows += [("Languages", ", ".join(card.languages))] if card.languages else []
    rows += _origin(card.source.hf_id, card.revision)
    if card.source.package is not None:
        package = card.source.package
        names = wording.listed(package.names, 2)
        rows.append(("Weights from", f"{names} {package.version} ({package.registry})"))
    return [*rows, ("Contact", card.contact)]


def _origin(hub: str | None, revision: str | None) -> Facts:
    rows = [("Hub", hub)] if hub else []
    return rows + ([("Revision", revision)] if revision else [])


def _texts(card: ModelCard) -> Facts:
    rows = [
        ("Known training data", card.known_training_data),
        ("Contamination", card.contamination_note),
    ]
    return rows + ([("Citation", card.citation)] if card.citation else [])


def _digests(model: Model) -> Mapping[str, str]:
    """Digests of the weights by file: those that ran, of several checkpoints the first, or those
    of the entry."""
    if model.subject is not None:
        return model.subject.weights_sha256
    return {} if model.card is None else model.card.weights_sha256


def _describe_change(model: Model) -> str:
    """What has become of the entry since the runs; empty where it is the same."""
    if model.subject is None:
        return ""
    if model.card is None:
        return (
            "The catalogue has no entry of this name. This page shows what the records of the runs "
            "state."
        )
    ran = {stored.by_entry[entry.name][0].subject.entry_sha256 for stored, entry in model.entries}
    if ran <= model.digests:
        return ""
    return (
        "The entry in the catalogue has changed since some of these runs. Results belong to the "
        "weights and settings that their records state."
    )
