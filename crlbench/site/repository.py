"""The repository that results stand in: pages lead to it where its address is known."""

from __future__ import annotations

from dataclasses import dataclass, fields

from crlbench.site.source import Site


@dataclass(frozen=True)
class Repository:
    """Addresses inside a repository, as GitHub and its like have them."""

    address: str
    """``https://github.com/org/name``."""

    def file(self, path: str) -> str:
        """A file of the default branch."""
        return f"{self.address}/blob/HEAD/{path}"

    def folder(self, path: str) -> str:
        """A folder of the default branch."""
        return f"{self.address}/tree/HEAD/{path}"


@dataclass(frozen=True)
class LinkedSite(Site):
    """A site that knows its repository."""

    repository: Repository | None = None


def linked(site: Site, address: str) -> LinkedSite:
    """The same site, whose pages lead to the repository at ``address``."""
    known = {field.name: getattr(site, field.name) for field in fields(site)}
    return LinkedSite(**known, repository=Repository(address))


def repository_of(site: Site) -> Repository | None:
    """Where the site's results stand; None where that is not known."""
    return site.repository if isinstance(site, LinkedSite) else None
