"""What stages leave for others: folders found by what made them, whole or absent.

A product lies in ``<kind>-<key12>``. Its key is the SHA-256 of the canonical specification of its
stage, the digests of what the stage read, and the seed. The source tree that made it is written
beside it and is no part of the key: a chain goes on after an update. The digest of a product
covers its files alone, so equal files are one product, wherever and whenever they were made.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from crlbench.base.added import added
from crlbench.contract.card import Card, validate_card
from crlbench.contract.ledger import Ledger
from crlbench.contract.records import FileDigest, Sha256
from crlbench.contract.stored import damaged
from crlbench.disk.hashing import digest, sha256_file
from crlbench.disk.names import PRODUCT_NAME
from crlbench.errors import Interrupted
from crlbench.run.environment import source
from crlbench.run.store import claimed, drop_claim, explained, make_folder, read_json, write_json
from crlbench.stages.orders import Order

WAIT_SECONDS = 0.2
_REPAIR = "Delete the folder and repeat the command: the stage runs again and gives the same files."


class ProductCard(Card):
    """``product.json``: what made the files beside it, and their digests."""

    schema_version: Literal[1] = 1
    kind: str
    key: Sha256
    spec: dict[str, Any]
    """What the stage was asked for."""
    inputs: dict[str, Sha256]
    """Digests of what it read, by name."""
    seed: int
    files: dict[str, FileDigest]
    facts: dict[str, Any]
    """What was measured on the way: counts, scores."""
    charges: dict[str, Annotated[int, Field(ge=0)]]
    source_tree_sha256: Sha256
    """The code that made it."""
    ledger: Ledger | None = added(None)
    """What the charges follow from; None of a product that was made before they were counted."""

    @property
    def order(self) -> Order:
        """What it was asked for by."""
        return Order(self.kind, self.spec, self.inputs, self.seed)

    @property
    def sha256(self) -> str:
        """The digest of the product: of its files by name."""
        return digest({name: file.sha256 for name, file in self.files.items()})


@dataclass(frozen=True)
class Product:
    """A product on the disk."""

    folder: Path
    card: ProductCard

    @property
    def sha256(self) -> str:
        """The digest of its files."""
        return self.card.sha256


def read_product(folder: Path) -> Product:
    """The product in a folder, all its files checked.

    Raises:
        ValidationError: a file is missing, was changed or is one more; or its card is malformed, or
            states another key than that of what it names.
    """
    path = folder / PRODUCT_NAME
    if not path.is_file():
        raise damaged(path, "it is missing", _REPAIR)
    card = validate_card(ProductCard, read_json(path, _REPAIR), path)
    key = card.order.key
    if card.key != key:
        raise damaged(
            path,
            f"field key: it is {card.key}, and kind, spec, inputs and seed make {key}",
            _REPAIR,
        )
    for name, file in card.files.items():
        if not (folder / name).is_file():
            raise damaged(folder / name, f"missing, and {PRODUCT_NAME} names it", _REPAIR)
        if (sha256 := sha256_file(folder / name)) != file.sha256:
            why = f"its sha256 is {sha256}, and files.{name}.sha256 of {PRODUCT_NAME} {file.sha256}"
            raise damaged(folder / name, why, _REPAIR)
    there = {one.relative_to(folder).as_posix() for one in folder.rglob("[!.]*") if one.is_file()}
    if more := sorted(there - {PRODUCT_NAME, *card.files}):
        raise damaged(folder / more[0], f"{PRODUCT_NAME} names no such file", _REPAIR)
    return Product(folder, card)


def _differing_leaf(card: ProductCard, order: Order) -> str:
    """The first field in which a card says another thing than an order, in words."""
    there, asked = card.order.leaves, order.leaves
    name = next(name for name in [*asked, *there] if asked.get(name) != there.get(name))
    return f"{name} is {there.get(name)!r:.80}, and {asked.get(name)!r:.80} is asked for"


@dataclass(frozen=True)
class Made:
    """What a stage says of what it has made."""

    ledger: Ledger
    facts: Mapping[str, Any]


Make = Callable[[Path, Path], Made]
"""Writes the files of a product: (folder of the product, folder of unfinished work) -> facts. The
second one is kept when a process dies, and is empty at first."""


@dataclass(frozen=True)
class Store:
    """The products of one model on one board."""

    folder: Path

    def find(self, order: Order) -> Product | None:
        """The product that was made before, its files checked; None where there is none.

        Raises:
            ValidationError: it is damaged, or another product lies in its folder.
        """
        folder = self.folder / order.name
        if not folder.exists():
            return None
        product = read_product(folder)
        if product.card.key != order.key:
            why = f"it is of another product: {_differing_leaf(product.card, order)}"
            raise damaged(folder / PRODUCT_NAME, why, _REPAIR)
        return product

    def take(
        self, order: Order, make: Make, should_stop: Callable[[], bool] = lambda: False
    ) -> Product:
        """The product, made now unless it is there; one process makes it, and others wait.

        Raises:
            Interrupted: ``should_stop()`` turned true while another process was at work.
            ValidationError: as :meth:`find`.
        """
        if (product := self.find(order)) is not None:
            drop_claim(self.folder / order.name)
            return product
        with self._alone(order, should_stop):
            if (product := self.find(order)) is None:
                self._make(order, make)
                product = self.find(order)
            assert product is not None
            return product

    @contextlib.contextmanager
    def _alone(self, order: Order, should_stop: Callable[[], bool]) -> Iterator[None]:
        """Hold the claim on a product; the kernel frees it when a process dies."""
        while True:
            with claimed(self.folder / order.name) as alone:
                if alone:
                    yield
                    return
            if should_stop():
                raise Interrupted(f"stopped while another process makes {order.name}")
            time.sleep(WAIT_SECONDS)

    def _make(self, order: Order, make: Make) -> None:
        """Write all files below a hidden name, the card last, and rename the folder."""
        new = make_folder(self.folder / f".{order.name}.new")
        work = make_folder(self.folder / f".{order.name}.work")
        with explained(new):
            shutil.rmtree(new)
            new.mkdir()
            made = make(new, work)
            files = {
                path.relative_to(new).as_posix(): path
                for path in sorted(new.rglob("*"))
                if path.is_file()
            }
            card = ProductCard(
                kind=order.kind,
                key=order.key,
                spec=dict(order.spec),
                inputs=dict(order.inputs),
                seed=order.seed,
                files={
                    name: FileDigest(sha256=sha256_file(path), bytes=path.stat().st_size)
                    for name, path in files.items()
                },
                facts=dict(made.facts),
                charges=made.ledger.total.model_dump(),
                ledger=made.ledger,
                source_tree_sha256=source().source_tree_sha256,
            )
            for path in files.values():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            write_json(new / PRODUCT_NAME, card.model_dump(mode="json"))
            os.rename(new, self.folder / order.name)
            shutil.rmtree(work)
