"""The named recipes: one file each, exporting ``RECIPE``; the file name is the identifier.

A person's own recipes stand in ``recipes/`` of a ``--catalog`` folder, as a Python file of the
same form, which may define parts of its own, or as TOML: ``base = "grpo"`` and whatever
differs from it. Those folders are searched first. Naming and describing recipes reads files
and executes none.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from inspect import cleandoc
from pathlib import Path
from types import ModuleType
from typing import Any

from crlbench.algo.chain import Chain
from crlbench.algo.chain_files import flip_chain, read_chain
from crlbench.algo.distillation import DistillRecipe
from crlbench.algo.flip import flipped, part_class
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.part import Part, fit_fields, fit_part, parts_of
from crlbench.algo.recipe import BaseRecipe, Recipe, from_config, kind_of
from crlbench.algo.replay import SacRecipe
from crlbench.algo.supervised import SupervisedRecipe
from crlbench.disk.files import expanded
from crlbench.disk.reading import Malformed, read_bytes, toml_table
from crlbench.errors import (
    CrlbenchError,
    UsageError,
    ValidationError,
    require_known,
    unknown_name,
)

Folders = Sequence[str | Path]
_OWN = Path(__file__).parent
_CHAINS = _OWN.with_name("chains")
_PREFIX = "crlbench_recipe_"
_FILES: dict[str, Path] = {}
"""Files of persons that were imported, by the name of their module."""
_TEXTS = ("name", "base", "about")
KINDS: tuple[type[BaseRecipe], ...] = (
    Recipe,
    PairRecipe,
    SupervisedRecipe,
    DistillRecipe,
    SacRecipe,
)
"""Policy optimisation on rewards; learning from pairs, from demonstrations, from a teacher, and
from a replay."""


def names(folders: Folders = ()) -> list[str]:
    """Identifiers of all recipes, sorted; no recipe is imported."""
    return sorted(_paths(folders))


def path_of(name: str, folders: Folders = ()) -> Path:
    """The file of the recipe or chain called ``name``.

    Raises:
        UsageError: there is none; with the nearest names.
    """
    known = _chain_paths(folders) | _paths(folders)
    if name not in known:
        raise unknown_name("recipe", name, known, listing="crlbench list recipes")
    return known[name]


def chain_names(folders: Folders = ()) -> list[str]:
    """Identifiers of all chains, sorted."""
    return sorted(_chain_paths(folders))


def names_of(kind: type[BaseRecipe]) -> list[str]:
    """Identifiers of the bundled recipes of a kind, sorted."""
    return [name for name in names() if isinstance(load(name), kind)]


def load(name: str, folders: Folders = ()) -> BaseRecipe:
    """The recipe or chain called ``name``; ``grpo+clip.high=0.28`` is the one with that flip.

    Args:
        name: An identifier, perhaps with flips, each behind a ``+``.
        folders: ``--catalog`` folders, searched first.

    Raises:
        UsageError: there is none, with the nearest names; or an impossible flip.
        ValidationError: its file does not export a RECIPE of that name.
    """
    base, flips = _split(name)
    path = path_of(base, folders)
    if path not in _chain_paths(folders).values():
        return flipped(load_file(path, folders), *flips)
    return flip(read_chain(path, lambda inner: load(inner, folders)), *flips, folders=folders)


def flip(recipe: BaseRecipe, *texts: str, folders: Folders = ()) -> BaseRecipe:
    """A recipe or chain with changes; raises as :func:`load` does."""
    if isinstance(recipe, Chain):
        return flip_chain(recipe, texts, lambda inner: load(inner, folders))
    return flipped(recipe, *texts)


def _split(name: str) -> tuple[str, list[str]]:
    """A recipe's identifier and its flips."""
    base, *flips = name.split("+")
    if not all(flips):
        raise UsageError(f"recipe '{name}': write a flip behind each '+': grpo+clip.high=0.28.")
    return base, flips


