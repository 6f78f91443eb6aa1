"""Pages that are kept from one build for the next, by a key of what they show."""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

from crlbench.site.cache import KEY, Cache
from crlbench.site.pages import TOTALS, Kept, Keyed, whole
from crlbench.site.render import Renderer
from crlbench.site.source import Site

LEVEL = 1
"""Of their compression."""


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
        if (parcel := self._cache.find(name)) is not None:
            for path in (name for name in parcel.names if name != KEY):
                content = zstandard.ZstdDecompressor().decompress(parcel.part(path))
                yield Kept(path, content)
            return
        made = [Kept(part.path, self._renderer.content(part)) for part in whole([item])]
        compress = zstandard.ZstdCompressor(level=LEVEL).compress
        self._cache.put(name, {one.path: compress(one.content) for one in made})
        yield from made
