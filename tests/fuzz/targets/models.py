"""What comes with a model: configs, tokenizers, weights, chat templates, files to convert."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from crlbench.catalog.checkpoint import local_card
from tests.fuzz import corpus
from tests.fuzz.mutate import WORDS, either, json_text, json_tree, octets, toml_tree, tree
from tests.fuzz.target import Target, bundled, put, unbundled

SHOWN = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]


def _checkpoint(folder: Path) -> None:
    from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint

    write_checkpoint(folder, chat_template=CHAT_TEMPLATE)


def _files(seeds: Path) -> list[bytes]:
    folder = corpus.part(seeds, "checkpoint", _checkpoint)
    return [bundled({path.name: path.read_bytes() for path in sorted(folder.iterdir())})]


def _written(data: bytes, place: Path) -> Path:
    for name, content in unbundled(data).items():
        put(place / "model", name, content)
    return place / "model"


def _changed(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    files = unbundled(seeds[0])
    name = rng.choice(("config.json", *sorted(files)))
    maker = weights if name.endswith(".safetensors") else either(octets, json_tree(), json_tree())
    if name.endswith(".jinja"):
        maker = template
    files[name] = maker(rng, [files[name]])
    return bundled(files)


def weights(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Safetensors: its header's tree changed, or its bytes."""
    if rng.random() < 0.4:
        return octets(rng, seeds)
    data = seeds[0]
    (size,) = struct.unpack("<Q", data[:8])
    header = json_text(tree(rng, json.loads(data[8 : 8 + size]))).encode()
    stated = rng.choice((len(header),) * 6 + (0, 2**63, len(data), len(header) - 1))
    return struct.pack("<Q", stated % 2**64) + header + data[8 + size :]


def _card_seeds(seeds: Path) -> list[bytes]:
    files = unbundled(_files(seeds)[0])
    index = {"metadata": {}, "weight_map": {"a": "model.safetensors"}}
    kept = {"config.json": files["config.json"], "model.safetensors": b"x"}
    return [bundled(kept | {"model.safetensors.index.json": json.dumps(index).encode()})]


