"""What the Hugging Face hub says of a model: its commit, its small files, its digests.

Weights are never downloaded here. ``HF_ENDPOINT`` names another hub, ``HF_TOKEN`` an account;
both are read by huggingface_hub, as are the switches that turn the network off.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from crlbench.catalog.checkpoint import PICKLES, shards_of
from crlbench.disk.hashing import sha256_file
from crlbench.disk.side_files import INDEX, WHOLE, is_side_file
from crlbench.errors import CrlbenchError, EnvironmentUnfit, UsageError, ValidationError

CONFIG = "config.json"
MOST_BYTES = 100 * 2**20
"""Most bytes of a side file."""
SECONDS = 20.0
"""Longest that the hub is waited for, at each step."""


@dataclass(frozen=True)
class HubModel:
    """A repository of the hub at one commit."""

    hf_id: str
    commit: str
    address: str
    """Where it was resolved: the hub's address and the id."""
    gated: bool
    folder: Path
    """Holds config and tokenizer."""
    weights_sha256: dict[str, str]
    files: frozenset[str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The head of its model card: ``license``, ``language``, ``datasets``, ..."""


def look_up(hf_id: str, revision: str = "main") -> HubModel:
    """A repository of the hub; ``revision`` is a branch, a tag or a commit.

    Raises:
        UsageError: there is no such repository or revision, or not for this account.
        ValidationError: its weights are no safetensors.
        EnvironmentUnfit: the network is switched off, the hub out of reach, or the repository
            gated and no token given that may read it.
    """
    from huggingface_hub import HfApi

    with _explain(hf_id, revision):
        api = HfApi()
        info = api.model_info(hf_id, revision=revision, files_metadata=True, timeout=SECONDS)
        sizes = {one.rfilename: one.size or 0 for one in info.siblings or ()}
        digests = {one.rfilename: one.lfs.sha256 for one in info.siblings or () if one.lfs}
        commit = str(info.sha)
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise EnvironmentUnfit(f"the hub names no commit for {hf_id}: {commit!r:.60}")
        names = filter(is_side_file, sorted(sizes))
        paths = _download(hf_id, commit, {name: sizes[name] for name in names})
        if CONFIG not in paths:
            raise ValidationError(f"{hf_id}: has no {CONFIG}, so it is no model of transformers.")
        weights = _weights(hf_id, sizes, paths.get(INDEX))
        missing = [name for name in weights if name not in digests]
        for name, path in _download(hf_id, commit, {n: sizes[n] for n in missing}).items():
            digests[name] = sha256_file(path)  # small enough to be stored without LFS
        return HubModel(
            hf_id=hf_id,
            commit=commit,
            address=f"{api.endpoint}/{hf_id}",
            gated=bool(info.gated),
            folder=paths[CONFIG].parent,
            weights_sha256={name: digests[name] for name in weights},
            files=frozenset(sizes),
            metadata=info.card_data.to_dict() if info.card_data else {},
        )


def metadata_of(folder: Path) -> dict[str, Any]:
    """The head of the model card in a folder's ``README.md``; empty where there is none."""
    from huggingface_hub.repocard import metadata_load

    try:
        return metadata_load(folder / "README.md") or {}
    except Exception:  # absent, or no YAML: what it would say is asked of a person
        return {}


def _download(hf_id: str, commit: str, sizes: Mapping[str, int]) -> dict[str, Path]:
    """The files by name, in the hub's cache."""
    from huggingface_hub import hf_hub_download

    paths = {}
    for name, size in sizes.items():
        if size > MOST_BYTES:
            raise ValidationError(f"{hf_id}: {name} has {size:,} bytes, too many for such a file.")
        path = hf_hub_download(hf_id, name, revision=commit, etag_timeout=SECONDS)
        paths[name] = Path(path)
    return paths


def _weights(hf_id: str, names: Collection[str], index: Path | None) -> list[str]:
    """The files that hold the weights."""
    if index is not None:
        shards = sorted(shards_of(index))
        absent = [name for name in shards if name not in names]
        if absent:
            raise ValidationError(f"{hf_id}: lacks {absent[0]}, which its {INDEX} names.")
        return shards
    if WHOLE in names:
        return [WHOLE]
    pickles = sorted(n for n in names if any(fnmatch(n, pattern) for pattern in PICKLES))
    hint = f" It holds {', '.join(pickles[:3])}, which can run code when read." if pickles else ""
    raise ValidationError(
        f"{hf_id}: holds no {WHOLE} and no {INDEX}; crlbench reads safetensors only.{hint} Look for"
        " a revision or a repository of the same weights as safetensors."
    )


@contextmanager
def _explain(hf_id: str, revision: str) -> Iterator[None]:
    """What huggingface_hub raises, as one message for a person."""
    from huggingface_hub import constants, errors

    name, hub = f"{hf_id}@{revision}", constants.ENDPOINT
    try:
        yield
    except CrlbenchError:
        raise
    except errors.OfflineModeIsEnabled:
        raise EnvironmentUnfit(
            f"{name}: the network is switched off (--offline, CRLBENCH_OFFLINE or HF_HUB_OFFLINE),"
            " so the hub cannot be asked. Switch it on, or download the repository elsewhere and"
            " add its folder: crlbench add model ./FOLDER"
        ) from None
    except errors.GatedRepoError:
        raise EnvironmentUnfit(
            f"{name}: is gated. Accept its terms at {hub}/{hf_id} and give a token of that account:"
            " HF_TOKEN=hf_..., or hf auth login."
        ) from None
    except errors.RevisionNotFoundError:
        raise UsageError(
            f"{name}: the repository has no revision '{revision}'. Branches and commits stand at"
            f" {hub}/{hf_id}/commits"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UsageError(
            f"{name}: {hub} has no such repository, or not for this account (a private one needs"
            " HF_TOKEN)."
        ) from None
    except errors.HFValidationError as error:
        raise UsageError(f"{name}: {' '.join(str(error).split())[:200]}") from None
    except Exception as error:  # the net, a proxy's page, a disk that is full
        text = " ".join(str(error).split())[:200]
        raise EnvironmentUnfit(
            f"{name}: {hub} did not answer as a hub does: {type(error).__name__}: {text}. Try"
            " again, name a mirror with HF_ENDPOINT, or download the repository elsewhere and add"
            " its folder: crlbench add model ./FOLDER"
        ) from error
