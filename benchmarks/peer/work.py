"""The work that both sides do: a model's folder, prompts as texts and token ids, and the counts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.algo.recipes import load
from crlbench.catalog.find import CHECKOUT, Catalog
from crlbench.errors import UsageError, ValidationError

SHORT = {"tiny": "tiny-llama"}
RANDOM = {
    "random-0.5b": {
        "model_type": "qwen2",
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "random-1m": {
        "model_type": "llama",
        "vocab_size": 49_152,
        "hidden_size": 128,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
    },
}
"""Models with random weights, made on the spot: speed needs no others. The second has 1M
parameters beside an embedding of 49,152 tokens."""
TASK, LEVELS = "addition", (1, 2)
KINDS = ("grpo", "ppo")


@dataclass(frozen=True)
class Model:
    """A model that both sides can read."""

    name: str
    card: str
    """What our catalog knows it by: an entry's name or a folder."""
    folder: Path


@dataclass(frozen=True)
class Work:
    """What is equal on both sides, but for the recipe."""

    model: Model
    prompts: int = 8
    completions: int = 8
    tokens: int = 32
    precision: str = "fp32"
    device: str = "cpu"
    threads: int = 1
    warmup: int = 1
    iterations: int = 2
    seed: int = 0
    learning_rate: float = 1e-6

    def plan(self, kind: str, options: dict[str, Any]) -> dict[str, Any]:
        """The plain data that a runner reads (see ``clock.read_work``)."""
        rows = prompts_for(self.model, self.prompts)
        recipe = load(kind)
        return {
            "recipe": kind,
            "card": self.model.card,
            "model": str(self.model.folder),
            "prompts": [text for text, _ in rows],
            "prompt_ids": [ids for _, ids in rows],
            "completions": self.completions,
            "rows": self.prompts * self.completions,
            "tokens": self.tokens,
            "precision": self.precision,
            "device": self.device,
            "threads": self.threads,
            "warmup": self.warmup,
            "iterations": self.iterations,
            "seed": self.seed,
            "kl": recipe.kl.coefficient.start,
            "learning_rate": self.learning_rate,
            "betas": [0.9, 0.95],
            "options": options,
        }


def find_model(name: str, home: Path | None = None) -> Model:
    """The model of a ``--model`` name: an entry, ``tiny``, one of RANDOM or a folder.

    Raises:
        UsageError: unknown, or a hub id: both sides run without the network.
        EnvironmentUnfit: an entry that was never fetched.
    """
    from crlbench.run.admission import locate

    if name in RANDOM:
        folder = _random_model(name, home)
        return Model(name, str(folder), folder)
    name = SHORT.get(name, name)
    card = Catalog().load_model(name)
    if card.source.kind == "hub":
        raise UsageError(
            f"--model {name}: the peers run without the network. Give the folder of the weights, "
            f"or one of {', '.join(Catalog().list('model'))}."
        )
    return Model(card.slug, name, Path(locate(card).name))


def prompts_for(model: Model, count: int) -> list[tuple[str, list[int]]]:
    """The first training prompts of the task, as texts that a tokenizer alone turns into the ids.

    The frame's special tokens are kept where the tokenizer reads them from text.
    """
    from transformers import AutoTokenizer

    from crlbench.policy.text.chat import render

    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    card = Catalog().load_model(model.card)
    frame = card.frame
    if frame == "auto":
        frame = "chat" if tokenizer.chat_template else "plain"
    rows = [r for r in Catalog().load_task(TASK).rows("train") if r["level"] in LEVELS][:count]
    if len(rows) < count:
        raise UsageError(f"--prompts {count}: task '{TASK}' has {len(rows)} training prompts.")
    found = []
    for row in rows:
        ids = list(render(row["messages"], frame, tokenizer))
        texts = [tokenizer.decode(ids, skip_special_tokens=skip) for skip in (False, True)]
        read = [tokenizer(text)["input_ids"] for text in texts]
        whole = 0 if read[0] == ids else 1
        found.append((texts[whole], read[whole]))
    if len({tuple(ids) for _, ids in found}) < count:
        raise ValidationError(f"model '{model.name}': two of the {count} prompts are the same.")
    return found


def _random_model(name: str, home: Path | None) -> Path:
    """A folder with random float32 weights and the tokenizer of tiny-llama."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from crlbench.disk.switches import home as default_home

    folder = (home or default_home()) / "benchmarks" / name
    if (folder / "tokenizer.json").is_file():
        return folder
    config = AutoConfig.for_model(
        **RANDOM[name],
        max_position_embeddings=4096,
        pad_token_id=256,
        bos_token_id=257,
        eos_token_id=258,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    source = CHECKOUT / "models" / "tiny" / "tiny-llama"
    # The tokenizer last: a folder that has one is whole.
    for file in ("tokenizer_config.json", "tokenizer.json"):
        shutil.copyfile(source / file, folder / file)
    return folder