def load_file(path: str | Path, folders: Folders = ()) -> BaseRecipe:
    """The recipe of a file, which is executed if it is Python.

    Args:
        path: A ``.py`` or a ``.toml`` file.
        folders: Where else the ``base`` of a TOML file may be.

    Raises:
        ValidationError: names the file and what is wrong in it.
    """
    path = Path(path)
    return _recipe_of(path, folders, ())


def python_file(name: str, folders: Folders = ()) -> Path | None:
    """The person's own Python file that a recipe comes from, None for a bundled one.

    A worker must import it before it can make the recipe from its configuration.
    """
    path = path_of(name.partition("+")[0], folders)
    if path in _chain_paths(folders).values():
        return _file_of_stages(name, folders)
    seen: set[Path] = set()
    while path.suffix == ".toml" and path not in seen:
        seen.add(path)
        base = _read(path).get("base")
        if base is None:
            return None
        path = path_of(str(base).partition("+")[0], folders)
    return None if path.parent == _OWN else path


def _file_of_stages(name: str, folders: Folders) -> Path | None:
    """The one Python file of a person that recipes of a chain's stages come from."""
    chain = load(name, folders)
    assert isinstance(chain, Chain)
    used = [stage.recipe for stage in chain.stages if stage.recipe is not None]
    found = (python_file(one.name, folders) for one in used)
    files = {file for file in found if file is not None}
    if len(files) > 1:
        raise UsageError(
            f"chain '{name}': recipes of two Python files cannot be in one chain: "
            f"{', '.join(sorted(map(str, files)))}. Put them into one file."
        )
    return files.pop() if files else None


def docstring(name: str, folders: Folders = ()) -> str:
    """What a recipe says about itself; its file is read and not executed."""
    path = path_of(name.partition("+")[0], folders)
    if path.suffix == ".toml":
        return str(_read(path).get("about", "")).strip()
    return cleandoc(ast.get_docstring(_parsed(path)) or "")


def _paths(folders: Folders) -> dict[str, Path]:
    """Identifier -> file; the first folder that has a name wins."""
    found: dict[str, Path] = {}
    for folder in folders:
        home = expanded(folder).resolve() / "recipes"
        for path in sorted([*home.glob("*.py"), *home.glob("*.toml")]):
            if path.name != "__init__.py":
                found.setdefault(_identifier(path), path)
    for path in sorted(_OWN.glob("*.py")):
        if path.name != "__init__.py":
            found.setdefault(_identifier(path), path)
    return found


def _chain_paths(folders: Folders) -> dict[str, Path]:
    """Chain -> file; the first folder that has a name wins."""
    found: dict[str, Path] = {}
    for home in (*(expanded(folder).resolve() / "chains" for folder in folders), _CHAINS):
        for path in sorted(home.glob("*.toml")):
            found.setdefault(path.stem, path)
    return found


def _identifier(path: Path) -> str:
    return path.stem.replace("_", "-")


def _recipe_of(path: Path, folders: Folders, above: tuple[Path, ...]) -> BaseRecipe:
    if path in above:
        raise ValidationError(f"{path}: field base: a recipe cannot be based on itself.")
    if path.suffix == ".toml":
        return _from_toml(path, folders, (*above, path))
    module = _imported(path)
    recipe = getattr(module, "RECIPE", None)
    wanted = _identifier(path)
    if not isinstance(recipe, BaseRecipe) or recipe.name != wanted:
        given = "there is none"
        if isinstance(recipe, BaseRecipe):
            given = f"it is called '{recipe.name}'"
        raise ValidationError(f"{path} must export RECIPE, a Recipe named '{wanted}'; {given}.")
    return recipe


# -- Python files --------------------------------------------------------------------------


def _imported(path: Path) -> ModuleType:
    """The module of a recipe file: a bundled one as a part of the package, others by path."""
    if path.parent == _OWN:
        return importlib.import_module(f"{__name__}.{path.stem}")
    content = _bytes(path)
    home = _PREFIX + hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    text = hashlib.sha256(content).hexdigest()[:12]
    name = f"{home}_{text}"
    if name in sys.modules:
        return sys.modules[name]
    _refuse_taken(path, _parsed(path), (home, text))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except CrlbenchError as error:
        del sys.modules[name]
        raise ValidationError(f"{path}: {error}") from error
    except Exception as error:
        del sys.modules[name]
        where = f"{path}:{_line_of(error, path)}"
        raise ValidationError(f"{where}: {type(error).__name__}: {error}") from error
    _FILES[name] = path
    return module


