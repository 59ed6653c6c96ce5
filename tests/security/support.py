"""What the attacks share: the corpus, a world outside that must not change, and looks at this process from outside."""

import builtins
import os
import re
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio

import holdfast
from holdfast import RunResult, Runtime, capability
from holdfast.capabilities.declare import Declared

CORPUS = Path(__file__).with_name("corpus")
ROOT = Path(__file__).parents[2]

# Each stands for something that only the host knows.
IN_A_FILE = "canary-c7d1-in-a-file"
IN_THE_ENVIRONMENT = "canary-58ae-in-the-environment"
IN_A_CAPABILITY = "canary-91bc-in-a-capability"
IN_ANOTHER_SESSION = "canary-e40f-in-another-session"
VICTIM = "victim"

_HEAD = re.compile(r"^=== (.+?)(?: -> (.+?) / (.+))?$")
# Objects of the host have addresses like this; those of the engine have small numbers.
_ADDRESS = re.compile(r"0x[0-9a-f]{9,}")


class Attempt(NamedTuple):
    """One hostile piece of code."""

    name: str
    code: str
    ends: frozenset[str]
    """The codes a run of it may end with; `ok` when it ends well."""
    found: frozenset[str]
    """The same for a validation."""


def corpus(name: str) -> list[Attempt]:
    """The attempts in a file of the corpus."""
    found: list[Attempt] = []
    for block in re.split(r"^(?==== )", (CORPUS / name).read_text(), flags=re.MULTILINE)[1:]:
        head, _, code = block.partition("\n")
        match = _HEAD.match(head)
        assert match is not None, head
        title, ends, checked = match.groups(default="")
        one = Attempt(title, code.strip("\n"), frozenset(ends.split()), frozenset(checked.split()))
        found.append(one)
    return found


def code_of(result: RunResult) -> str:
    """How a run ended: the code of its error, or `ok`."""
    return result.error.code if result.error else "ok"


# -- this process, from outside --------------------------------------------------------------------------


def processes() -> dict[int, str]:
    """Every process below this one, and its name; those that have ended are left out."""
    found: dict[int, str] = {}
    todo = [os.getpid()]
    while todo:
        for child in _children(todo.pop()):
            state = _stat(child)
            if state is not None and state[1] != "Z":
                found[child] = state[0]
                todo.append(child)
    return found


