"""A page of the site before it is rendered, other files, and the paths of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Page:
    """One HTML file."""

    path: str
    """Path from the root of the site: ``models/tiny-llama.html``."""
    template: str
    """Name of a file below ``templates/site``."""
    title: str
    about: str
    """A sentence for search engines and link previews."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the template shows, as ``page.data``."""
    section: str = ""
    """Section of the menu that it belongs to."""
    scripts: tuple[str, ...] = ()
    """Classic scripts from the root of the site, in order, after those of every page."""
    charts: bool = False
    """Whether it loads the chart library."""
    document: str = ""
    """Path of the JSON document of what it shows; empty where there is none."""
    shown_at: str = ""
    """Address of the root of the site, for the one page that is shown at any depth."""

    @property
    def root(self) -> str:
        """The way to the root of the site: ``../`` for a page in a folder."""
        return self.shown_at or "../" * (len(PurePosixPath(self.path).parts) - 1)

    def link(self, path: str) -> str:
        """A relative address: it works from a disk and from any address of a server."""
        path, mark, fragment = path.partition("#")
        return f"{self.root}{quote(path, safe='/@')}{mark}{quote(fragment, safe='/@=&')}"


@dataclass(frozen=True)
class File:
    """A file that is no page: data for download or for scripts."""

    path: str
    """Path from the root of the site."""
    content: bytes


TOTALS = b"\0totals\0"
"""Stands in a kept page for what is said of all results."""


@dataclass(frozen=True)
class Kept:
    """A file that was made before; a page in it has :data:`TOTALS` in its footer."""

    path: str
    """Path from the root of the site."""
    content: bytes

    def finished(self, totals: bytes) -> bytes:
        """The file as it is published.

        Args:
            totals: what the footer says of all results, as HTML.
        """
        # The last one: whatever a result's text holds stands before the footer.
        before, mark, after = self.content.rpartition(TOTALS)
        return before + totals + after if mark else after


COMPARE = "compare.html"
BOARDS = "boards/index.html"
"""All boards."""

Part = Page | File | Kept


@dataclass(frozen=True)
class Keyed:
    """Pages that rest on little: the next build need not make them again."""

    key: str
    """Digest of everything that they show; empty where it is not known."""
    make: Callable[[], Iterable[Part]]
    parts: str = ""
    """Digest of what some parts of them rest on, which are kept by themselves; empty where there
    are none."""

    def __call__(self) -> Iterable[Part]:
        return self.make()


Made = Part | Callable[[], Iterable[Part]]
"""What a maker yields; a function where making takes long, which another process may then do."""


def whole(made: Iterable[Made]) -> Iterator[Part]:
    """The same with everything made."""
    for one in made:
        if callable(one):
            yield from one()
        else:
            yield one


PORTS = {f"{kind}{number}" for kind in ("com", "lpt") for number in range(10)}
DEVICES = {"con", "prn", "aux", "nul", *PORTS}
"""Names that Windows keeps for devices, with whatever ending."""


def portable(name: str) -> str:
    """A name of the results as a part of a path on every system; no two names share one.

    Windows has no colon, which flips have (``grpo+clip=ppo-clip:high=0.28``), no dot at the end of
    a folder's name, and no file called like a device. An ``@`` says what was there: no name
    begins with one, and only models have one, before the revision.
    """
    safe = name.replace(":", "@")
    if safe.endswith("."):
        return f"@{safe[:-1]}@"
    return f"@@{safe}" if safe.partition(".")[0] in DEVICES else safe


def _path(*parts: str) -> str:
    return "/".join(map(portable, parts))


def board_path(board: str, recipe: str) -> str:
    """The standings of one recipe on a board."""
    return _path("boards", board, f"{recipe}.html")


def model_slug(model: str) -> str:
    """The name of a model without its revision: ``tiny-llama`` of ``tiny-llama@25666175``."""
    return model.partition("@")[0]


def model_path(slug: str) -> str:
    """Everything about a model."""
    return _path("models", f"{slug}.html")


def task_path(task: str) -> str:
    return _path("tasks", f"{task}.html")


def run_path(board: str, model: str, recipe: str, task: str) -> str:
    """The runs of an entry on one task: every seed."""
    return _path("runs", board, model, recipe, f"{task}.html")


def entry_path(board: str, model: str, recipe: str) -> str:
    """Everything about an entry: a model with a recipe on a board."""
    return _path("runs", board, model, recipe, "index.html")


def archive_path(board: str) -> str:
    """A board with its conditions, of whatever track version."""
    return _path("boards", board, "index.html")


def designs_path(board: str, recipe: str) -> str:
    """The designs of a recipe on a board, with their checkpoints and variance components."""
    return _path("designs", board, f"{recipe}.html")


def recipes_path(board: str, model: str) -> str:
    """Every recipe of one model against its base; ``model`` as folders are called."""
    return _path("recipes", board, f"{model}.html")


def data_path(board: str, name: str) -> str:
    """A table of a board for download."""
    return _path("data", board, name)


def items_path(board: str, model: str, recipe: str) -> str:
    """The stored scores of an entry's completions, as a script."""
    return _path("data", "items", board, model, f"{recipe}.js")


def samples_path(board: str, model: str, recipe: str) -> str:
    """Every stored completion of an entry."""
    return _path("samples", board, model, f"{recipe}.html")


def samples_data_path(board: str, model: str, recipe: str, part: str) -> str:
    """A part of them, as a script."""
    return _path("data", "samples", board, model, recipe, f"{part}.js")


def entry_data_path(board: str, model: str, recipe: str, kind: str = "js") -> str:
    """What comparisons show of an entry, as a script or as JSON."""
    return _path("data", "entries", board, model, f"{recipe}.{kind}")


def board_json_path(board: str) -> str:
    """The document of a board."""
    return _path("json", "boards", f"{board}.json")


def entry_json_path(board: str, model: str, recipe: str) -> str:
    """The document of an entry."""
    return _path("json", "entries", board, model, f"{recipe}.json")


def model_json_path(slug: str) -> str:
    """The document of a model."""
    return _path("json", "models", f"{slug}.json")


def task_json_path(task: str) -> str:
    """The document of a task."""
    return _path("json", "tasks", f"{task}.json")


def embed_path(board: str, recipe: str) -> str:
    """The ranked rows of a recipe on a board, for an iframe."""
    return _path("embed", board, f"{recipe}.html")


def badge_path(board: str, model: str, recipe: str) -> str:
    """The badge of an entry with its ranks."""
    return _path("badges", board, model, f"{recipe}.svg")


def address(path: str) -> str:
    """A path from the root of the site as other pages and programs write it."""
    return quote(path, safe="/@")
