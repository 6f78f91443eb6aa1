"""``crlbench freeze``: the files that a task's runs need, written or checked."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import note, out, out_json, print_result
from crlbench.disk.names import CODE
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.errors import OK, CrlbenchError, UsageError
from crlbench.pages.table import tabulate

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog
    from crlbench.contract.task_card import TaskCard

GENERATOR = "reasoning_gym:"
"""What ``--from`` begins with where it names a generator and no folder."""

EXAMPLES = """\
examples:
  crlbench freeze my-task
  crlbench freeze my-task --bump
  crlbench freeze --check
  crlbench freeze --from reasoning_gym:countdown
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("tasks", metavar="TASK", nargs="*", help="names or folders (all tasks)")
    add("--check", action="store_true", help="only compare, write nothing")
    add("--bump", action="store_true",
        help="first raise the version in task.py as the changes require")
    add("--against", metavar="OLD",
        help="older checkout, task folder or frozen.toml to compare the changes with")
    add("--retain", action="store_true",
        help="freeze the retain panel of this checkout instead of tasks")
    add("--from", dest="source", metavar="DIR",
        help="folder with an external task's dataset, or reasoning_gym:GENERATOR for a new task")
    more = parser.add_argument_group("with --from reasoning_gym:GENERATOR").add_argument
    more("--levels", metavar="JSON",
         help="""settings of each level, '{"1": {...}, "2": {...}, "3": {...}}' or a file of it""")
    more("--to", metavar="DIR", help="folder that gets the folder of the task (tasks)")
    more("--name", metavar="NAME", help="name of the task (gym-GENERATOR)")
    more("--report", action="store_true",
         help="only print what the generator's scorer pays for nonsense")


def run(options: Namespace) -> int:
    """Write or check the files of tasks; stops at the first that breaks a rule."""
    from crlbench.catalog.find import Catalog

    if options.check and options.bump:
        raise UsageError("--check writes nothing and --bump writes: give one of them.")
    if options.source and options.source.startswith(GENERATOR):
        return _freeze_generator(options)
    for flag in ("report", "levels", "name", "to"):
        if getattr(options, flag) not in (None, False):
            raise UsageError(
                f"--{flag} is for a generator: give it with --from reasoning_gym:GENERATOR, or "
                "leave it out."
            )
    catalog = Catalog(options.catalog)
    if options.retain:
        return _freeze_retain(options, catalog)
    results = []
    for name in options.tasks or _within_reach(options, catalog):
        folder = Path(name)
        subject = folder if (folder / CODE).is_file() else catalog.find_at("task", name).path
        _refuse_archived(subject.resolve(), options)
        result = _freeze(subject.resolve(), options, catalog)
        results.append(result)
        if not options.json:
            why = f" ({result['why']})" if "why" in result else ""
            verb = "unchanged" if options.check else "frozen"
            out(f"{result['task']} {result['version']} {verb}, digest {result['digest'][:12]}{why}")
    if options.json:
        out_json(results)
    return OK


def _refuse_archived(folder: Path, options: Namespace) -> None:
    """An archived version may be compared, and is never written."""
    from crlbench.catalog.frozen import is_archived

    if not options.check and is_archived(folder):
        raise UsageError(
            f"{folder}: is archived and never changes; --check compares it. To change the task, "
            f"raise its version: crlbench freeze {folder.name} --bump"
        )


def _within_reach(options: Namespace, catalog: Catalog) -> list[str]:
    """All tasks but the external ones whose sources are not on this machine."""
    names = catalog.list("task")
    away = [name for name in names if catalog.rows_state(name) == "away"]
    if away and not options.source:
        note(options, f"left out, not fetched: {', '.join(away)}")
    return [name for name in names if options.source or name not in away]


