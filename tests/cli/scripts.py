"""What scripted models say in tests, by file: `scripted:…/scripts.py:NAME`."""

import os
from pathlib import Path

import anyio

from holdfast.contracts.model import ModelRequest
from holdfast.models.script import Line, call, fail, say, together, write_code

talk = ["Hello.", "Hello again.", "And again."]

buys = [
    together(
        say("I count, then I pay.\n"), write_code("n = count('a')\nprint('n is', n)\npay('ada', n)")
    ),
    say("Ada is paid."),
    say("Anything else?"),
]

direct = [call("pay", to="ada", cents=5), say("Ada is paid.")]

ships = [write_code("ship('tea')"), write_code("1 + 1"), say("It is on its way."), say("Yes?")]

typed = ['{"city": "Oslo", "people": 709}']

wrong = ['{"town": 1}', '{"town": 2}', '{"town": 3}', '{"town": 4}']

broken = [fail("MODEL_AUTH", "No key.")]

long = [*(write_code(f"x{n} = {n}") for n in range(20)), say("Done.")]

odd = ["\x1b[31mred\x07", "fine"]


def echo(request: ModelRequest) -> str:
    """Says the first line of what it was told before everything else."""
    return request.instructions.splitlines()[0]


def offered(request: ModelRequest) -> str:
    """Says what it may call."""
    return " ".join(one.name for one in request.tools) or "nothing"


async def hangs(request: ModelRequest) -> Line | str:
    """Asks for code, then does not answer while the file `hang` is there."""
    last = request.messages[-1]
    if last.role == "user":
        return write_code("count('a')")
    flag = Path(os.environ["WORLD_DB"]).with_name("hang")
    Path(os.environ["WORLD_DB"]).with_name("asked").touch()
    while flag.exists():  # noqa: ASYNC110 - what it waits for happens in another process
        await anyio.sleep(0.02)
    return "Counted."
