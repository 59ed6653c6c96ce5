"""For the tests of the shell: where the journal is."""

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal of each kind."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A journal that other processes can open, and a world they share."""
    monkeypatch.setenv("WORLD", str(tmp_path))
    return f"sqlite:///{tmp_path}/journal.db"
