"""Switches of the environment that more than one room reads."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from crlbench.disk.files import expanded
from crlbench.errors import EnvironmentUnfit

COMPILER_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""Variable with the folder of what torch's compiler makes."""
HOME = "~/.cache/crlbench"
"""Default folder of downloads and conversions."""
_OFF = ("", "0", "false", "no")


def offline() -> bool:
    """Whether CRLBENCH_OFFLINE forbids the network; unset, "", 0, false and no do not."""
    return os.environ.get("CRLBENCH_OFFLINE", "").strip().lower() not in _OFF


def user_home() -> Path | None:
    """The home folder of this user; None for one without, as containers have them.

    HOME names it only where it holds an absolute path, else the system's list of users does.
    """
    folder = os.environ.get("HOME", "")
    if not os.path.isabs(folder):
        try:
            folder = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None
    return Path(folder) if os.path.isabs(folder) else None


def hub_placed() -> bool:
    """Whether the hub's library has a place for its cache: a home folder, or a variable."""
    places = map(os.environ.get, ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"))
    return any(places) or user_home() is not None


def find_home(flag: str | None = None) -> Path | None:
    """The folder of downloads and conversions: ``flag``, CRLBENCH_HOME, or below the home folder.

    None where there is neither.

    Raises:
        UsageError: what is given begins with the home folder of a user who has none.
    """
    if path := flag or os.environ.get("CRLBENCH_HOME"):
        return expanded(path)
    folder = user_home()
    return None if folder is None else folder / HOME.removeprefix("~/")


def home() -> Path:
    """:func:`find_home` for those who cannot do without.

    Raises:
        EnvironmentUnfit: this user has no home folder.
    """
    folder = find_home()
    if folder is None:
        raise EnvironmentUnfit(
            f"this user (id {os.getuid()}) has no home folder, and what is downloaded or "
            "converted needs a place. Set CRLBENCH_HOME to a folder, or give it with --home."
        )
    return folder
