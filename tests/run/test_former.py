"""Runs that were stored before side files were part of a model: they go on, or say why not."""

from __future__ import annotations

import json
import os
import time
from datetime import date
from pathlib import Path

import pytest

from crlbench.catalog.checkpoint import former_card, hub_card, local_card
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import ModelCard
from crlbench.disk.hashing import digest
from crlbench.disk.side_files import side_digests
from crlbench.disk.toml import dump_toml
from crlbench.errors import ValidationError
from crlbench.policy.weights.files import Location
from crlbench.run.admission import Checkpoint, admit, as_filed, settle
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.former import check_entry_unchanged, former_runs
from crlbench.run.ledger import Ledger
from crlbench.run.plan import Contender, Declaration, NamedRecipe, Plan, start_key
from tests.contribute.test_bad_models import ENTRY
from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint


def declared(card: ModelCard, out: Path, later: float = 5.0) -> Plan:
    """A plan of a card, written and put into a ledger, ``later`` seconds from now."""
    catalog = Catalog()
    track = load_track(catalog, "mini")
    board, tasks, _ = make_board(catalog, track, Request({}, ["addition"], None, True))
    named = Contender(card.slug, card.slug, card.revision[:8], card.digest)
    recipe = NamedRecipe("ppo", {"name": "ppo"})
    plan = Declaration(board, named, recipe, tasks, ["real"], 1, out).plan()
    plan.write()
    ledger = Ledger(plan.folder / "ledger.jsonl")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + later))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crlbench.run.ledger.utc_now", lambda: stamp)
        ledger.append("plan", **plan.stored)
    return plan


def test_the_former_card_is_filed_as_it_was(tmp_path: Path) -> None:
    """Its revision and digest by the rule of then: safetensors, and what the card held."""
    folder = write_checkpoint(tmp_path / "m")
    card = admit(local_card(folder)).card
    before = former_card(card)
    weights = card.weights_sha256
    assert before.revision == digest(weights)[:40] != card.revision
    assert before.frame == "auto" and card.frame == "plain"
    assert before.digest != card.digest and not before.side_sha256
    assert as_filed(card, before.digest) == before and as_filed(card, card.digest) is card
    assert as_filed(card, "0" * 64) is card


def test_they_go_on_where_nothing_is_newer(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    card = admit(local_card(folder)).card
    plan = declared(former_card(card), tmp_path / "out")
    found = former_runs(card, plan.folder.parents[1], "ppo")
    assert found is not None and found.changed == "" and found.folder == plan.folder
    (folder / "README.md").write_text("newer")
    os.utime(folder / "README.md", (2e9, 2e9))
    assert former_runs(card, plan.folder.parents[1], "ppo").changed == ""


@pytest.mark.parametrize("how", ["written", "older, and moved here"])
def test_a_newer_file_keeps_them_apart(how: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    plan = declared(former_card(admit(local_card(folder)).card), tmp_path / "out", later=-3.0)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"x": 1}))
    if how != "written":
        for one in folder.iterdir():
            os.utime(one, (1e9, 1e9))
    card = admit(local_card(folder)).card
    found = former_runs(card, plan.folder.parents[1], "ppo")
    assert found is not None and found.changed.endswith("is newer than they are")


def test_other_weights_have_no_former_runs(tmp_path: Path) -> None:
    one = write_checkpoint(tmp_path / "m")
    plan = declared(former_card(admit(local_card(one)).card), tmp_path / "out")
    other = write_checkpoint(tmp_path / "n" / "m", "qwen2")
    assert former_runs(admit(local_card(other)).card, plan.folder.parents[1], "ppo") is None


def test_thinking_that_was_on_was_another_model(tmp_path: Path) -> None:
    template = "{% if enable_thinking %}<think>{% endif %}" + CHAT_TEMPLATE
    card = admit(local_card(write_checkpoint(tmp_path / "m", "qwen2", template))).card
    plan = declared(former_card(card), tmp_path / "out")
    found = former_runs(card, plan.folder.parents[1], "ppo")
    assert found.changed == "thinking is off by default now"


def test_an_entry_without_the_table_refuses_newer_files(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "models" / "m")
    total = 18_496
    body = ENTRY | {"added": date(2026, 1, 1), "source": {"path": "m"}}
    body |= {"weights_sha256": local_card(folder).weights_sha256, "params_total": total}
    (tmp_path / "models" / "wrong.toml").write_text(dump_toml(body | {"params_active": total}))
    catalog = Catalog([tmp_path])
    card = catalog.load_model("wrong")
    board = declared(card, tmp_path / "out", later=5.0).folder.parents[1]
    check_entry_unchanged(card, board)
    os.utime(folder / "tokenizer.json", (4e9, 4e9))
    with pytest.raises(ValidationError, match=r"are older than tokenizer.json, .*side_sha256"):
        check_entry_unchanged(card, board)
    stated = card.model_copy(update={"side_sha256": side_digests(folder)})
    assert (stated.digest, stated.revision) == (card.digest, card.revision)
    check_entry_unchanged(stated, board)  # runs go on with the table that validate prints
    # Runs of another recipe share the start scores; discarded ones hold nobody back.
    (board / f"wrong@{card.revision[:8]}" / "ppo").rename(board / card.slug)
    (board / card.slug).rename(board / f"wrong@{card.revision[:8]}" / "grpo")
    with pytest.raises(ValidationError, match=r"grpo holds runs"):
        check_entry_unchanged(card, board)
    ledger = Ledger(board / f"wrong@{card.revision[:8]}" / "grpo" / "ledger.jsonl")
    ledger.append("start", "wrong/grpo/addition/real/seed-00", plan_hash="0" * 64, attempt=1)
    ledger.append("discarded", "wrong/grpo/addition/real/seed-00")
    check_entry_unchanged(card, board)


def test_runs_of_a_hub_model_whose_loose_file_was_changed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshots = tmp_path / "hub" / "models--org--little" / "snapshots"
    folder = write_checkpoint(snapshots / ("1" * 40))
    place = Location(str(folder))
    one = settle(Checkpoint(hub_card("org/little@" + "1" * 40), place))
    board = declared(one, tmp_path / "out", later=-3.0).folder.parents[1]
    check_entry_unchanged(one, board)
    (folder / "tokenizer_config.json").write_text("{}")
    other = one.model_copy(update={"side_sha256": side_digests(folder)})
    with pytest.raises(ValidationError, match=r"older than .*no link to a blob of the hub"):
        check_entry_unchanged(other, board)


def test_start_scores_are_kept_by_all_that_they_depend_on() -> None:
    one = Contender("m", "m", "0" * 8, "a" * 64)
    other = Contender("m", "m", "0" * 8, "b" * 64)
    assert start_key(one, "cpu") == start_key(one, "cpu")
    assert len({start_key(one, "cpu"), start_key(other, "cpu"), start_key(one, "cuda")}) == 3
