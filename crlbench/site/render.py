"""Pages as HTML: the templates, what they share, and links that work from any folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from jinja2 import FileSystemLoader, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from crlbench import __version__
from crlbench.base import wording
from crlbench.disk.hashing import digest
from crlbench.pages import words
from crlbench.pages.compare_words import SIGNS
from crlbench.pages.report import environment
from crlbench.site.facets import brief_name
from crlbench.site.guides import available, glossary, term_anchor
from crlbench.site.kinds import KINDS
from crlbench.site.pages import (
    Kept,
    Page,
    Part,
    archive_path,
    board_path,
    data_path,
    designs_path,
    entry_path,
    items_path,
    model_path,
    recipes_path,
    run_path,
    samples_path,
    task_path,
)
from crlbench.site.source import Site
from crlbench.site.techniques import rate_words, recipe_words
from crlbench.verdict.resources import leaderboard_folder

MENU, MORE = (
    tuple((one.section, one.label, one.front) for one in KINDS if one.label and one.more is more)
    for more in (False, True)
)
"""Key, label and address of what every page leads to: in a row, and behind its last word."""


class KeptParts(Protocol):
    """Parts of pages from the build before."""

    def get(self, key: str, make: Callable[[], str]) -> str:
        """The part of a key; made where there is none."""


class Renderer:
    """Renders the pages of one site."""

    def __init__(self, site: Site, totals: str | None = None) -> None:
        """
        Args:
            totals: what footers say of all results; None: what the site says.
        """
        self.site = site
        self.totals = _totals(site) if totals is None else totals
        self.environment = environment()
        templates = leaderboard_folder() / "templates"
        self.environment.loader = FileSystemLoader([templates / "site", templates])
        self.environment.filters |= {
            "brief_name": brief_name,
            "percent": wording.percent,
            "grouped": wording.grouped,
            "more_seeds": words.more_seeds,
            "rate": rate_words,
            "recipe_words": recipe_words,
            "sentence": wording.sentence,
            "sign": SIGNS.get,
            "size": wording.memory,
        }
        self.kept_parts: KeptParts | None = None
        self.environment.globals |= {
            "archive_path": archive_path,
            "board_path": board_path,
            "entry_path": entry_path,
            "data_path": data_path,
            "designs_path": designs_path,
            "items_path": items_path,
            "model_path": model_path,
            "recipes_path": recipes_path,
            "run_path": run_path,
            "samples_path": samples_path,
            "task_path": task_path,
            "guide": available().__contains__,
            "term": _term,
        }

    def compile(self) -> None:
        """Read every template now; processes that are forked later need not."""
        # Templates of the site are listed a second time below the folder that holds all.
        for name in self.environment.list_templates(["j2"]):
            if "/" not in name:
                self.environment.get_template(name)

    def html(self, page: Page) -> bytes:
        """The whole file."""
        text = self.environment.get_template(page.template).render(
            page=page,
            link=page.link,
            part_of=self.part_of,
            menu=MENU,
            more=MORE,
            site=self.site,
            totals=self.totals,
            version=__version__,
        )
        return text.encode()

    def part_of(
        self, content: Mapping[str, Any], template: str, sheet: Mapping[str, Any]
    ) -> Markup:
        """A part of an article that rests on its entry alone, made or as it was kept.

        Args:
            content: what :func:`crlbench.site.article.article` gives.
            sheet: whether the page has a single article.
        """
        item, entry = content["item"], content["entry"]

        def make() -> str:
            given = {"page": sheet, "item": item, "e": entry, "d": content}
            return self.environment.get_template(template).render(given)

        if self.kept_parts is None or not entry.evidence.key:
            return Markup(make())
        key = [template, entry.evidence.key, item["anchor"], sheet["single"]]
        return Markup(self.kept_parts.get(digest(key), make))

    def content(self, part: Part) -> bytes:
        """The bytes of a page or of any other file."""
        if isinstance(part, Page):
            return self.html(part)
        if isinstance(part, Kept):
            return part.finished(self.totals.encode())
        return part.content


@pass_context
def _term(context: Context, name: str, words: str = "") -> Markup:
    """A word that shows its definition to a pointer, a finger or a keyboard, and leads to it.

    Args:
        name: as the glossary has it; a word without a definition stays as it is.
        words: what the page says; empty: the name.
    """
    about = glossary().get(name.lower())
    text = Markup.escape(words or name)
    if about is None:
        return text
    address = context["page"].link(f"glossary.html#{term_anchor(name.lower())}")
    return Markup('<a class="term" href="{}" data-tip="{}">{}</a>').format(address, about, text)


def _totals(site: Site) -> str:
    """``1,443 runs, last updated 2026-11-24``: nothing that HTML escapes."""
    return f"{wording.grouped(site.records)} runs, last updated {site.stamp[:10]}"
