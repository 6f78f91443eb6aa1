"""``crlbench doctor``: what it finds, how it says it, and what ``evaluate`` refuses in time."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from crlbench import cli
from crlbench.catalog import checkpoint
from crlbench.catalog.find import Catalog
from crlbench.disk.toml import dump_toml
from crlbench.doctor import machine
from crlbench.doctor.machine import ask_hub, clock, disk, switches, versions
from crlbench.doctor.model import extras, weights
from crlbench.run.board import load_track

HUB_ENTRY = {
    "schema": 1,
    "slug": "large",
    "display_name": "a decoder of 8B",
    "family": "llama",
    "kind": "base",
    "frame": "plain",
    "source": {"hf_id": "org/large", "revision": "0" * 40},
    "params_total": 8_030_261_248,
    "params_active": 8_030_261_248,
    "context": 8192,
    "dtype": "bfloat16",
    "licence": "none",
    "licence_url": "https://example.org/licence",
    "known_training_data": "none",
    "contamination_note": "none",
    "contact": "none",
    "added": "2026-01-01",
    "config": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
    },
}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A catalogue with a model that nobody has, and that few machines could train in full."""
    (tmp_path / "catalog/models").mkdir(parents=True)
    (tmp_path / "catalog/models/large.toml").write_text(dump_toml(HUB_ENTRY))
    return tmp_path / "catalog"


