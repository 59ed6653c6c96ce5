"""The task that owns a connection: what it opens, it closes, whatever happens meanwhile.

It opens the transport, agrees on a protocol, learns what the server offers, and stays until it is told to close or
the other side is gone.
"""

from __future__ import annotations

import json
import logging
import math
from typing import cast

import anyio
from anyio.abc import TaskStatus
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Implementation,
    LoggingMessageNotificationParams,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast._version import __version__
from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.connection import McpConnection
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.explain import unconnected
from holdfast.capabilities.mcp.services import Services
from holdfast.capabilities.mcp.session import Session
from holdfast.capabilities.mcp.transport import transport
from holdfast.capabilities.mcp.wire import ProbeClosed, Wire, negotiate
from holdfast.contracts.surface import HttpSurface, StdioSurface
from holdfast.errors import HoldfastError

LISTEN_AGAIN_SECONDS = 5.0
"""Before it is tried again to hear of changes."""

# What the SDK complains about is told to whoever calls; without a handler it would also be printed.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

Opened = TaskStatus[McpConnection | Exception]


async def serve(
    surface: str,
    spec: StdioSurface | HttpSurface,
    services: Services,
    closing: anyio.Event,
    *,
    task_status: Opened = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Own a connection; it is handed over once it is open, or else why it could not be opened."""
    until = anyio.current_time() + spec.connect_timeout_ms / 1000
    for probe in (True, False):
        log = ErrorLog(surface, services)
        connection = McpConnection(surface, spec, services, log)
        owner = _Owner(connection, spec, services, log)
        try:
            await owner.own(until, closing, probe=probe, opened=task_status)
        except Exception as why:  # noqa: BLE001 - whatever a server does to the SDK is for whoever connects it
            cause = _cause(why)
            if isinstance(cause, ProbeClosed) and probe:
                continue  # greeted as of old, it may stay
            if owner.opened:
                log.note(f"the connection broke: {cause!r}")
            else:
                task_status.started(_why(surface, cause, connection, log))
        finally:
            connection.lost.set()
        return


class _Owner:
    """One attempt."""

    def __init__(
        self,
        connection: McpConnection,
        spec: StdioSurface | HttpSurface,
        services: Services,
        log: ErrorLog,
    ) -> None:
        self._connection = connection
        self._spec = spec
        self._services = services
        self._log = log
        self.opened = False
        """Whether the connection was handed over."""

    async def own(self, until: float, closing: anyio.Event, *, probe: bool, opened: Opened) -> None:
        """Open, stay, close."""
        connection, spec = self._connection, self._spec
        seconds = until - anyio.current_time()
        with anyio.fail_after(seconds) as scope:
            # Over HTTP answers stay with the SDK: it knows on whose behalf what comes along with them is asked.
            answers = Answers() if isinstance(spec, StdioSurface) else None
            way = await transport(
                connection.surface, spec, self._services, self._log, connection.note, answers
            )
            async with way as (read, write):
                wire = Wire(read, write, self._services.redact, answers)
                async with self._session(wire) as session:
                    await negotiate(session, probe=probe, seconds=seconds / 2)
                    await connection.greet(session, wire)
                    scope.deadline = math.inf
                    self.opened = True
                    connection.noted = None
                    opened.started(connection)
                    await self._stay(session, wire, closing)
                    # Whoever calls from here on must not wait for what is being closed.
                    connection.lost.set()

    def _session(self, wire: Wire) -> Session:
        asking, services = self._connection.asking, self._services
        samples = self._spec.sampling and services.sample is not None
        roots = self._spec.roots and services.roots is not None
        return Session(
            dispatcher=wire,
            client_info=Implementation(name="holdfast", version=__version__),
            elicitation_callback=asking.elicit,
            sampling_callback=asking.sample if samples else None,
            list_roots_callback=asking.roots if roots else None,
            logging_callback=self._logged,
            log_level="info" if services.log is not None else None,
            message_handler=self._heard,
        )

    async def _logged(self, params: LoggingMessageNotificationParams) -> None:
        said = params.data if isinstance(params.data, str) else json.dumps(params.data)
        self._log.say(params.level, said)

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._connection.changed.set()

    async def _stay(self, session: ClientSession, wire: Wire, closing: anyio.Event) -> None:
        async with anyio.create_task_group() as group:

            async def until(event: anyio.Event) -> None:
                await event.wait()
                group.cancel_scope.cancel()

            group.start_soon(until, closing)
            group.start_soon(until, wire.ended)
            group.start_soon(until, self._connection.lost)
            group.start_soon(self._look)
            capabilities = session.server_capabilities
            tools = None if capabilities is None else capabilities.tools
            if (
                session.protocol_version in MODERN_PROTOCOL_VERSIONS
                and tools
                and tools.list_changed
            ):
                group.start_soon(self._listen, session)

    async def _look(self) -> None:
        """Find out whether a server is gone that a request did not reach."""
        connection = self._connection
        while True:
            await connection.suspect.wait()
            connection.suspect = anyio.Event()
            try:
                await connection.check()
            except HoldfastError as why:
                self._log.note(f"it is gone: {why.message}")
                connection.lost.set()
                return

    async def _listen(self, session: ClientSession) -> None:
        """Hear of changes, where the protocol wants to be asked for them."""
        while True:
            try:
                async with listen(session, tools_list_changed=True) as subscription:
                    # Something may have changed while nobody listened.
                    await self._connection.look_again()
                    async for _ in subscription:
                        self._connection.changed.set()
            except (MCPError, SubscriptionLost, TimeoutError) as why:
                self._log.note(f"it does not say what changes: {why}")
            await anyio.sleep(LISTEN_AGAIN_SECONDS)


def _why(surface: str, cause: Exception, connection: McpConnection, log: ErrorLog) -> Exception:
    noted = connection.noted
    return unconnected(surface, cause, noted=noted, said=log.tail(), code=log.exit_code)


def _cause(why: Exception) -> Exception:
    """What was raised inside groups of tasks."""
    while isinstance(why, ExceptionGroup):
        within = cast("ExceptionGroup[Exception]", why).exceptions
        why = next((one for one in within if isinstance(one, HoldfastError)), within[0])
    return why
