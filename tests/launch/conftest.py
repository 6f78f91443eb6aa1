"""Launchers as a command has them: it starts one nursery, and keeps no libraries for a second."""

from __future__ import annotations

import pytest

from crlbench.launch import worker


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "KEEP_LIBRARIES", False)
