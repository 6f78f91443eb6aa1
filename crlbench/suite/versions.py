"""Which version a task needs: decided from two cards, never by taste; and the edit that raises it.

MAJOR where anything changed that decides a score (a prompt, an answer, a verifier, a floor, a
ceiling, the longest completion), MINOR for a new split or other tags, PATCH for words. The level
is read off the digests in ``frozen.toml``. A task's code stands in one file with its facts, so its
verifier's digest alone cannot tell words from rules: :func:`verifier_part` and
:func:`with_facts` let a caller show that the rules are the same.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from crlbench.catalog.code import verifier_digest
from crlbench.catalog.rows import read_bytes
from crlbench.contract.card import validate_card
from crlbench.contract.conditions import leaves
from crlbench.contract.task_card import TaskCard
from crlbench.disk.files import write_bytes
from crlbench.disk.names import CODE, FROZEN
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError


class Level(IntEnum):
    """How much a version must rise."""

    NONE = 0
    PATCH = 1
    MINOR = 2
    MAJOR = 3

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decision:
    """The level that a change needs, and each change with the level it needs by itself."""

    level: Level
    changes: tuple[tuple[str, Level], ...]

    @property
    def why(self) -> str:
        """The changes in words."""
        return "; ".join(f"{what} ({level})" for what, level in self.changes) or "nothing changed"


IGNORED = ("version", "schema")
CARD_FACTS = ("version", "tags", "summary", "licence", "canary", "contact")
"""Facts of CARD that say nothing about scores."""
LEVELS: tuple[tuple[str, Level], ...] = (
    (r"generator\.sha256", Level.NONE),
    (r"generator\..*", Level.PATCH),
    (r"splits\.[^.]+\.nulls\..*", Level.PATCH),
    (r"splits\.[^.]+\.file", Level.PATCH),
    (r"tags", Level.MINOR),
    (r"summary|licence|canary|contact|heavy", Level.PATCH),
)
"""Fields by pattern, first match first. Any other field is MAJOR: what is not known to be
harmless is taken to decide scores. The generator's digest alone asks for nothing: it covers
shared code, and the rows that this code made are the same bytes, as their own digests say."""


def decide(old: TaskCard, new: TaskCard, same_verifier: bool = False) -> Decision:
    """The level between two cards of one task.

    ``same_verifier`` says that the verifier's rules are known to be the same although the digest
    of the file that holds them differs, which then counts as a change of words.
    """
    before, after = _leaves(old), _leaves(new)
    added, removed = new.splits.keys() - old.splits.keys(), old.splits.keys() - new.splits.keys()
    changes = [(f"new split {name}", Level.MINOR) for name in sorted(added)]
    changes += [(f"split {name} is gone", Level.MAJOR) for name in sorted(removed)]
    for field in sorted(before.keys() | after.keys()):
        whole_split = field.startswith("splits.") and field.split(".")[1] in added | removed
        if before.get(field) != after.get(field) and not whole_split:
            changes.append((field, _level_of(field, same_verifier)))
    level = max((level for _, level in changes), default=Level.NONE)
    return Decision(level, tuple(sorted(changes, key=lambda change: -change[1])))


def _level_of(field: str, same_verifier: bool) -> Level:
    if field == "verifier.sha256" and same_verifier:
        return Level.PATCH
    matches = (level for pattern, level in LEVELS if re.fullmatch(pattern, field))
    return next(matches, Level.MAJOR)


def _leaves(card: TaskCard) -> dict[str, Any]:
    content = card.model_dump(mode="json", by_alias=True)
    return leaves({name: part for name, part in content.items() if name not in IGNORED})


def parts(version: str) -> tuple[int, int, int]:
    """MAJOR, MINOR and PATCH of a version."""
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def is_draft(version: str) -> bool:
    """Whether a version promises nothing yet: everything before 1.0.0."""
    return parts(version)[0] == 0


def raise_version(version: str, level: Level) -> str:
    """The version after a change of this level."""
    major, minor, patch = parts(version)
    following = {
        Level.NONE: (major, minor, patch),
        Level.PATCH: (major, minor, patch + 1),
        Level.MINOR: (major, minor + 1, 0),
        Level.MAJOR: (major + 1, 0, 0),
    }
    return ".".join(map(str, following[level]))


def check_bump(old: TaskCard, new: TaskCard, decision: Decision, command: str) -> None:
    """Refuse a version that does not rise as the changes demand.

    A draft may change freely and become anything. Words outside the card, as in a README, may
    raise PATCH although no digest shows them. ``command`` is named as the way out.

    Raises:
        ValidationError: the version stayed, rose too little, too much, or fell.
    """
    if is_draft(old.version):
        return
    allowed = {raise_version(old.version, decision.level)}
    if decision.level is Level.NONE:
        allowed.add(raise_version(old.version, Level.PATCH))
    if new.version not in allowed:
        need = f"{decision.level}, so version {raise_version(old.version, decision.level)}"
        if decision.level is Level.NONE:
            need = f"no new version, or {raise_version(old.version, Level.PATCH)} for other words"
        stays = "stays" if new.version == old.version else f"becomes {new.version}"
        raise ValidationError(
            f"task '{old.name}': the version {old.version} {stays}, but what changed needs {need}:"
            f" {decision.why}. Run: {command}"
        )


@dataclass(frozen=True)
class Baseline:
    """A task as it was frozen before."""

    card: TaskCard
    code: Path | None
    """The code of that time, where it is at hand."""


def baseline(folder: Path, against: Path | None = None) -> Baseline | None:
    """What a task's folder is compared with: ``against``, else its own ``frozen.toml``.

    ``against`` is a ``frozen.toml``, a task's folder or an older checkout. None when the task
    was never frozen.

    Raises:
        UsageError: ``against`` holds no ``frozen.toml`` of this task.
        ValidationError: the card is malformed or another task's.
    """
    if against is None:
        path = folder / FROZEN
        return Baseline(_card(path, folder.name), None) if path.exists() else None
    places = (against, against / FROZEN, against / "tasks" / folder.name / FROZEN)
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UsageError(
            f"--against {against}: holds no {FROZEN} of task '{folder.name}'; give that file, its"
            " folder, or an older checkout."
        )
    code = path.with_name(CODE)
    return Baseline(_card(path, folder.name), code if code.is_file() else None)


def _card(path: Path, name: str) -> TaskCard:
    card = validate_card(TaskCard, read_toml(path), path)
    if card.name != name:
        raise ValidationError(f"{path}: field name: is '{card.name}', the task is '{name}'.")
    return card


def judge(folder: Path, old: Baseline, new: TaskCard) -> Decision:
    """The level between a task as it was frozen and as its folder makes it."""
    return decide(old.card, new, _same_verifier(folder / CODE, old))


def check(folder: Path, old: Baseline, new: TaskCard) -> None:
    """Refuse a version that does not fit what changed; see :func:`check_bump`."""
    command = f"crlbench freeze {folder.name} --bump - or undo what changed"
    check_bump(old.card, new, judge(folder, old, new), command)


def _same_verifier(code: Path, old: Baseline) -> bool:
    """Whether the verifier of a folder is known to be the one that was frozen.

    It is when the code with the old facts put back has the frozen digest, or when old code of
    the frozen digest (under the sources of crlbench.reward as they are here) has the same
    verifier part.
    """
    source = read_bytes(code).decode()
    try:
        facts = old.card.model_dump(mode="json", include={*CARD_FACTS})
        present = {name: facts[name] for name in CARD_FACTS if name in facts_of(source)}
        if _digest_of(with_facts(source, present)) == old.card.verifier.sha256:
            return True
    except ValidationError:
        pass
    if old.code is None or verifier_digest(old.code) != old.card.verifier.sha256:
        return False
    then = read_bytes(old.code).decode()
    return verifier_part(then) == verifier_part(source)


def _digest_of(source: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / CODE
        path.write_text(source, encoding="utf-8")
        return verifier_digest(path)


def set_version(folder: Path, version: str) -> None:
    """Write a version into CARD of a task's code.

    Raises:
        ValidationError: CARD is not one dict of literals.
        EnvironmentUnfit: the file cannot be written.
    """
    path = folder / CODE
    try:
        text = with_facts(read_bytes(path).decode(), {"version": version})
    except ValidationError as error:
        raise ValidationError(f"{path}: {error}") from None
    write_bytes(path, text.encode())


def verifier_part(source: str) -> str:
    """The part of a task's code that ``verify`` and ``audit`` reach, in a normal form.

    Comments, docstrings, layout and whatever no name leads to (templates, generators, the card)
    are left out; statements that bind no name are kept. Two files with the same part, which
    import the same modules, score alike.

    Raises:
        SyntaxError: the source is not Python.
    """
    body = _without_docstrings(ast.parse(source)).body
    places: set[int] = set()
    names = {"verify", "audit", "PARTIAL_CREDIT", "STEPS"}
    while True:
        more = {i for i, statement in enumerate(body) if _concerns(statement, names)}
        if more == places:
            break
        places = more
        names |= {name for i in places for name in _names(body[i])}
    return "\n".join(ast.dump(_without_version(body[i])) for i in sorted(places))


def _concerns(statement: ast.stmt, names: set[str]) -> bool:
    bound = _bound(statement)
    return not bound or bool(bound & names)


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module binds; empty for one whose effect is something else."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return set() if statement.decorator_list else {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        plain = [t for target in targets for t in _flat(target)]
        if all(isinstance(target, ast.Name) for target in plain):
            return {target.id for target in plain if isinstance(target, ast.Name)}
    return set()


def _flat(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for element in target.elts for part in _flat(element)]
    return [target]


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [s for s in node.body if not _is_text(s)] or [ast.Pass()]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _without_version(statement: ast.stmt) -> ast.stmt:
    """The statement, without the one fact of a card that every bump changes."""
    card = _card_of(statement)
    for i, key in enumerate(card.keys if card else ()):
        if isinstance(key, ast.Constant) and key.value == "version":
            card.values[i] = ast.Constant("")  # type: ignore[union-attr]
    return statement


def with_facts(source: str, facts: Mapping[str, Any]) -> str:
    """A task's code with facts of its CARD (texts and lists of texts) replaced.

    Facts that are equal keep their bytes.

    Raises:
        ValidationError: CARD is not written as a dict of literals that holds these facts.
    """
    values = facts_of(source)
    missing = sorted(facts.keys() - values.keys())
    if missing:
        raise ValidationError(
            f"CARD must be written out as one dict of literals with {', '.join(missing)}, so that"
            " it can be rewritten."
        )
    lines = source.encode().split(b"\n")
    nodes = [(values[name], facts[name]) for name in facts]
    for node, value in sorted(nodes, key=lambda pair: (-pair[0].lineno, -pair[0].col_offset)):
        if _plain(ast.literal_eval(node)) != value:
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
            lines[first : last + 1] = [head + json.dumps(value, ensure_ascii=False).encode() + tail]
    return b"\n".join(lines).decode()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def facts_of(source: str) -> dict[str, ast.expr]:
    """The facts of CARD that a task's code writes out as literals, by name."""
    for statement in ast.parse(source).body:
        card = _card_of(statement)
        if card is not None:
            pairs = zip(card.keys, card.values, strict=True)
            return {
                key.value: value
                for key, value in pairs
                if isinstance(key, ast.Constant) and _is_literal(value)
            }
    return {}


def _card_of(statement: ast.stmt) -> ast.Dict | None:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        is_card = any(isinstance(target, ast.Name) and target.id == "CARD" for target in targets)
        if is_card and isinstance(statement.value, ast.Dict):
            return statement.value
    return None


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
