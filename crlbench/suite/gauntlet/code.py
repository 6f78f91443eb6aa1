"""Rules about a task's code: what it may use, and that it makes its rows again, byte for byte."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from crlbench import seeding
from crlbench.catalog.code import generator_digest
from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import read_bytes
from crlbench.disk.hashing import sha256_bytes
from crlbench.suite.gauntlet.asking import Level, ask, digests_elsewhere, effort_of, make
from crlbench.suite.gauntlet.items import fence_of
from crlbench.suite.gauntlet.report import Finding

FORBIDDEN_MODULES = {
    "the clock": {"time", "timeit", "sched"},
    "the machine": {"os", "sys", "platform", "locale", "getpass", "pwd", "gc", "ctypes", "signal"},
    "files": {"io", "pathlib", "shutil", "tempfile", "glob", "fileinput", "sqlite3", "mmap"},
    "the network": {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "asyncio", "select"},
    "other processes": {"subprocess", "multiprocessing", "threading", "concurrent", "_thread"},
    "unseeded randomness": {"secrets", "uuid"},
    "code that is not in the file": {"importlib", "runpy", "pkgutil"},
}
"""Modules of the standard library whose answers are no function of the arguments."""
FORBIDDEN_CALLS = {
    "open": "reads files",
    "input": "reads the terminal",
    "id": "gives an address, which changes from run to run",
    "hash": "changes from process to process",
    "globals": "reaches state outside of the function",
    "__import__": "imports what no digest covers",
    "breakpoint": "stops for a person",
}
CLOCK_METHODS = {"now", "utcnow", "today"}
MUTATING = {
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"),
    *("add", "discard", "update", "setdefault", "popitem", "appendleft", "popleft"),
}
"""Methods that change a list, a set, a dict or a deque."""


def check_source(task: Task, level: Level = "full") -> Finding:
    """task.py uses no clock, file, network, address, global generator or changeable state, and
    forms no seed by addition."""
    path = task.folder / task.card.generator.module
    spots = source_problems(read_bytes(path).decode())
    return Finding([f"{path}:{line}: {problem}" for line, problem in spots])


Spot = tuple[int, str]
"""A line and what is wrong there."""


def source_problems(source: str) -> list[Spot]:
    """What a task's code may not do, by line."""
    tree = ast.parse(source)
    return sorted({*_imports(tree), *_calls(tree, _full_names(tree)), *_state(tree)})


