"""The kinds of pages: one line for each, in the order of the menu."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from crlbench.site import (
    addresses,
    architectures,
    archive,
    compare,
    data,
    designs,
    guides,
    home,
    items,
    method,
    models,
    published,
    recipes,
    runs,
    samples,
    sharing,
    stability,
    tasks,
    transfer,
    updates,
)
from crlbench.site.pages import Made, Part, whole
from crlbench.site.source import Site


@dataclass(frozen=True)
class Kind:
    """Pages of one kind, with the files that belong to them."""

    pages: Callable[[Site], Iterator[Made]]
    label: str = ""
    """Word of the menu; empty for pages that the menu does not lead to."""
    front: str = ""
    """Address of the first of these pages."""
    section: str = ""
    """Name under which pages say that they belong to this line of the menu."""
    long: bool = False
    """Whether making them takes long: then it begins early, and no process waits for it alone."""
    together: bool = False
    """Whether one process makes all of them."""
    more: bool = False
    """Whether the menu has it behind its last word."""


def _guide(name: str, more: bool = True) -> tuple[Kind, ...]:
    """A page of the documentation; none where the installation has no documentation."""
    if name not in guides.available():
        return ()
    return (Kind(guides.pages(name), guides.GUIDES[name], f"{name}.html", name, more=more),)


KINDS = (
    Kind(home.pages, "Leaderboard", "index.html", "board"),
    *_guide("choosing", more=False),
    Kind(models.pages, "Models", models.INDEX, "models"),
    Kind(compare.pages, "Compare", "compare.html", "compare", long=True),
    Kind(tasks.pages, "Tasks", "tasks/index.html", "tasks"),
    Kind(recipes.pages, "Recipes", recipes.FRONT, "recipes", long=True, together=True),
    Kind(method.pages, "Method", "method.html", "method", together=True),
    Kind(data.pages, "Data", "data.html", "data", long=True, together=True),
    *_guide("adding"),
    *_guide("findings"),
    *_guide("findings-1"),
    Kind(
        transfer.pages, "Transfer", transfer.FRONT, "transfer", long=True, together=True, more=True
    ),
    Kind(stability.pages, "Stability", stability.FRONT, "stability", more=True),
    Kind(
        architectures.pages,
        "Architectures",
        architectures.FRONT,
        "architectures",
        together=True,
        more=True,
    ),
    *_guide("glossary"),
    *_guide("faq"),
    Kind(updates.pages, "Updates", updates.FRONT, "updates", more=True),
    Kind(runs.pages),
    Kind(designs.pages),
    Kind(archive.pages),
    Kind(items.pages),
    Kind(samples.pages),
    Kind(published.pages, together=True),
    Kind(sharing.pages, together=True),
    Kind(addresses.pages),
)


def parts(site: Site) -> list[Made]:
    """All pages and files of a site, those that take longest first."""
    kinds = sorted(KINDS, key=lambda kind: not kind.long)
    return [
        made
        for kind in kinds
        for made in ([partial(_make, kind, site)] if kind.together else kind.pages(site))
    ]


def _make(kind: Kind, site: Site) -> Iterator[Part]:
    return whole(kind.pages(site))
