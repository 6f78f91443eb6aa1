"""What is typed: whole command lines, names, ``--set``, ``--flip``."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.commands.stored_entries import find_entry
from crlbench.contract.conditions import Track, override
from crlbench.disk.toml import read_toml
from crlbench.errors import INTERNAL, CrlbenchError
from tests.fuzz import corpus
from tests.fuzz.mutate import WORDS, octets
from tests.fuzz.target import Target, put

LINES = (
    "list models --json",
    "list models --family llama --kind base",
    "list tasks",
    "list tracks",
    "list recipes --catalog cat",
    "list runs --out runs",
    "show model qwen3-0.6b",
    "show model org/name@0123456789012345678901234567890123456789",
    "show task addition --prompts 2",
    "show recipe grpo+clip.high=0.28",
    "show recipe wide --catalog cat --json",
    "show track mini",
    "fingerprint --track mini --set optimization.epochs=2 --tasks addition",
    "fingerprint runs --diff mini",
    "report runs --out page.html",
    "compare ppo grpo --runs runs",
    "evaluate --model tiny-llama --config c.toml --dry-run --jobs 2 --shard 1/4",
    "ablate --study s.toml --dry-run",
    "validate nowhere --kind task",
    "export runs --to out/model",
    "fetch tiny-llama --from in --offline",
    "freeze --from reasoning_gym:chain_sum --report --levels {}",
    "doctor --offline",
    "fit-reward --pairs judged",
)
SAFE = ("list", "show", "fingerprint", "report", "compare", "export", "fetch", "freeze", "validate")
"""Commands that read; others go no further than their flags here."""


def _line(data: bytes, place: Path) -> None:
    """A command line: the documented exit codes, and one message without a traceback."""
    put(place, "cat/recipes/wide.toml", corpus.RECIPES["wide.toml"].encode())
    put(place, "c.toml", b"seeds = 2\n")
    put(place, "s.toml", b'title = "t"\n')
    (place / "in").mkdir()
    arguments = [text for text in json.loads(data) if isinstance(text, str)]
    said = StringIO()
    with redirect_stderr(said), redirect_stdout(StringIO()):
        if arguments and arguments[0] in SAFE and not _starts_programs(arguments):
            code = cli.main(arguments)
        else:
            code = bool(cli.parse(arguments)) - 1
    if code == INTERNAL:
        raise AssertionError(said.getvalue())


def _starts_programs(arguments: list[str]) -> bool:
    """Whether the gauntlet would run the code of a task that is there, which is its work."""
    return arguments[0] == "validate" and not {*Catalog().list("task")}.isdisjoint(arguments)


def _lines(_: Path) -> list[bytes]:
    return [json.dumps(line.split()).encode() for line in LINES]


def _typed(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    words = json.loads(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 3))):
        i = rng.randrange(len(words) + 1)
        match rng.randrange(6):
            case 0:
                words[i : i + 1] = [rng.choice(WORDS)]
            case 1:
                words[i:i] = [rng.choice((*WORDS, *json.loads(rng.choice(seeds))))]
            case 2:
                del words[i : i + 1]
            case 3 if i < len(words):
                words[i] = octets(rng, [words[i].encode()]).decode("utf-8", "surrogateescape")
            case 4 if i < len(words):
                words[i] += rng.choice(WORDS)
            case _ if i < len(words):
                words[i] = words[i] + "=" + rng.choice(WORDS)
    return json.dumps([w for w in words if w not in ("-h", "--help", "--version")]).encode()


@cache
def _track() -> Track:
    return Track.model_validate(read_toml(corpus.ROOT / "leaderboard/tracks/mini.toml"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _set(data: bytes, place: Path) -> None:
    from crlbench.commands.settings import assignments

    override(_track().conditions, assignments(_text(data).split("\n")))


def _flip(data: bytes, place: Path) -> None:
    from crlbench.algo import recipes

    recipes.load(_text(data))


def _name(data: bytes, place: Path) -> None:
    """A model's name, and the name of a stored entry."""
    put(place, "runs/b/m@1/ppo/record.json", b"{}")
    try:
        Catalog().load_model(_text(data))
    except CrlbenchError:
        pass
    find_entry(_text(data), place / "runs")


SETS = (
    b"optimization.epochs=2",
    b"data.levels=[1, 2]",
    b"sampling.temperature=0.5\nrules.kl_cap=1",
)
FLIPS = (
    *(b"grpo+clip.high=0.28", b"grpo+aggregate=token-mean", b"grpo+kl=none"),
    *(b"ppo+clip=ppo-clip:low=0.1,high=0.3", b"ppo+entropy_bonus=0.01"),
    b"grpo+kl.coefficient=adaptive:initial=0.04,target=1,horizon=10000",
)
NAMES = (b"tiny-llama", b"m@1/ppo", b"org/name@" + b"0123456789" * 4, b"b/m", b"./x.gguf")

TARGETS = (
    Target(
        "command-line", _lines, _line, _typed, 0.6, (CrlbenchError, SystemExit), 2.0, typed=True
    ),
    Target("set", lambda _: list(SETS), _set, octets, 8),
    Target("recipe-name", lambda _: list(FLIPS), _flip, octets, 6),
    Target("names", lambda _: [b"m@1/ppo"], _name, octets, 4, typed=True),
)
