"""Pages of the documentation that the site has too, and what its terms mean.

They are the Markdown files of ``docs/`` in a checkout; an installation without them has no such
pages, and no definitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from crlbench.site.pages import Page
from crlbench.site.repository import Repository
from crlbench.site.source import Site
from crlbench.verdict.resources import PACKAGE

FOLDER = PACKAGE.parent / "docs"
GUIDES = {
    "choosing": "Choosing",
    "adding": "Add a model",
    "findings": "Findings",
    "findings-1": "Findings of version 1",
    "glossary": "Glossary",
    "faq": "FAQ",
}
"""Name of the file and word of the menu."""
ABOUT = {
    "choosing": "Which model and which recipe to take, situation by situation, and why.",
    "adding": "What may enter, the commands, what they cost by size, and what happens then.",
    "findings": "What the stored results say, with tables, limits and programs.",
    "findings-1": "What the archived results of mini, version 1, say and advise.",
    "glossary": "Every term and symbol of crlbench in a sentence.",
    "faq": "Questions about crlbench and short answers.",
}
LONG = 12_000
"""Characters; the sections of a longer page are folded."""
LONG_FOR_PHONES = 8_000
"""Characters; the sections of a longer page are folded on a phone."""
NARROW = 4
"""Columns of a table that a phone can show side by side."""
ROLES = {
    "thead_open": "rowgroup",
    "tbody_open": "rowgroup",
    "tr_open": "row",
    "th_open": "columnheader",
    "td_open": "cell",
}
"""What parts of a table are, by the kind of token."""
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
TERM = re.compile(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", re.MULTILINE)
MARKS = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*\\]")


class Section(NamedTuple):
    """A part of a page below a heading of the second level."""

    anchor: str
    title: Markup
    content: Markup


def available() -> list[str]:
    """The guides that this installation has."""
    return [name for name in GUIDES if (FOLDER / f"{name}.md").is_file()]


def pages(name: str) -> Callable[[Site], Iterator[Page]]:
    """What makes the page of a guide."""
    return partial(_pages, name)


def _pages(name: str, site: Site) -> Iterator[Page]:
    text = COMMENT.sub("", (FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    title, intro, sections = render(text, site.repository)
    yield Page(
        path=f"{name}.html",
        template="guide.html.j2",
        title=f"{title} · crlbench",
        about=ABOUT[name],
        data={"title": title, "intro": intro, "sections": sections, "folds": _folds(len(text))},
        section=name,
    )


def _folds(characters: int) -> str:
    """Where the sections of a page are folded: ``always``, on a ``phone``; empty for nowhere."""
    return "always" if characters > LONG else "phone" if characters > LONG_FOR_PHONES else ""


@cache
def glossary() -> dict[str, str]:
    """The definition of each term, by the term in small letters; empty without the glossary."""
    path = FOLDER / "glossary.md"
    if not path.is_file():
        return {}
    found = TERM.findall(path.read_text(encoding="utf-8"))
    return {_plain(term).lower(): _plain(about) for term, about in found}


def _plain(text: str) -> str:
    return " ".join(MARKS.sub(r"\1", text.replace(r"\*", "∗")).replace("∗", "*").split())


def term_anchor(term: str) -> str:
    """The id of a term on the page of the glossary."""
    return f"term-{slug(term.replace('*', ' star'))}"


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower().strip()).replace(" ", "-")


def render(text: str, repository: Repository | None) -> tuple[str, Markup, list[Section]]:
    """A page of Markdown: its title, what stands before the first section, and the sections."""
    md = MarkdownIt("commonmark").enable("table").disable("html_block").disable("html_inline")
    md.add_render_rule("fence", _fence)
    md.add_render_rule("table_open", _table_open)
    md.add_render_rule("table_close", _table_close)
    tokens = md.parse(text)
    _dress(tokens, repository)
    _label_cells(tokens)
    title, parts = "", list[tuple[str, Markup, list[Token]]]([("", Markup(), [])])
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.type == "heading_open" and token.tag in ("h1", "h2"):
            inline = tokens[at + 1]
            if token.tag == "h1":
                title = _text(inline)
            else:
                head = Markup(md.renderer.render([inline], md.options, {}))
                parts.append((slug(_text(inline)), head, []))
            at += 3
            continue
        parts[-1][2].append(token)
        at += 1
    rendered = [
        Section(anchor, head, Markup(md.renderer.render(body, md.options, {})))
        for anchor, head, body in parts
    ]
    return title, rendered[0].content, rendered[1:]


def _text(inline: Token) -> str:
    return "".join(child.content for child in inline.children or ())


def _dress(tokens: Sequence[Token], repository: Repository | None) -> None:
    """Anchors of headings and terms, addresses of links, and heads of tables, in place."""
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(_text(tokens[place + 1])))
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "list_item_open" and place + 2 < len(tokens):
            children = tokens[place + 2].children or []
            if [child.type for child in children[:3]] == ["text", "strong_open", "text"]:
                children = children[1:]  # an empty text before the term
            if len(children) > 1 and children[0].type == "strong_open":
                token.attrSet("id", term_anchor(children[1].content))
        elif token.type == "inline":
            _redirect(token, repository)


def _label_cells(tokens: Sequence[Token]) -> None:
    """Heads of the columns beside the cells of wide tables, which a phone shows below one another;
    in place. The styles that do so take the meaning of a table away, which roles give back."""
    heads: list[str] = []
    at = 0
    for place, token in enumerate(tokens):
        if token.type == "table_open":
            heads = _heads(tokens, place)
        elif token.type == "tr_open":
            at = 0
        elif token.type == "td_open":
            if len(heads) > NARROW and heads[at]:
                token.attrSet("data-label", heads[at])
            if len(heads) > NARROW and at == 0:
                token.attrSet("class", "wide")
            at += 1
        if len(heads) > NARROW and token.type in ROLES:
            token.attrSet("role", ROLES[token.type])


def _heads(tokens: Sequence[Token], place: int) -> list[str]:
    """Heads of the columns of the table that begins at a place."""
    heads = []
    for number in range(place, len(tokens)):
        if tokens[number].type == "thead_close":
            break
        if tokens[number].type == "th_open":
            heads.append(_text(tokens[number + 1]))
    return heads


def _redirect(inline: Token, repository: Repository | None) -> None:
    """Links to pages of the site, to files of the repository, or none where it is not known. One
    that is called by its file's name gets that page's title."""
    kept, dropped, file = [], 0, ""
    for child in inline.children or ():
        if child.type == "image":
            continue
        if child.type == "text" and child.content == file:
            child.content = title_of(file)
        file = ""
        if child.type == "link_open":
            file = urlsplit(str(child.attrGet("href"))).path
            address = _address(str(child.attrGet("href")), repository)
            if address is None:
                dropped += 1
                continue
            child.attrSet("href", address)
        elif child.type == "link_close" and dropped:
            dropped -= 1
            continue
        kept.append(child)
    inline.children = kept


def _address(href: str, repository: Repository | None) -> str | None:
    parts = urlsplit(href)
    if parts.scheme or not parts.path:
        return href
    name = parts.path.removesuffix(".md")
    mark = f"#{parts.fragment}" if parts.fragment else ""
    if name in available():
        return f"{name}.html{mark}"
    if repository is None:
        return None
    path = parts.path.removeprefix("../") if parts.path.startswith("../") else f"docs/{parts.path}"
    return f"{repository.file(path)}{mark}"


@cache
def title_of(file: str) -> str:
    """The title of a page of the documentation; its file's name where there is none."""
    path = FOLDER / file
    if path.suffix != ".md" or not path.is_file():
        return file
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return _plain(first.removeprefix("# ")) if first.startswith("# ") else file


def _fence(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    return f'<pre tabindex="0"><code>{Markup.escape(tokens[place].content)}</code></pre>\n'


def _table_open(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    heads = _heads(tokens, place)
    label = Markup.escape("Table: " + ", ".join(filter(None, heads)))
    dress = ' class="cards" role="table"' if len(heads) > NARROW else ""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">\n<table{dress}>\n'


def _table_close(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    return "</table>\n</div>\n"
