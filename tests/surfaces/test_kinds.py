"""The kinds of surfaces, with what is really behind them."""

import os
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests.surfaces.support import FREE

import holdfast
from holdfast.errors import OperatorError

SERVER = """
import os
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("shop", version="1")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def stock(article: str) -> int:
    "How many there are."
    return {"lamp": 3}.get(article, 0)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def pid() -> int:
    "Which process it is."
    return os.getpid()


server.run()
"""

TOOLS = '''
from holdfast import capability


@capability(side_effect="read")
def price(article: str) -> int:
    """What it costs."""
    return 40
'''


async def test_an_mcp_server_that_is_killed_comes_back(tmp_path: Path):
    (tmp_path / "server.py").write_text(SERVER)
    spec = {"command": sys.executable, "args": [str(tmp_path / "server.py")]}
    async with holdfast.open("memory:", {**FREE, "surfaces": {"shop": spec}}) as hf:
        found = await hf.shell.run("[await shop_stock(article='lamp'), await shop_pid()]")
        assert found.status == "ok", found.error
        stock, pid = cast("list[Any]", found.result)
        assert stock == {"result": 3}
        os.kill(pid["result"], 9)
        with anyio.fail_after(20):
            while (await hf.surfaces.view("shop")).generation < 2:  # noqa: ASYNC110  (another task's)
                await anyio.sleep(0.02)
        again = await hf.shell.run("await shop_pid()")
        assert again.status == "ok", again.error
        assert again.result != pid


async def test_a_module_is_a_surface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "surface_of_prices.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(tmp_path)
    written = {"shop": {"reference": "surface_of_prices"}}
    async with holdfast.open("memory:", {**FREE, "surfaces": written}) as hf:
        assert (await hf.shell.run("shop_price(article='lamp')")).result == 40
        (tmp_path / "surface_of_prices.py").write_text(TOOLS.replace("40", "41_000"))
        await hf.surfaces.reload("shop")
        await hf.surfaces.wait_ready()
        assert (await hf.shell.run("shop_price(article='lamp')")).result == 41_000


async def test_what_is_not_there_has_failed(tmp_path: Path):
    written = {
        "doc": {"document": str(tmp_path / "none.json")},
        "prog": {"command": str(tmp_path / "none")},
    }
    async with holdfast.open("memory:", {"surfaces": written}) as hf:
        for name in written:
            with pytest.raises(OperatorError, match=f"surface `{name}` can't be connected"):
                await hf.surfaces.wait_ready([name])
