"""Where the files of a model are, and whether they are those that its entry and its commit name."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import cached_file
from transformers.utils.hub import get_checkpoint_shard_files, try_to_load_from_cache

from crlbench.base.wording import one_line
from crlbench.contract.model_card import ModelCard, check_pinned_side_files, check_pinned_weights
from crlbench.disk.hashing import sha256_file
from crlbench.disk.side_files import INDEX, WHOLE, blob_name, side_files
from crlbench.errors import CrlbenchError, EnvironmentUnfit, ValidationError
from crlbench.policy.weights.tensors import tensor_kinds


@dataclass(frozen=True)
class Location:
    """Where transformers finds a model: a folder, or a hub id with its commit."""

    name: str
    revision: str | None = None


def gguf_file(card: ModelCard, location: Location) -> Path:
    """The GGUF file that an entry names: in its folder, or downloaded from the hub.

    Raises:
        ValidationError: it is not there.
        EnvironmentUnfit: the hub is out of reach.
    """
    with explained(card, location, f"file {card.source.gguf_file}"):
        assert card.source.gguf_file is not None  # asked only of such an entry
        return _cached(location, card.source.gguf_file)


def check_weights(card: ModelCard, location: Location) -> None:
    """Compare the weight files with the digests in the entry, if any, and with their headers.

    Of a model of the hub the files that are in the cache; the commit pins the others.
    """
    folder = here(card, location)
    if folder is None:
        return
    check_pinned_weights(card, folder, all_here=location.revision is None)
    for path in sorted(folder.glob("*.safetensors")):
        with explained(card, location, f"weights in {path.name}"):
            tensor_kinds([path])  # the header tells whether the file is whole


def check_side_files(card: ModelCard, folder: Path) -> None:
    """Compare the files beside the weights with the digests of the entry, or of the hub's commit.

    Raises:
        ValidationError: names the file that was changed, is missing, or is new.
    """
    if card.source.kind == "hub":
        check_snapshot(card, folder)
    check_pinned_side_files(card, folder)


def check_snapshot(card: ModelCard, folder: Path) -> None:
    """Compare the files of a snapshot in the hub's cache with the names of their blobs.

    Of a file that is no link nothing is known: its content is part of what an unlisted model is.

    Raises:
        ValidationError: names the file that was changed.
    """
    weights = {path.name for path in folder.glob("*.safetensors")} - {*card.weights_sha256}
    for name in [*side_files(folder), *sorted(weights)]:
        path = folder / name
        blob = blob_name(path)
        if blob is None or not path.is_file():
            continue
        if len(blob) == 64:
            digest = sha256_file(path)
        else:
            data = path.read_bytes()
            digest = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        if digest != blob:
            raise ValidationError(
                f"model '{card.slug}': {path} was changed: it is not the file of the hub's commit "
                f"any more. Delete {path.resolve()}; the next run downloads it again."
            )


def bring_weights(card: ModelCard, location: Location) -> None:
    """Download the weights of a model of the hub into its cache, where they are not there yet.

    Raises:
        ValidationError: it has none that can be read here.
        EnvironmentUnfit: the hub is out of reach.
    """
    name, commit = location.name, location.revision
    absent = {"_raise_exceptions_for_missing_entries": False}
    with explained(card, location, "weights"):
        if cached_file(name, WHOLE, revision=commit, **absent) is None:
            index = cached_file(name, INDEX, revision=commit, **absent)
            if index is not None:
                get_checkpoint_shard_files(name, index, revision=commit)


def here(card: ModelCard, location: Location) -> Path | None:
    """The folder of a checkpoint as far as it is on this machine; None where nothing is."""
    if card.source.kind != "hub" or Path(location.name).is_dir():
        return Path(location.name)
    file = try_to_load_from_cache(location.name, "config.json", revision=location.revision)
    return Path(file).parent if isinstance(file, str) else None


def folder_of(card: ModelCard, location: Location) -> Path:
    """The folder with a model's config: its own, or the snapshot in the hub's cache.

    Raises:
        ValidationError: it has no config.json.
        EnvironmentUnfit: the hub is out of reach and nothing is cached.
    """
    if card.source.kind != "hub" or Path(location.name).is_dir():
        return Path(location.name)
    with explained(card, location, "config"):
        return _cached(location, "config.json").parent


def _cached(location: Location, name: str) -> Path:
    path = cached_file(location.name, name, revision=location.revision)
    assert path is not None  # it raises where there is no file, unless told not to
    return Path(path)


@contextlib.contextmanager
def explained(card: ModelCard, location: Location, what: str) -> Iterator[None]:
    """Turn the many exceptions of loading into one message for a person."""
    where = f"model '{card.slug}': the {what} of {location.name}"
    try:
        yield
    except CrlbenchError:
        raise
    except Exception as error:
        if is_out_of_reach(error):
            raise EnvironmentUnfit(
                f"{where} cannot be had: the hub is out of reach and nothing is cached. "
                "Fetch it on a machine with network, or give a local folder."
            ) from error
        raise ValidationError(f"{where} cannot be loaded: {one_line(error)}") from error


def is_out_of_reach(error: Exception) -> bool:
    """Whether an error says that the hub cannot be asked."""
    text = one_line(error)
    return isinstance(error, OSError) and ("connect" in text or "offline" in text.lower())
