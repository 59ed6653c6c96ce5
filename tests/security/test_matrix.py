"""The security matrix: every row run, validated, and cancelled on its way; nothing outside is touched."""

import logging
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from textwrap import indent
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from tests.capabilities.web import reply
from tests.security.support import (
    ALLOW,
    IN_A_CAPABILITY,
    IN_A_FILE,
    IN_ANOTHER_SESSION,
    VICTIM,
    World,
    code_of,
    no_process_left,
    processes,
    until,
)

import holdfast
from holdfast import RunResult, Runtime, capability
from holdfast.capabilities.builtin import http
from holdfast.contracts.canonical import seal
from holdfast.errors import CallerError

LIMITS: dict[str, Any] = {"cpu_ms": 300, "wall_ms": 2000, "memory_mb": 16}
LONG: dict[str, Any] = {"cpu_ms": 60_000, "wall_ms": 60_000, "max_external_calls": 1_000_000}
SAID = 'could not reach "db": 50% {of} \\n <tries> \u00e9\u202e failed'
CONTROLS = "\x00\x1b[2J\r\n\u202e\u2066'; import os #{tool.secret}%(x)s"
PLACES = {
    "/inner": "http://inner.example/",
    "/metadata": "http://169.254.169.254/latest/meta-data/",
}
_ids = count()


@dataclass(frozen=True)
class Row:
    """One row: code, how a run of it ends, and what can be told without running it."""

    name: str
    code: str
    ends: str
    found: str = "ok"
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    value: Any = None
    """The result, where it ends well."""


ROWS = [
    Row("path escape", "read_text('/workspace/../canary.txt')", "PERMISSION_DENIED"),
    Row("path escape without a grant", "open('/etc/passwd').read()", "PERMISSION_DENIED", "UNSUPPORTED_FEATURE"),
    Row("symlink out of a mount", "read_text('/workspace/link')", "PERMISSION_DENIED"),
    Row("network without grant", "import socket\nsocket.create_connection(('127.0.0.1', 22))", "UNSUPPORTED_FEATURE", "UNSUPPORTED_FEATURE"),
    Row("network to another host", "await fetch_text('https://elsewhere.example/')", "PERMISSION_DENIED"),
    Row("redirect to a private address", "await fetch_text('http://localhost:@PORT@/inner')", "PERMISSION_DENIED"),
    Row("redirect to the machine's metadata", "await fetch_text('http://localhost:@PORT@/metadata')", "PERMISSION_DENIED"),
    Row("DNS name resolving to loopback", "await fetch_text('http://loop.example:@PORT@/')", "PERMISSION_DENIED"),
    Row("subprocess", "import subprocess\nsubprocess.run(['touch', '@FOLDER@/new'])", "UNSUPPORTED_FEATURE", "UNSUPPORTED_FEATURE"),
    Row("subprocess by os", "import os\nos.system('touch @FOLDER@/new')", "RUNTIME_ERROR", "UNSUPPORTED_FEATURE"),
    Row("reflection", "().__class__.__bases__[0].__subclasses__()", "RUNTIME_ERROR"),
    Row("reflection on a capability", "tool.__globals__", "RUNTIME_ERROR"),
    Row("undeclared import", "import ctypes", "UNSUPPORTED_FEATURE", "UNSUPPORTED_FEATURE"),
    Row("infinite loop", "while True: pass", "TIMEOUT_CPU"),
    Row("giant list", "x = [0] * 10**10", "MEMORY_EXCEEDED"),
    Row("giant string", "x = 'a' * 10**10", "MEMORY_EXCEEDED"),
    Row("giant power", "x = 9 ** 9 ** 9", "MEMORY_EXCEEDED"),
    Row("deep recursion", "def f(): f()\nf()", "STACK_OVERFLOW"),
    Row("catastrophic regular expression", "import re\nwhile True: re.match('(a+)+$', 'a' * 30 + 'b')", "TIMEOUT_CPU"),
    Row("stdout flood", "while True: print('x' * 10000)", "STDOUT_EXCEEDED"),
    Row("call storm", "while True:\n  try: tool()\n  except BaseException: pass", "EXTERNAL_CALLS_EXCEEDED"),
    Row("call storm, awaited", "import asyncio\nawait asyncio.gather(*[atool(n) for n in range(10000)])", "EXTERNAL_CALLS_EXCEEDED"),
    Row("tool error text", "failing()", "TOOL_ERROR"),
    Row("tool error text, caught", "try:\n  failing()\nexcept ValueError as why:\n  said = str(why)\nsaid", "ok", value=SAID),
    Row("control characters in inputs", "given", "ok", inputs={"given": CONTROLS}, value=CONTROLS),
    Row("secret in a tool's configuration", "leaking()", "TOOL_ERROR"),
    Row("another session's variables", "mine", "RUNTIME_ERROR", "TYPE_ERROR"),
    Row("result larger than the limit", "flood()", "RESPONSE_TOO_LARGE"),
    Row("capability that never returns", "await hang()", "TIMEOUT_WALL"),
    Row("capability that never returns, in a thread", "hang_in_thread()", "TIMEOUT_WALL"),
]  # fmt: skip


