"""Writing a new entry, from a repository of the hub, a checkpoint folder or a GGUF file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatch
from pathlib import Path

from crlbench.catalog.checkpoint import gguf_card, hub_card, local_card
from crlbench.catalog.fetch import gguf_folder
from crlbench.catalog.find import Catalog
from crlbench.contract.fields import HUB_ID, INSIDE, RULES
from crlbench.contract.model_card import ModelCard
from crlbench.contribute.models.draft import Draft, Origin, check_slug, draft, facts_of, slug_of
from crlbench.disk.files import expanded, write_bytes
from crlbench.disk.side_files import side_digests, side_files
from crlbench.errors import EnvironmentUnfit, UsageError

BESIDE = ("README.md", "LICENSE*")
"""Files that are copied along with a checkpoint."""


@dataclass(frozen=True)
class Place:
    """Where an entry goes, and what it may not be called."""

    root: Path
    """Holds ``models/``."""
    catalog: Catalog
    slug: str | None
    """The name that a person wants; None takes the model's own name."""

    @property
    def folder(self) -> Path:
        """The folder of all entries."""
        return self.root / "models"

    def free(self, slug: str) -> str:
        """The slug that is asked for, else ``slug``, when no entry has it.

        Raises:
            UsageError: one has it, or no entry can have such a name.
        """
        slug = self.slug or slug
        check_slug(slug)
        entries = self.catalog.entries("model")
        path = entries[slug].path if slug in entries else self.folder / f"{slug}.toml"
        if slug in entries or path.exists():
            raise UsageError(f"model '{slug}' exists already in {path}; choose --slug.")
        return slug

    def families(self) -> set[str]:
        """The families of all entries."""
        cards = map(self.catalog.load_model, self.catalog.list("model"))
        return {card.family for card in cards}


@dataclass(frozen=True)
class Addition:
    """What was written."""

    path: Path
    """Path of the entry."""
    draft: Draft
    copied: Path | None = None
    """The folder that its weights were copied to, where they were not in place already."""
    notice: str = ""
    """Why no run can use it yet."""


def add_from_hub(spec: str, place: Place, added: date) -> Addition:
    """Write the entry of ``org/name[@revision]``; weights are not downloaded.

    Raises:
        UsageError: no such repository or revision, or a name that is taken.
        ValidationError: the model cannot be used here.
        EnvironmentUnfit: the hub cannot be asked, or does not let this account in.
    """
    from crlbench.contribute.models.hub import look_up

    hf_id, _, revision = spec.partition("@")
    if not re.fullmatch(HUB_ID, hf_id) or spec.endswith("@"):
        raise UsageError(
            f"--from-hub {spec}: reads org/name, or org/name@revision with a branch or a commit."
        )
    if place.slug:
        place.free(place.slug)
    model = look_up(hf_id, revision or "main")
    facts = facts_of(hub_card(f"{hf_id}@{model.commit}"), model.folder)
    name = hf_id.partition("/")[2]
    origin = Origin(
        name=name,
        source={"hf_id": hf_id, "revision": model.commit},
        weights_sha256=model.weights_sha256,
        found_at=f"{model.address}@{revision or 'main'}",
        metadata=model.metadata,
        files=model.files,
        gated=model.gated,
    )
    slug = place.free(slug_of(name, facts, hub=True))
    entry = draft(slug, origin, facts, place.families(), added)
    return Addition(_write(place, entry), entry, notice=facts.notice)


def add_local(path: Path, place: Place, added: date, home: Path | None) -> Addition:
    """Write the entry of a checkpoint folder or a GGUF file, without any network.

    Weights that are not below ``models/`` already are copied to ``models/<slug>``.

    Raises:
        UsageError: there is nothing at ``path``, or a name that is taken.
        ValidationError: the model cannot be used here.
        EnvironmentUnfit: something cannot be read, written or converted.
    """
    from crlbench.contribute.models.hub import metadata_of

    if place.slug:
        place.free(place.slug)
    path = expanded(path).resolve()
    if path.is_dir():
        card = local_card(path)
    elif path.is_file() and path.suffix == ".gguf":
        card = gguf_card(path)
    else:
        raise UsageError(
            f"{path}: is neither a checkpoint folder nor a GGUF file. A model of the hub:"
            " crlbench add model --from-hub org/name"
        )
    folder = card.weights_dir
    if card.source.gguf_file is not None:
        folder = gguf_folder(card, folder / card.source.gguf_file, home)
    facts = facts_of(card, folder)
    slug = place.free(slug_of(card.display_name, facts, hub=False))
    inside = _inside(card, place.folder)
    source = {"path": inside or slug, "gguf_file": card.source.gguf_file}
    origin = Origin(
        place.slug or card.display_name,
        source,
        card.weights_sha256,
        side_digests(folder),
        metadata=metadata_of(path),
    )
    entry = draft(slug, origin, facts, place.families(), added)
    if inside is not None:
        return Addition(_write(place, entry), entry, notice=facts.notice)
    with _copy(card, place.folder / slug) as folder:
        return Addition(_write(place, entry), entry, folder, facts.notice)


def _inside(card: ModelCard, models: Path) -> str | None:
    """The path of a model's folder below that of the entries; None where it is elsewhere."""
    folder = card.weights_dir.resolve()
    if not folder.is_relative_to(models.resolve()):
        return None
    inside = folder.relative_to(models.resolve()).as_posix()
    if not re.fullmatch(INSIDE, inside):
        raise UsageError(f"{folder}: no entry can name this folder; allowed: {RULES[INSIDE]}.")
    return inside


def _write(place: Place, entry: Draft) -> Path:
    path = place.folder / f"{entry.card.slug}.toml"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentUnfit(f"{path.parent}: cannot be made: {error.strerror}.") from None
    write_bytes(path, entry.text.encode())
    return path


@contextmanager
def _copy(card: ModelCard, target: Path) -> Iterator[Path]:
    """The files of a model in a new folder, which is gone again if what follows fails."""
    if target.exists():
        raise UsageError(f"{target} exists already; choose --slug, or remove it.")
    partial = target.parent / f".{target.name}.{os.getpid()}.partial"
    try:
        partial.mkdir(parents=True)
        for name in _files(card):
            (partial / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(card.weights_dir / name, partial / name)
        partial.rename(target)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise EnvironmentUnfit(
            f"{error.filename or target}: the weights cannot be copied: {error.strerror or error}."
        ) from None
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    try:
        yield target
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _files(card: ModelCard) -> Iterator[str]:
    """The names, within the folder, of the files that make the model, and of a few words on it."""
    folder = card.weights_dir
    beside = [path.name for path in folder.iterdir() if path.is_file()]
    yield from sorted(n for n in beside if any(fnmatch(n, pattern) for pattern in BESIDE))
    yield from card.weights_sha256
    yield from () if card.source.gguf_file else side_files(folder)
