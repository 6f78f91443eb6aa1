"""Whether a checkpoint can be used, and as what: the questions that every command asks of it.

``evaluate``, ``doctor``, ``probe``, ``fit-reward``, ``show --render`` and ``export`` ask all of
:data:`QUESTIONS` at once; ``validate`` and ``add model`` ask them one by one, to say which one
failed. A new question belongs into that table and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crlbench.catalog.checkpoint import (
    all_here,
    check_folder,
    former_card,
    quantised_words,
    unread_files,
    weight_files,
)
from crlbench.catalog.fetch import fetched_folder, gguf_folder
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.model_card import ChatTemplate, ModelCard
from crlbench.disk.hashing import sha256_file
from crlbench.disk.side_files import blob_name, side_digests, unnamed_side_files
from crlbench.errors import CrlbenchError, UsageError, ValidationError
from crlbench.policy.text.calls import form_of
from crlbench.policy.text.chat import Message, render, thought_notice
from crlbench.policy.text.frame_check import check_frame
from crlbench.policy.weights.files import (
    Location,
    bring_weights,
    check_side_files,
    check_weights,
    explained,
    folder_of,
    gguf_file,
)
from crlbench.policy.weights.load import Reader, load_reader, read_config
from crlbench.policy.weights.served import check_served
from crlbench.policy.weights.tensors import check_tensors, packed_tensor, silent, tensor_kinds

TEXTS = ("Sort: 10, 9, 8 -> 8, 9, 10", "a  12+3\n  45", '{"key": [1, 2.5, "x"]}\n')
"""What a tokenizer has to give back: prompts and completions of the tasks look like this."""
MESSAGES = [
    {"role": "system", "content": "Answer with a number."},
    {"role": "user", "content": "What is 12 + 34?"},
]


@dataclass(frozen=True)
class Checkpoint:
    """A model's files, and what the questions look at, read when it is first asked for."""

    card: ModelCard
    location: Location

    @cached_property
    def folder(self) -> Path:
        """With the config: the model's own, or the snapshot in the hub's cache."""
        return folder_of(self.card, self.location)

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The ``config.json`` as it is written."""
        return check_folder(self.folder)

    @cached_property
    def config(self) -> Any:
        """The transformers config."""
        return read_config(self.card, self.location)

    @cached_property
    def reader(self) -> Reader:
        """The tokenizer with its frame, ends and padding."""
        return load_reader(self.card, self.location)

    @cached_property
    def weights(self) -> list[Path]:
        """The files that the weights are read from; none where the hub has some of them still."""
        if self.card.source.kind == "hub" and not all_here(self.folder):
            return []
        return weight_files(self.folder, self.raw)


@dataclass(frozen=True)
class Admitted:
    """A model that every question let pass."""

    card: ModelCard
    """The entry; of an unlisted model with its frame, its thinking and its side files settled."""
    location: Location
    reader: Reader
    config: Any
    words: tuple[str, ...] = ()
    """What a person should know, a sentence each."""


def ask_folder(model: Checkpoint) -> None:
    """The folder is one whole model of a kind that is known: no adapter, nothing quantised."""
    model.raw  # noqa: B018  (reading it asks)
    model.config  # noqa: B018
    model.weights  # noqa: B018


def ask_files(model: Checkpoint) -> None:
    """Weights and side files have the digests that the entry, or the hub's commit, states."""
    check_weights(model.card, model.location)
    check_side_files(model.card, model.folder)


def ask_tensors(model: Checkpoint) -> None:
    """The weights are stored whole, and are those that the architecture uses: all and no more."""
    if not model.weights:
        return  # loading them asks
    with explained(model.card, model.location, "weights"):
        kinds = tensor_kinds(model.weights)
        if (name := packed_tensor(kinds)) is not None:
            words = quantised_words(model.folder, f"{name} as {kinds[name][1]}")
            raise ValidationError(f"model '{model.card.slug}': {words}")
        check_tensors(model.card, model.location.name, model.config, kinds)


def ask_architecture(model: Checkpoint) -> None:
    """A random toy of it gives one log-probability by three ways."""
    check_served(model.card.slug, model.config)


def ask_frame(model: Checkpoint, prompts: Iterable[Sequence[Message]] = ()) -> int:
    """No question changes the text around it, and its tokens spell it; how many were tried.

    ``prompts``: of tasks, besides contents of their kinds.
    """
    reader = model.reader
    try:
        with silent():  # some contents are longer than any context
            return check_frame(reader.tokenizer, reader.frame, reader.thinking, prompts)
    except ValidationError as error:
        raise ValidationError(f"model '{model.card.slug}': {error}") from None


def ask_tokenizer(model: Checkpoint) -> None:
    """Texts come back from their tokens; what ends and pads has an embedding."""
    problems = tokenizer_problems(model.reader, model.config.get_text_config().vocab_size)
    if problems:
        raise ValidationError(f"model '{model.card.slug}': {problems[0]}.")


def ask_template(model: Checkpoint) -> None:
    """A prompt shows what is asked."""
    reader = model.reader  # the template's digest was compared when it was read
    try:
        ids = render(MESSAGES, reader.frame, reader.tokenizer, reader.thinking)
    except CrlbenchError as error:
        raise ValidationError(f"model '{model.card.slug}': {error}") from None
    if MESSAGES[1]["content"] not in reader.tokenizer.decode(ids):
        raise ValidationError(f"model '{model.card.slug}': a prompt does not show what is asked.")


