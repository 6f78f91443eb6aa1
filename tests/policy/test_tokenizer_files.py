"""A tokenizer's files do not say how it was loaded."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from crlbench.policy.text.tokenizer_files import save_tokenizer

FOLDER = Path(__file__).parents[2] / "models/tiny/tiny2-llama"


def test_they_are_equal_with_and_without_the_network(tmp_path: Path) -> None:
    for offline in (False, True):
        tokenizer = AutoTokenizer.from_pretrained(FOLDER, local_files_only=offline)
        before = dict(tokenizer.init_kwargs)
        save_tokenizer(tokenizer, tmp_path / str(offline))
        assert tokenizer.init_kwargs == before
    files = {path.name for path in (tmp_path / "True").iterdir()}
    assert "tokenizer_config.json" in files
    for name in files:
        assert (tmp_path / "True" / name).read_bytes() == (tmp_path / "False" / name).read_bytes()
