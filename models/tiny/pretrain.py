"""Make a bundled model: ``python models/tiny/pretrain.py --model tiny-llama``.

There are two generations. Models of one read the same documents under the same schedule.
``tiny-*`` are one pretraining each; ``tiny-llama-sft`` continues tiny-llama on the training splits
of the ranked tasks. ``tiny2-*`` read a corpus without wrong answers, are taken at an early moment
of their schedule, and come in several pretrainings of a design: ``--init I --order O`` is
initialisation I on corpus order O. Those of one order read the same documents.
``tiny-*-play`` continue models of the second generation on documents of which most are episodes
(:mod:`episodes`).

The command writes the model's folder (weights, config, tokenizer, model card) and its entry
``models/<name>.toml``. Weights that do not come along are compared with the digest of their entry.
A further pretraining of a design goes into a folder inside it; its digest is compared with that of
the entry, or joins it. With the same library versions, threads and
processor kind, the weights come out bit for bit.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import card
import corpus
import episodes
import tokenizer
import torch
from architectures import ARCHITECTURES, EQUAL, FIRST, parameter_counts
from play_scoring import PlayScore, play_score
from scoring import Score, read_split, score
from training import Row, Schedule, train
from transformers import AutoModelForCausalLM, __version__
from transformers.utils import logging

from crlbench import seeding
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.model_card import read_model_card

SEED = 0
HERE = Path(__file__).resolve().parent
SFT = "tiny-llama-sft"
MODELS = (*FIRST, SFT)
"""The first generation."""
OWN_RATE = ("tiny2-llama-1m", "tiny2-gemma-1m")
"""Models of 1M at the rate of their size. Those of ``mini`` have the rate of all designs."""
SECOND = (*(name.replace("tiny-", "tiny2-", 1) for name in ARCHITECTURES), *OWN_RATE)
"""The second."""
PLAY = ("tiny-llama-play", "tiny-qwen2-play", "tiny-mistral-play", "tiny-granite-hybrid-play")
"""Models that have read episodes."""
BUNDLED = (
    *MODELS,
    *(name.replace("tiny-", "tiny2-", 1) for name in EQUAL),
    *PLAY,
)
"""Models whose weights come along."""
MOMENT = 2000
"""Updates after which models of the second generation are taken: docs/pilot.md."""
PRETRAINING = Schedule(
    updates=3000,
    batch=32,
    learning_rate=1e-3,
    warmup=200,
    final=0.1,
    prompt_weight=0.02,
    weight_decay=0.1,
    betas=(0.9, 0.98),
    max_grad_norm=1.0,
    pool=8,
)
RATES = {
    "tiny2-llama-0.3m": 1e-3,
    "tiny2-gemma-0.3m": 1e-3,
    "tiny2-llama-1m": 5e-4,
    "tiny2-gemma-1m": 5e-4,
    "tiny2-llama-3m": 5e-4,
    "tiny2-gemma-3m": 5e-4,
}
"""Peak learning rates of sizes whose own was chosen, by the rule of :mod:`rates`."""
PLAYING = replace(PRETRAINING, updates=800, warmup=50)
PLAY_MOMENT = 300
"""Updates of it after which models that read episodes are taken: docs/pilot.md."""
PLAY_CONTEXT = 5120
"""Context of the models that have read episodes: the longest episode that the limits of ``shop``
allow fits into it. Documents have at most 256 tokens."""
FINE_TUNING = Schedule(
    updates=24,
    batch=32,
    learning_rate=3e-5,
    warmup=10,
    final=0.1,
    prompt_weight=0.0,
    weight_decay=0.0,
    betas=(0.9, 0.98),
    max_grad_norm=1.0,
    pool=8,
)
PLAYED_TASKS = ("guess", "relay-sum", "lookup", "calc")
"""Environments of the model card."""
PLAY_SPLITS = {"id": (96, 4), "hard": (32, 4), "format": (30, 4)}
"""Split -> (starts, episodes of each) of the model card."""
PLAY_MIX = episodes.PlayMix()
SPLITS = {"id": (512, 8), "hard": (256, 8), "format": (320, 8)}
"""Split -> (prompts, samples a prompt) of the model card."""


def architecture_of(name: str) -> str:
    """The architecture of a model."""
    for ending in ("-sft", "-play", "-1m"):
        name = name.removesuffix(ending)
    return name.replace("tiny2-", "tiny-", 1)


def mix_of(name: str) -> corpus.Mix:
    """The documents of single turns that a model has read."""
    return corpus.SECOND if name in (*SECOND, *PLAY) else corpus.Mix()


def start_of(name: str) -> str | None:
    """The model that another one continues; None for a pretraining of its own."""
    if name == SFT:
        return "tiny-llama"
    return architecture_of(name).replace("tiny-", "tiny2-", 1) if name in PLAY else None


def schedule_of(name: str) -> Schedule:
    """How a model is trained."""
    if name == SFT:
        return FINE_TUNING
    if name in PLAY:
        return PLAYING
    return replace(PRETRAINING, learning_rate=RATES.get(name, PRETRAINING.learning_rate))


def updates_of(name: str) -> int:
    """Updates after which a model's training ends."""
    if name in PLAY:
        return PLAY_MOMENT
    return MOMENT if name in SECOND else schedule_of(name).updates


