"""What tells programs of the site: feed, sitemap, robots.txt, and the page for a wrong address.

Absolute addresses need the address of the site. Without it there is no sitemap, links of the feed
are relative, and the page for a wrong address works in the top folder alone.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from crlbench.base import wording
from crlbench.pages import words
from crlbench.site.data import AUTHORS
from crlbench.site.pages import File, Page, entry_path
from crlbench.site.source import Site
from crlbench.site.updates import changes

ATOM = "http://www.w3.org/2005/Atom"
SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
TAG = "tag:crlbench,2026:"
"""Prefix of the feed's ids (RFC 4151), which do not depend on the address of the site."""
MISSING = "404.html"


def pages(site: Site) -> Iterator[Page | File]:
    """The feed, ``robots.txt`` and ``404.html``."""
    yield File("feed.xml", feed(site))
    yield File("robots.txt", robots(site).encode())
    yield Page(
        path=MISSING,
        template="missing.html.j2",
        title="No such page",
        about="This address leads nowhere.",
        shown_at=site.url,
    )


def feed(site: Site) -> bytes:
    """An Atom feed (RFC 4287): an item for each entry, dated by the last event in its ledger."""
    root = ElementTree.Element("feed", xmlns=ATOM)
    _text(root, "title", "crlbench: results")
    _text(root, "id", f"{TAG}feed")
    _text(root, "updated", site.stamp or "1970-01-01T00:00:00Z")
    _text(ElementTree.SubElement(root, "author"), "name", AUTHORS)
    _link(root, f"{site.url}feed.xml", "self")
    _link(root, f"{site.url}index.html", "alternate")
    for change in changes(site):
        stored, entry = change["stored"], change["entry"]
        item = ElementTree.SubElement(root, "entry")
        title = f"{entry.full_name} with {entry.recipe} on {stored.label}"
        _text(item, "title", wording.clean(title))
        _text(item, "id", TAG + quote(f"{stored.id}/{entry.name}", safe="/@"))
        _text(item, "updated", change["date"])
        path = entry_path(stored.id, entry.model, entry.recipe)
        _link(item, site.url + quote(path, safe="/@"), "alternate")
        score = entry.axes["efficiency"]
        summary = f"{wording.count(change['runs'], 'run')}; sample efficiency {score.sign} "
        summary += words.estimate(score)
        _text(item, "summary", f"{summary}. Fingerprint {stored.board.fingerprint}.")
    return _to_bytes(root)


def _text(parent: ElementTree.Element, name: str, text: str) -> None:
    ElementTree.SubElement(parent, name).text = text


def _link(parent: ElementTree.Element, href: str, rel: str) -> None:
    ElementTree.SubElement(parent, "link", rel=rel, href=href)


def _to_bytes(root: ElementTree.Element) -> bytes:
    ElementTree.indent(root, " ")
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'.encode()


def robots(site: Site) -> str:
    """Everybody may read everything."""
    where = f"Sitemap: {site.url}sitemap.xml\n" if site.url else ""
    return f"User-agent: *\nAllow: /\n{where}"


def sitemap(site: Site, paths: Iterable[str]) -> Iterator[File]:
    """All pages but the one for wrong addresses; nothing where the site knows no address."""
    if not site.url:
        return
    root = ElementTree.Element("urlset", xmlns=SITEMAP)
    for path in sorted(paths):
        if path.endswith(".html") and path != MISSING:
            _text(ElementTree.SubElement(root, "url"), "loc", site.url + quote(path, safe="/@"))
    yield File("sitemap.xml", _to_bytes(root))
