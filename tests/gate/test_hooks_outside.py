"""Hooks that are programs or URLs: real processes, real sockets."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.hooks_support import AFTER, BEFORE, Recorder, fire

from holdfast.errors import HoldfastError
from holdfast.gate.hooks import Hook, HookStatus, View, configured

SLOW_MS = 30_000  # for what must not time out on a busy machine


def program(tmp_path: Path, source: str, **terms: Any) -> Hook:
    path = tmp_path / "hook.py"
    path.write_text(f"import json, os, sys, time\n{source}\n")
    return configured(
        [
            {
                "id": "program",
                "point": BEFORE,
                "rights": ["deny", "modify_tool_request"],
                "command": [sys.executable, "-S", "-E", str(path)],
                "timeout_ms": SLOW_MS,
                "failure": "deny",
                "privacy": "content_capture_allowed",
                **terms,
            }
        ]
    )[0]


DENY = '{"type": "deny", "payload": {"code": "no", "summary": "Not there."}}'


# --- programs ---


async def test_a_program_reads_the_question_and_answers(tmp_path: Path):
    made = program(
        tmp_path,
        """
question = json.load(sys.stdin)
arguments = {**question["arguments"], "by": question["hook_id"]}
payload = {"summary": "signed", "arguments": arguments}
json.dump({"type": "modify_tool_request", "payload": payload}, sys.stdout)
""",
    )
    record = Recorder()
    fired = await fire([made], record=record)
    assert fired.view.arguments == {"to": "you", "by": "program"}
    assert record.events == ["accepted_journaled_before_apply"]


async def test_a_program_may_refuse_without_reading(tmp_path: Path):
    made = program(tmp_path, f"print({DENY!r})")
    big = View("a call", arguments={"text": "x" * 1_000_000})
    fired = await fire([made], view=big)
    assert fired.denied is not None


async def test_a_silent_program_has_looked(tmp_path: Path):
    fired = await fire([program(tmp_path, "sys.stdin.read()")])
    assert fired.outcomes[0].status is HookStatus.COMPLETED


async def failure(made: Hook, record: Recorder | None = None) -> str:
    with pytest.raises(HoldfastError) as closed:
        await fire([made], record=record)
    assert closed.value.code == "PERMISSION_DENIED"
    return closed.value.message


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("sys.exit(3)", "ended with exit code 3"),
        (f"print({DENY!r}); sys.exit(1)", "ended with exit code 1"),
        ("print('nonsense')", "Its answer is no hook response"),
        ('print(\'{"type": "fly"}\')', "Its answer is no hook response"),
        ("while True: sys.stdout.write('x' * 65536)", "Its answer is over 1048576 bytes"),
    ],
)
async def test_a_program_that_fails(tmp_path: Path, source: str, why: str):
    record = Recorder()
    assert why in await failure(program(tmp_path, source), record)
    assert record.events == ["failed"]


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def gone(pid: int) -> None:
    with anyio.fail_after(30):
        while is_there(pid):  # noqa: ASYNC110  (no event comes from another's child)
            await anyio.sleep(0.01)


async def test_a_program_that_hangs_is_given_up(tmp_path: Path):
    record = Recorder()
    made = program(tmp_path, "time.sleep(1000)", timeout_ms=300)
    assert "longer than 300 ms" in await failure(made, record)
    assert record.events == ["timed_out"]


async def test_a_program_is_killed_with_its_children(tmp_path: Path):
    pids = tmp_path / "pids"
    made = program(
        tmp_path,
        f"""
child = os.fork()
if child:
    with open({str(pids) + ".new"!r}, "w") as out:
        out.write(f"{{os.getpid()}} {{child}}")
    os.rename({str(pids) + ".new"!r}, {str(pids)!r})
time.sleep(1000)
""",
    )

    async def firing() -> None:
        await fire([made])

    async with anyio.create_task_group() as group:
        group.start_soon(firing)
        with anyio.fail_after(30):
            while not pids.exists():  # noqa: ASYNC110  (it is another process that writes it)
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    parent, child = map(int, pids.read_text().split())
    await gone(child)
    # The parent is our own child: it is gone for good, not a zombie.
    assert not os.path.exists(f"/proc/{parent}")  # noqa: ASYNC240


async def test_a_child_that_outlives_its_program_is_killed(tmp_path: Path):
    pid = tmp_path / "pid"
    made = program(
        tmp_path,
        f"""
child = os.fork()
if not child:
    os.close(1)
    time.sleep(1000)
with open({str(pid)!r}, "w") as out:
    out.write(str(child))