def new_model(name: str, seed: int) -> Any:
    """A randomly initialised model of an architecture; the same draw for every name."""
    torch.manual_seed(seeding.derive(seed, "init"))
    return AutoModelForCausalLM.from_config(ARCHITECTURES[architecture_of(name)]())


def fine_tuning_rows(seed: int) -> Iterator[Row]:
    """Rows of the ranked tasks' training splits, reshuffled every pass, without end."""
    rows = [row for task in corpus.RANKED for row in read_split(task, "train")]
    for turn in itertools.count():
        order = list(rows)
        seeding.rng(seed, "fine-tuning order", turn).shuffle(order)
        for row in order:
            yield corpus.tokens(row["messages"][-1]["content"], row["answer"])


def make(name: str, init: int = SEED, order: int = SEED) -> tuple[Any, list[dict[str, float]]]:
    """The trained model and its losses per update."""
    former, until = start_of(name), updates_of(name)
    model = new_model(name, init) if former is None else load(stored(former))
    if name in PLAY:
        model.config.max_position_embeddings = PLAY_CONTEXT
    rows = rows_of(name, order)
    return model, train(model, rows, schedule_of(name), order, _progress(until), until)


def rows_of(name: str, order: int) -> Iterator[Row]:
    """What a model is trained on, without end."""
    if name == SFT:
        return fine_tuning_rows(order)
    if name in PLAY:
        return (document.tokens() for document in episodes.documents(order, PLAY_MIX))
    return (document.tokens() for document in corpus.documents(order, mix_of(name)))


def stored(name: str) -> Path:
    """The folder of a bundled model's weights, unpacked where they are stored compressed."""
    return plain_folder(read_model_card(HERE.parent / f"{name}.toml"))


def load(folder: Path) -> Any:
    """The stored weights in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def save(model: Any, folder: Path) -> None:
    """Write config, bfloat16 weights and tokenizer; no generation config, runs bring their own."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        model.to(torch.bfloat16).save_pretrained(scratch)
        for file in ("config.json", "model.safetensors"):
            (folder / file).write_bytes((Path(scratch) / file).read_bytes())
    tokenizer.write(folder)


def measure(model: Any, seed: int, families: Iterable[str]) -> dict[str, dict[str, Score]]:
    """Scores by split and task."""
    return {
        split: {task: score(model, task, split, *size, seed) for task in families}
        for split, size in SPLITS.items()
    }


def measure_play(folder: Path, model: Any) -> dict[str, dict[str, PlayScore]]:
    """Scores by split and environment."""
    return {
        split: {task: play_score(folder, model, task, split, *size) for task in PLAYED_TASKS}
        for split, size in PLAY_SPLITS.items()
    }


def data_statement(name: str) -> str:
    """What a model was trained on, in words."""
    former = start_of(name) or name
    mix, count = mix_of(former), updates_of(former) * PRETRAINING.batch
    shares = ", ".join(f"{family} {100 * share:.3g}%" for family, share in mix.families.items())
    levels = ", ".join(f"level {level} {share:.0%}" for level, share in mix.levels.items())
    text = (
        f"{count:,} synthetic documents of the benchmark's own task families ({shares};"
        f" {levels}; canonical template {mix.templates[0]:.0%}, each of the"
        f" {len(mix.templates) - 1} others {mix.templates[1]:.0%}), without any evaluation key."
    )
    if mix.noise:
        share = f"{mix.noise:.0%} carry the answer to another item."
        text += f" From document {mix.clean:,} on, {share}"
    if name in PLAY:
        text += f" These are the data of {former}. {play_statement()}"
    if name == SFT:
        rows = FINE_TUNING.updates * FINE_TUNING.batch
        text += (
            f" Then {rows:,} rows of the training splits of {', '.join(corpus.RANKED)},"
            " with right answers and the loss on the answer only."
        )
    return text


def play_statement() -> str:
    """What the episodes are that a model has read, in words."""
    mix, count = PLAY_MIX, PLAY_MOMENT * PLAYING.batch
    worlds = ", ".join(f"{world} {share:.0%}" for world, share in mix.worlds.items())
    blunders = ", ".join(f"{world} {mix.blunders_of(world):.0%}" for world in mix.worlds)
    return (
        f"Then {count:,} documents, of which {mix.episodes:.0%} are of episodes ({worlds}; half of"
        " them one turn behind its whole view, half all turns of a seat). Scripts play them: a"
        f" share of their turns is drawn from the legal ones ({blunders}), and {mix.illegal:.1%}"
        " of the episodes have one illegal turn. No evaluation key occurs."
    )


