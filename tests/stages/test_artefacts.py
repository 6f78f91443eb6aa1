"""The store of products: found by what made them, whole or absent, made once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.contract.ledger import Totals
from crlbench.errors import Interrupted, ValidationError
from crlbench.run.store import claimed
from crlbench.stages.artefacts import Made, Store, read_product
from crlbench.stages.orders import Order
from crlbench.train.charging import Meter

ORDER = Order("collect", {"per_prompt": 8, "pairing": "best-worst"}, {"policy": "a" * 64}, 5)


def make(folder: Path, work: Path) -> Made:
    (folder / "pairs.jsonl").write_text("one\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("two\n")
    return Made(Meter({}, totals=Totals(labels=32)).ledger(), {"pairs": 1})


def refuse(folder: Path, work: Path) -> Made:
    raise AssertionError("it was made before")


def test_a_product_is_made_once_and_found_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.find(ORDER) is None
    product = store.take(ORDER, make)
    assert product.folder == tmp_path / f"collect-{ORDER.key[:12]}"
    assert product.card.charges == {"labels": 32} and product.card.facts == {"pairs": 1}
    assert product.card.ledger is not None and product.card.ledger.total.labels == 32
    assert sorted(product.card.files) == ["deep/file", "pairs.jsonl"]
    assert store.take(ORDER, refuse) == product
    assert sorted(path.name for path in tmp_path.iterdir()) == [product.folder.name]


@pytest.mark.parametrize(
    "other",
    [
        replace(ORDER, kind="reward"),
        replace(ORDER, spec={"per_prompt": 4, "pairing": "best-worst"}),
        replace(ORDER, inputs={"policy": "b" * 64}),
        replace(ORDER, inputs={"start": "a" * 64}),
        replace(ORDER, seed=6),
    ],
)
def test_whatever_determines_a_product_is_in_its_key(other: Order) -> None:
    assert other.key != ORDER.key


def test_the_order_of_a_specification_is_not_in_its_key() -> None:
    turned = replace(ORDER, spec=dict(reversed([*ORDER.spec.items()])))
    assert turned.key == ORDER.key


def test_equal_files_have_one_digest_whatever_made_them(tmp_path: Path) -> None:
    first = Store(tmp_path / "a").take(ORDER, make)
    second = Store(tmp_path / "b").take(replace(ORDER, seed=6), make)
    assert first.sha256 == second.sha256
    card = first.folder / "product.json"
    data = json.loads(card.read_text())
    card.write_text(json.dumps(data | {"source_tree_sha256": "0" * 64}))
    found = Store(tmp_path / "a").find(ORDER)
    assert found is not None and found.sha256 == first.sha256


def test_what_was_changed_or_lost_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    product = store.take(ORDER, make)
    (product.folder / "pairs.jsonl").write_text("three\n")
    with pytest.raises(ValidationError, match=r"pairs\.jsonl.*repeat the command"):
        store.take(ORDER, refuse)
    (product.folder / "pairs.jsonl").unlink()
    with pytest.raises(ValidationError, match=r"pairs\.jsonl"):
        store.find(ORDER)
    (product.folder / "product.json").unlink()
    with pytest.raises(ValidationError, match=r"product\.json.*missing"):
        store.find(ORDER)


@pytest.mark.parametrize(
    ("other", "leaf"),
    [
        (replace(ORDER, seed=6), "seed is 6, and 5 is asked for"),
        (replace(ORDER, inputs={"policy": "b" * 64}), "inputs.policy is 'bbb.*, and 'aaa"),
        (replace(ORDER, spec={"per_prompt": 4, "pairing": "best-worst"}),
         "spec.per_prompt is 4, and 8 is asked for"),
        (replace(ORDER, kind="reward"), "kind is 'reward', and 'collect' is asked for"),
        (replace(ORDER, spec={**ORDER.spec, "permute": True}),
         "spec.permute is True, and None is asked for"),
    ],
)  # fmt: skip
def test_a_swapped_product_is_refused_by_the_field_that_differs(
    tmp_path: Path, other: Order, leaf: str
) -> None:
    store = Store(tmp_path)
    store.take(other, make).folder.rename(tmp_path / ORDER.name)
    with pytest.raises(ValidationError, match=rf"product\.json .*another product: {leaf}"):
        store.find(ORDER)


def test_a_card_that_states_another_key_than_its_own_is_refused(tmp_path: Path) -> None:
    product = Store(tmp_path).take(replace(ORDER, seed=6), make)
    card = product.folder / "product.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"key": ORDER.key}))
    product.folder.rename(tmp_path / ORDER.name)
    with pytest.raises(ValidationError, match=f"field key: it is {ORDER.key}, and kind, spec"):
        Store(tmp_path).find(ORDER)


def test_files_that_are_cut_changed_lost_or_more_are_named(tmp_path: Path) -> None:
    folder = Store(tmp_path).take(ORDER, make).folder
    path = folder / "deep" / "file"
    whole = path.read_bytes()
    for data in (whole[:2], whole + b"x", b""):
        path.write_bytes(data)
        with pytest.raises(ValidationError, match=r"deep/file .*files\.deep/file\.sha256 of prod"):
            read_product(folder)
    path.unlink()
    with pytest.raises(ValidationError, match="deep/file .*missing, and product.json names it"):
        read_product(folder)
    path.write_bytes(whole)
    (folder / "more").write_bytes(b"")
    with pytest.raises(ValidationError, match="more .*product.json names no such file"):
        read_product(folder)
    (folder / "more").rename(folder / ".hidden")
    assert read_product(folder).card.key == ORDER.key
    card = folder / "product.json"
    text = card.read_text()
    for data in (text[:-9].encode(), b"", b"[]", text.replace('"seed"', '"sede"').encode()):
        card.write_bytes(data)
        with pytest.raises(ValidationError, match=r"product\.json"):
            read_product(folder)


def test_a_stage_that_raises_leaves_no_product_and_keeps_its_work(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def die(folder: Path, work: Path) -> Made:
        (folder / "half").write_text("x")
        (work / "last.ckpt").write_text("progress")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        store.take(ORDER, die)
    assert store.find(ORDER) is None

    def go_on(folder: Path, work: Path) -> Made:
        assert (work / "last.ckpt").read_text() == "progress"
        assert not list(folder.iterdir())
        return make(folder, work)

    assert sorted(store.take(ORDER, go_on).card.files) == ["deep/file", "pairs.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == [ORDER.name]


def _slowly(folder: Path, work: Path) -> Made:
    time.sleep(60)
    return Made(Meter({}).ledger(), {})


def _hold(store: Store) -> None:
    store.take(ORDER, _slowly)


def test_a_process_that_is_killed_frees_its_claim(tmp_path: Path) -> None:
    store = Store(tmp_path)
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(store,))
    process.start()
    assert process.pid is not None
    while not (tmp_path / f".{ORDER.name}.new").is_dir():
        time.sleep(0.02)
    with pytest.raises(Interrupted, match="another process"):
        store.take(ORDER, refuse, lambda: True)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert store.take(ORDER, make).card.facts == {"pairs": 1}


def test_who_waits_takes_what_the_other_made(tmp_path: Path) -> None:
    store, taken, waiting = Store(tmp_path), [], threading.Event()

    def keep_waiting() -> bool:
        waiting.set()
        return False

    waiter = threading.Thread(target=lambda: taken.append(store.take(ORDER, refuse, keep_waiting)))
    with claimed(tmp_path / ORDER.name) as alone:
        assert alone
        waiter.start()
        assert waiting.wait(30)
        store._make(ORDER, make)
    waiter.join(30)
    assert taken == [store.find(ORDER)]