def _card_changed(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    files = unbundled(seeds[0])
    name = rng.choice(sorted(files))
    maker = octets if name.endswith(".safetensors") else either(octets, json_tree())
    files[name] = maker(rng, [files[name]])
    return bundled(files)


def _card(data: bytes, place: Path) -> None:
    card = local_card(_written(data, place))
    assert card.digest and card.revision


def _loaded(data: bytes, place: Path) -> None:
    """Everything up to weights in memory, as a run begins."""
    from crlbench.policy.text.chat import render
    from crlbench.policy.weights.load import Location, load_backbone, load_reader

    folder = _written(data, place)
    card = local_card(folder)
    location = Location(str(folder))
    reader = load_reader(card, location)
    render(SHOWN, reader.frame, reader.tokenizer, reader.thinking)
    load_backbone(card, location)


def _weights(data: bytes, place: Path) -> None:
    from crlbench.policy.weights.load import Location, check_weights

    put(place, "model.safetensors", data)
    check_weights(_no_card(), Location(str(place)))


@cache
def _no_card() -> Any:
    from crlbench.catalog.find import Catalog

    card = Catalog().load_model("tiny-llama")
    return card.model_copy(update={"weights_sha256": {}})


def _weight_seeds(seeds: Path) -> list[bytes]:
    return [unbundled(_files(seeds)[0])["model.safetensors"]]


@cache
def _tokenizer() -> Any:
    from tests.support.checkpoints import ascii_tokenizer

    return ascii_tokenizer("x")


def _template(data: bytes, place: Path) -> None:
    from crlbench.policy.text.chat import end_tokens, render

    tokenizer = _tokenizer()
    tokenizer.chat_template = data.decode("utf-8", "replace")
    end_tokens(tokenizer, (), "chat")
    render(SHOWN, "chat", tokenizer)


def _templates(_: Path) -> list[bytes]:
    from tests.support.checkpoints import CHAT_TEMPLATE

    return [CHAT_TEMPLATE.encode(), LONG_TEMPLATE]


LONG_TEMPLATE = b"""{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{%- set ns.system = message['content'] -%}{%- endif -%}
{%- endfor -%}
{{- bos_token }}{{ ns.system | trim }}
{%- for message in messages -%}
{%- if message['role'] != 'system' -%}
{{- '<' + message['role'] + '>' + message['content'] | string + '\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<assistant>' -}}{%- endif -%}
"""
HOSTILE = (
    b"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    b"{{ 'a' * 10000000000 }}",
    b"{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}"
    b"{% endfor %}",
    b"{{ 9 ** 99999999 }}",
    b"{{ ''.__class__.__mro__[1].__subclasses__() }}",
    b"{{ messages.__class__ }}{{ cycler.__init__.__globals__ }}{{ lipsum.__globals__['os'] }}",
    b"{% include '/etc/passwd' %}{% import 'os' as os %}",
    b"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    b"{{ '%999999999d' % 1 }}{{ '{:>999999999}'.format(1) }}",
    b"{{ messages | tojson(indent=999999999) }}{{ 'a' | center(9999999999) }}",
    b"{{ raise_exception('no') }}",
    b"{{" + b"(" * 3000,
    b"{{ 'a'" + b"|upper" * 3000 + b" }}",
    b"{% if x %}" * 500,
    b"{{ [1] * 100000000 }}",
    b"{{ range(99999) | batch(1) | list | length }}",
    b"{{ messages.append(1) }}{{ messages.clear() }}",
)


def template(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A template with hostile pieces in it, or changed bytes."""
    data = octets(rng, seeds) if rng.random() < 0.5 else rng.choice(seeds)
    if rng.random() < 0.3:
        at = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
        data = data[:at] + rng.choice(HOSTILE) + data[at:]
    if rng.random() < 0.2:
        data += b"{{ " + rng.choice(WORDS).encode()[:200] + b" }}"
    return data


def _gguf(folder: Path) -> None:
    from tests.catalog.test_fetch import write_gguf

    write_gguf(folder / "little.gguf")


def _gguf_seeds(seeds: Path) -> list[bytes]:
    return [(corpus.part(seeds, "gguf", _gguf) / "little.gguf").read_bytes()]


def _gguf_kind(data: bytes, place: Path) -> None:
    from crlbench.policy.weights.convert import _tokenizer_kind

    _tokenizer_kind(put(place, "little.gguf", data))


def _converted(data: bytes, place: Path) -> None:
    from crlbench.policy.weights.convert import convert

    convert(put(place, "little.gguf", data), place / "out", "float32", chat=True)


def _early(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Changed near its beginning, where the tables of a binary format stand."""
    data = rng.choice(seeds)
    end = rng.choice((64, 512, 4096))
    return octets(rng, [data[:end]]) + data[end:]


def llama2c() -> bytes:
    """A model of llama2.c with one layer and 259 tokens."""
    dim, feed, vocabulary, context = 4, 8, 259, 8
    count = vocabulary * dim + (2 * dim + 4 * dim * dim + 3 * dim * feed) + dim + context * dim
    data = struct.pack("<7i", dim, feed, 1, 1, 1, vocabulary, context) + bytes(4 * count)
    pieces = (bytes([256 // (i + 1)]) if i == 3 else b"p%d" % i for i in range(vocabulary))
    return data + struct.pack("<i", 4) + b"".join(
        struct.pack("<fi", 0.0, len(piece)) + piece for piece in pieces
    )


def _llama2c(data: bytes, place: Path) -> None:
    from crlbench.policy.weights.llama2c import read_llama2c

    read_llama2c(put(place, "m.bin", data))


def _reward_card(data: bytes, place: Path) -> None:
    from crlbench.policy.weights.reward_model import read_card

    put(place, "reward.toml", data)
    read_card(place)


TORCH = ("crlbench.policy.weights.load", "tests.support.checkpoints")
GGUF = (*TORCH, "crlbench.policy.weights.convert", "tests.catalog.test_fetch")

TARGETS = (
    Target("checkpoint-card", _card_seeds, _card, _card_changed, 4, imports=TORCH),
    Target("checkpoint", _files, _loaded, _changed, 0.4, seconds=5.0, imports=TORCH),
    Target("safetensors", _weight_seeds, _weights, weights, 6, imports=TORCH),
    Target("chat-template", _templates, _template, either(octets, template), 2, imports=TORCH),
    Target("gguf", _gguf_seeds, _gguf_kind, either(octets, _early), 1, imports=GGUF),
    Target(
        "gguf-conversion",
        _gguf_seeds,
        _converted,
        either(octets, _early),
        0.05,
        seconds=5.0,
        imports=GGUF,
    ),
    Target(
        "llama2c", lambda _: [llama2c()], _llama2c, either(octets, _early), 1, imports=GGUF
    ),
    Target(
        "reward-card",
        lambda _: corpus.texts("tasks/judged/reward_model/reward.toml"),
        _reward_card,
        either(octets, toml_tree),
        2,
        imports=TORCH,
    ),
)
