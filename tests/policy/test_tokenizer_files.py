"""A tokenizer's files do not say how it was loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "models/tiny/tiny2-llama"
SAVE = """
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from crlbench.policy.text.tokenizer_files import save_tokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
before = dict(tokenizer.init_kwargs)
save_tokenizer(tokenizer, Path(sys.argv[2]))
assert tokenizer.init_kwargs == before
print(before["local_files_only"])
"""


@pytest.mark.slow
def test_they_are_equal_with_and_without_the_network(tmp_path: Path) -> None:
    said = []
    for offline in ("0", "1"):
        environment = {**os.environ, "HF_HUB_OFFLINE": offline, "TRANSFORMERS_OFFLINE": offline}
        done = subprocess.run(
            [sys.executable, "-c", SAVE, str(FOLDER), str(tmp_path / offline)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        said.append(done.stdout.strip())
    assert said == ["False", "True"], "what transformers keeps of the network"
    files = {path.name for path in (tmp_path / "1").iterdir()}
    assert "tokenizer_config.json" in files
    for name in files:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "0" / name).read_bytes()
