"""The server as a program: where it listens, how it starts, and how it stops without losing anything."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import uvicorn
from anyio.abc import TaskGroup

from holdfast.errors import CallerError
from holdfast.server.app import make_app
from holdfast.server.limits import Limits
from holdfast.server.rpc_http import sockets_of
from holdfast.server.stopping import FAREWELL, GRACE, watch
from holdfast.server.takeover import EVERY, Takeover
from holdfast.server.tokens import Tokens
from holdfast.server.work import Work

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from holdfast.runtime import Runtime
    from holdfast.runtime.agent import Agent

PORT = 7433


@dataclass(frozen=True, slots=True)
class Listen:
    """Where, and how safe that is."""

    host: str = "127.0.0.1"
    port: int = PORT
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    """Whether others may come in without TLS: something else must see to it that nobody listens."""
    behind_proxy: bool = False
    """Whether a proxy on this machine says who asks."""
    names: tuple[str, ...] = ()
    """Names of this server, beside `localhost`."""
    public_url: str | None = None
    """What people write to get here, where a proxy is in front."""

    @property
    def tls(self) -> bool:
        """Whether what is said here is encrypted."""
        return self.tls_cert is not None

    def check(self) -> None:
        """Refuse to be heard by strangers, and what is no address: `INVALID_ARGUMENT`."""
        if self.public_url is not None:
            public_name(self.public_url)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise CallerError(
                "INVALID_ARGUMENT",
                "TLS needs a certificate and its key.",
                hint="Give both, --tls-cert and --tls-key.",
            )
        if not (is_loopback(self.host) or self.tls or self.insecure):
            raise CallerError(
                "INVALID_ARGUMENT",
                f"`{self.host[:80]}` can be reached from other machines, and tokens would pass in the clear.",
                hint="Give --tls-cert and --tls-key, listen on 127.0.0.1 behind a proxy with TLS, or say"
                " --insecure-allow-remote.",
            )

    def bind(self) -> socket.socket:
        """A socket that listens there; raises `INVALID_ARGUMENT`."""
        try:
            family, _, protocol, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            # With its protocol: asyncio sends small answers at once only through a socket that says it is TCP.
            bound = socket.socket(family, socket.SOCK_STREAM, protocol)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(2048)
        except OSError as why:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Can't listen at `{self.host[:80]}:{self.port}`: {why.strerror or why}.",
                hint="Choose another --port, or stop who has it.",
            ) from None
        bound.setblocking(False)
        return bound

    def all_names(self) -> tuple[str, ...]:
        """What requests may call this server."""
        own = () if is_loopback(self.host) else (self.host,)
        public = () if self.public_url is None else (public_name(self.public_url),)
        return (*self.names, *public, *own)

    def url(self, bound: socket.socket) -> str:
        """Where it listens."""
        port = bound.getsockname()[1]
        host = self.names[0] if self.names else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{port}"

    def public(self, bound: socket.socket) -> str:
        """Where people find it: the same, unless a proxy is in front."""
        return self.url(bound) if self.public_url is None else self.public_url.rstrip("/")


def public_name(url: str) -> str:
    """The name in the address of a server; raises `INVALID_ARGUMENT` for more, or less, than scheme, name and port."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.port != 0 and parts.username is None
        fine = fine and parts.path in ("", "/") and not (parts.query or parts.fragment)
    except ValueError:  # no port, or no address in brackets
        fine, parts = False, urlsplit("")
    name = parts.hostname
    if not fine or name is None or any(one.isspace() or not one.isprintable() for one in url):
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{url[:80]}` is no address of a server.",
            hint="Such as https://holdfast.example.com: http or https, a name, perhaps a port, and nothing else.",
        )
    return name


def is_loopback(host: str) -> bool:
    """Whether only this machine can come in there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Server(uvicorn.Server):
    """Signals are ours: a run must come to rest before the server ends."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@dataclass(frozen=True, slots=True)
class Started:
    """The server is there."""

    url: str
    """Where it listens."""
    public_url: str
    """Where people find it: the same, unless a proxy is in front."""
    tokens: Tokens
    resumed: tuple[str, ...]
    """Runs that were interrupted, and go on."""
    stop: Callable[[], None]
    """Ask it to stop, as a signal does."""


async def serve(
    hf: Runtime,
    listen: Listen,
    *,
    ready: Callable[[Started], Awaitable[None]],
    left: Callable[[list[str]], Awaitable[None]] | None = None,
    agents: Mapping[str, Agent[Any]] | None = None,
    limits: Limits | None = None,
    console: bool = True,
    expose: bool = False,
    recover: bool = True,
    look_every: float = EVERY,
    grace: float = GRACE,
    signals: bool = True,
) -> None:
    """Serve until a signal comes, or `Started.stop` is called.

    Then no run is taken on any more, no effect begins, those under way end; whoever still waits for a run is told its
    id, and nobody is let in any more. `left` gets the runs that are still not at rest, while they stand on record as
    running: a process that ends there leaves them to the next. Without it, or when it returns, they are cancelled.

    With `recover`, it goes on with runs that were interrupted: when it starts, and later, looking every `look_every`
    seconds, with those whose process has died meanwhile.
    """
    listen.check()
    bound = listen.bind()
    stopping, over = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as background:
        app = make_app(
            hf,
            background=background,
            agents=agents,
            limits=limits,
            names=listen.all_names(),
            tls=listen.tls,
            console=console,
            expose=expose,
        )
        server = _Server(_config(app, listen))
        async with anyio.create_task_group() as group:

            def stop() -> None:
                app.state.work.shut()
                stopping.set()

            if signals:
                await group.start(watch, stop)
            group.start_soon(_listen, server, bound, stopping, over)
            resumed = await _take_up(app, group, look_every) if recover else ()
            where = (listen.url(bound), listen.public(bound))
            await ready(Started(*where, app.state.tokens, resumed, stop))
            await stopping.wait()
            rest = await _wind_down(app, grace)
            server.should_exit = True  # who comes now is not let in
            await over.wait()
            if rest and left is not None:
                await left(rest)
            group.cancel_scope.cancel()
        background.cancel_scope.cancel()
    hf.shell.services.gate.hold.lift()  # for whoever uses the runtime after the server


def _config(app: Starlette, listen: Listen) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=listen.behind_proxy,
        forwarded_allow_ips="127.0.0.1,::1",
        ssl_certfile=listen.tls_cert,
        ssl_keyfile=listen.tls_key,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=FAREWELL,
    )


async def _listen(
    server: uvicorn.Server, bound: socket.socket, stopping: anyio.Event, over: anyio.Event
) -> None:
    try:
        await server.serve(sockets=[bound])
    finally:
        bound.close()
        over.set()
        stopping.set()


async def _take_up(app: Starlette, group: TaskGroup, look_every: float) -> tuple[str, ...]:
    """Go on with runs that were interrupted, and from now on with those whose process dies; the former."""
    work: Work = app.state.work
    resumed = await work.recover()
    looks = Takeover(app.state.hf.journal, work).keep_looking
    group.start_soon(looks, look_every, app.state.background)
    return tuple(resumed)


async def _wind_down(app: Starlette, grace: float) -> list[str]:
    """Let what is under way end, and tell everybody who waits; the runs that are not at rest then.

    Who comes meanwhile is answered: that we stop, if they want a run, and what is on record all the same. WebSockets
    come first; all else has as long again.
    """
    work: Work = app.state.work
    rest = await work.close(grace)
    with anyio.move_on_after(FAREWELL):
        await sockets_of(app).close()
    _send_watchers_away(app)
    return rest


def _send_watchers_away(app: Starlette) -> None:
    """Clients of events stay until they are told to go."""
    hub: Any = getattr(app.state, "events", None)
    if hub is not None:
        hub.close()