async def until(done: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for something that is about to happen."""
    with anyio.fail_after(seconds):
        while not done():  # noqa: ASYNC110 - what is waited for is another process
            await anyio.sleep(0.01)


async def no_process_left(before: Iterable[int] = ()) -> None:
    """Fail unless every process but those of `before` ends at once."""
    await until(lambda: not processes().keys() - set(before))


def ticks() -> dict[int, int]:
    """How long each process below this one has computed."""
    found: dict[int, int] = {}
    for pid in processes():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            found[pid] = int(fields[11]) + int(fields[12])
    return found


def parent(pid: int) -> int:
    """The process around another: the jail around an engine."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def forget_peak() -> None:
    """Measure from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_mb(field: str = "VmRSS") -> int:
    """Resident memory of this process; with `VmHWM`, the most there was since `forget_peak`."""
    said = Path("/proc/self/status").read_text()
    return int(said.partition(f"{field}:")[2].split()[0]) >> 10


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        pass  # it has just ended
    return found


def _stat(pid: int) -> tuple[str, str] | None:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(" (")[2].rpartition(") ")
    except OSError:
        return None
    return name, rest[:1]


# -- the world ---------------------------------------------------------------------------------------------


@dataclass
class World:
    """What is outside of the box."""

    folder: Path
    moved: list[str] = field(default_factory=list[str])
    """What capabilities did that nobody approved."""
    said: list[Any] = field(default_factory=list[Any])
    """What the harmless capability was given."""
    tools: list[Declared[..., Any]] = field(default_factory=list[Declared[..., Any]])
    release: threading.Event = field(default_factory=threading.Event)
    """Lets those go that hang."""

    def __post_init__(self) -> None:
        inside = self.folder / "inside"
        inside.mkdir(parents=True)
        (self.folder / "library").mkdir()
        self.canary.write_text(IN_A_FILE)
        (inside / "a.txt").write_text("alpha")
        (inside / "link").symlink_to(self.canary)
        (inside / "out").symlink_to(self.folder)
        os.mkfifo(inside / "pipe")
        self.tools = self._tools()

    @property
    def canary(self) -> Path:
        return self.folder / "canary.txt"

    @property
    def setup(self) -> dict[str, Any]:
        """What a session is opened with to reach the mounts."""
        return {
            "mounts": [
                {"path": "/workspace", "host": str(self.folder / "inside"), "writable": True},
                {"path": "/library", "host": str(self.folder / "library")},
            ]
        }

    def fill(self, code: str) -> str:
        """Code with the places of this world in it."""
        for name, value in (
            ("@CANARY@", str(self.canary)),
            ("@FOLDER@", str(self.folder)),
            ("@VICTIM@", VICTIM),
            ("@SECRET@", IN_A_CAPABILITY),
        ):
            code = code.replace(name, value)
        return code

    def state(self) -> dict[str, Any]:
        """All that code in a box must not be able to change."""
        files = {
            str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode, path.lstat().st_size)
            for path in [self.folder, *self.folder.rglob("*")]
        }
        return {
            "files": files,
            "canary": self.canary.read_text(),
            "environment": dict(os.environ),
            "cwd": Path.cwd(),
            "moved": list(self.moved),
            "builtins": {name: id(value) for name, value in vars(builtins).items() if name != "_"},
            "modules": sys.modules.keys() & {"pickle_canary", "shelve", "cffi"},
            "secret": self.tools[0].secret,  # type: ignore[attr-defined]
            "limit": sys.getrecursionlimit(),
        }

    def leaks(self, result: RunResult, code: str) -> list[str]:
        """What a result tells that only the host knows. What the code itself names, it knew before."""
        said = result.model_dump_json()
        secrets = [
            IN_A_FILE,
            IN_THE_ENVIRONMENT,
            IN_A_CAPABILITY,
            IN_ANOTHER_SESSION,
            str(self.folder),
            str(ROOT),
            sys.prefix,
            sys.base_prefix,
            str(Path.home()),
            tempfile.gettempdir(),
            "site-packages",
            "holdfast/shell",
            "root:x:",
        ]
        found = [one for one in secrets if one in said and one not in code]
        return found + [one for one in _ADDRESS.findall(said) if one not in code]

    def _tools(self) -> list[Declared[..., Any]]:
        secret = IN_A_CAPABILITY

        # `Any`: whatever JSON there is.
        def tool(x: Any = None) -> Any:
            """Give back how long it was."""
            self.said.append(x)
            return len(str(x)) + len(secret) * 0

        async def atool(x: Any = None) -> Any:
            """The same, awaited."""
            self.said.append(x)
            return len(str(x)) + len(secret) * 0

        def wire_money(amount: int) -> str:
            """Send money, which a person has to approve."""
            self.moved.append(f"wire_money {amount}")
            return "sent"

        async def pay_later(amount: int) -> str:
            """The same, awaited."""
            self.moved.append(f"pay_later {amount}")
            return "sent"

        def forbidden() -> str:
            """What policy denies."""
            self.moved.append("forbidden")
            return "done"

        def flood() -> str:
            """Give more than it may."""
            return "x" * (2 << 20)

        async def hang() -> None:
            """Never return."""
            await anyio.sleep_forever()

        def hang_in_thread() -> None:
            """Never return, nor let anybody stop it."""
            self.release.wait()

        def complain(length: int) -> None:
            """Fail at length."""
            raise ValueError("\u00e9" * length)

        manual: dict[str, Any] = {"side_effect": "external_system", "approval": "manual"}
        made: list[Declared[..., Any]] = [
            capability(tool),
            capability(atool),
            capability(wire_money, **manual),
            capability(pay_later, **manual),
            capability(forbidden),
            capability(flood),
            capability(hang),
            capability(hang_in_thread),
            capability(complain),
        ]
        made[0].secret = IN_A_CAPABILITY  # type: ignore[attr-defined]
        made[0].reveal = lambda: IN_A_CAPABILITY  # type: ignore[attr-defined]
        return made


ALLOW: dict[str, Any] = {
    "shell": {"jail": "required"},
    "policy": {
        "rules": [
            {"id": "never", "tool": "forbidden", "then": "deny"},
            {"id": "all", "tool": "*", "then": "allow"},
        ]
    },
}
"""Settings in which only what a capability itself wants is asked."""


@asynccontextmanager
async def opened(world: World, *, bare: bool = False) -> AsyncGenerator[Runtime]:
    """A runtime in that world, on a journal in a file; `bare` has no capabilities at all."""
    url = f"sqlite:///{world.folder.with_name(world.folder.name + '-journal')}.db"
    tools = () if bare else world.tools
    secrets = {"tool.secret": IN_A_CAPABILITY}
    async with holdfast.open(url, ALLOW, capabilities=tools, secrets=secrets) as hf:
        await hf.shell.run(f"mine = {IN_ANOTHER_SESSION!r}", session=VICTIM)
        yield hf