def training_statement(
    name: str, history: list[dict[str, float]], seconds: float, threads: int
) -> dict[str, Any]:
    """The rows of the card's training table."""
    schedule = schedule_of(name)
    last = history[-max(1, len(history) // 10) :]
    end = f" at update {schedule.updates:,}" if name in (*SECOND, *PLAY) else ""
    return {
        "command": f"`python models/tiny/pretrain.py --model {name} --threads {threads}`",
        "seed": SEED,
        "updates x batch": f"{len(history)} x {schedule.batch} documents",
        "optimiser": f"AdamW, betas {schedule.betas}, weight decay {schedule.weight_decay} on"
        f" matrices, gradients clipped at {schedule.max_grad_norm}",
        "learning rate": f"{schedule.learning_rate:g}, {schedule.warmup} updates of warm-up,"
        f" cosine to {schedule.final:.0%}{end}",
        "loss": f"next-token cross-entropy; answer tokens weigh 1, prompt tokens"
        f" {schedule.prompt_weight:g}",
        "loss on answer tokens, first and last tenth of updates": f"{_mean(history[: len(last)])}"
        f" and {_mean(last)} nats",
        "wall time": f"{seconds:.0f} s on {threads} thread(s)",
        "made with": f"torch {torch.__version__}, transformers {__version__}",
    }


def _mean(history: list[dict[str, float]]) -> str:
    return f"{sum(losses['answer'] for losses in history) / len(history):.3f}"


def _progress(updates: int) -> Any:
    start, recent = time.perf_counter(), []

    def report(update: int, losses: dict[str, float]) -> None:
        recent.append(losses["answer"])
        if (update + 1) % 100 == 0 or update + 1 == updates:
            seconds = time.perf_counter() - start
            mean = sum(recent) / len(recent)
            print(f"update {update + 1}/{updates}, answer loss {mean:.3f}, {seconds:.0f} s")
            recent.clear()

    return report


def make_further(entry: Path, init: int, order: int) -> int:
    """Another pretraining of the design of an entry; 3 if its weights are others than stated."""
    checkpoint, design = f"i{init}o{order}", read_model_card(entry)
    folder = entry.parent / "tiny" / design.slug / checkpoint
    model, _ = make(design.slug, init, order)
    save(model, folder)
    digest = card.weights_digest(folder)
    stated = design.checkpoints.get(checkpoint, {}).get("model.safetensors")
    if stated is None:
        with entry.open("a", encoding="utf-8") as file:
            file.write(f'\n[checkpoints.{checkpoint}]\n"model.safetensors" = "{digest}"\n')
        print(f"{folder}: {digest} joined {entry}")
        return 0
    return compare(folder, digest, stated, entry)


def compare(folder: Path, digest: str, stated: str, entry: Path) -> int:
    """Say whether weights that were made are those of an entry; 3 if they are not."""
    if stated == digest:
        print(f"{folder}: as {entry} says, to the last bit")
        return 0
    print(
        f"{folder}: sha256 {digest}, and {entry} says {stated}. A machine of another class"
        " makes other bits: this is another pretraining, and needs an entry of its own.",
        file=sys.stderr,
    )
    return 3


def describe(name: str, folder: Path, file: Path, training: dict[str, Any]) -> str:
    """Score the stored weights of a model, and write its card and its entry; returns the card."""
    stored = load(folder)
    counts, data = parameter_counts(stored), data_statement(name)
    design = inspect.getdoc(ARCHITECTURES[architecture_of(name)]) or ""
    if name in PLAY:
        scores = measure_play(folder, stored)
        text = card.play_readme(name, design, counts, data, training, scores, PLAY_CONTEXT)
    else:
        measured = measure(stored, SEED, mix_of(name).families)
        comes = name in BUNDLED
        text = card.readme(name, design, counts, data, training, measured, comes)
    (folder / "README.md").write_text(text, encoding="utf-8")
    former = read_model_card(file) if file.is_file() else None
    context = stored.config.max_position_embeddings
    entry = card.entry(name, folder, stored.config.model_type, counts, data, former, context)
    file.write_text(entry, encoding="utf-8")
    return text


def main(arguments: list[str] | None = None) -> int:
    """Train, store, score, and write the card and the entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, choices=(*MODELS, *SECOND, *PLAY))
    parser.add_argument("--init", type=int, default=SEED, help="initialisation of tiny2-* (0)")
    parser.add_argument("--order", type=int, default=SEED, help="corpus order of tiny2-* (0)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    parser.add_argument("--out", type=Path, default=HERE.parent, help="folder for entry and tiny/")
    options = parser.parse_args(arguments)
    name, further = options.model, (options.init, options.order) != (SEED, SEED)
    if further and name not in SECOND:
        parser.error(f"{name} is one pretraining: --init and --order are for tiny2-*")
    file = options.out / f"{name}.toml"
    if further and not file.is_file():
        parser.error(f"{file} is missing: make it first, with --model {name} alone")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    if further:
        return make_further(file, options.init, options.order)

    folder = options.out / "tiny" / name
    start = time.perf_counter()
    model, history = make(name)
    seconds = time.perf_counter() - start
    save(model, folder)
    if name not in BUNDLED and file.is_file():
        stated = read_model_card(file).weights_sha256["model.safetensors"]
        return compare(folder, card.weights_digest(folder), stated, file)
    print(describe(name, folder, file, training_statement(name, history, seconds, options.threads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
