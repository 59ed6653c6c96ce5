"""An MCP server over stdio, written by hand, whose every word is hostile."""

import json
import sys
from typing import Any

from corpus import HOSTILE

EVERYTHING = "\n".join(HOSTILE)
TOOLS = [
    {
        "name": f"tool{number}",
        "title": text,
        "description": text,
        "inputSchema": {
            "type": "object",
            "description": text,
            "properties": {"word": {"type": "string", "title": text, "description": text}},
        },
        "annotations": {"readOnlyHint": True, "title": text},
    }
    for number, text in enumerate(HOSTILE)
]


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    match asked["method"]:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": EVERYTHING, "title": EVERYTHING, "version": HOSTILE[0]},
                "instructions": EVERYTHING,
            }
        case "tools/list":
            return {"tools": TOOLS}
        case _:
            return {"content": [{"type": "text", "text": EVERYTHING}], "isError": True}


print(EVERYTHING, file=sys.stderr, flush=True)
for line in sys.stdin:
    told = json.loads(line)
    if told.get("method") == "tools/call":
        text = {"level": "error", "logger": HOSTILE[1], "data": EVERYTHING}
        say({"method": "notifications/message", "params": text})
    if "id" in told and "method" in told:
        say({"id": told["id"], "result": answer(told)})
