"""No name of a result moves: boards, records, plans and configurations of recipes."""

from __future__ import annotations

import json

import pytest

from tests.identities import pinned

PINNED = json.loads(pinned.PINNED.read_text())


@pytest.mark.parametrize("what", ["fingerprints", "configurations", "plans"])
def test_what_names_results_is_as_it_was(what: str) -> None:
    assert getattr(pinned, what)() == PINNED[what]


def test_every_stored_record_has_the_id_that_it_states() -> None:
    found, known = pinned.entries(), PINNED["entries"]
    assert {name: found.get(name) for name in known} == known
