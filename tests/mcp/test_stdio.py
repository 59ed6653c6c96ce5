"""Servers that are started here: how they start, how they end, and what they do in between."""

import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.mcp.support import alive, context, odd, opened, until

from holdfast.capabilities.mcp import LogLine, Services
from holdfast.capabilities.mcp.connection import McpConnection
from holdfast.capabilities.mcp.hearing import MAX_LINE, Lines
from holdfast.contracts.surface import StdioSurface
from holdfast.errors import ModelError, OperatorError
from holdfast.gate.executor import Unsure

SECRET = "hunter2-sesame"


def redact(text: str) -> str:
    return text.replace(SECRET, "[password]")


async def test_it_says_who_it_is_in_clean_words():
    async with opened(odd()) as server:
        assert server.server == "odd 1"
        assert server.protocol == "2025-06-18"
        assert server.instructions == "Be nice."
        await server.check()


async def test_its_environment_is_clean(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PRIVATE_TOKEN", SECRET)
    monkeypatch.setenv("WANTED", "wanted-value")
    hidden: list[tuple[str, str]] = []
    spec = odd(env={"GIVEN": "a $WANTED ${WANTED} $$x", "PLAIN": "1"})
    async with opened(spec, Services(hide=lambda *one: hidden.append(one))) as server:
        found = json.loads(str(await server.call("env", {}, context())))
    assert found["GIVEN"] == "a wanted-value wanted-value $x"
    assert found["PLAIN"] == "1"
    assert ("WANTED", "wanted-value") in hidden
    ours = {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "TMPDIR", "TZ", "USER"}
    assert set(found) <= ours | {"GIVEN", "PLAIN"}
    assert SECRET not in json.dumps(found)


async def test_a_name_that_is_not_in_the_environment_is_said():
    with pytest.raises(OperatorError, match=r"`\$NOT_THERE` is not in the environment") as why:
        async with opened(odd(env={"X": "$NOT_THERE"})):
            pass
    assert why.value.code == "SURFACE_FAILED"


async def test_it_starts_where_it_is_told(tmp_path: Path):
    (tmp_path / "here.txt").write_text("found")
    async with opened(odd(cwd=str(tmp_path))) as server:
        assert await server.call("read", {"path": "here.txt"}, context()) == "found"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (StdioSurface(command="no-such-program-anywhere"), "is not there, or not executable"),
        (odd({"at_once": True}), "exit code 2. It said: no such option: --frobnicate"),
        (odd({"die_on": "initialize"}), "exit code 4"),
        (odd({"silent_on": "initialize"}, connect_timeout_ms=400), "did not come up in time"),
        (odd({"silent_on": "tools/list"}, connect_timeout_ms=400), "did not come up in time"),
        (odd(cwd="/no/such/folder"), "/no/such/folder"),
    ],
)
async def test_why_it_does_not_start_is_said(spec: StdioSurface, says: str):
    with pytest.raises(OperatorError) as why:
        async with opened(spec):
            pass
    assert why.value.code == "SURFACE_FAILED"
    assert says in why.value.message


async def test_its_complaints_are_shown_without_secrets():
    lines: list[LogLine] = []
    said = [f"password={SECRET}", "x" * 5000, "last words"]
    options = {"stderr": said, "die_on": "tools/list"}
    with pytest.raises(OperatorError) as why:
        async with opened(odd(options), Services(redact=redact, log=lines.append)):
            pass
    assert "password=[password]" in why.value.message
    assert "last words" in why.value.message
    assert len(why.value.message) < 3000
    assert [one.level for one in lines] == ["stderr"] * 3
    assert SECRET not in str(lines)
    assert max(len(one.text) for one in lines) <= 500


@pytest.mark.parametrize("does", ["die_on", "silent_on"])
async def test_a_server_that_can_not_bear_the_first_question_is_greeted_as_of_old(does: str):
    async with opened(odd({does: "server/discover"}, connect_timeout_ms=4000)) as server:
        assert await server.call("echo", {"a": 1}, context()) == '{"a": 1}'


@pytest.mark.parametrize("method", ["resources/list", "resources/read", "prompts/list"])
async def test_what_is_asked_besides_calls_has_its_time_too(method: str):
    asks: dict[str, Callable[[McpConnection], Awaitable[object]]] = {
        "resources/list": lambda server: server.resources(),
        "resources/read": lambda server: server.read("mem://x"),
        "prompts/list": lambda server: server.prompts(),
    }
    async with opened(odd({"silent_on": method}, timeout_ms=200)) as server:
        with pytest.raises(ModelError, match="was not answered within") as why:
            await asks[method](server)
        assert why.value.code == "SURFACE_UNAVAILABLE"
        assert await server.call("echo", {"a": 1}, context()) == '{"a": 1}'


async def test_its_process_group_ends_with_the_connection():
    async with opened(odd()) as server:
        pid = int(str(await server.call("pid", {}, context())))
        child = int(str(await server.call("spawn", {}, context())))
        stopped = int(str(await server.call("spawn", {"stop": True}, context())))
        assert all(map(alive, (pid, child, stopped)))
    await until(lambda: not any(map(alive, (pid, child, stopped))))


@pytest.mark.parametrize("how", ["stubborn", "stopped"])
async def test_a_server_that_does_not_want_to_end_is_killed(how: str):
    async with opened(odd({how: True})) as server:
        pid = int(str(await server.call("pid", {}, context())))
        if how == "stopped":
            os.kill(pid, signal.SIGSTOP)
    await until(lambda: not alive(pid))


