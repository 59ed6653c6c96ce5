"""A server in its jail."""

import json
import shutil
import socket
from pathlib import Path

import pytest
from tests.mcp.support import HERE, alive, context, npm, odd, opened, until

from holdfast.capabilities.mcp.jail import jailed
from holdfast.errors import OperatorError

CODE = str(HERE)


async def test_it_sees_its_mounts_and_nothing_else(tmp_path: Path):
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir()
    (tmp_path / "open" / "a.txt").write_text("a")
    (tmp_path / "closed" / "b.txt").write_text("b")
    read, write = str(tmp_path / "closed"), str(tmp_path / "open")
    async with opened(odd(jail=True, mounts=(CODE, f"{write}:rw"))) as server:
        assert await server.call("read", {"path": f"{write}/a.txt"}, context()) == "a"
        assert await server.call("write", {"path": f"{write}/c.txt"}, context()) == "7"
        assert await server.call("read", {"path": f"{read}/b.txt"}, context()) == "none"
        assert await server.call("read", {"path": "/etc/passwd"}, context()) == "none"
        assert await server.call("write", {"path": f"{CODE}/x.txt"}, context()) == "errno 30"
        home = json.loads(str(await server.call("env", {}, context())))["HOME"]
        assert await server.call("write", {"path": f"{home}/x.txt"}, context()) == "7"
    assert (tmp_path / "open" / "c.txt").read_text() == "written"
    assert not (HERE / "x.txt").exists()


async def test_it_has_no_network_and_sees_no_process():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = {"port": listening.getsockname()[1]}
        async with opened(odd()) as server:
            assert await server.call("connect", port, context()) == "connected"
        async with opened(odd(jail=True, mounts=(CODE,))) as server:
            assert "errno" in str(await server.call("connect", port, context()))
            assert int(str(await server.call("pid", {}, context()))) < 10


def with_argument(text: bytes) -> list[int]:
    """The processes of this machine that have it in their command."""
    found: list[int] = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if text in (one / "cmdline").read_bytes():
                found.append(int(one.name))
        except OSError:
            pass
    return found


async def test_all_of_it_ends_with_the_connection(tmp_path: Path):
    mark = str(tmp_path).encode()
    options = {"stubborn": True, "mark": str(tmp_path)}
    async with opened(odd(options, jail=True, mounts=(CODE,))) as server:
        await server.call("spawn", {"stop": True}, context())
        assert with_argument(mark)
    await until(lambda: not any(map(alive, with_argument(mark))))


async def test_a_real_server_runs_in_it(tmp_path: Path):
    (tmp_path / "note.txt").write_text("hello")
    folder = str(tmp_path)
    spec = npm("filesystem", folder, jail=True, mounts=(str(HERE / "node"), folder))
    async with opened(spec) as server:
        found = await server.call("read_text_file", {"path": f"{folder}/note.txt"}, context())
        assert found == {"content": "hello"}


async def test_a_mount_that_is_not_there_is_said():
    with pytest.raises(OperatorError, match="/no/such/folder") as why:
        async with opened(odd(jail=True, mounts=("/no/such/folder",))):
            pass
    assert why.value.code == "SURFACE_FAILED"


def test_without_bubblewrap_there_is_no_jail_and_no_server(monkeypatch: pytest.MonkeyPatch):
    def which(name: str, *_: object) -> str | None:
        return None

    monkeypatch.setattr(shutil, "which", which)
    with pytest.raises(OperatorError) as why:
        jailed(odd(jail=True), "/usr/bin/python3")
    assert why.value.code == "JAIL_UNAVAILABLE"
