"""The jail around every worker, looked at from outside, and what happens where it can't be built.

These tests need bubblewrap: without it they fail and say so.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts import SessionLimits
from holdfast.errors import OperatorError
from holdfast.shell.box import Box, Jail, Ran
from holdfast.shell.confine import bubblewrap, confine, remove
from holdfast.shell.languages._python_process import innermost
from holdfast.shell.languages.python import PythonBoxes

LIMITS = SessionLimits()


async def ran(box: Box, code: str) -> Ran:
    """A run that calls nobody."""
    done = await box.run(code, inputs={}, limits=LIMITS, names={})
    assert isinstance(done, Ran)
    return done


MISSING = (
    "bubblewrap does not work here: install it (apt-get install bubblewrap), allow user namespaces"
)


@pytest.fixture(autouse=True)
def fresh_probe() -> Iterator[None]:
    bubblewrap._working.cache_clear()
    yield
    bubblewrap._working.cache_clear()


@pytest.fixture(scope="module")
async def boxes(anyio_backend: str) -> AsyncGenerator[PythonBoxes]:
    async with PythonBoxes() as opened:
        assert opened.jail == "bubblewrap", f"{MISSING}: {opened.jail_reason}"
        yield opened


@pytest.fixture
async def proc(anyio_backend: str, boxes: PythonBoxes) -> AsyncGenerator[Path]:
    """The engine's process of a box, in /proc."""
    box = await boxes.open(LIMITS)
    assert (await ran(box, "1")).value == 1
    pid = box._live.session.worker_pid
    assert pid is not None
    yield Path(f"/proc/{innermost(pid)}")
    await box.close()


def status(proc: Path) -> dict[str, str]:
    lines = (proc / "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


async def test_the_jail_is_as_wanted(boxes: PythonBoxes):
    assert boxes.jail_reason == ""


def test_the_process_is_the_engine(proc: Path):
    assert (proc / "comm").read_text() == "worker\n"
    assert os.path.realpath(proc / "exe") in ("/worker", os.path.realpath(engine()))


@pytest.mark.parametrize("space", ["user", "pid", "net", "mnt", "ipc", "uts", "cgroup"])
def test_it_has_namespaces_of_its_own(proc: Path, space: str):
    assert os.readlink(proc / "ns" / space) != os.readlink(f"/proc/self/ns/{space}")


def test_it_is_nobody(proc: Path):
    inside, outside, count = (proc / "uid_map").read_text().split()
    assert (inside, count) == ("65534", "1")
    inside, _, count = (proc / "gid_map").read_text().split()
    assert (inside, count) == ("65534", "1")
    found = status(proc)
    if os.geteuid() == 0:
        assert outside == "65534"
        assert found["Uid"].split() == ["65534"] * 4
        assert found["Gid"].split() == ["65534"] * 4
    # `nobody` may have been a member of something; inside, no group but its own has a name.
    assert set(found["Groups"].split()) <= {"65534"}


def test_it_has_no_privileges(proc: Path):
    found = status(proc)
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[kind], 16) == 0
    assert found["NoNewPrivs"] == "1"


def test_it_sees_nothing_of_the_host(proc: Path):
    root = proc / "root"
    found = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    assert "worker" in found
    assert all(name == "worker" or ".so" in name for name in found), found
    assert not (root / "proc").exists()
    assert not (root / "tmp").exists()
    assert not (root / "etc").exists()


def test_its_root_is_read_only(proc: Path):
    mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    assert mounts
    assert all("ro" in mount[5].split(",") for mount in mounts), mounts


def test_it_has_no_network(proc: Path):
    interfaces = (proc / "net" / "dev").read_text().splitlines()[2:]
    assert {line.split(":")[0].strip() for line in interfaces} <= {"lo"}
    assert len((proc / "net" / "tcp").read_text().splitlines()) == 1
    assert (proc / "net" / "route").read_text().splitlines()[1:] == []
    assert len((proc / "net" / "unix").read_text().splitlines()) == 1


def test_it_has_no_environment_and_few_files(proc: Path):
    variables = (proc / "environ").read_bytes().split(b"\0")
    assert {name.partition(b"=")[0] for name in variables if name} <= {b"PWD"}
    opened = {os.readlink(path) for path in (proc / "fd").iterdir()}
    assert not [name for name in opened if name.startswith("/") and name != "/dev/null"]
    assert not [name for name in opened if name.startswith("socket:")]


def test_it_has_no_terminal(proc: Path):
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    assert fields[4] == "0"
    assert os.getsid(int(proc.name)) != os.getsid(0)


def test_its_resources_are_bounded(proc: Path):
    limits = (proc / "limits").read_text().splitlines()
    found = {line[:26].strip(): line[26:].split()[:2] for line in limits}
    assert found["Max core file size"] == ["0", "0"]
    assert found["Max file size"] == ["0", "0"]
    assert found["Max open files"] == ["64", "64"]


