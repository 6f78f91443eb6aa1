"""Whether the files in a model's folder have the digests that its entry states."""

from __future__ import annotations

from pathlib import Path

from crlbench.contract.model_card import ModelCard
from crlbench.disk import line_ends
from crlbench.disk.hashing import require_sha256
from crlbench.disk.side_files import first_change, side_digests
from crlbench.errors import ValidationError

WHY = {
    "was changed": "its sha256 is another one than the entry says",
    "is missing": "the entry states its digest",
    "is new": "the entry does not state it, and it would be read",
}


def check_pinned(card: ModelCard, folder: Path) -> None:
    """Compare all files of a folder that an entry pins.

    Raises:
        ValidationError: names the first file that is not as stated.
        EnvironmentUnfit: one may not be read.
    """
    check_pinned_weights(card, folder)
    check_pinned_side_files(card, folder)


def check_pinned_weights(card: ModelCard, folder: Path, *, all_here: bool = True) -> None:
    """Compare weight files with their digests, where the entry states some.

    ``all_here``: whether one that is not in the folder is missing, or still on the hub.

    Raises:
        ValidationError: names the file that was changed or is missing.
        EnvironmentUnfit: one may not be read.
    """
    for name, expected in card.weights_sha256.items():
        if name == card.source.gguf_file:
            continue  # was compared when it was converted
        path = folder / name
        if not path.is_file():
            if not all_here:
                continue
            raise ValidationError(f"model '{card.slug}': {path} is missing.")
        if (sha256 := require_sha256(path)) != expected:
            raise ValidationError(
                f"model '{card.slug}': {path} was changed: its sha256 is {sha256}, the entry says "
                f"{expected}. Restore the file, or make an entry for the new weights."
            )


def check_pinned_side_files(card: ModelCard, folder: Path) -> None:
    """Compare the files beside the weights with their digests, where the entry states some.

    Raises:
        ValidationError: names the file that was changed, is missing, or is new.
        EnvironmentUnfit: one may not be read.
    """
    stated = card.side_sha256
    change = first_change(stated, side_digests(folder)) if stated else None
    if change is None:
        return
    name, what = change
    path = folder / name
    said = f"model '{card.slug}': {path} {what}: {WHY[what]}."
    if what == "was changed" and (cause := line_ends.rewritten_file(path, stated[name])):
        raise ValidationError(f"{said} {cause}")
    made = ""
    if card.source.kind == "package" or card.source.gguf_file:
        made = (
            " Other library versions may have made other bytes: install those of "
            "constraints.txt, delete the folder, and fetch or convert again."
        )
    raise ValidationError(
        f"{said} It decides what the model computes or reads, so this is another model. Restore "
        f"the file, or make an entry for it.{made}"
    )
