"""A field that comes later moves no stored identity while it is at its default."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError as PydanticError

from crlbench.algo import recipes
from crlbench.algo.kl import ReferenceKl
from crlbench.algo.part import Part, fit_part
from crlbench.algo.recipe import Recipe, from_config, to_config
from crlbench.algo.reference import Start
from crlbench.base.added import added, added_field, complete, defaults, stated
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import (
    PROTOCOL_LEAF,
    Conditions,
    Data,
    Track,
    control_leaves,
    override,
    protocol_name,
    stated_conditions,
    stated_values,
)
from crlbench.contract.records import RunRecord
from crlbench.run.archive import open_track
from tests.identities.pinned import RESULTS, find_entries, records


class LaterData(Data):
    shuffle: tuple[str, ...] = added(())
    share: float = added(0.5)


class LaterConditions(Conditions):
    data: LaterData


class LaterRecord(RunRecord):
    parent: str | None = added(None)
    depth: int = added(0)


@pytest.fixture(scope="module")
def track() -> Track:
    return open_track(Catalog(), "mini@1")[0]


@pytest.fixture(scope="module")
def conditions(track: Track) -> LaterConditions:
    return LaterConditions.model_validate(track.conditions.model_dump())


def test_a_record_keeps_its_id_until_the_field_says_something() -> None:
    _, record = next(records(next(iter(find_entries(RESULTS)))))
    later = LaterRecord.model_validate(record.model_dump())
    assert later.content_id() == record.record_id
    assert later.model_dump(mode="json") == record.model_dump(mode="json")
    assert later.model_dump_json() == record.model_dump_json()
    for change in ({"parent": "a"}, {"depth": 1}):
        other = later.model_copy(update=change)
        assert other.content_id() != record.record_id
        assert LaterRecord.model_validate(other.model_dump(mode="json")) == other


def test_a_fingerprint_keeps_its_leaves(track: Track, conditions: LaterConditions) -> None:
    before = control_leaves(track, track.conditions, {})
    assert control_leaves(track, conditions, {}) == before
    changed = conditions.model_copy(
        update={"data": conditions.data.model_copy(update={"share": 0.25})}
    )
    after = control_leaves(track, changed, {})
    assert after == before | {"conditions.data.share": 0.25}
    assert LaterConditions.model_validate(stated_conditions(after)) == changed
    assert LaterConditions.model_validate(stated_conditions(before)) == conditions


def test_every_condition_has_its_value_although_the_dump_leaves_it_out(
    track: Track, conditions: LaterConditions
) -> None:
    own = {"data.share": 0.5, "data.shuffle": []}
    assert conditions.values() == track.conditions.values() | own
    assert complete(conditions)["data"]["shuffle"] == []
    later = {"data": {"shuffle": [], "share": 0.5}}
    assert defaults(LaterConditions) == defaults(Conditions) | later


def test_leaves_without_an_added_condition_state_its_default(
    monkeypatch: pytest.MonkeyPatch, track: Track
) -> None:
    """So an open run that went back to the default is told from the track that did not."""
    monkeypatch.setattr("crlbench.contract.conditions.Conditions", LaterConditions)
    control = control_leaves(track, track.conditions, {})
    assert stated_values(control)["data.share"] == 0.5
    assert stated_values(control | {"conditions.data.share": 0.25})["data.share"] == 0.25


def test_an_added_condition_can_be_set(monkeypatch: pytest.MonkeyPatch, track: Track) -> None:
    """By name, also where no dump has it; and back to what it was."""
    monkeypatch.setattr("crlbench.contract.conditions.Conditions", LaterConditions)
    start = LaterConditions.model_validate(track.conditions.model_dump())
    changed = override(start, {"data.share": "0.25"})
    assert changed.values()["data.share"] == 0.25
    assert override(changed, {"data.share": "0.5"}) == start


@pytest.mark.parametrize(("default", "other"), [(0, False), (1, True), (None, 0), ("", None)])
def test_only_the_default_itself_is_left_out(default: Any, other: Any) -> None:
    class Model(RunRecord):
        later: Any = added(default)

    shown = Model.model_construct(later=other).model_dump(include={"later"})
    assert shown == {"later": other}
    assert Model.model_construct(later=default).model_dump(include={"later"}) == {}


@dataclass(frozen=True)
class LaterRecipe(Recipe):
    target: float | None = added_field(None)


@dataclass(frozen=True)
class Bound(Part, ABC):
    """An axis of this file alone."""


@dataclass(frozen=True)
class Sloped(Bound):
    low: float = 0.2
    slope: float = added_field(0.0)


def later(recipe: Recipe, **more: Any) -> LaterRecipe:
    held = {f.name: getattr(recipe, f.name) for f in dataclasses.fields(recipe)}
    return LaterRecipe(**held, **more)


@pytest.mark.parametrize("name", recipes.names_of(Recipe))
def test_a_configuration_keeps_its_bytes(name: str) -> None:
    recipe = recipes.load(name)
    before = json.dumps(to_config(recipe))
    whole = dataclasses.asdict(recipe)
    if isinstance(recipe.kl, ReferenceKl):
        assert whole["kl"].pop("reference") == dataclasses.asdict(Start())
    assert before == json.dumps(whole)
    assert json.dumps(to_config(later(recipe))) == before
    changed = to_config(later(recipe, target=0.1))
    assert changed == json.loads(before) | {"target": 0.1}
    assert from_config(json.loads(before)) == recipe


def test_a_part_takes_a_later_field() -> None:
    plain = {"part": "Sloped", "low": 0.2}
    assert stated(Sloped()) == plain
    assert stated(Sloped(slope=0.5)) == plain | {"slope": 0.5}
    for part in (Sloped(), Sloped(slope=0.5)):
        assert fit_part(stated(part), Bound, "bound") == part


def test_a_track_may_name_its_protocol(monkeypatch: pytest.MonkeyPatch, track: Track) -> None:
    assert track.protocol == "CRL-1" and "protocol" not in track.model_dump()
    plain = control_leaves(track, track.conditions, {})
    assert PROTOCOL_LEAF not in plain and protocol_name(plain) == "CRL-1"
    said = Track.model_validate(track.model_dump() | {"protocol": "CRL-1"})
    assert control_leaves(said, said.conditions, {}) == plain
    monkeypatch.setattr("crlbench.contract.conditions.PROTOCOLS", ("CRL-1", "CRL-9"))
    other = Track.model_validate(track.model_dump() | {"protocol": "CRL-9"})
    leaves = control_leaves(other, other.conditions, {})
    assert leaves == plain | {PROTOCOL_LEAF: "CRL-9"}
    assert protocol_name(leaves) == "CRL-9"


def test_an_unknown_protocol_is_refused(track: Track) -> None:
    with pytest.raises(PydanticError, match="the protocols are CRL-1"):
        Track.model_validate(track.model_dump() | {"protocol": "CRL-0"})