def inside(*command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program of the host in the jail of a worker."""
    program = shutil.which(command[0])
    assert program is not None
    launcher = confine(os.path.realpath(program), "required")
    try:
        return subprocess.run([launcher.program, *command[1:]], capture_output=True, timeout=20)
    finally:
        remove(launcher)


def test_the_jail_holds_other_programs_too(monkeypatch: pytest.MonkeyPatch):
    # `--version` is how a launcher is probed; whoever understands it can be jailed.
    done = inside("ls", "/")
    assert done.stdout.split() == [b"lib", b"lib64", b"worker"] or b"worker" in done.stdout
    assert inside("cat", "/etc/passwd").returncode != 0
    assert inside("touch", "/new").returncode != 0
    assert inside("unshare", "--user", "true").returncode != 0
    assert inside("env").stdout.strip() in (b"", b"PWD=/")


def test_the_hosts_network_is_out_of_reach():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
        outside = subprocess.run(["bash", "-c", script], capture_output=True).stdout
        # Nothing answers where not even the loopback device is up, as in a namespace made to be offline;
        # that the worker has a network of its own is then left to the test of the namespaces.
        assert outside in (b"connected\n", b"")
        assert inside("bash", "-c", script).stdout == b""


# -- where it can't be built ---------------------------------------------------------------------------


def broken(tmp_path: Path, script: str) -> str:
    """A folder with a `bwrap` in it that is none."""
    path = tmp_path / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


BROKEN = [
    ("echo 'bwrap: No permissions to create a new namespace' >&2; exit 1", "No permissions"),
    ("exit 7", "ended with 7"),
]


@pytest.mark.parametrize(("script", "reason"), BROKEN)
async def test_auto_runs_without_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
):
    monkeypatch.setenv("PATH", broken(tmp_path, script))
    async with PythonBoxes(jail="auto") as boxes:
        assert boxes.jail == "none"
        assert reason in boxes.jail_reason
        box = await boxes.open(LIMITS)
        assert (await ran(box, "1")).value == 1
        await box.close()


@pytest.mark.parametrize(("script", "reason"), BROKEN)
async def test_required_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
):
    monkeypatch.setenv("PATH", broken(tmp_path, script))
    with pytest.raises(OperatorError) as refused:
        async with PythonBoxes(jail="required"):
            pass
    assert refused.value.code == "JAIL_UNAVAILABLE"
    assert reason in refused.value.message
    assert refused.value.hint


async def test_a_missing_bubblewrap_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MONTY_BIN", engine())
    async with PythonBoxes() as boxes:
        assert (boxes.jail, boxes.jail_reason) == ("none", "bubblewrap (`bwrap`) is not installed")
    with pytest.raises(OperatorError, match="not installed"):
        async with PythonBoxes(jail="required"):
            pass


def engine() -> str:
    from pydantic_monty._binary import find_monty_binary

    return find_monty_binary()


async def test_off_is_off():
    async with PythonBoxes(jail="off") as boxes:
        assert (boxes.jail, boxes.jail_reason) == ("none", "switched off")
        box = await boxes.open(LIMITS)
        done = await ran(box, "x = 'a' * (20 << 20)\nresult = 1")
        assert done.value == 1
        assert done.metrics.memory_peak_bytes > 20 << 20
        await box.close()


async def test_an_older_bubblewrap_is_used_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = shutil.which("bwrap")
    script = (
        'for one in "$@"; do [ "$one" = --disable-userns ] && '
        f"{{ echo 'bwrap: Unknown option --disable-userns' >&2; exit 1; }}; done; exec {real} \"$@\""
    )
    monkeypatch.setenv("PATH", broken(tmp_path, script))
    async with PythonBoxes(jail="required") as boxes:
        assert boxes.jail == "bubblewrap"
        assert "too old" in boxes.jail_reason
        assert "/proc/sys is read-only" in boxes.jail_reason
        box = await boxes.open(LIMITS)
        assert (await ran(box, "1")).value == 1
        await box.close()


async def test_an_engine_that_only_root_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if os.geteuid() != 0:
        return  # only root can have this problem
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setenv("MONTY_BIN", str(shutil.copy(engine(), private)))
    async with PythonBoxes(jail="required") as boxes:
        assert boxes.jail == "bubblewrap"
        assert "run as root" in boxes.jail_reason
        box = await boxes.open(LIMITS)
        assert (await ran(box, "1")).value == 1
        await box.close()


def test_the_probe_runs_once(monkeypatch: pytest.MonkeyPatch):
    worker = engine()
    remove(confine(worker, "required"))

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("probed again")

    monkeypatch.setattr(bubblewrap.subprocess, "run", refuse)
    launcher = confine(worker, "required")
    assert Path(launcher.program).read_text().startswith("#!/bin/sh\n")
    remove(launcher)
    assert not Path(launcher.program).exists()


def test_a_temporary_folder_that_does_not_execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # a script that can't be executed
    with pytest.raises(OperatorError) as refused:
        confine(engine(), "required")
    assert "can't be executed" in refused.value.message


async def test_a_missing_engine_is_the_operators(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MONTY_BIN", "/nowhere/monty")
    for jail in ("auto", "off"):
        wanted: Jail = jail
        with pytest.raises(OperatorError) as refused:
            async with PythonBoxes(jail=wanted):
                pass
        assert refused.value.code == "ENGINE_UNAVAILABLE"


@pytest.fixture
def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


async def test_what_a_killed_process_left_behind_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_pid: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"holdfast-worker-{dead_pid}-abc"
    left.mkdir()
    alive = tmp_path / f"holdfast-worker-{os.getpid()}-def"
    alive.mkdir()
    async with PythonBoxes():
        assert not left.exists()
        assert alive.exists()
