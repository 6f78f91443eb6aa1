"""The data page: every table of every board as files, what the columns mean, and how to cite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from crlbench import __version__
from crlbench.base.json_schema import schema_of
from crlbench.contract.published import PUBLISHED
from crlbench.contract.records import RunRecord, StoredPlan
from crlbench.site.designs import has_designs
from crlbench.site.formats import KEPT_FORMS, KEPT_TABLES, TABLES, WRITERS, joined
from crlbench.site.pages import File, Page, data_path
from crlbench.site.source import Site, StoredBoard

OFFERED = ("entries", "runs", "curves")
"""Pairs are left to the command: their number grows with the square of the entries."""
DESIGNS = "designs"
"""The table of boards of protocol CRL-2."""
FORMS = KEPT_FORMS
SCHEMAS = {"run-record": RunRecord, "plan": StoredPlan, **PUBLISHED}
TITLE = "crlbench: Reinforcement learning of language models under frozen, comparable conditions"
AUTHORS = "The crlbench contributors"


def pages(site: Site) -> Iterator[Page | File]:
    """The page with the files that it offers."""
    boards: list[dict[str, Any]] = []
    for stored in site.boards:
        files = list(_files(stored))
        yield from (file for _, file in files)
        boards.append({"stored": stored, "files": files})
    schemas = list(_schemas())
    yield from schemas
    absent = () if any(map(_has_designs, site.boards)) else (DESIGNS,)
    yield Page(
        path="data.html",
        template="data.html.j2",
        title="Data: every number for your own analysis",
        about="Entries, runs and learning curves as CSV and JSON, and the meaning of every column. "
        "Schemas of the records, how to rebuild this site, and how to cite it.",
        data={
            "offered": boards,
            "tables": [tabulate(()) for name, tabulate in TABLES.items() if name not in absent],
            "forms": ", ".join(WRITERS),
            "schemas": schemas,
            "bibtex": bibtex(),
        },
        section="data",
    )


def _files(stored: StoredBoard) -> Iterator[tuple[str, File]]:
    """Label and file of each table of a board, and of its conditions."""
    offered = (*OFFERED, DESIGNS) if _has_designs(stored) else OFFERED
    for what in offered:
        written = _kept(stored, what) or _written(stored, what)
        for form, content in written.items():
            name = f"{what}.{form}"
            yield name, File(data_path(stored.id, name), content)
    leaves = {"fingerprint": stored.board.fingerprint, "leaves": stored.leaves}
    text = json.dumps(leaves, indent=1, sort_keys=True) + "\n"
    yield "fingerprint.json", File(data_path(stored.id, "fingerprint.json"), text.encode())


def _has_designs(stored: StoredBoard) -> bool:
    return any(has_designs(stored, recipe) for recipe in stored.recipes)


def _written(stored: StoredBoard, what: str) -> dict[str, bytes]:
    table = TABLES[what]([stored])
    return {form: WRITERS[form](table) for form in FORMS}


def _kept(stored: StoredBoard, what: str) -> dict[str, bytes] | None:
    """A table by format, from the rows that are kept of each entry; None where they are not."""
    names = [entry.name for entry in stored.board.entries]
    if what not in KEPT_TABLES or not names or not stored.shelves.keys() >= {*names}:
        return None
    kept = [dict(stored.shelves[name].files(what)) for name in names]
    return {form: joined(form, [files[form] for files in kept]) for form in FORMS}


def _schemas() -> Iterator[File]:
    """JSON Schemas of what archives of results and documents hold, as ``docs/schemas`` has them."""
    for name, kind in SCHEMAS.items():
        text = json.dumps(schema_of(name, kind), indent=2, ensure_ascii=True) + "\n"
        yield File(f"data/schemas/{name}.schema.json", text.encode())


def bibtex() -> str:
    """The same as ``CITATION.cff`` of the repository."""
    return (
        "@software{crlbench,\n"
        f"  title = {{{{{TITLE}}}}},\n"
        f"  author = {{{{{AUTHORS}}}}},\n"
        f"  version = {{{__version__}}},\n"
        "  license = {Apache-2.0}\n"
        "}\n"
    )
