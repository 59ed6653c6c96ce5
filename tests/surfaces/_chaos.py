"""A world of real MCP servers, and somebody who kills, stops, changes, adds and removes them while agents call them."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

import holdfast
from holdfast.contracts.surface import HttpSurface, StdioSurface
from holdfast.errors import NotFound

PROGRAM = Path(__file__).parent / "_chaos_server.py"
TIMEOUT_MS = 1500
"""How long one call may take."""
CONNECT_MS = 8000
"""How long a server may take to come up: those made with the SDK take a second, and more on a busy machine."""
KINDS = {"a": "plain", "b": "stdio", "c": "http"}
FILED = "d"
"""The surface that comes and goes with the settings' file."""

# What mends comes as often as what breaks: a world in which nothing answers tests little.
OPS = (
    "kill kill stop stop stop change change change_quietly remove add add reload reload edit edit break_file"
).split()


@dataclass
class Server:
    """One server, through all of its processes."""

    folder: Path
    name: str
    kind: str
    port: int = 0
    version: int = 0
    child: "subprocess.Popen[bytes] | None" = None
    """The process at the address; those that talk over stdio are holdfast's."""

    def __post_init__(self) -> None:
        self.offer(0)
        if self.kind == "http":
            with socket.create_server(("127.0.0.1", 0)) as found:
                self.port = found.getsockname()[1]

    @property
    def spec(self) -> StdioSurface | HttpSurface:
        """The surface."""
        times: dict[str, Any] = {"timeout_ms": TIMEOUT_MS, "connect_timeout_ms": CONNECT_MS}
        if self.kind == "http":
            return HttpSurface(url=f"http://127.0.0.1:{self.port}/mcp", **times)
        return StdioSurface(command=sys.executable, args=tuple(self.arguments), **times)

    @property
    def arguments(self) -> list[str]:
        """What its program is told."""
        more = [str(self.port)] if self.kind == "http" else []
        return [str(PROGRAM), str(self.folder), self.name, self.kind, *more]

    def offer(self, version: int) -> None:
        """From its next start on."""
        self.version = version
        (self.folder / f"{self.name}.version").write_text(str(version))

    def start(self) -> None:
        """Start what holdfast does not start itself."""
        if self.kind == "http" and (self.child is None or self.child.poll() is not None):
            self.child = subprocess.Popen([sys.executable, *self.arguments])

    @property
    def log(self) -> list[dict[str, Any]]:
        """What happened to it."""
        path = self.folder / f"{self.name}.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def pids(self) -> list[int]:
        """Its processes that are alive, the newest last."""
        return [line["pid"] for line in self.log if "start" in line and alive(line["pid"])]

    def signal(self, number: signal.Signals) -> None:
        """To the newest of its processes."""
        if self.child is not None:
            self.child.send_signal(number)
            if number is signal.SIGKILL:
                self.child.wait()
            return
        for pid in self.pids[-1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """For good."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()


def alive(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def reachable(port: int) -> bool:
    """Whether somebody answers there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass
class World:
    """All servers, the settings' file, and what was done to them."""

    folder: Path
    luck: random.Random
    servers: dict[str, Server] = field(default_factory=dict[str, Server])
    done: Counter[str] = field(default_factory=Counter[str])
    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    """What servers wrote down, once all is over."""

    def __post_init__(self) -> None:
        for name, kind in {**KINDS, FILED: "plain"}.items():
            self.servers[name] = Server(self.folder, name, kind)
        self.write(filed=False)

    @property
    def config(self) -> Path:
        """The settings' file."""
        return self.folder / "holdfast.toml"

    async def up(self) -> None:
        """Wait for those that holdfast does not start: a first attempt that fails is not waited for again."""
        for server in self.servers.values():
            with anyio.fail_after(60):
                while server.port and not reachable(server.port):  # noqa: ASYNC110 - it is a process
                    await anyio.sleep(0.02)

    def write(self, *, filed: bool, times: int = TIMEOUT_MS, rest: str = "") -> None:
        """Write the settings, at once or bit by bit, as editors do."""
        text = '[[policy.rules]]\nid = "all"\nthen = "allow"\n'
        text += "[shell.limits]\nwall_ms = 60000\nmax_external_calls = 1000\n"
        if filed:
            spec = self.servers[FILED].spec
            assert isinstance(spec, StdioSurface)
            text += f"[surfaces.{FILED}]\ncommand = {json.dumps(spec.command)}\n"
            text += f"args = {json.dumps(spec.args)}\n"
            text += f"timeout_ms = {times}\nconnect_timeout_ms = {CONNECT_MS}\n"
        if self.luck.random() < 0.5:
            self.config.write_text(text + rest)
        else:
            part = self.config.with_suffix(".part")
            part.write_text(text + rest)
            part.replace(self.config)


@asynccontextmanager
async def world_of(seed: int) -> AsyncGenerator[World]:
    """Servers that are up; at the end none is left."""
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as folder:
        world = World(Path(folder), random.Random(seed))
        try:
            for server in world.servers.values():
                server.start()
            await world.up()
            yield world
        finally:
            for server in world.servers.values():
                server.end()


class Chaos:
    """Does something to a server, again and again."""

    def __init__(self, world: World, hf: holdfast.Runtime, group: anyio.abc.TaskGroup) -> None:
        self._world = world
        self._hf = hf
        self._group = group
        self._luck = random.Random(world.luck.random())
        self._filed = False

    async def reign(self) -> None:
        """Until it is cancelled."""
        while True:
            await anyio.sleep(self._luck.uniform(0.05, 0.5))
            op, server = self._luck.choice(OPS), self._world.servers[self._luck.choice("abc")]
            self._world.done[op] += 1
            await getattr(self, op)(server)

    async def kill(self, server: Server) -> None:
        """It is gone, in the middle of whatever it does."""
        server.signal(signal.SIGKILL)
        if server.kind == "http":
            self._group.start_soon(self._back, server)

    async def _back(self, server: Server) -> None:
        await anyio.sleep(self._luck.uniform(0, 1))
        server.start()

    async def stop(self, server: Server) -> None:
        """It hangs, for a while or for good."""
        stopped = server.pids[-1:]
        server.signal(signal.SIGSTOP)
        seconds = self._luck.choice([0.3, 1, 2.5, 8])
        # At an address nobody but us would ever end it.
        if server.kind == "http" or self._luck.random() < 0.7:
            self._group.start_soon(self._go_on, stopped, seconds)

    async def _go_on(self, pids: list[int], seconds: float) -> None:
        await anyio.sleep(seconds)
        for pid in pids:
            if alive(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    async def change(self, server: Server) -> None:
        """It restarts, and offers something else."""
        server.offer(server.version + 1)
        await self.kill(server)

    async def change_quietly(self, server: Server) -> None:
        """Whoever connects to it anew finds something else; at an address it goes in good order."""
        server.offer(server.version + 1)
        if server.kind != "http":
            await self.reload(server)
            return
        server.signal(signal.SIGTERM)
        self._group.start_soon(self._replaced, server)

    async def _replaced(self, server: Server) -> None:
        with anyio.move_on_after(3):
            while server.child is not None and server.child.poll() is None:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.02)
        server.signal(signal.SIGKILL)
        server.start()

    async def remove(self, server: Server) -> None:
        """Nobody wants it any more."""
        with suppress(NotFound):
            await self._hf.surfaces.remove(server.name)

    async def add(self, server: Server) -> None:
        """One that is not wanted is; else one that is, once more."""
        known = {one.name for one in await self._hf.surfaces.list() if one.staged != "remove"}
        missing = [one for one in KINDS if one not in known]
        chosen = self._world.servers[self._luck.choice(missing)] if missing else server
        if missing or self._luck.random() < 0.3:
            await self._hf.surfaces.add(chosen.name, chosen.spec)

    async def reload(self, server: Server) -> None:
        """Somebody wants it connected anew."""
        with suppress(NotFound):
            await self._hf.surfaces.reload(server.name)

    async def edit(self, server: Server) -> None:
        """Somebody edits the settings' file."""
        self._filed = not self._filed
        self._world.write(filed=self._filed, times=TIMEOUT_MS - self._luck.choice([0, 100]))

    async def break_file(self, server: Server) -> None:
        """Somebody is not done with it."""
        self._world.write(filed=self._filed, rest="[surfaces.")
