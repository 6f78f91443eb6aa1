"""What training on one task does to another: a matrix for each recipe, and for each model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crlbench.base import wording
from crlbench.base.forms import form_of
from crlbench.disk.hashing import digest
from crlbench.disk.parcels import BadParcel, packed, plain_value, unpacked
from crlbench.pages import heat
from crlbench.pages.page_splits import MIN_MATRIX
from crlbench.site.cache import Cache
from crlbench.site.families import by_recipe, families
from crlbench.site.known import Job
from crlbench.site.pages import Page, model_slug
from crlbench.site.shelf import release_shelves
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.generalization import PARTS, WEIGHTS, WEIGHTS_2
from crlbench.verdict.axes import Estimate
from crlbench.verdict.design_rows import group_entries
from crlbench.verdict.packing import Packer, unpack_plain
from crlbench.verdict.transfers import Transfers, mean_transfer, transfer_replicates

FRONT = "transfer.html"
SHARES = {WEIGHTS[-1]: "a quarter", WEIGHTS_2[-1]: "a third"}
"""Weights of transfer in Gen, in words."""
LEFT = 2
"""Recipes that are left to the page."""
KEPT = "matrices"
"""The part of a parcel that has them."""
PLAIN = tuple[
    tuple[
        *(str, str, str, tuple[str, ...]),
        tuple[tuple[str, tuple[tuple[Estimate, bool], ...]], ...],
        str,
    ],
    ...,
]
"""What :func:`_plain` makes of matrices."""


@dataclass(frozen=True)
class Cell:
    """λ on the task of a column after training on that of a row."""

    lam: Estimate
    own: bool
    """Whether it was scored on the task that it was trained on."""

    @property
    def tone(self) -> str:
        """Class that gives it its colour."""
        return heat.tone(self.lam.value)

    @property
    def tint(self) -> int:
        """Strength of its ground in per cent."""
        return heat.tint(self.lam.value)

    @property
    def sign(self) -> str:
        """▲ or ▼ where the interval excludes 0."""
        span = self.lam.interval
        if span is None or span.low <= 0 <= span.high:
            return ""
        return "▲" if span.low > 0 else "▼"


@dataclass(frozen=True)
class Matrix:
    """Trained on the task of a row, scored on that of a column."""

    key: str
    """Name in the address of the page: the model's, or ``all`` for the mean."""
    name: str
    slug: str
    """Slug of the model; empty for the mean."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    finding: str
    """How many pairs of tasks help or hurt beyond chance."""


@dataclass(frozen=True)
class RecipeTransfer:
    """The matrices of one recipe on one board."""

    stored: StoredBoard
    recipe: str
    matrices: tuple[Matrix, ...]
    """Mean over models first, if there are several."""


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    yield Page(
        path=FRONT,
        template="transfer.html.j2",
        title="Does one task help another?",
        about="Transfer between tasks: what training on one does to the score on every other, "
        "with intervals, averaged over models and model by model.",
        data={
            "boards": by_recipe(site, partial(_transfer, site.cache)),
            "share": _share_of_gen(site),
        },
        section="transfer",
        scripts=("static/choose.js",),
    )


def _share_of_gen(site: Site) -> str:
    """What transfer weighs in Gen, in words; on boards of two protocols both."""
    weights = {stored.board.rules.weights[PARTS.index("transfer")] for stored in site.boards}
    words = [name for weight, name in SHARES.items() if weight in weights]
    return f"{' or '.join(words)} of"


def transfer_jobs(site: Site) -> list[Job]:
    """What computes the matrices that are not known, by recipe; few are left to the page, which
    is made beside others."""
    homes = [(family.home, recipe) for family in families(site) for recipe in family.home.recipes]
    cache, keyed = site.cache, {_key(*home): home for home in homes}
    missing = [home for key, home in keyed.items() if key and _find(cache, key) is None]
    if len(missing) <= LEFT:
        return []
    return [Job(partial(_make, cache, *home), lambda _: None) for home in missing]


def _find(cache: Cache | None, key: str) -> tuple[Matrix, ...] | None:
    """The kept matrices of a key; None where there are none."""
    if cache is None or (parcel := cache.find(f"transfer-{key}")) is None:
        return None
    try:
        plain = unpack_plain(plain_value(unpacked(parcel.part(KEPT))))
    except BadParcel:
        return None
    return tuple(map(_from_plain, plain)) if form_of(PLAIN)(plain) else None


def _make(cache: Cache | None, stored: StoredBoard, recipe: str) -> tuple[Matrix, ...]:
    """The matrices of a recipe, computed and kept."""
    matrices, key = _matrices(stored, recipe), _key(stored, recipe)
    release_shelves()
    if key and cache is not None:
        content = json.dumps(Packer().pack(tuple(map(_plain, matrices)))).encode()
        cache.put(f"transfer-{key}", {KEPT: packed(content)})
    return matrices


def _key(stored: StoredBoard, recipe: str) -> str:
    """Digest of what the matrices of a recipe rest on; empty where it is not known."""
    entries = stored.key_of(recipe)
    return digest(["transfer", entries]) if entries else ""


def _plain(matrix: Matrix) -> tuple[Any, ...]:
    rows = tuple(
        (row, tuple((cell.lam, cell.own) for cell in cells)) for row, cells in matrix.rows
    )
    return (matrix.key, matrix.name, matrix.slug, matrix.columns, rows, matrix.finding)


def _from_plain(plain: tuple[Any, ...]) -> Matrix:
    key, name, slug, columns, rows, finding = plain
    cells = tuple((row, tuple(Cell(*cell) for cell in cells)) for row, cells in rows)
    return Matrix(key, name, slug, columns, cells, finding)


def _transfer(cache: Cache | None, stored: StoredBoard, recipe: str) -> RecipeTransfer | None:
    """All matrices of a recipe; None where no model was scored on other tasks than its own."""
    key = _key(stored, recipe)
    known = _find(cache, key) if key else None
    matrices = _make(cache, stored, recipe) if known is None else known
    return RecipeTransfer(stored, recipe, matrices) if matrices else None


def _matrices(stored: StoredBoard, recipe: str) -> tuple[Matrix, ...]:
    tables_of_entries = []
    for entry in stored.entries(recipe):
        table = transfer_replicates(entry)
        if len({column for _, column in table}) >= MIN_MATRIX:
            tables_of_entries.append((entry, table))
        stored.forget(entry)
    single = [
        _matrix(entry.model, entry.full_name, model_slug(entry.model), [table])
        for entry, table in tables_of_entries
    ]
    # Of a design one checkpoint, so that none counts more than once.
    groups = group_entries([entry for entry, _ in tables_of_entries])
    firsts = {max(group.entries, key=lambda one: one.ranks).name for group in groups}
    tables = [table for entry, table in tables_of_entries if entry.name in firsts]
    everyone = "both models" if len(tables) == 2 else f"all {len(tables)} models"
    if len(tables) < len(single):
        everyone += ", one checkpoint of each"
    mean = [_matrix("all", everyone, "", tables)] if len(tables) > 1 else []
    return (*mean, *single)


def _matrix(key: str, name: str, slug: str, tables: Sequence[Transfers]) -> Matrix:
    trained = sorted({row for table in tables for row, _ in table})
    columns = (*trained, *sorted({c for table in tables for _, c in table} - {*trained}))
    rows = tuple(
        (row, tuple(Cell(mean_transfer(tables, row, c), row == c) for c in columns))
        for row in trained
    )
    return Matrix(key, name, slug, columns, rows, _finding(rows))


def _finding(rows: Sequence[tuple[str, tuple[Cell, ...]]]) -> str:
    others = [c for _, cells in rows for c in cells if not c.own and c.lam.value is not None]
    if others and not any(cell.lam.interval for cell in others):
        seeds = wording.count(max(cell.lam.n for cell in others), "seed")
        return f"From {seeds} no interval is made, so no pair of tasks is said to help or to hurt."
    helps, hurts = (sum(cell.sign == sign for cell in others) for sign in "▲▼")
    return (
        f"Of {len(others)} pairs of different tasks, {helps} {'helps' if helps == 1 else 'help'} "
        f"and {hurts} {'hurts' if hurts == 1 else 'hurt'} with an interval that excludes 0."
    )
