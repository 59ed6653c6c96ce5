"""What scripted models say in tests, by file: `scripted:…/scripts.py:NAME`."""

import os
from pathlib import Path

import anyio

from holdfast.models.script import call, fail, say, together, write_code

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


async def hangs(request: object) -> object:
    """Asks for code, then does not answer while the file `hang` is there."""
    last = request.messages[-1]  # type: ignore[attr-defined]
    if last.role == "user":
        return write_code("count('a')")
    flag = Path(os.environ["WORLD_DB"]).with_name("hang")
    Path(os.environ["WORLD_DB"]).with_name("asked").touch()
    while flag.exists():  # noqa: ASYNC110 - what it waits for happens in another process
        await anyio.sleep(0.02)
    return "Counted."
