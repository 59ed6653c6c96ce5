"""What every test gets: a home of its own, asyncio, and hypothesis without luck."""

from pathlib import Path

import pytest
from hypothesis import settings

# These are libraries: without this their asserts would fail without saying why.
pytest.register_assert_rewrite("holdfast.testing", "tests.machines.support")

# The same examples on every run, and no verdict that depends on how busy the machine is.
# Whoever hunts for new failures runs `pytest --hypothesis-profile=search`.
settings.register_profile("ci", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("search", deadline=None, max_examples=2_000)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def holdfast_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh `HOLDFAST_HOME`, inherited by the processes a test starts."""
    home = tmp_path / "holdfast-home"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio; `anyio_mode = "auto"` finds them without a mark."""
    return "asyncio"
