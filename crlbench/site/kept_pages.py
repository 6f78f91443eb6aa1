"""Pages that are kept from one build for the next, by a key of what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crlbench.disk.parcels import BadParcel, packed, unpacked
from crlbench.site.cache import KEY, Cache
from crlbench.site.pages import TOTALS, Kept, Keyed, whole
from crlbench.site.render import Renderer
from crlbench.site.source import Site


class KeptPages:
    """Makes pages that have a key, or takes them from the cache."""

    def __init__(self, site: Site, cache: Cache) -> None:
        self._cache = cache
        self._renderer = Renderer(site, TOTALS.decode())

    def files(self, item: Keyed) -> Iterator[Kept]:
        """The files of an item, as they are before all results are counted.

        Raises:
            EnvironmentUnfit: the cache cannot be written.
        """
        name = f"pages-{item.key}"
        if (kept := _unpacked(self._cache, name)) is not None:
            yield from (Kept(path, content) for path, content in kept.items())
            return
        parts = Parts(self._cache, f"parts-{item.parts}") if item.parts else None
        self._renderer.kept_parts = parts
        made = [Kept(part.path, self._renderer.content(part)) for part in whole([item])]
        self._cache.put(name, {one.path: packed(one.content) for one in made})
        if parts is not None:
            parts.write()
        yield from made


def _unpacked(cache: Cache, name: str) -> dict[str, bytes] | None:
    """The parts of a parcel; None where there is none, or it is damaged."""
    if (parcel := cache.find(name)) is None:
        return None
    try:
        return {part: unpacked(parcel.part(part)) for part in parcel.names if part != KEY}
    except BadParcel:
        return None


class Parts:
    """Parts of the pages of one item, from one parcel: :class:`crlbench.site.render.KeptParts`."""

    def __init__(self, cache: Cache, name: str) -> None:
        self._cache, self._name = cache, name
        self._before = _unpacked(cache, name) or {}
        self._made: dict[str, str] = {}

    def get(self, key: str, make: Callable[[], str]) -> str:
        """The part of a key; made where there is none."""
        if key in self._before:
            return self._before[key].decode()
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def write(self) -> None:
        """Keep what was made.

        Raises:
            EnvironmentUnfit: it cannot be written.
        """
        if self._made:
            whole = self._before | {key: part.encode() for key, part in self._made.items()}
            self._cache.put(self._name, {key: packed(part) for key, part in whole.items()})
