"""The code of a task: which sources it is, their digests, and how it is loaded."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import types
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from crlbench.catalog.rows import read_bytes
from crlbench.disk import line_ends
from crlbench.disk.names import CODE
from crlbench.errors import ValidationError

PACKAGE = Path(__file__).resolve().parents[1]
BUILDING = (
    "crlbench.reward.splits",
    "crlbench.reward.starts",
    "crlbench.reward.published",
    "crlbench.reward.word_problems",
    "crlbench.reward.bfcl_rows",
    "crlbench.seeding",
)
"""Modules that make rows and score nothing: digested with the generator, not the verifier."""


def load_code(path: Path) -> types.ModuleType:
    """The module at ``path``, executed under a name that only this path has.

    Raises :class:`ValidationError` when it cannot be read or executed.
    """
    source = read_bytes(path)
    unique = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]
    module = types.ModuleType(f"crlbench_task_{unique}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        raise ValidationError(
            f"{path}: the code cannot be loaded: {type(error).__name__}: {error}."
        ) from error
    return module


def entry_point(module: types.ModuleType, name: str) -> Callable[..., Any]:
    """A function of a task's code, by name."""
    function = getattr(module, name, None)
    if not callable(function):
        raise ValidationError(f"{module.__file__}: defines no function '{name}'.")
    return function


def verifier_digest(task_file: Path, *, marks: bool = True) -> str:
    """SHA-256 over the task's code and the crlbench.reward sources its verifier uses.

    ``marks``: whether a byte order mark counts; the ends of lines never do.
    """
    used = [name for name in _imports(task_file) if name not in BUILDING]
    return _sources_digest(task_file, used, marks)


def rewritten_code(
    task_file: Path, sha256: str, digest: Callable[..., str] = verifier_digest
) -> str:
    """What :func:`line_ends.rewritten` says of the source that a byte order mark changed.

    ``digest``: that of the verifier, or of the generator.
    """
    for path in (task_file, *map(_module_file, _imports(task_file))):
        data = read_bytes(path)
        if data.startswith(line_ends.BOM):
            return line_ends.rewritten_so_that(
                path, data, lambda text: digest(task_file, marks=False) == sha256
            )
    return ""


def generator_digest(task_file: Path, *, marks: bool = True) -> str:
    """SHA-256 over the task's code and the crlbench sources that build its rows."""
    used = [name for name in _imports(task_file) if name in BUILDING]
    return _sources_digest(task_file, used, marks)


def _sources_digest(task_file: Path, modules: Iterable[str], marks: bool = True) -> str:
    files = {CODE: task_file} | {name: _module_file(name) for name in modules}
    sources = {name: _normalise(path, marks) for name, path in files.items()}
    lines = [
        f"{name} {hashlib.sha256(source).hexdigest()}\n" for name, source in sorted(sources.items())
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _normalise(path: Path, marks: bool) -> bytes:
    source = read_bytes(path)
    return source.replace(b"\r\n", b"\n") if marks else line_ends.plain(source)


def _module_file(name: str) -> Path:
    return PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py")


def _imports(task_file: Path) -> list[str]:
    """The modules of crlbench that a file imports, and those that these import in turn."""
    modules: set[str] = set()
    waiting = [task_file]
    while waiting:
        path = waiting.pop()
        for name in _direct_imports(path):
            if name not in modules and _module_file(name).is_file():
                modules.add(name)
                waiting.append(_module_file(name))
    return sorted(modules - {"crlbench.errors"})


def _direct_imports(path: Path) -> frozenset[str]:
    try:
        return _imported(read_bytes(path))
    except SyntaxError as error:
        raise ValidationError(f"{path}:{error.lineno}: not valid Python: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValidationError(
            f"{path}: not valid Python: {error or type(error).__name__}."
        ) from None


@lru_cache(maxsize=256)
def _imported(source: bytes) -> frozenset[str]:
    """The names below crlbench that a source imports; most tasks share the modules they use."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset(name for name in names if name.startswith("crlbench."))