def ask_calls(model: Checkpoint) -> None:
    """Calls of tools are written as the entry states, where it states that."""
    stated = model.card.calls
    if stated is None:
        return
    found, why = calls_of(model.reader)
    if found != stated.form:
        raise ValidationError(
            f"model '{model.card.slug}': calls.form is '{stated.form}', and its template has "
            f"'{found}'. {why}".rstrip()
        )


def calls_of(reader: Reader) -> tuple[str, str]:
    """The form in which a model calls tools, and why, where that is on one line."""
    if reader.frame != "chat":
        return "line", "It has no chat template."
    try:
        return form_of(reader.tokenizer, reader.thinking).name, ""
    except ValidationError as error:
        return "line", str(error)


QUESTIONS: dict[str, Callable[[Checkpoint], object]] = {
    "files": ask_files,
    "folder": ask_folder,
    "architecture": ask_architecture,
    "tensors": ask_tensors,
    "frame": ask_frame,
    "tokenizer": ask_tokenizer,
    "template": ask_template,
    "calls": ask_calls,
}
"""The questions in the order in which they are asked; each raises what is wrong."""


def admit(card: ModelCard, *, whole: bool = False) -> Admitted:
    """Ask every question of a model's checkpoint; of a hub's, what can be asked without weights.

    ``whole``: download a hub's weights first, so that all can be asked.

    Raises:
        ValidationError: the first answer that is wrong.
        EnvironmentUnfit: it is not on this machine and cannot be had, or something to convert it
            is missing.
    """
    model = Checkpoint(card, locate(card))
    if whole and card.source.kind == "hub" and not card.source.gguf_file:
        check_folder(model.folder)  # before what cannot be used is downloaded
        if not all_here(model.folder):
            bring_weights(card, model.location)
    for ask in QUESTIONS.values():
        ask(model)
    return Admitted(settle(model), model.location, model.reader, model.config, _words(model))


def settle(model: Checkpoint) -> ModelCard:
    """The card of an unlisted model with what only its tokenizer, or its conversion, can say."""
    card, reader = model.card, model.reader
    if not card.unlisted:
        return card
    change: dict[str, Any] = {
        "frame": reader.frame,
        "chat_template": ChatTemplate(thinking=reader.thinking),
    }
    if card.source.gguf_file:
        change["side_sha256"] = side_digests(model.folder)
    elif card.source.kind == "hub":
        # Of what is no link to a blob, the commit says nothing: its content does.
        change["side_sha256"] = side_digests(model.folder, unnamed_side_files(model.folder))
        change["weights_sha256"] = {
            path.name: sha256_file(path) for path in model.weights if blob_name(path) is None
        }
    return card.model_copy(update=change)


def as_filed(card: ModelCard, entry_sha256: str | None) -> ModelCard:
    """The card that runs are filed under by its digest: the model's own, or its former one.

    Where neither has that digest, the model's own: it has changed since.
    """
    before = former_card(card)
    return before if before is not None and before.digest == entry_sha256 else card


def _words(model: Checkpoint) -> tuple[str, ...]:
    card = model.card
    if not card.unlisted:
        return ()
    notices = []
    if model.reader.thinking == "off" and card.chat_template.thinking == "n/a":
        notices.append(
            "its template knows enable_thinking, and thinking is off, as in all entries; "
            'for on: "crlbench_thinking": "on" in its config.json'
        )
    if model.reader.frame == "chat" and (
        word := thought_notice(model.reader.tokenizer, model.reader.thinking)
    ):
        notices.append(word)
    if card.source.kind == "path" and (names := unread_files(model.folder, model.weights)):
        notices.append(f"beside its weights, and not read: {', '.join(names[:3])}")
    return tuple(f"model '{card.slug}': {word}" for word in notices)


def tokenizer_problems(reader: Reader, size: int) -> list[str]:
    """What is wrong with a tokenizer; ``size``: embeddings of the model."""
    problems = []
    for text in TEXTS:
        back = text_back(reader.tokenizer, text)
        if back != text:
            problems.append(f"its tokenizer turns {text!r} into {back!r:.80}")
    for name, ids in (("end", reader.ends), ("padding", (reader.pad,))):
        problems += [f"its {name} token {i} has no embedding" for i in ids if not 0 <= i < size]
    return problems


def text_back(tokenizer: Any, text: str) -> str:
    """A text after its way through tokens."""
    return tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])


def locate(card: ModelCard) -> Location:
    """Where transformers finds the weights of an entry.

    A GGUF file is converted first, and weights that are stored compressed are unpacked.
    """
    if card.source.kind == "package":
        return Location(str(fetched_folder(card)))
    if hub := card.source.hf_id:
        if Path(hub).exists():
            raise UsageError(
                f"model '{card.slug}': the present folder holds {hub}, which "
                f"transformers would read in place of the hub's commit. Run the command elsewhere, "
                f"or name the folder itself: --model ./{hub}"
            )
        location = Location(hub, card.source.revision if card.pinned else None)
    else:
        location = Location(str(card.weights_dir if card.source.gguf_file else plain_folder(card)))
    if card.source.gguf_file:
        return Location(str(gguf_folder(card, gguf_file(card, location))))
    return location
