"""What the boxes of any language are made to run: the same stories, told in each language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.shell.box import Call

OUTSIDE: Mapping[str, bool] = {"ask": False, "fetch": True}
"""The capabilities of every program; code awaits the second."""

NAMES: Mapping[str, Call] = {"local": lambda: "here"}
"""What the box answers itself."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one language. `ask`, `fetch` and `local` are functions they can call."""

    add: str
    """Gives 1 + 1; calls nothing."""
    loop: str
    """For i in 0, 1, 2: prints `at <i>` and a line end, then calls `ask(i)` from a function. Gives the sum of the answers."""
    named: str
    """Calls `ask("a", key="b")` (as the language names arguments) in the second line, and gives the answer."""
    gather: str
    """Awaits `fetch(0)`, `fetch(1)`, `fetch(2)` at once, and gives the list of answers."""
    some: str
    """The same, but a branch that fails gives `failed: <message>`."""
    turns: str
    """Two branches at once: each awaits `fetch`, then prints its own name (`a` or `b`), then calls `ask` with it."""
    caught: str
    """Calls `ask(1)` and gives the message of its failure."""
    local: str
    """Calls `local()`, `ask(1)`, `local()` and gives the three answers as a list."""
    unfit: str
    """Calls `ask` with something that is not JSON, catches what that raises, calls `ask(2)` and gives its answer."""
    keep: str
    """Sets the session's variable `kept` to the answer of `ask(1)`."""
    kept: str
    """Gives the session's variable `kept`."""
    spin: str
    """Calls `ask(1)`, then computes for ever."""
    work: str
    """For ever: computes for some milliseconds, then calls `ask(1)`."""
    ever: str
    """For ever: calls `ask(1)`, whatever comes of it."""
    flood: str
    """For ever: prints 100 000 characters, then calls `ask(1)`."""
    hoard: str
    """For ever: keeps a megabyte more, then calls `ask(1)`."""
    deep: str
    """Calls `ask(1)`, then calls itself without end."""
    unknown: str
    """Calls `asc(1)`, which nobody knows."""


PYTHON = Programs(
    add="1 + 1",
    loop=(
        "def once(i):\n  print('at', i)\n  return ask(i)\n"
        "total = 0\nfor i in range(3):\n  total += once(i)\nresult = total"
    ),
    named="x = 1\nask('a', key='b')",
    gather="import asyncio\nawait asyncio.gather(fetch(0), fetch(1), fetch(2))",
    some=(
        "import asyncio\nasync def one(i):\n  try:\n    return await fetch(i)\n"
        "  except Exception as e:\n    return f'failed: {e}'\n"
        "await asyncio.gather(one(0), one(1), one(2))"
    ),
    turns=(
        "import asyncio\nasync def one(name):\n  await fetch(name)\n  print(name)\n  ask(name)\n"
        "await asyncio.gather(one('a'), one('b'))\nNone"
    ),
    caught="try:\n  ask(1)\nexcept Exception as e:\n  said = str(e)\nsaid",
    local="[local(), ask(1), local()]",
    unfit="try:\n  ask({1})\nexcept Exception:\n  pass\nask(2)",
    keep="kept = ask(1)",
    kept="kept",
    spin="ask(1)\nwhile True: pass",
    work="while True:\n  for i in range(50_000): pass\n  ask(1)",
    ever="while True:\n  try:\n    ask(1)\n  except Exception: pass",
    flood="while True:\n  print('x' * 100_000)\n  ask(1)",
    hoard="held = []\nwhile True:\n  held.append('x' * 2**20 + str(len(held)))\n  ask(1)",
    deep="def f(): return f()\nask(1)\nf()",
    unknown="asc(1)",
)
