"""Whether entries were made under equal conditions, and what to say where they were not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.base.wording import clean, count
from crlbench.contract.conditions import diff
from crlbench.errors import NotComparable
from crlbench.verdict.board import Board

SHOWN = 20
"""Differing leaves that are listed; the rest is counted."""
WIDEST = 36
"""Characters of a value that are shown in a list."""

HARDWARE = "environment.hardware_class"


@dataclass(frozen=True)
class Leaf:
    """One name whose value differs."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class Unequal:
    """Two entries that are not comparable, and every leaf in which they differ."""

    first: str
    second: str
    names: tuple[str, str]
    """``model/recipe`` of both."""
    fingerprints: tuple[str, str]
    leaves: tuple[Leaf, ...]

    @property
    def hardware(self) -> bool:
        """Whether the class of hardware differs."""
        return any(leaf.name == HARDWARE for leaf in self.leaves)


Products = Mapping[str, str]
"""Digests of what shared stages of chains left, by
``lineage.<task>.<arm>.seed-NN.<stage>.sha256``."""
NOTHING: Mapping[str, Products] = {}
"""Entries without chains."""


def unequal(
    entries: Sequence[tuple[str, Board, dict[str, Any]]], made: Mapping[str, Products] = NOTHING
) -> Iterator[Unequal]:
    """Every entry whose conditions or hardware are not those of the first one.

    Entries of one model also have equal products of each stage that the track shares, for every
    seed that both have: a fingerprint cannot see these.

    Args:
        entries: key, board and the leaves of the fingerprint.
        made: products of shared stages, by the key of an entry.
    """
    (key, board, leaves), *others = entries
    products = made.get(key, {})
    for other, its, other_leaves in others:
        differing = [Leaf(name, a, b) for name, (a, b) in diff(leaves, other_leaves).items()]
        if board.entries[0].model == its.entries[0].model:
            theirs = made.get(other, {})
            both = sorted(products.keys() & theirs.keys())
            pairs = ((name, products[name], theirs[name]) for name in both)
            differing += [Leaf(name, a, b) for name, a, b in pairs if a != b]
        if board.hardware != its.hardware:
            differing.append(Leaf(HARDWARE, board.hardware, its.hardware))
        if board.division != its.division:
            differing.append(Leaf("protocol.division", board.division, its.division))
        if differing or board.fingerprint != its.fingerprint:
            prints = (board.fingerprint, its.fingerprint)
            names = (board.entries[0].name, its.entries[0].name)
            yield Unequal(key, other, names, prints, tuple(differing))


def refuse(pairs: Sequence[Unequal], force: bool, by: str) -> None:
    """Stop a comparison of unequal entries.

    Raises:
        NotComparable: without ``force``; and for wall time of unequal hardware in any case.
    """
    if by == "time" and any(one.hardware for one in pairs):
        raise NotComparable(
            "wall time compares nothing between classes of hardware: it would measure the "
            "machines. Use --by completions, bytes or updates."
        )
    if not force:
        raise NotComparable(
            "\n".join(
                [
                    "not comparable: these entries were made under different conditions.",
                    *lines(pairs),
                    "Compare entries of one fingerprint. --force-unequal prints differences all "
                    "the same, without a verdict and under a watermark.",
                ]
            )
        )


def lines(pairs: Sequence[Unequal], most: int = SHOWN) -> list[str]:
    """The differing leaves with both values, at most ``most`` of them, then how many more."""
    texts = []
    room = most
    for one in pairs:
        letters = (one.first, one.second)
        both = zip(letters, one.names, one.fingerprints, strict=True)
        texts.append(clean(" and ".join(f"{letter} {n} ({p})" for letter, n, p in both)) + ":")
        leaves = one.leaves[:room]
        texts += [f"  {leaf.name}: {value(leaf.first)} / {value(leaf.second)}" for leaf in leaves]
        room -= len(leaves)
        if len(leaves) < len(one.leaves):
            texts.append(f"  {count(len(one.leaves) - len(leaves), 'more leaf', 'more leaves')}")
    return texts


def value(content: Any) -> str:
    """A leaf's value in a list; a name that one side lacks reads ``(absent)``."""
    if content is None:
        return "(absent)"
    text = clean(str(content))
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def watermark(unequal_pairs: Sequence[Unequal]) -> str | None:
    """The line that stands on everything made by force; None where all conditions are equal."""
    if not unequal_pairs:
        return None
    what = [
        "hardware" if one.hardware and len(one.leaves) == 1 else "conditions"
        for one in unequal_pairs
    ]
    pairs = ", ".join(f"{one.first} and {one.second}" for one in unequal_pairs)
    return (
        f"NOT COMPARABLE: {pairs} were made under different {' and '.join(sorted(set(what)))}. "
        "Differences without a verdict."
    )
