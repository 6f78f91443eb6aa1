"""The whole site, from stored results to files: read, make pages, render, write.

Equal results give equal bytes: nothing of the moment or the machine enters a page.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from crlbench.base.parallel import on_one_thread, spread
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.site import addresses
from crlbench.site.kinds import parts
from crlbench.site.pages import File, Made, whole
from crlbench.site.render import Renderer
from crlbench.site.source import Site
from crlbench.verdict.resources import leaderboard_folder

MARKER = "crlbench-site.txt"
"""Tells a folder that a build made, and may replace, from any other one."""
SAFE = re.compile(r"(?!\.)[A-Za-z0-9@._+=,:-]{1,160}")
"""A part of a path that people may name in their results."""


@on_one_thread
def build(site: Site, jobs: int | None = None) -> dict[str, bytes]:
    """Every file of the site by its path from the root.

    Args:
        jobs: processes; as many as there are cores where it is None.

    Raises:
        ValidationError: a name in the results would give a path that is none, or two pages one.
    """
    files = dict(_static())
    renderer = Renderer(site)
    renderer.compile()

    def render(item: Made) -> list[tuple[str, bytes]]:
        return [
            (one.path, one.content if isinstance(one, File) else renderer.html(one))
            for one in whole([item])
        ]

    for path, content in chain.from_iterable(spread(render, parts(site), jobs)):
        if path in files:
            raise ValidationError(f"{path}: two pages of the site have this name")
        if not all(SAFE.fullmatch(part) for part in path.split("/")):
            raise ValidationError(f"{path!r}: a name in the results is no file name")
        files[path] = content
    files |= {file.path: file.content for file in addresses.sitemap(site, files)}
    files[MARKER] = f"Made by crlbench leaderboard build from {site.records} records.\n".encode()
    return dict(sorted(files.items()))


def _static() -> Iterator[tuple[str, bytes]]:
    """Styles, scripts and pictures, as they are."""
    folder = leaderboard_folder() / "static"
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield f"static/{path.relative_to(folder).as_posix()}", path.read_bytes()


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Put the site in place of the one before: a reader finds the old or the new one whole.

    Raises:
        UsageError: the folder holds something else than a site.
        EnvironmentUnfit: it cannot be written.
    """
    require_replaceable(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
            fresh, old = Path(place, "new"), Path(place, "old")
            for name, content in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            if folder.exists():
                os.replace(folder, old)
            os.replace(fresh, folder)
    except OSError as error:
        raise EnvironmentUnfit(f"{folder}: cannot be written: {error.strerror}") from error


def require_replaceable(folder: Path) -> None:
    """Check that a folder may hold a site; also called before the site is built.

    Raises:
        UsageError: it holds something else than a site.
    """
    if not folder.exists():
        return
    if not folder.is_dir() or not (folder / MARKER).is_file() and any(folder.iterdir()):
        raise UsageError(
            f"--out {folder}: holds files that no build made. Name an empty or new folder."
        )


def differences(files: Mapping[str, bytes], folder: Path) -> list[str]:
    """Files of a folder that are not those of the site: missing, other, or too many."""
    stored = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    missing = [f"{name}: missing" for name in files if name not in stored]
    foreign = [f"{name}: does not belong to the site" for name in stored - files.keys()]
    other = [
        f"{name}: has another content"
        for name, content in files.items()
        if name in stored and (folder / name).read_bytes() != content
    ]
    return sorted(missing + foreign + other)