def _freeze(folder: Path, options: Namespace, catalog: Catalog) -> dict[str, str]:
    """Freeze or check one folder: its name, version and digest, and why the version rose."""
    from crlbench.contribute.review.published import require_archived
    from crlbench.suite import freeze as freezing

    tracks: list[str] = []
    arguments: dict[str, Any] = {
        "source_dir": Path(options.source) if options.source else None,
        "against": Path(options.against) if options.against else None,
        "allow": lambda card: tracks.extend(require_archived(catalog, folder, card)),
    }
    if options.bump:
        card, why = freezing.freeze_raised(folder, **arguments)
        facts = _facts(card) | {"why": why}
    else:
        facts = _facts(freezing.freeze(folder, check=options.check, **arguments))
    if tracks:
        note(options, f"now raise the version of the tracks that hold it: {', '.join(tracks)}")
    return facts


def _facts(card: TaskCard) -> dict[str, str]:
    return {"task": card.name, "version": card.version, "digest": card.digest}


def _freeze_retain(options: Namespace, catalog: Catalog) -> int:
    """Write or check the retain panel beside the tracks."""
    from crlbench.catalog.retain_panel import FOLDER
    from crlbench.suite.retain_panel import freeze as freeze_panel

    if options.tasks:
        raise UsageError(f"--retain freezes the panel alone; leave out {', '.join(options.tasks)}.")
    card = freeze_panel(catalog.roots[-1] / FOLDER, check=options.check)
    verb = "unchanged" if options.check else "frozen"
    lines = (
        f"{name} {verb}, {member.count} items, floor {member.floor}"
        for name, member in card.members.items()
    )
    print_result(options, {"version": card.version, "verifier": card.verifier}, lines)
    return OK


def _freeze_generator(options: Namespace) -> int:
    """Print what the generator's own scorer pays for nonsense, and freeze it into a task folder.

    With ``--report`` the folder is not written.
    """
    from crlbench.suite import reasoning_gym

    if options.tasks or options.check or options.bump:
        raise UsageError(
            f"--from {options.source} makes a new task: leave out TASK, --check and --bump. "
            "To check it later: crlbench freeze --check FOLDER"
        )
    generator = options.source.removeprefix(GENERATOR)
    reasoning_gym.task_name(generator, options.name)
    levels = reasoning_gym.levels_of(generator, _levels(options.levels))
    rows = reasoning_gym.holes(generator, levels)
    task = None if options.report else _write_task(generator, levels, options)
    lines = [
        f"What the scorer of {generator} gives, before any threshold; a frozen task pays 'paid':",
        tabulate(rows, ["text", "mean", "largest", "above 0", "paid"]).to_text(),
        *([f"{task['task']} {task['version']} frozen in {task['folder']}"] if task else []),
    ]
    value = {"generator": generator, "levels": levels, "holes": rows, "task": task}
    print_result(options, value, lines)
    return OK


def _write_task(generator: str, levels: dict[int, Any], options: Namespace) -> dict[str, str]:
    from crlbench.suite import freeze as freezing
    from crlbench.suite import reasoning_gym

    folder = reasoning_gym.write_task(generator, levels, Path(options.to or "tasks"), options.name)
    note(options, f"{folder}: drawing and judging its items...")
    card = freezing.freeze(folder.resolve())
    return _facts(card) | {"folder": str(folder)}


def _levels(text: str | None) -> dict[str, Any] | None:
    """The levels of ``--levels``: JSON, or the path of a file that holds it."""
    if text is None:
        return None
    levels = _json(text)
    if isinstance(levels, dict):
        return levels
    from crlbench.suite.reasoning_gym import LEVELS_FORM

    raise UsageError(
        f"""--levels {text}: must be an object with the keys "1", "2", "3", each with settings"""
        f" of the generator, as in {LEVELS_FORM}."
    )


def _json(text: str) -> Any:
    """The JSON that a text is, or that its file holds."""
    with suppress(Malformed):
        return json_value(text.encode("utf-8", "surrogatepass"))
    if not text.lstrip().startswith(("{", "[")):
        try:
            text = read_bytes(Path(text)).decode()
        except (CrlbenchError, UnicodeDecodeError) as error:
            raise UsageError(
                f"--levels {text}: is neither JSON nor a readable file ({error})."
            ) from None
    try:
        return json_value(text.encode("utf-8", "surrogatepass"))
    except Malformed as error:
        raise UsageError(f"--levels: {error}.") from None
