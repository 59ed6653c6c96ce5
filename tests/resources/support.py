"""What tests of resources share: a session's resources, called the way the gate calls them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.capabilities.foreign import Foreign
from holdfast.contracts import Mount, Setup
from holdfast.contracts.resource import GrepRequest, GrepView, ResourceRequest, ResourceView
from holdfast.gate.executor import Context
from holdfast.journal import Journal
from holdfast.resources import Held, Resources
from holdfast.runtime.resources import make_resources, resource_capabilities


class Box:
    """Capabilities by name."""

    def __init__(self, tools: Sequence[Foreign], session_id: str = "s") -> None:
        self.tools = {one.capability.name: one for one in tools}
        self.context = Context(effect_id="e-1", attempt=1, session_id=session_id, run_id="r-1")

    # `Any`: each gives something else.
    async def __call__(self, tool: str, /, *args: Any, **kwargs: Any) -> Any:
        one = self.tools[tool]
        arguments = one.bind(args, kwargs)
        one.check(arguments)
        value = await one.execute(arguments, self.context)
        one.check_result(value)
        return value


def box_of(setup: Setup, journal: Journal | None = None, session_id: str = "s") -> Box:
    resources = make_resources(setup, journal)
    return Box(resource_capabilities(resources, keeps=journal is not None), session_id)


def mounted(folder: Path, path: str = "/workspace") -> Setup:
    return Setup(mounts=(Mount(path=path, host=str(folder)),))


class Memory:
    """A resolver of what a test puts there; counts what is read."""

    def __init__(self, **things: bytes) -> None:
        self.things = things
        self.version: str | None = "1"
        self.mime: str | None = None
        self.reads: list[tuple[int, int]] = []
        self.unknown_size = False
        self.chunk = 1 << 30
        self.closed = 0

    async def open(self, request: ResourceRequest) -> "Counted":
        return Counted(self, self.things[request.uri.partition(":")[2]])


class Counted:
    def __init__(self, home: Memory, data: bytes) -> None:
        self.home = home
        self.held = Held(data)
        self.mime, self.version = home.mime, home.version
        self.size = None if home.unknown_size else len(data)

    async def read(self, start: int, length: int) -> bytes:
        self.home.reads.append((start, length))
        return await self.held.read(start, min(length, self.home.chunk))

    async def aclose(self) -> None:
        self.home.closed += 1


def holding(data: bytes, name: str = "x", **limits: int) -> tuple[Resources, Memory]:
    resources = Resources(**limits)
    memory = Memory(**{name: data})
    resources.router.register("mem", memory)
    return resources, memory


async def read(resources: Resources, uri: str = "mem:x", **more: Any) -> ResourceView:
    return await resources.read(ResourceRequest(uri=uri, **more))


async def grep(resources: Resources, pattern: str, **more: Any) -> GrepView:
    return await resources.grep(GrepRequest(uri=more.pop("uri", "mem:x"), pattern=pattern, **more))


async def whole(resources: Resources, **more: Any) -> str:
    """All the parts that follow each other."""
    start: int | None = more.pop("start", 0)
    found = ""
    while start is not None:
        view = await read(resources, start=start, **more)
        assert view.next is None or view.next > start
        found += view.text or ""
        start = view.next
    return found