def _refuse_taken(path: Path, tree: ast.Module, own: tuple[str, str]) -> None:
    """A part called like one that exists would take its place in every other recipe.

    One of an earlier text of this file, or of the same text elsewhere, is no other part.
    """
    axes = [axis for kind in KINDS for axis in kind.axes.values()]
    taken = {n: cls for axis in axes for n, cls in parts_of(axis).items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in taken:
            module = taken[node.name].__module__
            if not (module.startswith(own[0]) or module.endswith(own[1])):
                where = _FILES.get(module, module)
                raise ValidationError(
                    f"{path}:{node.lineno}: a part called {node.name} exists already ({where}). "
                    "Give yours another name."
                )


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(_bytes(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        text = getattr(error, "msg", str(error))
        raise ValidationError(f"{path}:{line}: not valid Python: {text}.") from None


def _bytes(path: Path) -> bytes:
    return read_bytes(path)


def _line_of(error: BaseException, path: Path) -> int:
    """The last line of the file itself in an error's traceback."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def defining_files(recipe: BaseRecipe) -> set[Path]:
    """The persons' own files that define parts of a recipe."""
    parts = (getattr(recipe, axis) for axis in recipe.axes)
    return {_FILES[module] for module in _modules(parts) if module in _FILES}


def _modules(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        if isinstance(value, Part):
            yield type(value).__module__
            yield from _modules(getattr(value, f.name) for f in fields(value))


# -- TOML files ----------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Any]:
    try:
        return toml_table(_bytes(path))
    except Malformed as error:
        raise ValidationError(f"{path}: {error}.") from None


def _from_toml(path: Path, folders: Folders, above: tuple[Path, ...]) -> BaseRecipe:
    data = _read(path)
    wanted = _identifier(path)
    if data.get("name", wanted) != wanted:
        raise ValidationError(
            f"{path}: field name: '{data['name']}' must equal the name of its file, '{wanted}'."
        )
    try:
        base = _base(data, folders, above)
        kind = kind_of(data) if base is None else type(base)
        _check_keys(data, kind)
        settings = {key: data[key] for key in data if key not in _TEXTS}
        changed = {axis: _value(kind, axis, value, base) for axis, value in settings.items()}
        if base is not None:
            return replace(base, name=wanted, **changed)
        return from_config({"name": wanted, **changed})
    except UsageError as error:
        raise ValidationError(f"{path}: {error}") from None


def _check_keys(data: Mapping[str, Any], kind: type[BaseRecipe]) -> None:
    known = (*kind.axes, *kind.numbers, *_TEXTS)
    for key in data:
        require_known("recipe field", key, known)


def _base(data: Mapping[str, Any], folders: Folders, above: tuple[Path, ...]) -> BaseRecipe | None:
    if "base" not in data:
        return None
    name, flips = _split(str(data["base"]))
    return flipped(_recipe_of(path_of(name, folders), folders, above), *flips)


def _value(kind: type[BaseRecipe], axis: str, value: Any, base: BaseRecipe | None) -> Any:
    """A part from a table, from its name, or from some fields of the base's part."""
    if axis in kind.numbers:
        return value
    where = f"axis '{axis}'"
    if isinstance(value, str):
        value = {"part": value}
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} must be the name of a part or a table; got {value!r}.")
    if "part" in value:
        cls = part_class(kind, axis, str(value["part"]), f"Where: {where}.")
        if cls is None:
            return None
        return fit_part({**value, "part": cls.__name__}, kind.axes[axis], where)
    part = getattr(base, axis) if base is not None else None
    if part is None:
        raise UsageError(f"{where} needs a key 'part'.")
    given = {f.name: getattr(part, f.name) for f in fields(part) if f.init} | dict(value)
    fit_fields(type(part), given, f"field of {part.part}", f"Where: {where}.")
    return replace(part, **value)
