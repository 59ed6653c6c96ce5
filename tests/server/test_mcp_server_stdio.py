"""`holdfast mcp serve`: another process, spoken to as editors do."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult
from tests.mcp.support import NODE

import holdfast

HERE = Path(__file__).parent
INSPECTOR = HERE.parent / "mcp/node/node_modules/@modelcontextprotocol/inspector"

TOOLS = '''
from holdfast import capability

@capability(side_effect="write")
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"

@capability
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("this goes nowhere near the messages")
    return a + b

@capability
def review(code: str) -> str:
    """Ask for a review."""
    return f"Please review: {code}"

@capability
def motd(day: str) -> str:
    """The message of a day."""
    return f"Have a nice {day}"

prompts = [review]
resources = {"motd://{day}": motd}
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.py"
    path.write_text(TOOLS)
    return path


def command(tools: Path, *more: str) -> list[str]:
    return ["-m", "holdfast", "mcp", "serve", "--capabilities", str(tools), *more]


def server(tools: Path, *more: str) -> StdioServerParameters:
    # Not all of the environment is passed on by itself.
    env = {name: value for name, value in os.environ.items() if name.startswith("HOLDFAST_")}
    env["HOLDFAST_JAIL"] = "off"
    return StdioServerParameters(command=sys.executable, args=command(tools, *more), env=env)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_runs_code_is_asked_approves_and_gets_the_result(tools: Path, mode: Any):
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "approve"})

    async with Client(server(tools), mode=mode, elicitation_callback=approve) as c:
        await c.call_tool("run_code", {"code": "who = 'ann'"})
        found = await c.call_tool("run_code", {"code": "pay(who)"})
        listed = {one.name for one in (await c.list_tools()).tools}
    assert found.structured_content["result"] == "paid ann"
    assert "May `pay` be called?" in asked[0]
    assert "add" not in listed
    async with holdfast.open(config={}) as hf:
        (decided,) = await hf.approvals.list(status="decided")
        assert decided.decision is not None
        assert decided.decision.via == "mcp:stdio"


async def test_what_modules_offer_is_called_through_the_gate(tools: Path):
    async with Client(server(tools, "--expose"), mode="legacy") as c:
        listed = {one.name for one in (await c.list_tools()).tools}
        added = await c.call_tool("add", {"a": 1, "b": 2})
        prompts = (await c.list_prompts()).prompts
        prompt = await c.get_prompt("review", {"code": "x = 1"})
        read = await c.read_resource("motd://monday")
    assert "add" in listed
    assert not listed & {"review", "motd"}
    assert added.content[0].text == "3"  # pyright: ignore[reportAttributeAccessIssue]
    assert [one.name for one in prompts] == ["review"]
    assert prompts[0].arguments is not None
    assert prompts[0].arguments[0].required
    assert "Please review: x = 1" in str(prompt.messages[0].content)
    assert "Have a nice monday" in str(read.contents[0])
    async with holdfast.open(config={}) as hf:
        names = [one.name for run in await hf.runs.list() for one in await hf.runs.effects(run.id)]
    assert names == ["add", "review", "motd"]


async def test_scopes_and_a_prefix_hold_here_too(tools: Path):
    more = ("--scope", "read", "--scope", "run", "--prefix", "ed-")
    async with Client(server(tools, *more), mode="legacy") as c:
        listed = {one.name for one in (await c.list_tools()).tools}
        own = await c.call_tool("run_code", {"code": "1"})
        other = await c.call_tool("run_code", {"code": "1", "session_id": "other"})
    assert "approvals_decide" not in listed
    assert own.structured_content["session_id"].startswith("ed-mcp-")
    assert other.structured_content["code"] == "NOT_FOUND"


async def test_its_model_does_not_decide_what_it_asked_for(tools: Path):
    for more, there in (((), False), (("--scope", "admin"), True)):
        async with Client(server(tools, *more)) as client:
            names = {one.name for one in (await client.list_tools()).tools}
            assert "approvals_list" in names
            assert ("approvals_decide" in names) is there
            asked = {"id": "apr_x", "decision": "approved"}
            told = await client.call_tool("approvals_decide", asked)
            assert told.is_error
            assert ("admin" in str(told.content)) is not there


async def test_a_signal_ends_it_while_the_client_says_nothing(tools: Path):
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
    async with await anyio.open_process([sys.executable, *command(tools)], stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send(b"no json\n" + line.encode())
        with anyio.fail_after(30):
            while b'"id":1' not in await process.stdout.receive():
                pass
            process.send_signal(signal.SIGTERM)
            await process.wait()


def test_the_inspector_lists_and_calls_tools(tools: Path):
    entry = INSPECTOR / "clients" / "launcher" / "build" / "index.js"
    if not entry.exists():
        pytest.fail(f"{entry} is not there: run `make node`")

    def inspect(*method: str) -> Any:
        target = [sys.executable, *command(tools)]
        done = subprocess.run(
            [NODE, entry, "--cli", *target, "--method", *method],
            env={**os.environ, "HOLDFAST_JAIL": "off"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert "run_code" in {one["name"] for one in inspect("tools/list")["tools"]}
    called = inspect("tools/call", "--tool-name", "run_code", "--tool-arg", "code=1 + 1")
    assert called["structuredContent"]["result"] == 2
