"""Where the templates and tracks are: in the checkout, or in the wheel."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError as PydanticError

import crlbench
from crlbench.contract.conditions import Track
from crlbench.disk.reading import Malformed, toml_table
from crlbench.errors import EnvironmentUnfit

PACKAGE = Path(crlbench.__file__).resolve().parent


def leaderboard_folder() -> Path:
    """The folder that holds ``templates/`` and ``tracks/``.

    Raises:
        EnvironmentUnfit: neither place has it, so that the installation is incomplete.
    """
    for root in (PACKAGE.parent, PACKAGE / "_bundled"):
        if (root / "leaderboard" / "templates").is_dir():
            return root / "leaderboard"
    raise EnvironmentUnfit(
        "the page templates (leaderboard/templates) are missing from this installation; "
        "install crlbench again"
    )


def known_track(name: str, version: int | None = None) -> Track | None:
    """The track of that name as this installation knows it; None where it does not.

    Args:
        version: the one that is asked for, current or archived; None: the current one.
    """
    folder = leaderboard_folder()
    files = [*folder.glob("tracks/*.toml")]
    if version is not None:
        files += sorted(folder.glob("archive/*/leaderboard/tracks/*.toml"))
    tracks = (_track(path.read_bytes()) for path in files if path.stem == name)
    readable = (track for track in tracks if track is not None)
    return next((track for track in readable if version in (None, track.version)), None)


@lru_cache(maxsize=16)
def _track(content: bytes) -> Track | None:
    """A site asks for its few tracks once for each of its pages."""
    try:
        return Track.model_validate(toml_table(content))
    except (Malformed, PydanticError):
        return None
