"""Bundled weights that are stored compressed: unpacked once, into the folder of downloads.

The folder that stands under ``<home>/models/`` is an ordinary checkpoint folder. It is named by
the digests of weights and side files, and is put in place by a rename, so it is always whole.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from crlbench.contract.model_card import ModelCard, check_pinned_side_files
from crlbench.disk import switches
from crlbench.disk.files import refusal
from crlbench.disk.hashing import digest, sha256_bytes, sha256_file
from crlbench.disk.locks import alone
from crlbench.disk.side_files import side_digests, side_files
from crlbench.disk.unpacking import BadArchive
from crlbench.disk.weight_files import compressed_form, plain_content
from crlbench.errors import EnvironmentUnfit, ValidationError


def plain_folder(card: ModelCard, home: Path | None = None) -> Path:
    """The folder of local weights in which every weight file stands plain.

    It is the entry's own folder where that is so, and ``<home>/models/<name>`` otherwise.
    ``home`` is CRLBENCH_HOME unless given.

    Raises:
        ValidationError: a compressed file is damaged, this one or a side file is not as the entry
            says, or what was unpacked was changed since.
        EnvironmentUnfit: no space or no permission.
    """
    folder = card.weights_dir
    assert folder is not None  # asked only of local weights
    compressed = {
        name: form for name in card.weights_sha256 if (form := compressed_form(folder / name))
    }
    if not compressed:
        return folder
    check_pinned_side_files(card, folder)
    content = digest({"weights": card.weights_sha256, "side": side_digests(folder)})
    target = (home or switches.home()) / "models" / f"{card.slug}-{content[:12]}"
    try:
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with alone(target, lambda line: None):
                if not target.exists():
                    _unpack(card, folder, compressed, target)
        for name, expected in card.weights_sha256.items():
            if not (target / name).is_file() or sha256_file(target / name) != expected:
                raise ValidationError(
                    f"{target / name}: is not as it was unpacked. Delete {target}; the next run"
                    " unpacks it again."
                )
    except OSError as error:
        raise EnvironmentUnfit(f"model '{card.slug}': {refusal(error, target.parent)}") from error
    return target


def _unpack(card: ModelCard, folder: Path, compressed: dict[str, Path], target: Path) -> None:
    partial = target.parent / f".{target.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        for name in (*side_files(folder), *card.weights_sha256):
            (partial / name).parent.mkdir(exist_ok=True)
            if name in compressed:
                (partial / name).write_bytes(_content(card, name, compressed[name]))
            else:
                shutil.copyfile(folder / name, partial / name)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _content(card: ModelCard, name: str, form: Path) -> bytes:
    try:
        content = plain_content(form)
    except BadArchive as error:
        raise ValidationError(f"model '{card.slug}': {form}: {error}. Restore the file.") from None
    if (actual := sha256_bytes(content)) != card.weights_sha256[name]:
        raise ValidationError(
            f"model '{card.slug}': {form} was changed: the sha256 of what it holds is {actual}, the"
            f" entry says {card.weights_sha256[name]}. Restore the file, or make an entry for the"
            " new weights."
        )
    return content
