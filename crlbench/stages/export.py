"""The trained weights of a finished run, written for other programs."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load

from crlbench.base.wording import listed
from crlbench.catalog.find import Catalog
from crlbench.contract.record_files import read_record
from crlbench.contract.stored import REDO_RUN
from crlbench.disk.hashing import sha256_file
from crlbench.disk.names import POLICY_NAME, RECORD_NAME
from crlbench.disk.toml import read_toml
from crlbench.errors import CrlbenchError, UsageError, ValidationError
from crlbench.policy.weights.export import write_adapter, write_checkpoint
from crlbench.run import store
from crlbench.run.admission import admit, as_filed


def export_run(run: Path, catalog: Catalog, target: Path, merge: bool) -> str:
    """Write the model that a run trained into the new folder ``target``.

    An adapter is written as such, or merged into its base; a model without one is a whole
    checkpoint either way.

    Returns:
        What was written: ``adapter`` or ``checkpoint``.

    Raises:
        UsageError: ``run`` is not the folder of one finished run.
        ValidationError: its files are damaged or gone, or the model's entry has changed.
    """
    record = read_record(require_finished(run) / RECORD_NAME, own=True)
    weights = run / POLICY_NAME
    if not weights.is_file():
        raise ValidationError(
            f"{weights}: the weights of this run are gone; the record alone cannot give them "
            f"back. {REDO_RUN}"
        )
    digest = record.files.get(POLICY_NAME)
    if digest is None or sha256_file(weights) != digest.sha256:
        raise store.damaged(weights, "its sha256 is not the one in record.json", REDO_RUN)
    try:
        name = read_toml(run / "config.toml").get("model")
    except CrlbenchError as error:
        raise store.damaged(run / "config.toml", error, REDO_RUN) from None
    if not isinstance(name, str):
        raise store.damaged(run / "config.toml", "it names no model", REDO_RUN)
    model = admit(catalog.load_model(name))
    card, location = as_filed(model.card, record.subject.entry_sha256), model.location
    if card.digest != record.subject.entry_sha256:
        raise ValidationError(
            f"model '{card.slug}' has changed since this run was made, so that the trained weights "
            "may not fit it. Restore its entry, or train again."
        )
    store.check_new(target)
    trained_weights = load(weights.read_bytes())
    with store.explained(target), store.new_folder(target) as folder:
        if card.adapter is not None and not merge:
            write_adapter(card, location, trained_weights, folder)
            return "adapter"
        write_checkpoint(card, location, model.reader, trained_weights, folder)
        return "checkpoint"


def require_finished(run: Path) -> Path:
    """The folder, if it is that of one finished run.

    Raises:
        UsageError: it is not; names those below it.
    """
    if (run / RECORD_NAME).is_file():
        return run
    below = sorted(path.parent for path in run.rglob(RECORD_NAME))
    if not below:
        raise UsageError(f"export {run}: holds no finished run (a folder with {RECORD_NAME}).")
    raise UsageError(f"export {run}: name one run. Below it: {listed([*map(str, below)], 3)}.")