def _imports(tree: ast.AST) -> Iterator[Spot]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_problem(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from _module_problem(node.module, node.lineno)
            for alias in node.names:
                if node.module == "random" and alias.name != "Random":
                    yield node.lineno, f"random.{alias.name} draws from the global generator"


def _module_problem(name: str, line: int) -> Iterator[Spot]:
    for what, modules in FORBIDDEN_MODULES.items():
        if name.split(".")[0] in modules:
            yield line, f"'{name}' reaches {what}: rows and verdicts may not depend on that"


def _full_names(tree: ast.AST) -> dict[str, str]:
    """What the names that imports bind stand for: ``r`` for ``random``, say."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def _calls(tree: ast.AST, names: dict[str, str]) -> Iterator[Spot]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from _attribute_problem(node, names)
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            yield node.lineno, f"{node.func.id}() {FORBIDDEN_CALLS[node.func.id]}"
        if _full_name(node.func, names) in ("random.Random", "Random"):
            yield from _seed_problem(node)


def _attribute_problem(node: ast.Attribute, names: dict[str, str]) -> Iterator[Spot]:
    name = _full_name(node, names)
    if name.rpartition(".")[0] == "random" and node.attr != "Random":
        yield node.lineno, f"{name} draws from a generator that nobody seeded"
    if node.attr in CLOCK_METHODS and name.split(".")[0] in ("datetime", "date"):
        yield node.lineno, f"{name} reads the clock"


def _seed_problem(node: ast.Call) -> Iterator[Spot]:
    if not node.args:
        yield node.lineno, "random.Random() without a seed draws from the machine"
    elif isinstance(node.args[0], ast.BinOp) and not _is_text(node.args[0]):
        yield (
            node.lineno,
            f"random.Random({ast.unparse(node.args[0])}): a seed made by arithmetic; derive it by"
            " hashing: a text that names the draw, or crlbench.seeding",
        )


def _is_text(node: ast.AST) -> bool:
    """Whether an expression joins texts, which random.Random hashes."""
    inside = [*ast.walk(node)]
    texts = [n for n in inside if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return bool(texts) or any(isinstance(n, ast.JoinedStr) for n in inside)


def _full_name(node: ast.AST, names: dict[str, str]) -> str:
    """A dotted name with its first part as what an import bound it to; "" for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (owner := _full_name(node.value, names)):
        return f"{owner}.{node.attr}"
    return ""


def _state(tree: ast.Module) -> Iterator[Spot]:
    """Statements inside of functions that change what stands at the top of the module."""
    top = {name for node in tree.body for name in _bound(node)}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        local = _local_names(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield node.lineno, f"'global {', '.join(node.names)}': a function may keep no state"
            name = _target(node)
            if name in top and name not in local:
                yield node.lineno, f"changes '{name}' of the module: a function may keep no state"  # type: ignore[attr-defined]


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement at the top of a module binds to a value."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    for target in targets:
        yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Arguments and names that a function, or one inside of it, binds itself."""
    inside = [*ast.walk(function)]
    names = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names | {n.arg for n in inside if isinstance(n, ast.arg)}


def _target(node: ast.AST) -> str:
    """The name of what a statement changes in place; "" if it changes nothing."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        targets = [node.func] if node.func.attr in MUTATING else []
    for target in targets:
        inner: Any = target
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name) and inner is not target:
            return inner.id
    return ""


def check_seeds(task: Task, level: Level = "full") -> Finding:
    """build draws from the generator it is handed, which is derived by hashing from the names
    of task, version and split, and from nothing else."""
    takes = ask(task, "facts")["functions"].get("build")
    if takes is None:
        return Finding([f"{task.folder / task.card.generator.module}: defines no function 'build'"])
    expected = ["split", "rng"] + (["files"] if task.card.source is not None else [])
    if takes != expected:
        return Finding([f"build({', '.join(takes)}): must take exactly ({', '.join(expected)})"])
    if task.card.source is not None:
        return Finding(skipped="the rows come from a published dataset: see regeneration")
    if (owner := fence_of(task)) != task.name:
        return Finding(skipped=f"the rows are those of '{owner}': see regeneration")
    split = "hard" if "hard" in task.card.splits else "id"
    return _draws(task, split) if level == "quick" else _depends(task, split)


def _draws(task: Task, split: str) -> Finding:
    """Whether build draws from the generator at all; cheap, for it is stopped."""
    draws = ask(task, "draws", split, seeding.derive(0, "gauntlet", "watched", task.name))
    finding = Finding(figures={"draws seen": draws})
    if not draws:
        finding.problems.append(f"{split}: build does not use the generator that it is handed")
    return finding


def _depends(task: Task, split: str) -> Finding:
    """Whether the rows depend on the generator, and not on the global one of random."""
    finding = Finding()
    is_global, again = ask(task, "drawn_globally", split)
    if is_global:
        finding.problems.append("build draws from the global generator of random")
    if sha256_bytes(again) != task.card.splits[split].sha256:
        finding.problems.append(f"{split}: two builds with the same generator differ")
    if ask(task, "drawn_otherwise", split, task.name) == again:
        finding.problems.append(f"{split}: build does not use the generator that it is handed")
    return finding


def check_regeneration(task: Task, level: Level = "full") -> Finding:
    """The task's code makes the frozen files again, byte for byte, here and in another process
    with another hash seed, folder, locale and time zone."""
    splits = effort_of(task, level).splits or tuple(task.card.splits)
    if task.card.source is not None:
        splits = tuple(task.card.splits)
    frozen_digests = {split: task.card.splits[split].sha256 for split in splits}
    finding = Finding(figures={"splits": len(splits)})
    digest = generator_digest(task.folder / task.card.generator.module)
    if digest != task.card.generator.sha256:
        finding.problems.append(
            f"the sources that make the rows have sha256 {digest}, frozen.toml says"
            f" {task.card.generator.sha256}"
        )
    places = {"in another process": digests_elsewhere(task, splits)}
    if level == "full":
        places["here"] = {name: sha256_bytes(data) for name, data in make(task, splits).items()}
    finding.problems += [
        f"{task.card.splits[split].file}: the code makes other bytes {place} than the frozen file"
        for place, digests in places.items()
        for split, expected in frozen_digests.items()
        if digests.get(split) != expected
    ]
    return finding
