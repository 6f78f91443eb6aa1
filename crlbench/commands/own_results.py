"""Runs of one's own beside the stored results: a folder of both, for as long as a site is built."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from crlbench.commands.stored_entries import Stored, stored_entries
from crlbench.contract.retractions import RETRACTIONS_NAME
from crlbench.contribute.results.packing import bundle
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.errors import UsageError

HANDLE = "@own"
"""Stands for a submitter in files that nobody sees: pages leave it empty."""


@contextmanager
def with_own(
    results: Path, roots: Sequence[Path], say: Callable[[str], object]
) -> Iterator[tuple[Path, frozenset[str]]]:
    """The results with the finished runs below other folders, packed as a submission would be.

    Args:
        results: the folder of stored results.
        roots: folders of runs, of a board or of one run folder.
        say: takes a sentence for each run folder that is left out.

    Yields:
        The folder of both, and the own entries as ``<board>/<model>@<revision>/<recipe>``.

    Raises:
        UsageError: a folder is missing, or there is no run to show.
        ValidationError: something stored is damaged; names the file.
    """
    with TemporaryDirectory(prefix="crlbench-own-") as home:
        whole = Path(home, results.parent.name, results.name)
        shutil.copytree(results, whole, symlinks=True)
        if (log := results.parent / RETRACTIONS_NAME).is_file():
            shutil.copy(log, whole.parent)
        own = set()
        for folder in _run_folders(roots):
            name = "/".join(folder.absolute().parts[-3:])
            if Stored(folder).plan.get("partial") is True:
                say(f"{folder}: left out, because its runs were shortened")
            elif (whole / name).exists():
                say(f"{folder}: left out, because {name} is among the results already")
            else:
                (whole / name).mkdir(parents=True)
                for file, content in bundle(folder, HANDLE).files.items():
                    (whole / name / file).write_bytes(content)
                own.add(name)
        if not own:
            raise UsageError(
                f"--runs {' '.join(map(str, roots))}: no run to show beside the results. Give a "
                "folder of runs in which one has finished, or leave --runs out."
            )
        yield whole, frozenset(own)


def _run_folders(roots: Sequence[Path]) -> Iterator[Path]:
    """The run folders below some folders that hold a finished run, each once."""
    seen = set()
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"--runs {root}: no such folder.")
        is_one = (root / PLAN_NAME).is_file()
        for folder in [root] if is_one else [entry.folder for entry in stored_entries(root)]:
            finished = next(folder.rglob(RECORD_NAME), None) is not None
            if finished and not (folder / PACKED).is_file() and folder.resolve() not in seen:
                seen.add(folder.resolve())
                yield folder
