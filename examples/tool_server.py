"""An MCP server that comes and goes: its tools are capabilities, each call is on record, and it can be removed midway."""

import sys
from pathlib import Path

import anyio

import holdfast

SERVER = """
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("shop", version="1")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def stock(article: str) -> int:
    "How many there are."
    return {"lamp": 3, "chair": 12}.get(article, 0)


server.run()
"""


async def main() -> None:
    """Add it, call it, remove it."""
    async with holdfast.open("memory:", {}) as hf:
        spec = {"command": sys.executable, "args": ["shop_server.py"]}
        await hf.surfaces.add("shop", spec)
        (view,) = await hf.surfaces.wait_ready()
        print(view.name, view.status, view.server, view.tools)
        run = await hf.shell.run(
            "[(await shop_stock(article=a))['result'] for a in ('lamp', 'chair')]"
        )
        print(run.status, run.result, [one.name for one in run.external_calls])

        await hf.surfaces.remove("shop")
        run = await hf.shell.run("await shop_stock(article='lamp')")
        print(run.status, run.error.message if run.error else "")


Path("shop_server.py").write_text(SERVER)
anyio.run(main)
