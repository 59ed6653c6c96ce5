"""An MCP server to be mistreated: it writes down whatever arrives, and what it offers depends on its version.

    python _chaos_server.py FOLDER NAME (plain | stdio | http PORT)

`FOLDER/NAME.version` is read once, when it starts: a process has one version for life. `plain` is written by hand and
comes up at once, the others are made with the SDK. Each line of `FOLDER/NAME.log` is a start or a call that arrived.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

OBJECT = {"type": "object"}
READS = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


def tools(version: int) -> list[dict[str, Any]]:
    """What a version offers: one tool stays as it is, one has a renamed parameter, one is new each time, one goes."""
    found = [
        _tool("look", READS, word="string"),
        _tool(
            "put", WRITES | {"idempotentHint": True}, **{("word", "text")[version % 2]: "string"}
        ),
        _tool("add", WRITES, title=f"v{version}", word="string"),
        _tool("slow", WRITES, ms="integer"),
    ]
    if version % 3 != 2:
        found.append(_tool("send", None, word="string"))
    if version % 3 == 1:
        found.append(_tool(f"extra{version}", READS, word="string"))
    return found


def _tool(
    name: str, hints: dict[str, bool] | None, title: str | None = None, **more: str
) -> dict[str, Any]:
    types = {"n": "integer", **more}
    schema: dict[str, Any] = {
        **OBJECT,
        "properties": {one: {"type": kind} for one, kind in types.items()},
        "required": list(types),
        "additionalProperties": False,
    }
    if title is not None:
        schema["title"] = title
    told = {"name": name, "description": f"Do {name}.", "inputSchema": schema}
    return told if hints is None else {**told, "annotations": hints}


class Ledger:
    """What happened to this process."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.version = int((folder / f"{name}.version").read_text())
        self._log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.write(start=True)

    def write(self, **said: Any) -> None:
        """One line, at once: whoever is killed has written it or not."""
        line = {"pid": os.getpid(), "version": self.version, **said}
        os.write(self._log, f"{json.dumps(line)}\n".encode())

    def arrived(self, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer to a call, and how many seconds it takes."""
        self.write(tool=tool, arguments=arguments)
        answer = {"n": arguments.get("n"), "version": self.version}
        return answer, arguments.get("ms", 0) / 1000


def plain(ledger: Ledger) -> None:
    """Serve by hand: one call after the other, on an older protocol."""

    def say(number: Any, result: dict[str, Any]) -> None:
        print(json.dumps({"jsonrpc": "2.0", "id": number, **result}), flush=True)

    for line in sys.stdin:
        asked = json.loads(line)
        number, method, params = asked.get("id"), asked.get("method"), asked.get("params") or {}
        if method == "initialize":
            info = {"name": ledger.name, "version": str(ledger.version)}
            result: dict[str, Any] = {"protocolVersion": "2025-06-18", "serverInfo": info}
            say(number, {"result": result | {"capabilities": {"tools": {}}}})
        elif method == "tools/list":
            say(number, {"result": {"tools": tools(ledger.version)}})
        elif method == "tools/call":
            answer, seconds = ledger.arrived(params["name"], params.get("arguments") or {})
            time.sleep(seconds)
            text = {"type": "text", "text": json.dumps(answer)}
            say(number, {"result": {"content": [text], "structuredContent": answer}})
        elif method == "ping":
            say(number, {"result": {}})
        elif number is not None:
            say(number, {"error": {"code": -32601, "message": "Method not found"}})


def made(ledger: Ledger) -> Any:
    """The same with the SDK, which speaks every protocol and makes calls side by side."""
    import anyio
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent

    async def listed(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult.model_validate({"tools": tools(ledger.version)})

    async def called(context: Any, params: Any) -> CallToolResult:
        answer, seconds = ledger.arrived(params.name, params.arguments or {})
        await anyio.sleep(seconds)
        text = TextContent(type="text", text=json.dumps(answer))
        return CallToolResult(content=[text], structured_content=answer)

    return Server(
        ledger.name, version=str(ledger.version), on_list_tools=listed, on_call_tool=called
    )


async def stdio(ledger: Ledger) -> None:
    """Serve the process that started this one."""
    from mcp.server.stdio import stdio_server

    server = made(ledger)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def http(ledger: Ledger, port: int) -> None:
    """Serve at an address."""
    import uvicorn

    app = made(ledger).streamable_http_app()
    uvicorn.run(app, port=port, log_level="critical", ws="none", timeout_graceful_shutdown=1)


def main() -> None:
    """Serve as told."""
    folder, name, kind, *port = sys.argv[1:]
    ledger = Ledger(Path(folder), name)
    if kind == "plain":
        plain(ledger)
    elif kind == "http":
        http(ledger, int(port[0]))
    else:
        import anyio

        anyio.run(stdio, ledger)


if __name__ == "__main__":
    main()
