"""Tool servers for tests of the command line: what is typed to reach them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.support import HERE, NODE, PACKAGES

PYTHON = str(Path(sys.executable).resolve())

READ_ONLY = {"readOnlyHint": True}
ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Says it again.",
    "inputSchema": {"type": "object"},
    "annotations": READ_ONLY,
}
PAY: dict[str, Any] = {"name": "env", "inputSchema": {"type": "object"}}
BROKEN: dict[str, Any] = {"name": "bad", "inputSchema": {"type": "object", "properties": 3}}

TOOLS = '''
from holdfast import capability


@capability(side_effect="read")
def stock(article: str) -> int:
    """How many there are."""
    return {"lamp": 3}.get(article, 0)


@capability(side_effect="write")
def order(article: str) -> str:
    """Order more of it."""
    return f"ordered {article}"
'''

SERVER = """
from mcp.server import MCPServer

server = MCPServer("library", version="2")


@server.prompt()
def greet(who: str, how: str = "kindly") -> str:
    "Greets somebody."
    return f"Greet {who} {how}."


@server.resource("shop://hours")
def hours() -> str:
    "When it is open."
    return "9 to 5"


server.run()
"""


def odd(*tools: dict[str, Any], **options: Any) -> list[str]:
    """The command line of the server without manners."""
    more = {"tools": list(tools)} if tools else {}
    return ["--", PYTHON, "-I", str(HERE / "odd.py"), json.dumps({**more, **options})]


def npm(name: str, *args: str) -> list[str]:
    """The command line of one of the real servers."""
    return ["--", str(NODE), str(PACKAGES / f"server-{name}" / "dist" / "index.js"), *args]


def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands are given in this folder, which has a module of tools."""
    monkeypatch.chdir(tmp_path)
    # What one test imports from its folder is nothing to the next.
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop_tools", raising=False)
    (tmp_path / "shop_tools.py").write_text(TOOLS)
    return tmp_path
