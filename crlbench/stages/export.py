"""The trained weights of a finished run, written for other programs."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from safetensors.torch import load

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
from crlbench.stages.fit_reward import check_target


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
    record = read_record(finished(run) / RECORD_NAME, own=True)
    weights = run / POLICY_NAME
    if not weights.is_file():
        raise ValidationError(
            f"{weights}: the weights of this run are gone; the record alone cannot give them "
            f"back. {REDO_RUN}"
        )
    stated = record.files.get(POLICY_NAME)
    if stated is None or sha256_file(weights) != stated.sha256:
        raise store.damaged(weights, "its sha256 is not the one in record.json", REDO_RUN)
    try:
        name = read_toml(run / "config.toml").get("model")
    except CrlbenchError as error:
        raise store.damaged(run / "config.toml", error, REDO_RUN) from None
    if not isinstance(name, str):
        raise store.damaged(run / "config.toml", "it names no model", REDO_RUN)
    found = admit(catalog.load_model(name))
    card, location = as_filed(found.card, record.subject.entry_sha256), found.location
    if card.digest != record.subject.entry_sha256:
        raise ValidationError(
            f"model '{card.slug}' has changed since this run was made, so that the trained weights "
            "may not fit it. Restore its entry, or train again."
        )
    check_target(target)
    trained = load(weights.read_bytes())
    with store.explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            if card.adapter is not None and not merge:
                write_adapter(card, location, trained, partial)
            else:
                write_checkpoint(card, location, found.reader, trained, partial)
            for path in partial.iterdir():
                path.chmod(0o644)
            partial.chmod(0o755)
            os.rename(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return "adapter" if card.adapter is not None and not merge else "checkpoint"


def finished(run: Path) -> Path:
    """The folder, if it is that of one finished run.

    Raises:
        UsageError: it is not; names those below it.
    """
    if (run / RECORD_NAME).is_file():
        return run
    below = sorted(path.parent for path in run.rglob(RECORD_NAME))
    if not below:
        raise UsageError(f"export {run}: holds no finished run (a folder with {RECORD_NAME}).")
    more = f" and {len(below) - 3} more" if len(below) > 3 else ""
    raise UsageError(
        f"export {run}: name one run. Below it: {', '.join(map(str, below[:3]))}{more}."
    )