# -- the world of the matrix -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dialled() -> Iterator[list[str]]:
    """Every address that a connection is made to; none is really made but to loopback."""
    found: list[str] = []
    connect = anyio.connect_tcp

    # `Any`: whatever the library passes on.
    async def dial(remote_host: str, remote_port: int, **more: Any) -> Any:
        found.append(remote_host)
        if not ip_address(remote_host).is_loopback:
            raise OSError("not in a test")
        return await connect(remote_host, remote_port, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "connect_tcp", dial)
        yield found


async def resolve(host: str, port: int) -> Sequence[str]:
    """The names of this world, and where they lead."""
    return {"inner.example": ["10.0.0.1"], "loop.example": ["127.0.0.1"]}.get(host, ["127.0.0.1"])


@asynccontextmanager
async def sending_on() -> AsyncGenerator[int]:
    """The port of a server that sends whoever asks on to where they must not go. Clients may vanish."""

    async def handle(stream: SocketStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with stream:
                path = (await stream.receive()).decode().split()[1]
                where = PLACES.get(path)
                headers = (f"Location: {where}",) if where else ()
                await stream.send(reply("", "302 Found" if where else "200 OK", *headers))

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def failing() -> None:
    """Fail."""
    raise ValueError(SAID)


def leaking(password: str = IN_A_CAPABILITY) -> None:
    """Fail, and tell too much."""
    logging.getLogger("holdfast").warning("login as %s", password)
    raise RuntimeError(f"login failed for admin:{password}@db")


@dataclass
class Matrix:
    """A runtime in which every row has what it needs."""

    hf: Runtime
    world: World
    port: int
    dialled: list[str]
    journal: Path

    def code(self, row: Row) -> str:
        """The code of a row in this world."""
        return self.world.fill(row.code).replace("@PORT@", str(self.port))

    async def run(self, code: str, session: str, **more: Any) -> RunResult:
        """Run code in a session that has the mounts."""
        return await self.hf.shell.run(code, session=session, setup=self.world.setup, **more)

    async def serves(self, session: str) -> None:
        """This session, another one and validation go on."""
        for id_ in (session, "another"):
            found = await self.run("tool('abc') + 1", id_, limits=LONG)
            assert (found.result, found.error) == (4, None)
        assert code_of(await self.run("tool('abc')", "another", validate_only=True)) == "ok"


@pytest.fixture(scope="module")
async def matrix(
    world: World, dialled: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Matrix]:
    """Everything the rows need. Leaving it, no process is left."""
    before = processes()
    path = tmp_path_factory.mktemp("matrix") / "journal.db"
    tools = [*world.tools, capability(failing), capability(lambda: leaking(), name="leaking")]
    async with sending_on() as port:
        hosts = [
            f"localhost:{port}",
            "http://inner.example",
            f"http://loop.example:{port}",
        ]
        tools += http(hosts, resolve=resolve)
        secrets = {"leaking.password": IN_A_CAPABILITY}
        url = f"sqlite:///{path}"
        async with holdfast.open(url, ALLOW, capabilities=tools, secrets=secrets) as hf:
            await hf.shell.run(f"mine = {IN_ANOTHER_SESSION!r}", session=VICTIM)
            yield Matrix(hf, world, port, dialled, path)
            world.release.set()
    await no_process_left(before)


# -- every row -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_run_ends_as_it_must(matrix: Matrix, row: Row):
    code, before, id_ = matrix.code(row), matrix.world.state(), f"run-{next(_ids)}"
    dialled = len(matrix.dialled)
    result = await matrix.run(code, id_, limits=LIMITS, inputs=row.inputs)
    if code_of(result) in ("TIMEOUT_CPU", "TIMEOUT_WALL") and code_of(result) != row.ends:
        result = await matrix.run(code, id_, limits={**LIMITS, "cpu_ms": 20_000, "wall_ms": 20_000}, inputs=row.inputs)  # fmt: skip
    assert code_of(result) == row.ends, result.error
    assert result.result == row.value
    assert matrix.world.leaks(result, code) == []
    assert matrix.world.state() == before
    # Whoever is not allowed is not called: neither what is inside, nor loopback by another name.
    reached = matrix.dialled[dialled:]
    assert set(reached) <= ({"127.0.0.1", "::1"} if "localhost" in code else set())
    await matrix.serves(id_)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_validation_touches_nothing(matrix: Matrix, row: Row):
    code, before, id_ = matrix.code(row), matrix.world.state(), f"check-{next(_ids)}"
    asked, dialled = len(matrix.world.said), len(matrix.dialled)
    result = await matrix.run(code, id_, limits=LIMITS, inputs=row.inputs, validate_only=True)
    assert code_of(result) == row.found, result.error
    if result.error is not None:
        assert result.error.span is not None
        assert result.error.hint
    assert (result.result, result.stdout, result.external_calls) == (None, "", ())
    assert matrix.world.leaks(result, code) == []
    assert (matrix.world.state(), len(matrix.world.said)) == (before, asked)
    assert len(matrix.dialled) == dialled
    assert id_ not in [one.id for one in await matrix.hf.shell.list(limit=1000)]


def over_and_over(row: Row) -> str:
    """A row that does not end, so that there is something to cancel."""
    return f"while True:\n  try:\n{indent(row.code, '    ')}\n  except Exception: pass"


@pytest.mark.parametrize("how", ["now", "after_effect", "task"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_run_can_be_cancelled(matrix: Matrix, row: Row, how: str):
    endless = matrix.code(Row(row.name, over_and_over(row), row.ends))
    before, id_, ended = matrix.world.state(), f"cancel-{next(_ids)}", list[RunResult]()
    await matrix.run("kept = 7", id_)
    mode: Any = how

    async def run() -> None:
        ended.append(await matrix.run(endless, id_, limits=LONG, inputs=row.inputs))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            if how == "task":
                await anyio.sleep(0.02)
                tasks.cancel_scope.cancel()
            elif "hang" in row.code and how == "after_effect":
                # It waits for a call that never ends: only `now` helps.
                await until(lambda: matrix.hf.shell.cancel(id_, mode="after_effect") or bool(ended))
                await until(lambda: matrix.hf.shell.cancel(id_, mode="now") or bool(ended))
            else:
                await until(lambda: matrix.hf.shell.cancel(id_, mode=mode) or bool(ended))
    for result in ended:
        # Some break a limit before anybody can cancel them.
        assert code_of(result) in ("CANCELLED", row.ends)
        assert matrix.world.leaks(result, endless) == []
    assert matrix.world.state() == before
    # The session is as it was before the run.
    assert (await matrix.run("kept", id_)).result == 7
    await matrix.serves(id_)


# -- rows that need more than code -----------------------------------------------------------------------


@contextmanager
def swapping(place: Path, good: Path, bad: Path) -> Iterator[None]:
    """While inside, a path leads now here, now there."""
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in (good, bad):
                os.replace(_link(place.with_name("next"), target), place)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _link(at: Path, target: Path) -> Path:
    at.unlink(missing_ok=True)
    os.symlink(target, at)
    return at


@pytest.mark.parametrize("how", ["run", "validate", "cancel"])
async def test_a_path_swapped_between_check_and_use(matrix: Matrix, tmp_path: Path, how: str):
    mount, outside = tmp_path / "mount", tmp_path / "outside"
    for folder in (mount / "real", outside):
        folder.mkdir(parents=True)
    (mount / "real" / "f.txt").write_text("inside")
    (outside / "f.txt").write_text(IN_A_FILE)
    code = (
        "seen = {}\nfor _ in range(150):\n"
        "  try: seen[read_text('/m/swapped/f.txt')] = 1\n"
        "  except (PermissionError, OSError): pass\nlist(seen)"
    )
    setup: dict[str, Any] = {"mounts": [{"path": "/m", "host": str(mount)}]}
    id_ = f"swap-{next(_ids)}"
    with swapping(mount / "swapped", mount / "real", outside):
        with anyio.move_on_after(0.05 if how == "cancel" else 60):
            result = await matrix.hf.shell.run(
                code, session=id_, setup=setup, limits=LONG, validate_only=how == "validate"
            )
            assert IN_A_FILE not in result.model_dump_json()
            assert result.error is None
    assert (await matrix.hf.shell.run("1 + 1", session=id_, setup=setup)).result == 2


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


async def refused(restore: Callable[[bytes], Awaitable[Any]], data: bytes) -> str:
    with pytest.raises(CallerError) as caught:
        await restore(data)
    assert IN_ANOTHER_SESSION not in str(caught.value)
    return caught.value.code


async def test_a_tampered_snapshot(matrix: Matrix):
    shell, id_ = matrix.hf.shell, f"tamper-{next(_ids)}"
    good = await shell.snapshot(VICTIM)

    async def restore(data: bytes) -> Any:
        return await shell.restore(id_, data)

    for at in (0, 4, 9, len(good) // 2, len(good) - 33, len(good) - 1):
        assert await refused(restore, flipped(good, at)) == "SNAPSHOT_CORRUPT"
    for data in (b"", b"HFS1", good[:-1], good + b"x", good[:40], good[32:], bytes(len(good))):
        assert await refused(restore, data) == "SNAPSHOT_CORRUPT"
    # Sealed again, but with another key.
    forged = good[:-32] + seal(bytes(32), good[:-32])
    assert await refused(restore, forged) == "SNAPSHOT_CORRUPT"
    # Nothing came of it, and nothing of it is known to a validation either.
    assert id_ not in [one.id for one in await shell.list(limit=1000)]
    assert code_of(await shell.run("mine", session=id_, validate_only=True)) == "TYPE_ERROR"
    assert code_of(await shell.run("mine", session=id_)) == "RUNTIME_ERROR"
    await matrix.serves(id_)


async def test_a_snapshot_of_another_version(matrix: Matrix):
    shell, id_ = matrix.hf.shell, f"version-{next(_ids)}"
    good = await shell.snapshot(VICTIM)
    key = matrix.journal.with_name(matrix.journal.name + ".key").read_bytes()

    async def restore(data: bytes) -> Any:
        return await shell.restore(id_, data)

    for then, now in ((b'"v":1', b'"v":2'), (b'"monty/', b'"mxnty/')):
        assert then in good
        other = good[:-32].replace(then, now, 1)
        assert await refused(restore, other + seal(key, other)) == "SNAPSHOT_VERSION_MISMATCH"
    # A state that only the engine finds fault with.
    other = good[:-64] + bytes(32)
    assert await refused(restore, other + seal(key, other)) == "SNAPSHOT_CORRUPT"
    assert id_ not in [one.id for one in await shell.list(limit=1000)]
    await matrix.serves(id_)


@pytest.mark.parametrize("after", [0.0, 0.002, 0.01])
async def test_a_restore_can_be_cancelled(matrix: Matrix, after: float):
    shell, id_ = matrix.hf.shell, f"restore-{next(_ids)}"
    good = await shell.snapshot(VICTIM)
    with anyio.move_on_after(after):
        await shell.restore(id_, good)
    assert code_of(await shell.run("mine", session=id_)) in ("ok", "RUNTIME_ERROR")
    await shell.restore(id_, good)
    assert (await shell.run("mine", session=id_)).result == IN_ANOTHER_SESSION


@pytest.mark.parametrize(
    "name", ["a b", "a\x00", "a\n", "\u202ea", "__class__", "result", "tool", "list_tools", "for", "1a", ""]
)  # fmt: skip
async def test_an_input_with_a_name_that_is_none(matrix: Matrix, name: str):
    id_ = f"name-{next(_ids)}"
    result = await matrix.run("1 + 1", id_, inputs={name: "x"})
    assert code_of(result) == "INVALID_ARGUMENT"
    await matrix.serves(id_)


@pytest.mark.parametrize(
    "value", [CONTROLS, {"\x00": [CONTROLS]}, "\x1b]0;title\x07", "\u0085\u2028\u2029", "\ufeff"]
)
async def test_an_input_stays_data(matrix: Matrix, value: Any):
    result = await matrix.run("given", "inputs", inputs={"given": value})
    assert result.result == value
    again = await matrix.run("given = 1", "inputs", inputs={"given": value})
    assert code_of(again) == "INVALID_ARGUMENT"


async def test_a_secret_appears_nowhere(matrix: Matrix, caplog: pytest.LogCaptureFixture):
    code = "try:\n  leaking()\nexcept Exception as why:\n  x = str(why)\n  print(x)\nleaking()"
    result = await matrix.run(code, "secretive", return_snapshot=True, durable=True)
    assert "login failed" in result.stdout
    snapshot = await matrix.hf.shell.snapshot("secretive")
    files = [path.read_bytes() for path in matrix.journal.parent.iterdir() if path.is_file()]
    records = [record.model_dump_json() async for record in matrix.hf.journal.read_all(after=0)]
    assert "login as" in caplog.text
    for place in (result.model_dump_json(), caplog.text, *records):
        assert IN_A_CAPABILITY not in place
    for data in (snapshot, *files):
        assert IN_A_CAPABILITY.encode() not in data