@pytest.fixture
def few_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crlbench.launch.capacity.available_memory", lambda: 20 * 10**9)


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main([*arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# -- the command ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_bundled_model_is_fit_everywhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runs = str(tmp_path / "runs")
    code, text, _ = called(
        capsys, "doctor", "--model", "tiny-llama", "--offline", "--out", runs, "--json"
    )
    found = json.loads(text)
    assert code == 0 and found["fit"]
    topics = {finding["topic"] for finding in found["findings"]}
    assert topics >= {
        *("processor", "memory", "gpu", "versions", "determinism", "disk", "hub", "clock"),
        *("sandbox", "tasks", "entry", "weights", "architecture", "context"),
    }
    said = {finding["topic"]: finding["text"] for finding in found["findings"]}
    assert "switched off" in said["hub"] and "1,009,536 parameters" in said["architecture"]
    own = [row for row in found["memory"] if row["own"]]
    assert [row["form"] for row in own] == ["full fp32"] and len(found["memory"]) == 6
    assert own[0]["peak_bytes"] == max(own[0]["moments_bytes"].values())
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_model_that_is_neither_here_nor_fits(
    capsys: pytest.CaptureFixture[str], large: Path, few_gigabytes: None, tmp_path: Path
) -> None:
    code, text, _ = called(
        capsys,
        *("doctor", "--model", "large", "--catalog", str(large), "--offline", "--quiet"),
        *("--out", str(tmp_path / "runs")),
    )
    assert code == 6
    assert "hf download org/large --revision " + "0" * 40 in text
    assert "full fp32 needs about" in text and "QLoRA nf4 would need" in text
    (own,) = [line for line in text.splitlines() if line.startswith("*")]
    assert own.endswith("does not fit")
    assert "ok       " not in text  # --quiet leaves out what is fine


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_problem_and_no_crash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text, said = called(
        capsys, "doctor", "--model", "tiny-llama", "--device", "cuda", "--offline"
    )
    assert code == 6 and "problem  gpu" in text and "unknown" in text
    assert "internal error" not in said


@pytest.mark.slow
@pytest.mark.full
def test_conditions_may_be_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """Another precision is another form, and more completions take more memory."""
    asked = ("doctor", "--model", "tiny-llama", "--offline", "--json")
    forms = []
    for more in ((), ("--set", "hardware.precision=bf16"), ("--set", "budget.completions=512")):
        own = next(m for m in json.loads(called(capsys, *asked, *more)[1])["memory"] if m["own"])
        forms.append((own["form"], own["parts_bytes"]["decoding"]))
    assert [form for form, _ in forms] == ["full fp32", "full bf16-mixed", "full fp32"]
    assert forms[2][1] > forms[0][1]
    assert called(capsys, *asked, "--set", "budget.completion=9")[0] == 2


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, name, near in (
        ("--model", "tiny-lama", "tiny-llama"),
        ("--track", "mimi", "mini"),
        ("--recipe", "ppp", "ppo"),
        ("--device", "gpu", "cpu"),
    ):
        code, _, said = called(capsys, "doctor", "--offline", flag, name)
        assert code == 2 and near in said


# -- what evaluate refuses -----------------------------------------------------------------


def evaluating(large: Path, runs: Path, *more: str) -> list[str]:
    return [
        *("evaluate", "--model", "large", "--catalog", str(large), "--offline"),
        *("--out", str(runs), "--tasks", "addition", "--seeds", "1", *more),
    ]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_too_large_a_model_is_refused_before_it_is_loaded(
    capsys: pytest.CaptureFixture[str],
    large: Path,
    few_gigabytes: None,
    tmp_path: Path,
    more: tuple[str, ...],
) -> None:
    code, _, said = called(capsys, *evaluating(large, tmp_path / "runs", *more))
    assert code == 6
    assert "model 'large': a cell (full fp32) needs about" in said
    assert "20.0 GB are available; QLoRA nf4 would need" in said
    assert not (tmp_path / "runs").exists()


def test_a_person_may_insist(
    capsys: pytest.CaptureFixture[str], large: Path, few_gigabytes: None, tmp_path: Path
) -> None:
    """What stops it then is something else: no weights, or a disk too small for them."""
    code, _, said = called(capsys, *evaluating(large, tmp_path / "runs", "--ignore-memory"))
    assert code == 6
    assert "a cell (full fp32) needs" not in said


# -- findings ------------------------------------------------------------------------------


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """An address that answers every request so, or never."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(4096)
                if answer is None:
                    done.wait(20)
                else:
                    connection.sendall(answer)

        done = threading.Event()
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            done.set()


def test_the_hub_is_asked_for_a_short_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask_hub(offline=True).state == "off"
    with server(None) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        begun = time.monotonic()
        found = ask_hub(offline=False, seconds=0.3)
        assert found.state == "silent" and found.finding.level == "warning"
        assert time.monotonic() - begun < 2.0


def test_a_hub_that_refuses_still_answers_and_tells_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    late = b"HTTP/1.1 403 No\r\nDate: Wed, 21 Oct 2026 07:28:00 GMT\r\nContent-Length: 0\r\n\r\n"
    with server(late) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        found = ask_hub(offline=False)
    assert found.state == "answers" and found.finding.level == "ok"
    monkeypatch.setattr(machine.time, "time", lambda: 1_792_567_680.0)
    assert found.date == 1_792_567_680.0
    assert "from the hub" not in clock(found, tmp_path).text
    monkeypatch.setattr(machine.time, "time", lambda: 1_792_567_680.0 + 3600)
    wrong = clock(found, tmp_path)
    assert wrong.level == "warning" and "3600 s from the hub's" in wrong.text
    monkeypatch.setattr(machine.time, "time", lambda: 1.0)
    assert clock(found, tmp_path).level == "problem"


def test_versions_outside_the_ranges_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    track = load_track(Catalog(), "mini")
    found = list(versions(track.model_copy(update={"packages": {"torch": ">=99"}})))
    assert found[0].level == "warning" and found[0].fix == "pip install 'torch>=99'"
    (absent, _) = versions(track.model_copy(update={"packages": {"no-such": ">=1"}}))
    assert absent.level == "problem"


def test_what_changes_arithmetic_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = load_track(Catalog(), "mini").conditions
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    found = [f for f in switches(conditions) if f.level == "warning"]
    assert [f.fix for f in found] == ["unset ONEDNN_DEFAULT_FPMATH_MODE"]


def test_a_folder_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    good, bad = disk(tmp_path / "home", tmp_path / "file")
    assert good.level in ("ok", "warning") and bad.level == "problem"
    assert not (tmp_path / "home").exists()


def test_the_hub_cache_is_looked_into(monkeypatch: pytest.MonkeyPatch, large: Path) -> None:
    card = Catalog([large]).load_model("large")
    monkeypatch.setenv("HF_HUB_CACHE", str(large / "hub"))
    assert checkpoint.hub_folder(card) is None
    snapshot = large / "hub/models--org--large/snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    assert checkpoint.hub_folder(card) is None
    (snapshot / "model.safetensors").write_bytes(b"")
    assert checkpoint.hub_folder(card) == snapshot
    assert weights(card, large, ask_hub(offline=True))[0]


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Catalog().load_model("smollm2-135m-instruct")
    card = card.model_copy(update={"quantisation": "nf4"})
    assert [f.level for f in extras(card, False)] == ["ok", "ok"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = list(extras(card, False))
    assert [f.fix for f in found] == ["pip install bitsandbytes", "pip install 'crlbench[gguf]'"]
    assert [f.fix for f in extras(card, True)] == ["pip install bitsandbytes"]
