"""Make the weights of ``tiny2-*`` that do not come along: ``python models/tiny/missing.py``.

Entries name the weights of every checkpoint by their digest. What is not here with that digest is
made by ``pretrain.py`` in a process of its own, and compared; what is, is not made again, so the
same command continues. Exit code 3 where a machine of another class makes other bits.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from card import weights_digest
from pretrain import BUNDLED, HERE, SECOND

from crlbench.base.wording import count
from crlbench.contract.model_card import read_model_card

PRETRAIN = Path(__file__).with_name("pretrain.py")
WEIGHTS = "model.safetensors"
OTHER_BITS = 3


def commands(folder: Path) -> Iterator[list[str]]:
    """What makes each missing checkpoint, as arguments of ``pretrain.py``.

    Args:
        folder: of entries and ``tiny/``.
    """
    for name in SECOND:
        entry, place = read_model_card(folder / f"{name}.toml"), folder / "tiny" / name
        if name not in BUNDLED and not _is_made(place, entry.weights_sha256[WEIGHTS]):
            yield ["--model", name]
        for label, digests in entry.checkpoints.items():
            if not _is_made(place / label, digests[WEIGHTS]):
                init, order = label.removeprefix("i").split("o")
                yield ["--model", name, "--init", init, "--order", order]


def _is_made(place: Path, stated: str) -> bool:
    """Whether a folder has the weights of that digest: others are of another pretraining, or the
    half of a file that was being written."""
    return (place / WEIGHTS).is_file() and weights_digest(place) == stated


def main(arguments: list[str] | None = None) -> int:
    """Make what is missing, or say what that is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (cores)")
    parser.add_argument("--out", type=Path, default=HERE.parent, help="folder of entries and tiny/")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    options = parser.parse_args(arguments)
    wanted = list(commands(options.out))
    if options.dry_run:
        for command in wanted:
            print(shlex.join(["python", "models/tiny/pretrain.py", *command]))
        print(count(len(wanted), "pretraining"))
        return 0

    def make(command: list[str]) -> int:
        given = [sys.executable, str(PRETRAIN), *command, "--out", str(options.out)]
        return subprocess.run(given, check=False).returncode

    with ThreadPoolExecutor(options.jobs) as pool:
        codes = set(pool.map(make, wanted))
    return max(codes - {0, OTHER_BITS}, default=OTHER_BITS if OTHER_BITS in codes else 0)


if __name__ == "__main__":
    sys.exit(main())
