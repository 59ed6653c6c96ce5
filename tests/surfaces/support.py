"""A world of tool servers in memory: each can be slow, broken, lost, changed; and knows what was asked of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import holdfast
from holdfast.capabilities.connection import Connection, Offer, Offers, ResourceLine
from holdfast.contracts import Capability, CapabilityLimits, Json, SideEffect
from holdfast.contracts.surface import StdioSurface, SurfaceSpec
from holdfast.gate.executor import Context
from holdfast.runtime import wiring

SPEC = StdioSurface(command="fake", connect_timeout_ms=2_000)
FREE = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}


def tool(
    name: str,
    *,
    answer: str = "number",
    side_effect: SideEffect = SideEffect.READ,
    timeout_ms: int = 5_000,
) -> Capability:
    """A tool that takes a number; `answer` is part of its contract, so another one is another tool."""
    return Capability(
        name=name,
        description=f"{name} gives a {answer}.",
        input_schema={
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        },
        output_schema={"type": "object", "title": answer},
        side_effect=side_effect,
        limits=CapabilityLimits(timeout_ms=timeout_ms),
    )


class Server:
    """One server: what it offers, and how it behaves."""

    def __init__(self, name: str, tools: Sequence[str] = ("one",)) -> None:
        self.name = name
        self.tools: dict[str, Capability] = {one: tool(f"{name}_{one}") for one in tools}
        self.broken: Exception | None = None
        """Why it can't be reached."""
        self.gate: anyio.Event | None = None
        """What opening waits for."""
        self.hold: anyio.Event | None = None
        """What calls wait for."""
        self.dead = False
        """Whether it does not answer when it is asked whether it is alive."""
        self.opened = 0
        self.closed = 0
        self.calls: list[tuple[str, str]] = []
        """What was called: the tool, and the digest it then had."""
        self.log: list[tuple[str, str, int]] = []
        """The same, and with what."""
        self.now: list[FakeConnection] = []
        """Open connections."""

    def lose(self) -> None:
        """Every connection breaks."""
        for one in self.now:
            one.lost.set()

    def change(self, **tools: Capability | None) -> None:
        """Offer something else from now on, and say so."""
        for name, capability in tools.items():
            if capability is None:
                self.tools.pop(name, None)
            else:
                self.tools[name] = capability
        for one in self.now:
            one.changed.set()


class FakeConnection:
    def __init__(self, server: Server) -> None:
        self.protocol: str | None = "fake/1"
        self.instructions: str | None = None
        self._server = server
        self.offers = self._listed()
        self.changed = anyio.Event()
        self.lost = anyio.Event()
        self.server: str | None = f"{server.name} 1.0"

    def _listed(self) -> Offers:
        return Offers(tuple(Offer(name, one) for name, one in self._server.tools.items()))

    async def call(self, tool: str, arguments: Mapping[str, Json], context: Context) -> Json:
        server = self._server
        # Whoever asks for what it does not offer (any more) was sent to a wrong tool.
        server.calls.append((tool, self._offered(tool)))
        server.log.append((tool, self._offered(tool), int(str(arguments["n"]))))
        if server.hold is not None:
            await server.hold.wait()
        return {"tool": tool, "n": arguments["n"]}

    def _offered(self, tool: str) -> str:
        return next(one.capability.digest for one in self.offers.tools if one.tool == tool)

    async def resources(self) -> Sequence[ResourceLine]:
        return ()

    async def read(self, uri: str) -> Sequence[tuple[bytes, str]]:
        return ()

    async def check(self) -> None:
        if self._server.dead:
            raise OSError("no answer")


class RelistingConnection(FakeConnection):
    async def relist(self) -> Offers:
        if self._server.broken is not None:
            self.changed = anyio.Event()
            raise self._server.broken
        self.offers = self._listed()
        self.changed = anyio.Event()
        return self.offers


class World:
    """Servers by name; what runtimes of the tests are connected to."""

    def __init__(self, *servers: Server, relists: bool = False) -> None:
        self.servers = {one.name: one for one in servers}
        self.kind = RelistingConnection if relists else FakeConnection

    def __getitem__(self, name: str) -> Server:
        return self.servers.setdefault(name, Server(name))

    def make(self, name: str, spec: SurfaceSpec) -> "FakeSource":
        return FakeSource(self[name], self.kind)

    @property
    def open(self) -> int:
        """Connections that nobody closed."""
        return sum(len(one.now) for one in self.servers.values())


class FakeSource:
    def __init__(self, server: Server, kind: type[FakeConnection]) -> None:
        self._server = server
        self._kind = kind

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Connection]:
        server = self._server
        if server.gate is not None:
            await server.gate.wait()
        if server.broken is not None:
            raise server.broken
        # As libraries do: whoever leaves this in another task than he entered it in finds out.
        async with anyio.create_task_group() as group:
            connection = self._kind(server)
            server.opened += 1
            server.now.append(connection)
            try:
                yield connection
            finally:
                server.now.remove(connection)
                server.closed += 1
                group.cancel_scope.cancel()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """What runtimes of a test are connected to."""
    found = World()
    monkeypatch.setattr(wiring, "make_sources", lambda *_: found.make)
    return found


@asynccontextmanager
async def opened(url: Any = "memory:", **config: Any) -> AsyncGenerator[holdfast.Runtime]:
    """A runtime in which nobody is asked."""
    async with holdfast.open(url, {**FREE, **config}) as hf:
        yield hf


async def until(holds: Callable[[], Any], seconds: float = 10) -> None:
    """Wait until something holds."""
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110  (it is another task's doing)
            await anyio.sleep(0.005)


def settled_context(effect: str = "eff_test") -> Context:
    """What a call is made with."""
    return Context(effect, 1, "session", "run")
