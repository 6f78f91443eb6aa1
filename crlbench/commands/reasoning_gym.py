"""``crlbench freeze --from reasoning_gym:NAME``: a generator of reasoning-gym as a frozen task."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from pathlib import Path
from typing import Any

from crlbench.commands.console import note, out, out_json
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.errors import OK, CrlbenchError, UsageError
from crlbench.pages.table import tabulate

PREFIX = "reasoning_gym:"
COLUMNS = ["text", "mean", "largest", "above 0", "paid"]


def is_generator(source: str | None) -> bool:
    """Whether ``--from`` names a generator and no folder."""
    return bool(source) and str(source).startswith(PREFIX)


def freeze_generator(options: Namespace) -> int:
    """Print what the generator's own scorer pays for nonsense, and freeze it into a task folder.

    With ``--report`` the folder is not written.
    """
    from crlbench.suite import reasoning_gym

    if options.tasks or options.check or options.bump:
        raise UsageError(
            f"--from {options.source} makes a new task: leave out TASK, --check and --bump. "
            "To check it later: crlbench freeze --check FOLDER"
        )
    generator = options.source.removeprefix(PREFIX)
    reasoning_gym.task_name(generator, options.name)
    levels = reasoning_gym.levels_of(generator, _levels(options.levels))
    rows = reasoning_gym.holes(generator, levels)
    frozen = None if options.report else _write(generator, levels, options)
    if options.json:
        out_json({"generator": generator, "levels": levels, "holes": rows, "task": frozen})
        return OK
    out(f"What the scorer of {generator} gives, before any threshold; a frozen task pays 'paid':")
    out(tabulate(rows, COLUMNS).to_text())
    if frozen:
        out(f"{frozen['task']} {frozen['version']} frozen in {frozen['folder']}")
    return OK


def _write(generator: str, levels: dict[int, Any], options: Namespace) -> dict[str, str]:
    from crlbench.suite import freeze as freezing
    from crlbench.suite import reasoning_gym

    folder = reasoning_gym.write_task(generator, levels, Path(options.to or "tasks"), options.name)
    note(options, f"{folder}: drawing and judging its items...")
    card = freezing.freeze(folder.resolve())
    return {
        "task": card.name,
        "version": card.version,
        "digest": card.digest,
        "folder": str(folder),
    }


def _levels(given: str | None) -> dict[str, Any] | None:
    """The levels of ``--levels``: JSON, or the path of a file that holds it."""
    if given is None:
        return None
    found = _json(given)
    if isinstance(found, dict):
        return found
    from crlbench.suite.reasoning_gym import LEVELS_FORM

    raise UsageError(
        f"""--levels {given}: must be an object with the keys "1", "2", "3", each with settings"""
        f" of the generator, as in {LEVELS_FORM}."
    )


def _json(given: str) -> Any:
    """The JSON that a text is, or that its file holds."""
    with contextlib.suppress(Malformed):
        return _value(given)
    if not given.lstrip().startswith(("{", "[")):
        try:
            given = read_bytes(Path(given)).decode()
        except (CrlbenchError, UnicodeDecodeError) as error:
            raise UsageError(
                f"--levels {given}: is neither JSON nor a readable file ({error})."
            ) from None
    try:
        return _value(given)
    except Malformed as error:
        raise UsageError(f"--levels: {error}.") from None


def _value(text: str) -> Any:
    return json_value(text.encode("utf-8", "surrogatepass"))
