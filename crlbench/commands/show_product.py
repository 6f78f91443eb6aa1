"""``crlbench show product FOLDER``: what a stage of a chain left, its files checked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.contract.card import validate_card
from crlbench.contract.task_card import RewardCard
from crlbench.disk.names import POLICY_NAME, PRODUCT_NAME
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError

if TYPE_CHECKING:
    from crlbench.stages.artefacts import Product

CONDITIONS = "conditions"
"""Field of a specification that is the track's, and long."""


def product_in(folder: Path) -> Product:
    """The product in a folder.

    Raises:
        UsageError: no product was ever there.
        ValidationError: it was changed; names the file and the field.
    """
    from crlbench.stages.artefacts import read_product

    if not (folder / PRODUCT_NAME).is_file():
        raise UsageError(
            f"{folder}: holds no {PRODUCT_NAME}, so it is no product of a stage. Products are in "
            "runs/<board>/<model>/artefacts."
        )
    product = read_product(folder)
    if product.card.kind not in _HOLDS:
        raise ValidationError(
            f"{folder / PRODUCT_NAME}: field kind: {product.card.kind!r:.40} is none of "
            f"{', '.join(_HOLDS)}. Update crlbench, or make the stage again."
        )
    return product


def data_of(product: Product) -> dict[str, Any]:
    """What is known of a product, as JSON-able data."""
    card = product.card
    return {
        "folder": str(product.folder),
        "sha256": product.sha256,
        **card.model_dump(mode="json"),
        "holds": _HOLDS[card.kind](product),
    }


def lines_of(product: Product, shown: int) -> Iterator[str]:
    """The same as lines.

    Args:
        shown: how many pairs or answers are printed.
    """
    card = product.card
    yield f"{product.folder}: what a stage of the kind {card.kind} left"
    yield f"sha256     {product.sha256}"
    yield f"key        {card.key} (seed {card.seed})"
    tables = {
        "read": card.inputs,
        "setting": {name: one for name, one in card.spec.items() if name != CONDITIONS},
        "measured": card.facts,
        "charged": card.charges,
        "holds": _HOLDS[card.kind](product),
        "file": {name: f"{file.bytes:,} bytes" for name, file in sorted(card.files.items())},
    }
    for title, table in tables.items():
        for name, value in table.items():
            yield f"{title:<10} {name}: {_text(value)}"
    for line in _rows(product)[:shown]:
        yield ""
        yield from _row(line)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{json.dumps(value):.200}"


def _rows(product: Product) -> list[dict[str, Any]]:
    """The pairs or answers of a product; none of one that holds weights."""
    name = next((one for one in product.card.files if one.endswith(".jsonl")), None)
    if name is None:
        return []
    return [json.loads(line) for line in (product.folder / name).read_bytes().splitlines()]


def _row(line: Mapping[str, Any]) -> Iterator[str]:
    for field in ("id", "uid", "messages", "chosen", "rejected", "text", "reward"):
        if field == "messages" and field in line:
            for message in line[field]:
                yield f"  {message['role']}: {message['content']}"
        elif field in line:
            yield f"  {field}: {line[field]}"


def _count(product: Product) -> dict[str, Any]:
    return {"lines": len(_rows(product))}


def _policy(product: Product) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(product.folder / POLICY_NAME, framework="np") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    return {"tensors": len(shapes), "weights": sum(map(math.prod, shapes))}


def _reward(product: Product) -> dict[str, Any]:
    path = product.folder / "reward.toml"
    card = validate_card(RewardCard, read_toml(path), path)
    return {
        "base": card.base,
        "accuracy": card.accuracy.model_dump(),
        "map": card.map.model_dump(),
        "pairs": {"fitted": card.pairs.train, "held_out": card.pairs.id},
    }


_HOLDS: Mapping[str, Callable[[Product], dict[str, Any]]] = {
    "supervised": _policy,
    "collect": _count,
    "reward": _reward,
    "choose": _count,
    "distill": _policy,
}
