"""From frozen preference pairs to the folder of a reward model, whole or absent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crlbench.algo.preference import pair_accuracy
from crlbench.catalog.frozen import Task
from crlbench.contract.card import validate_card
from crlbench.contract.model_card import ModelCard
from crlbench.contract.task_card import RewardCard
from crlbench.disk.hashing import sha256_file
from crlbench.disk.toml import dump_toml
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError, unknown_name
from crlbench.policy.text.tokenizer_files import save_tokenizer
from crlbench.policy.weights.load import Reader
from crlbench.policy.weights.reward_model import (
    CARD,
    WEIGHTS,
    RewardMap,
    ScalarModel,
    completion_row,
    load_scalar_model,
    prompt_ids,
)
from crlbench.policy.weights.tensors import silent
from crlbench.run.admission import admit
from crlbench.run.own_lessons import fit_lessons
from crlbench.run.store import check_new, new_folder
from crlbench.stats.proportion import wilson
from crlbench.suite.own_answers import OwnFile
from crlbench.suite.pairs import (
    HELD_OUT,
    SPLITS,
    Pair,
    Split,
    held_out,
    load_pairs,
    pairs_card,
)
from crlbench.train.reward_modeling import PairStream, RewardTraining, Row, fit, pair_scores

Scores = Mapping[Split, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class FittingPairs:
    """Pairs to fit on, and pairs of other prompts to measure on."""

    name: str
    """The task that they belong to, or the person's own file."""
    pairs: Mapping[Split, Sequence[Pair]]
    files: Mapping[Split, str]
    """Where they stand, for messages."""
    sha256: Mapping[Split, str]
    limited: bool
    """Whether there are more."""
    audit: Sequence[Pair] = ()
    """Pairs of another source, each with its fault."""
    own: OwnFile | None = None
    """The person's own file."""

    @staticmethod
    def of(source: Task | OwnFile, limit: int | None, seed: int) -> FittingPairs:
        """Those of a task, or of a person's own file; raises as the two below."""
        if isinstance(source, OwnFile):
            return FittingPairs.of_file(source, limit, seed)
        return FittingPairs.of_task(source, limit)

    @staticmethod
    def of_task(task: Task, limit: int | None) -> FittingPairs:
        """The frozen pairs of a task; ``limit`` takes the first ones of either file.

        Raises:
            UsageError, EnvironmentUnfit, ValidationError: as :func:`load_pairs`.
        """
        cards = {split: pairs_card(task.card, split) for split in SPLITS}
        pairs = {split: load_pairs(task, split)[:limit] for split in SPLITS}
        has_audit = task.card.pairs is not None and "audit" in task.card.pairs
        return FittingPairs(
            task.name,
            pairs,
            {split: card.file for split, card in cards.items()},
            {split: card.sha256 for split, card in cards.items()},
            any(len(pairs[split]) < card.count for split, card in cards.items()),
            load_pairs(task, "audit") if has_audit else (),
        )

    @staticmethod
    def of_file(own: OwnFile, limit: int | None, seed: int) -> FittingPairs:
        """The pairs of a person's own file, of which one prompt in eight is held out.

        Raises:
            ValidationError: it holds no pairs, too few, or of too few prompts.
        """
        pairs = own.require_pairs().pairs()
        parts = held_out(pairs[:limit], seed)
        if not parts["id"]:
            raise ValidationError(
                f"{own.path}: its pairs are about fewer than {HELD_OUT} prompts, and one prompt in "
                f"{HELD_OUT} is held out to measure on. Add prompts"
                f"{', or raise --limit' if limit else ''}."
            )
        name, limited = own.path.name, limit is not None and limit < len(pairs)
        sides = dict.fromkeys(SPLITS, name), dict.fromkeys(SPLITS, own.sha256)
        return FittingPairs(name, parts, *sides, limited, own=own)


def fit_reward(
    base: ModelCard,
    source: FittingPairs,
    out: Path,
    config: RewardTraining,
    *,
    device: str = "cpu",
    report: Callable[[int, int, float], None] = lambda done, batches, loss: None,
) -> RewardCard:
    """Fit a reward model from the model ``base`` on pairs and write its folder ``out``.

    ``report`` is called with (batches done, batches, loss). The same call on the same machine
    writes the same bytes.

    Raises:
        ValidationError: ``out`` exists, no pair fits, nothing was learned, or lines of a person's
            own file are not for this model.
        EnvironmentUnfit: the folder cannot be written.
    """
    check_new(out)
    model_files = admit(base)
    base, location, reader = model_files.card, model_files.location, model_files.reader
    if source.own is not None:
        fit_lessons(source.own, reader)
    files = source.pairs
    rows = {split: token_pairs(pairs, reader, config.max_tokens) for split, pairs in files.items()}
    for split, fitting in rows.items():
        if not fitting:
            raise ValidationError(
                f"all {len(files[split])} pairs of {source.files[split]} are longer "
                f"than {min(config.max_tokens, reader.context)} tokens of this model. Raise "
                "max_tokens (--set max_tokens=N), or take a model with a longer context."
            )
    model = load_scalar_model(location, f"model '{base.slug}'", new_head=True)
    model = model.to(device)
    batches = len(PairStream(rows["train"], config, reader.pad))
    model, scores = fit_rows(
        model, rows, config, reader, device, lambda done, loss: report(done, batches, loss)
    )
    faults = _faults(model, source.audit, reader)
    pairs: dict[str, Any] = {
        "task": source.name,
        "train_sha256": source.sha256["train"],
        "id_sha256": source.sha256["id"],
        **{split: len(fitting) for split, fitting in rows.items()},
        "left_out": sum(map(len, files.values())) - sum(map(len, rows.values())),
        "limited": source.limited,
    }
    content = describe(base, reader, scores, faults, pairs, config)
    return _write(out, model, reader, content, getattr(torch, config.store))


