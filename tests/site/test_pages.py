"""Where pages stand: on every system, each at a place of its own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.site.pages import DEVICES, entry_path, portable

NAMES = st.one_of(
    st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*(\+[a-z0-9._=:,-]+)*", fullmatch=True),
    st.from_regex(r"[a-z0-9]+([.-][a-z0-9]+)*(@[0-9a-f]{8})?", fullmatch=True),
    st.sampled_from(sorted(DEVICES)).flatmap(lambda name: st.sampled_from([name, f"{name}.x"])),
)
"""Of recipes, of models and tasks, and what Windows keeps for devices."""


@pytest.mark.slow
@given(NAMES, NAMES)
def test_names_stay_apart_and_are_files_on_windows(one: str, other: str):
    parts = portable(one), portable(other)
    assert (parts[0] == parts[1]) == (one == other)
    for part in parts:
        assert re.fullmatch(r"[a-z0-9@._+=,-]+", part) and not part.endswith(".")
        assert part.partition(".")[0] not in DEVICES


@pytest.mark.parametrize("pair", [("a.", "a:"), ("a.", "a"), ("a:b", "a.b"), ("aux", "aux:")])
def test_what_looks_alike_stays_apart(pair: tuple[str, str]):
    assert portable(pair[0]) != portable(pair[1])


def test_usual_names_stay_as_they_are():
    found = entry_path("mini-543da47d0c99", "tiny-llama@25666175", "grpo+clip.high=0.28")
    assert found == "runs/mini-543da47d0c99/tiny-llama@25666175/grpo+clip.high=0.28/index.html"
