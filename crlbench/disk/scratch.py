"""Folders that live as long as their process: the next one removes what killed ones left behind.

The process holds a lock in its folder, which the kernel releases when it dies, and with it those
that it forked. So a folder whose lock can be taken belongs to nobody.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

LOCK = ".in-use"
"""Name of the file that is locked, in the folder."""
LONGEST = 86_400
"""Seconds; a folder without a lock that is older belongs to a process that was killed."""


class Scratch:
    """A new folder that goes with the object."""

    def __init__(self, above: Path, prefix: str) -> None:
        """
        Args:
            above: the folder that it is made in.
            prefix: what its name begins with.

        Raises:
            OSError: it cannot be made.
        """
        self._place = tempfile.TemporaryDirectory(prefix=prefix, dir=above)
        self.path = Path(self._place.name)
        new = self.path / f"{LOCK}-new"
        lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        weakref.finalize(self, os.close, lock)
        with suppress(OSError):  # a file system without locks: its age is looked at
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self.path / LOCK)  # under its name it was never without its holder

    def remove(self) -> None:
        """Remove it before the object goes."""
        self._place.cleanup()


def remove_abandoned(
    above: Path,
    prefix: str,
    rescue: Callable[[Path], object] = lambda _: None,
    *,
    unlocked: bool = False,
) -> None:
    """Remove the folders of :class:`Scratch` that no living process holds.

    Args:
        above, prefix: as for :class:`Scratch`.
        rescue: is given each before it is removed.
        unlocked: also remove those that never had a lock, once they are older than a day.
    """
    for folder in _all_of(above, prefix):
        with suppress(OSError):  # of someone else, or removed by another process
            if _is_abandoned(folder, unlocked):
                rescue(folder)
                shutil.rmtree(folder)


def _all_of(above: Path, prefix: str) -> Iterator[Path]:
    name = re.compile(f"{re.escape(prefix)}[a-z0-9_]{{8}}")
    with suppress(OSError):
        for entry in sorted(os.scandir(above), key=lambda entry: entry.name):
            if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _is_abandoned(folder: Path, unlocked: bool) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return unlocked and folder.stat().st_mtime < time.time() - LONGEST
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