def fit_rows(
    model: ScalarModel,
    rows: Mapping[Split, Sequence[tuple[Row, Row]]],
    config: RewardTraining,
    reader: Reader,
    device: str,
    report: Callable[[int, float], None] = lambda done, loss: None,
) -> tuple[ScalarModel, Scores]:
    """Fit a scalar model to training pairs; as it is stored, and its scores of all pairs.

    Raises:
        ValidationError: the loss is not a finite number.
    """
    fit(model, rows["train"], config, pad=reader.pad, device=device, report=report)
    model = round_weights(model.to(device), config.store)
    return model, {split: pair_scores(model, pairs, reader.pad) for split, pairs in rows.items()}


def describe(
    base: ModelCard,
    reader: Reader,
    scores: Scores,
    faults: dict[str, float] | None,
    pairs: Mapping[str, Any],
    config: RewardTraining,
) -> dict[str, Any]:
    """What ``reward.toml`` says, but for the digest of the weights.

    Raises:
        ValidationError: nothing was learned.
    """
    return {
        "schema": 1,
        "base": base.slug,
        "base_revision": base.revision,
        "frame": reader.frame,
        "thinking": reader.thinking,
        "context": reader.context,
        "end_token": reader.ends[0],
        "pad_token": reader.pad,
        **_measured(scores),
        "faults": faults,
        "pairs": dict(pairs),
        "training": config.model_dump(),
    }


def settings(texts: Mapping[str, str]) -> RewardTraining:
    """The defaults with some changed by name; values as text.

    Raises:
        UsageError: an unknown name, with the nearest ones, or an impossible value.
    """
    values: dict[str, Any] = {}
    for name, value in texts.items():
        if name not in RewardTraining.model_fields:
            raise unknown_name("setting", name, RewardTraining.model_fields)
        try:
            values[name] = json.loads(value)
        except (ValueError, RecursionError):  # no JSON, or a number or depth that Python refuses
            values[name] = value
    try:
        return validate_card(RewardTraining, values, "--set")
    except ValidationError as error:
        raise UsageError(str(error)) from None


def token_pairs(pairs: Sequence[Pair], reader: Reader, longest: int) -> list[tuple[Row, Row]]:
    """Pairs as token rows, without those of which a side is longer than ``longest`` or the context.

    A pair is left out and never cut: the end of a cut completion would be judged as its end.
    """
    longest = min(longest, reader.context)
    token_rows = []
    for pair in pairs:
        ids = reader.tokenizer([pair["chosen"], pair["rejected"]], add_special_tokens=False)
        widest = max(map(len, ids["input_ids"]))
        if widest >= longest:
            continue
        prompt = _prompt(pair, reader)
        if prompt is not None and len(prompt) + widest < longest:
            sides = (pair["chosen"], pair["rejected"])
            chosen, rejected = (completion_row(prompt, text, reader) for text in sides)
            token_rows.append((chosen, rejected))
    return token_rows


def _prompt(pair: Pair, reader: Reader) -> tuple[int, ...] | None:
    try:
        return prompt_ids(pair["messages"], reader)
    except ValidationError:
        return None


def round_weights(model: ScalarModel, store: str) -> ScalarModel:
    """The model with every weight as it is stored, in float32 again."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, store)).float()
    return model


def _measured(scores: Scores) -> dict[str, Any]:
    """The tables ``map``, of the training side's scores, and ``accuracy``."""
    shares = {split: float(pair_accuracy(*pair)) for split, pair in scores.items()}
    low, high = wilson(shares["id"], len(scores["id"][0]))
    reward_map = RewardMap.of(torch.cat(scores["train"]))
    return {
        "map": {"center": reward_map.center, "scale": reward_map.scale},
        "accuracy": {**shares, "id_low": low, "id_high": high},
    }


def _faults(model: ScalarModel, audit: Sequence[Pair], reader: Reader) -> dict[str, float] | None:
    """By fault, the share of audit pairs that the model gets wrong; a tie is half."""
    if not audit:
        return None
    by_fault: dict[str, list[Pair]] = {}
    for pair in audit:
        by_fault.setdefault(pair["meta"]["fault"], []).append(pair)
    shares = {}
    for fault, pairs in by_fault.items():
        rows = token_pairs(pairs, reader, reader.context)
        shares[fault] = 1.0 - float(pair_accuracy(*pair_scores(model, rows, reader.pad)))
    return shares


def _write(
    out: Path, model: ScalarModel, reader: Reader, content: dict[str, Any], dtype: torch.dtype
) -> RewardCard:
    """The folder of a reward model, whole or absent."""
    try:
        with new_folder(out) as folder:
            return fill(folder, model, reader, content, dtype)
    except OSError as error:
        raise EnvironmentUnfit(f"--out {out}: cannot be written: {error.strerror}.") from None


def fill(
    folder: Path, model: ScalarModel, reader: Reader, content: dict[str, Any], dtype: torch.dtype
) -> RewardCard:
    """Write a reward model, its tokenizer and its card into a folder that exists."""
    model.model.config.pad_token_id = reader.pad
    with silent():
        model.model.cpu().to(dtype).save_pretrained(folder)
        save_tokenizer(reader.tokenizer, folder)
    content["weights_sha256"] = sha256_file(folder / WEIGHTS)
    card = validate_card(RewardCard, content, folder / CARD)
    (folder / CARD).write_text(dump_toml(content), encoding="utf-8")
    return card