async def test_a_cancelled_owner_leaves_nothing_behind():
    pids: list[int] = []

    async def own() -> None:
        async with opened(odd()) as server:
            pids.append(int(str(await server.call("pid", {}, context()))))
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(own)
        await until(lambda: bool(pids))
        group.cancel_scope.cancel()
    assert not alive(pids[0])


async def test_what_the_owner_raises_comes_out_as_it_is():
    with pytest.raises(KeyError):
        async with opened(odd()):
            raise KeyError


async def test_a_killed_server_is_lost_and_its_calls_fail():
    failures: list[Unsure] = []

    async def hang() -> None:
        try:
            await server.call("hang", {}, context())
        except Unsure as why:
            failures.append(why)

    async with opened(odd()) as server:
        pid = int(str(await server.call("pid", {}, context())))
        async with anyio.create_task_group() as group:
            group.start_soon(hang)
            group.start_soon(hang)
            await until(lambda: len(server.calls.under_way) == 2)
            await server.check()  # so both are with the server
            os.kill(pid, signal.SIGKILL)
        await server.lost.wait()
        assert [one.error.code for one in failures] == ["SURFACE_UNAVAILABLE"] * 2
        with pytest.raises(ModelError, match="the connection is gone"):
            await server.call("echo", {}, context())
        with pytest.raises(ModelError, match="the connection is gone"):
            await server.check()


async def test_a_call_that_ends_its_server_fails_and_why_is_logged():
    lines: list[LogLine] = []
    async with opened(odd(), Services(redact=redact, log=lines.append)) as server:
        with pytest.raises(Unsure):
            await server.call("die", {}, context())
        with anyio.fail_after(10):
            await server.lost.wait()
    assert "Traceback: my password is [password]" in [one.text for one in lines]


async def test_a_stopped_server_does_not_hold_its_callers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.capabilities.mcp.connection.CHECK_SECONDS", 0.2)
    async with opened(odd()) as server:
        pid = int(str(await server.call("pid", {}, context())))
        os.kill(pid, signal.SIGSTOP)
        with anyio.move_on_after(0.2) as scope:
            await server.call("echo", {"big": "x" * 300_000}, context())  # more than a pipe holds
        assert scope.cancelled_caught
        with pytest.raises(ModelError, match="does not answer"):
            await server.check()
        os.kill(pid, signal.SIGCONT)
        assert await server.call("echo", {"a": 1}, context()) == '{"a": 1}'


async def test_a_cancelled_call_is_cancelled_there_and_harms_nobody():
    async with opened(odd()) as server:
        with anyio.move_on_after(0.1):
            await server.call("hang", {}, context())
        found: list[int] = []
        with anyio.fail_after(10):
            while not found:
                found = json.loads(str(await server.call("cancelled", {}, context())))
        assert len(found) == 1
        assert not server.calls.under_way


async def test_garbage_between_messages_is_logged_and_forgotten():
    lines: list[LogLine] = []
    async with opened(odd(), Services(log=lines.append)) as server:
        assert await server.call("garbage", {}, context()) == "still here"
        assert await server.call("echo", {}, context()) == "{}"
    assert "a line that is no message: DEBUG: hello" in [one.text for one in lines]
    assert {one.level for one in lines} == {"note"}


async def test_an_answer_that_is_too_long_fails_its_call_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.capabilities.mcp.hearing.MAX_LINE", 100_000)
    monkeypatch.setattr(Lines.__init__, "__defaults__", (100_000,))
    async with opened(odd()) as server:
        assert len(str(await server.call("huge", {"bytes": 90_000}, context()))) == 90_000
        for size in (100_000, 5_000_000):
            with pytest.raises(ModelError, match="more than 100000 bytes") as why:
                await server.call("huge", {"bytes": size}, context())
            assert why.value.code == "TOOL_ERROR"
        assert await server.call("echo", {}, context()) == "{}"
    assert MAX_LINE > 1_000_000


@pytest.mark.parametrize("result", [{"content": "no list"}, {"content": [{"type": "smell"}]}, 7])
async def test_an_answer_that_breaks_the_protocol_fails_its_call_alone(result: Any):
    async with opened(odd()) as server:
        with pytest.raises(ModelError) as why:
            await server.call("wild", {"result": result}, context())
        assert why.value.code == "TOOL_ERROR"
        assert await server.call("echo", {}, context()) == "{}"


async def test_a_change_of_tools_is_noticed_and_nothing_else_changes():
    async with opened(odd()) as server:
        before = server.offers
        assert not server.changed.is_set()
        await server.call("grow", {}, context())
        with anyio.fail_after(10):
            await server.changed.wait()
        assert server.offers is before
        after = await server.relist()
        assert server.offers is after
        assert not server.changed.is_set()
    assert {one.tool for one in after.tools} - {one.tool for one in before.tools} == {"grown"}
    assert "grown" not in {one.tool for one in before.tools}


async def test_what_it_logs_is_handed_on_without_secrets():
    lines: list[LogLine] = []
    async with opened(odd(), Services(redact=redact, log=lines.append)) as server:
        await server.call("log", {}, context())
        await until(lambda: bool(lines))
    assert lines == [LogLine("srv", "warning", "the key is [password]")]


async def test_a_list_that_goes_in_circles_ends():
    async with opened(odd({"circles": True})) as server:
        assert {one.tool for one in server.offers.tools} == {"tNone", "tagain"}
