"""An MCP server without manners, written by hand: what it does wrong is in its only argument, as JSON.

It speaks 2025-06-18 over stdio. Each of its tools misbehaves as its name says.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
ANY = {"type": "object"}
FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CANCELLED: list[object] = []
ASKED: dict[str, object] = {}
META: dict[str, Any] = {}
"""What came along with the call that is under way."""

Call = Callable[[Any, dict[str, Any]], None]
CALLS: dict[str, Call] = {}


def tool(call: Call) -> Call:
    CALLS[call.__name__] = call
    return call


def say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(number: object, value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    say({"id": number, "result": {"content": [{"type": "text", "text": text}]}})


@tool
def echo(number: Any, args: dict[str, Any]) -> None:
    answer(number, args)


@tool
def env(number: Any, args: dict[str, Any]) -> None:
    answer(number, dict(os.environ))


@tool
def pid(number: Any, args: dict[str, Any]) -> None:
    answer(number, os.getpid())


@tool
def hang(number: Any, args: dict[str, Any]) -> None:
    pass


@tool
def cancelled(number: Any, args: dict[str, Any]) -> None:
    answer(number, CANCELLED)


@tool
def huge(number: Any, args: dict[str, Any]) -> None:
    answer(number, "x" * args["bytes"])


@tool
def garbage(number: Any, args: dict[str, Any]) -> None:
    sys.stdout.write("DEBUG: hello\n\n{]\n[1,2]\n\x00\xff\n")
    answer(number, "still here")


@tool
def die(number: Any, args: dict[str, Any]) -> None:
    print("Traceback: my password is hunter2-sesame", file=sys.stderr, flush=True)
    os._exit(3)


@tool
def grow(number: Any, args: dict[str, Any]) -> None:
    TOOLS.append({"name": "grown", "inputSchema": ANY})
    say({"method": "notifications/tools/list_changed"})
    answer(number, "grew")


@tool
def spawn(number: Any, args: dict[str, Any]) -> None:
    child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
    if args.get("stop"):
        child.send_signal(signal.SIGSTOP)
    answer(number, child.pid)


@tool
def ask(number: Any, args: dict[str, Any]) -> None:
    ASKED[f"q{number}"] = number
    default = {"message": "Which\u202e city?\x1b[2J", "requestedSchema": FORM}
    params = args.get("params") or default
    say({"id": f"q{number}", "method": "elicitation/create", "params": params})


@tool
def log(number: Any, args: dict[str, Any]) -> None:
    params = {"level": "warning", "data": "the key is hunter2-sesame"}
    say({"method": "notifications/message", "params": params})
    answer(number, "logged")


@tool
def read(number: Any, args: dict[str, Any]) -> None:
    path = Path(args["path"])
    answer(number, path.read_text() if path.exists() else "none")


@tool
def write(number: Any, args: dict[str, Any]) -> None:
    try:
        answer(number, str(Path(args["path"]).write_text("written")))
    except OSError as why:
        answer(number, f"errno {why.errno}")


@tool
def connect(number: Any, args: dict[str, Any]) -> None:
    try:
        socket.create_connection(("127.0.0.1", args["port"]), timeout=1).close()
        answer(number, "connected")
    except OSError as why:
        answer(number, f"errno {why.errno}")


@tool
def locked(number: Any, args: dict[str, Any]) -> None:
    there = {"mode": "url", "message": "Sign in", "elicitationId": "e"}
    data = {"elicitations": [there | {"url": "https://sign.in/here"}]}
    say({"id": number, "error": {"code": -32042, "message": "locked", "data": data}})


@tool
def meta(number: Any, args: dict[str, Any]) -> None:
    answer(number, META)


@tool
def steps(number: Any, args: dict[str, Any]) -> None:
    for step in args["steps"]:
        params = {"progressToken": META.get("progressToken"), **step}
        say({"method": "notifications/progress", "params": params})
    answer(number, "stepped")


@tool
def twice(number: Any, args: dict[str, Any]) -> None:
    answer(str(number), "first")
    answer(number, "second")


@tool
def fail(number: Any, args: dict[str, Any]) -> None:
    say({"id": number, "error": args})


@tool
def wild(number: Any, args: dict[str, Any]) -> None:
    say({"id": number, "result": args["result"]})


TOOLS: list[Any] = OPTIONS.get("tools", [{"name": name, "inputSchema": ANY} for name in CALLS])


def initialize(number: Any, params: dict[str, Any]) -> None:
    for line in OPTIONS.get("stderr", []):
        print(line, file=sys.stderr, flush=True)
    result = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "odd\x07", "version": "1"},
        "instructions": "Be\u200b nice.",
    }
    say({"id": number, "result": result})


def listed(number: Any, params: dict[str, Any]) -> None:
    if OPTIONS.get("circles"):
        one = {"name": f"t{params.get('cursor')}", "inputSchema": ANY}
        say({"id": number, "result": {"tools": [one], "nextCursor": "again"}})
    else:
        say({"id": number, "result": {"tools": TOOLS}})


def called(number: Any, params: dict[str, Any]) -> None:
    META.clear()
    META.update(params.get("_meta") or {})
    CALLS[params["name"]](number, params.get("arguments") or {})


METHODS: dict[str, Call] = {
    "initialize": initialize,
    "tools/list": listed,
    "tools/call": called,
    "notifications/cancelled": lambda _, params: CANCELLED.append(params["requestId"]),
    "ping": lambda number, _: say({"id": number, "result": {}}),
}


def handle(message: dict[str, Any]) -> None:
    number, method = message.get("id"), message.get("method")
    if method is None:
        if number in ASKED:
            answer(ASKED.pop(number), message.get("result", message.get("error")))
        return
    if method == OPTIONS.get("die_on"):
        os._exit(4)
    if method == OPTIONS.get("silent_on"):
        return
    if method in METHODS:
        METHODS[method](number, message.get("params") or {})
    elif number is not None:
        say({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if OPTIONS.get("at_once"):
    print("no such option: --frobnicate", file=sys.stderr, flush=True)
    sys.exit(2)
if OPTIONS.get("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    handle(json.loads(line))
while OPTIONS.get("stubborn"):
    time.sleep(1)
