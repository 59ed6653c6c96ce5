"""What every test gets: a home of its own, asyncio, hypothesis without luck; and what tests of several parts want."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
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


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that a connection is made to; none is really made but to loopback."""
    found: list[str] = []
    connect = anyio.connect_tcp

    # `Any`: whatever the library passes on.
    async def dial(remote_host: str, remote_port: int, **more: Any) -> Any:
        found.append(remote_host)
        if not ip_address(remote_host).is_loopback:
            raise OSError("not in a test")
        return await connect(remote_host, remote_port, **more)

    monkeypatch.setattr(anyio, "connect_tcp", dial)
    return found


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio; `anyio_mode = "auto"` finds them without a mark."""
    return "asyncio"
