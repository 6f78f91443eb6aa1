"""What of a model is on this machine, or can be asked of the hub, when its entry is examined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.catalog.checkpoint import hub_folder
from crlbench.catalog.fetch import fetched_folder, gguf_folder
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.model_card import ModelCard
from crlbench.errors import CrlbenchError, EnvironmentUnfit

if TYPE_CHECKING:
    from crlbench.contribute.models.hub import HubModel
    from crlbench.run.admission import Checkpoint


class Absent(Exception):
    """A rule needs what is not here; the message says what, and how it would come here."""


@dataclass(frozen=True)
class Subject:
    """An entry, and everything that its rules look at, brought together when first asked for."""

    card: ModelCard
    home: Path | None
    silence: Callable[[], str]
    """Says why the hub is not asked; "" where it may be."""
    others: Sequence[ModelCard] = ()
    """Entries that it is compared with."""

    @cached_property
    def weights(self) -> Path:
        """The checkpoint folder with the weights.

        Raises:
            Absent: it is not on this machine.
            CrlbenchError: it is, and cannot be used.
        """
        source, slug = self.card.source, self.card.slug
        if source.kind == "package":
            try:
                return fetched_folder(self.card, self.home)
            except EnvironmentUnfit:
                raise Absent(f"its weights are not here; run: crlbench fetch {slug}") from None
        if source.kind == "path" and not source.gguf_file:
            return plain_folder(self.card, self.home)
        folder = self.card.weights_dir if source.kind == "path" else hub_folder(self.card)
        if folder is None:
            command = f"hf download {source.hf_id} --revision {self._revision}"
            raise Absent(f"its weights are not here; run: {command}")
        if source.gguf_file:
            return gguf_folder(self.card, folder / source.gguf_file, self.home)
        return folder

    @property
    def _revision(self) -> str:
        return self.card.revision if self.card.pinned else "main"

    @cached_property
    def hub(self) -> HubModel:
        """What the hub says of the entry's commit.

        Raises:
            Absent: it is not asked, or lets nobody in.
            CrlbenchError: it has no such model.
        """
        if why := self.silence():
            raise Absent(why)
        from crlbench.contribute.models.hub import look_up

        try:
            return look_up(self.card.source.hf_id, self._revision)
        except EnvironmentUnfit as error:
            raise Absent(str(error)) from None

    @cached_property
    def files(self) -> Path:
        """A folder with config and tokenizer: that of the weights, else what the hub gave.

        Raises:
            Absent: there is none.
        """
        try:
            return self.weights
        except Absent as absent:
            if self.card.source.kind != "hub":
                raise
            try:
                return self.hub.folder
            except Absent as silent:
                raise Absent(f"{absent}; {silent}") from None
            except CrlbenchError as error:  # a rule of its own says so
                raise Absent(f"{absent}; the hub has no such model: {error}") from None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """What the questions of every command are asked of: the weights, else the small files.

        Raises:
            Absent: neither is here.
        """
        from crlbench.policy.weights.load import Location
        from crlbench.run.admission import Checkpoint

        return Checkpoint(self.card, Location(str(self.files)))

    @cached_property
    def config(self) -> Any:
        """The transformers config: as the entry states it, else that of its files.

        Raises:
            Absent: neither is here.
            ValidationError: the installed transformers cannot read it.
        """
        from crlbench.policy.weights.load import Location
        from crlbench.policy.weights.shape import config_of

        place = None if self.card.config else Location(str(self.files))
        return config_of(self.card, place)
