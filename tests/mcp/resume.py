"""The other process: goes on with a call that waited for an answer. Argument: what it has to know, as JSON."""

import json
import sys

import anyio

from holdfast.capabilities.mcp import McpSource
from holdfast.contracts.surface import HttpSurface
from holdfast.gate.executor import Answer, Context


async def main() -> None:
    told = json.loads(sys.argv[1])
    answers = {key: Answer(**one) for key, one in told["answers"].items()}
    async with McpSource("srv", HttpSurface(url=told["url"])).open() as server:
        context = Context("e1", 2, "s1", "r1", answers=answers)
        print(json.dumps(await server.call(told["tool"], told["arguments"], context)))


anyio.run(main)
