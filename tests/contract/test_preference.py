"""The conditions of chains: a group that other tracks have not, and whose absence moves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from crlbench.contract.conditions import (
    Conditions,
    Track,
    control_leaves,
    diff,
    fingerprint,
    override,
    stated_conditions,
    stated_values,
)
from crlbench.disk.toml import dump_toml, read_toml
from crlbench.errors import UsageError

TRACKS = Path(__file__).parents[2] / "leaderboard" / "tracks"


def track(name: str) -> Track:
    return Track.model_validate(read_toml(TRACKS / f"{name}.toml"))


def changed(**fields: Any) -> dict[str, Any]:
    data = track("preference").conditions.model_dump(mode="json")
    return data | {"preference": data["preference"] | fields}


@pytest.mark.parametrize("name", ["mini", "small", "core"])
def test_tracks_without_the_group_do_not_know_it(name: str) -> None:
    conditions = track(name).conditions
    assert conditions.preference is None
    assert "preference" not in conditions.model_dump(mode="json")
    control = control_leaves(track(name), conditions, {})
    assert not [leaf for leaf in control if "preference" in leaf]
    assert not [
        leaf for leaf in (*conditions.values(), *stated_values(control)) if "prefer" in leaf
    ]
    assert Conditions.model_validate(stated_conditions(control)) == conditions
    with pytest.raises(UsageError, match=r"unknown condition 'preference\.demos'"):
        override(conditions, {"preference.demos": "8"})


def test_every_field_of_the_group_is_a_leaf() -> None:
    one = track("preference")
    control = control_leaves(one, one.conditions, {})
    names = {leaf for leaf in control if leaf.startswith("conditions.preference.")}
    fields = ["demos", "prompts", "per_prompt", "labels", "labeller", "shared", "flops"]
    fields += [f"{kind}_learning_rate" for kind in ("policy", "preference", "imitation")]
    assert names == {f"conditions.preference.{field}" for field in fields}
    assert Conditions.model_validate(stated_conditions(control)) == one.conditions
    for field, value in {"demos": "64", "labeller": '"gold:flip=0.1"', "flops": "5"}.items():
        other = override(one.conditions, {f"preference.{field}": value})
        moved = control_leaves(one, other, {})
        assert fingerprint(moved) != fingerprint(control)
        assert [*diff(control, moved)] == [f"conditions.preference.{field}"]


def test_conditions_with_the_group_can_be_hashed_and_written() -> None:
    one = track("preference").conditions
    again = Conditions.model_validate(one.model_dump(mode="json"))
    assert hash(again) == hash(one) and again == one
    other = override(one, {"preference.demos": "64"})
    assert hash(other) != hash(one)


def test_stages_that_are_shared_survive_as_toml(tmp_path: Path) -> None:
    data = track("preference").model_dump(mode="json")
    path = tmp_path / "preference.toml"
    path.write_text(dump_toml(data))
    assert Track.model_validate(read_toml(path)).conditions == track("preference").conditions


def test_toml_in_lists_leaves_out_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(dump_toml({"stages": [{"a": 1, "b": None, "c": {"d e": "f", "g": [True]}}]}))
    assert read_toml(path) == {"stages": [{"a": 1, "c": {"d e": "f", "g": [True]}}]}


def test_more_verdicts_than_labels_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"4096 completions are judged.*allows 4095"):
        Conditions.model_validate(changed(labels=4095))


@pytest.mark.parametrize("labeller", ["golden", "gold:flip=", "gold:bend=1", "verdicts:abc", ""])
def test_labellers_have_a_form(labeller: str) -> None:
    with pytest.raises(ValidationError, match="labeller"):
        Conditions.model_validate(changed(labeller=labeller))


@pytest.mark.parametrize(
    "labeller", ["gold", "gold:flip=0.1", "gold:slope=2", f"verdicts:{'a' * 64}"]
)
def test_labellers_of_that_form_are_taken(labeller: str) -> None:
    preference = Conditions.model_validate(changed(labeller=labeller)).preference
    assert preference is not None and preference.labeller == labeller


def test_a_last_stage_has_the_rate_of_its_kind() -> None:
    one = track("preference").conditions
    rates = {
        kind: one.of_last_stage(kind).optimization.learning_rate
        for kind in ("policy", "preference", "imitation", "distill")
    }
    assert rates == {"policy": 1e-5, "preference": 3e-5, "imitation": 3e-4, "distill": 1e-4}
    assert one.of_last_stage("distill") is one
    mini = track("mini").conditions
    assert mini.of_last_stage("policy") is mini
