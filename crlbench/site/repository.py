"""The repository of the results: pages link to it if its address is known."""

from __future__ import annotations

from dataclasses import dataclass


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