""",
    )
    await fire([made])
    child = int(pid.read_text())
    await gone(child)
    assert not is_there(child)


async def test_a_program_gets_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("API_KEY", "s3cret")
    monkeypatch.setenv("REGION", "eu")
    source = """
payload = {"summary": "", "arguments": {"names": sorted(os.environ), "region": os.environ["REGION"]}}
json.dump({"type": "modify_tool_request", "payload": payload}, sys.stdout)
"""
    fired = await fire([program(tmp_path, source, env=["REGION", "NOT_SET"])])
    found: Any = fired.view.arguments
    assert found["region"] == "eu"
    # Python itself may add LC_CTYPE.
    assert set(found["names"]) <= {"HOME", "LANG", "LC_CTYPE", "PATH", "REGION"}


async def test_a_program_that_can_not_be_started_any_more_fails(tmp_path: Path):
    path = tmp_path / "check"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    (made,) = configured(
        [{"id": "gone", "point": BEFORE, "command": [str(path)], "failure": "deny"}]
    )
    path.unlink()
    record = Recorder()
    assert "FileNotFoundError" in await failure(made, record)
    assert record.events == ["failed"]


# --- URLs ---


class Server:
    """An HTTP server on loopback that answers as it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, Any]] = []
        self.got: list[dict[str, str]] = []
        self.hang = threading.Event()
        self.hang.set()
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                ours.asked.append(json.loads(self.rfile.read(size)))
                ours.got.append({k.lower(): v for k, v in self.headers.items()})
                ours.hang.wait(60)
                try:
                    self.send_response(ours.status)
                    for name, value in ours.headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(ours.body)))
                    self.end_headers()
                    self.wfile.write(ours.body)
                except OSError:
                    pass  # whoever asked is gone

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/ask"

    def close(self) -> None:
        self.hang.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def posted(server: Server, **terms: Any) -> Hook:
    return configured(
        [
            {
                "id": "url",
                "point": BEFORE,
                "rights": ["deny", "modify_tool_request"],
                "url": server.url,
                "timeout_ms": SLOW_MS,
                "failure": "deny",
                **terms,
            }
        ]
    )[0]


async def test_a_url_gets_the_question_and_answers(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.body = DENY.encode()
    made = posted(server, headers={"Authorization": "Bearer $HOOK_TOKEN", "X-No": "a$NOT_SET"})
    fired = await fire([made])
    assert fired.denied is not None
    (question,) = server.asked
    assert (question["hook_id"], question["point"]) == ("url", "before_tool_call")
    assert "arguments" not in question
    assert server.got[0]["authorization"] == "Bearer t0ken"
    assert server.got[0]["x-no"] == "a"
    assert "t0ken" not in made.spec.model_dump_json()


@pytest.mark.parametrize("status", [200, 204])
async def test_an_empty_response_has_looked(server: Server, status: int):
    server.status = status
    fired = await fire([posted(server)])
    assert fired.outcomes[0].status is HookStatus.COMPLETED


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, DENY, "answered with status 500"),
        (302, "", "answered with status 302"),
        (200, "nonsense", "Its answer is no hook response"),
        (200, "x" * 1_100_000, "Its answer is over 1048576 bytes"),
    ],
)
async def test_a_url_that_fails(server: Server, status: int, body: str, why: str):
    server.status, server.body = status, body.encode()
    server.headers = {"location": server.url} if status == 302 else {}
    record = Recorder()
    assert why in await failure(posted(server), record)
    assert record.events == ["failed"]
    assert len(server.asked) == 1


async def test_a_url_that_hangs_is_given_up(server: Server):
    server.hang.clear()
    record = Recorder()
    assert "longer than 300 ms" in await failure(posted(server, timeout_ms=300), record)
    assert record.events == ["timed_out"]


async def test_a_url_nobody_serves_fails():
    server = Server()
    server.close()
    assert "Its URL can't be asked: ConnectError" in await failure(posted(server))


@pytest.mark.parametrize(
    ("url", "terms"),
    [
        ("http://localhost:8000/", {}),
        ("http://[::1]:8000/", {}),
        ("https://hooks.example.com/ask", {}),
        ("http://hooks.example.com/ask", {"allow_http": True}),
    ],
)
def test_urls_that_may_be_used(url: str, terms: dict[str, Any]):
    (made,) = configured([{"id": "url", "point": AFTER, "url": url, **terms}])
    assert not made.spec.blocking


def test_the_environment_of_the_tests_is_left_alone():
    assert "HOOK_TOKEN" not in os.environ
