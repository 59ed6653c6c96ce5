"""One connection, and the one task that opens, watches and closes it. Everybody else only calls through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Protocol, runtime_checkable

import anyio

from holdfast.capabilities.connection import Connection, Offers, Source
from holdfast.contracts import Json
from holdfast.errors import HoldfastError, ModelError
from holdfast.gate.executor import Context, Finding, NeedsAnswer, Unsure

CLOSE_S = 10.0
"""Seconds that closing a connection may take; then it is cut off."""


@runtime_checkable
class Relists(Protocol):
    """A connection that can say anew what it offers, so that it need not be replaced when that changes."""

    async def relist(self) -> Offers:
        """What it offers now; from here on that is `offers`, and `changed` is a fresh event."""
        ...


@runtime_checkable
class Reconciles(Protocol):
    """A connection some of whose tools can find out what became of a call."""

    @property
    def reconciles(self) -> frozenset[str]:
        """Which."""
        ...

    async def reconcile(
        self, tool: str, arguments: Mapping[str, Json], context: Context
    ) -> Finding:
        """Find out."""
        ...


class Link:
    """A connection from its opening to its end. Make it, and let one task `own` it, once."""

    def __init__(self, name: str, source: Source, *, timeout_ms: int) -> None:
        self.name = name
        self.connection: Connection | None = None
        """Set once it is open."""
        self.over = False
        """Whether no call goes out on it any more."""
        self.closing = False
        """Whether that is because it was closed, here, on purpose."""
        self.used = monotonic()
        """When something was last heard of it."""
        self.suspect = False
        """Whether a call on it took too long since something was last heard of it."""
        self.checking = False
        """Whether somebody finds out whether it is alive."""
        self._source = source
        self._timeout = timeout_ms / 1000
        self._scope = anyio.CancelScope()
        self._end = anyio.Event()
        self._relisted = anyio.Event()
        self._calls: set[anyio.CancelScope] = set()

    async def own(self, opened: Callable[[Link], bool], changed: Callable[[Link], None]) -> None:
        """Open it, hand it over, and close it when it is over; raises why it could not be opened.

        `opened` takes it over, or says no; `changed` is told whenever the other side offers something else.
        """
        # One scope around all of it: a scope around the opening alone would be left before those inside it.
        self._scope.deadline = anyio.current_time() + self._timeout
        try:
            with self._scope:
                async with self._source.open() as connection:
                    self._scope.deadline = math.inf
                    self.connection = connection
                    if opened(self):
                        await self._watch(connection, changed)
                    self._cut()
                    self._scope.deadline = anyio.current_time() + CLOSE_S
        except Exception:
            # Once it was open, whatever goes wrong with it is the end of it, and no more.
            if self.connection is None:
                raise
        finally:
            self._cut()
        if self.connection is None and not self.closing:
            raise TimeoutError(f"It did not come up within {self._timeout:g} s.")

    async def _watch(self, connection: Connection, changed: Callable[[Link], None]) -> None:
        """Wait until it is closed or lost."""

        async def until(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        async def hear() -> None:
            while True:
                await connection.changed.wait()
                self._relisted = anyio.Event()
                changed(self)
                await self._relisted.wait()

        async with anyio.create_task_group() as group:
            group.start_soon(until, connection.lost)
            group.start_soon(until, self._end)
            group.start_soon(hear)

    def close(self) -> None:
        """End it, or the attempt to open it; its owner does so."""
        self.closing = True
        self._cut()
        if self.connection is None:
            self._scope.cancel()

    def lose(self) -> None:
        """The other side does not answer: that is as good as gone."""
        self._cut()

    def _cut(self) -> None:
        self.over = True
        self._end.set()
        for scope in [*self._calls]:
            scope.cancel()

    async def relist(self, timeout_ms: int) -> Offers | None:
        """What it offers now; `None` when it can't say, and has to be opened anew."""
        connection = self.connection
        if self.over or not isinstance(connection, Relists):
            return None
        with anyio.fail_after(timeout_ms / 1000):
            found = await connection.relist()
        self._relisted.set()
        return found

    async def check(self) -> bool:
        """Whether it is alive."""
        connection = self.connection
        assert connection is not None
        self.checking = True
        try:
            with anyio.fail_after(self._timeout):
                await connection.check()
        except Exception:  # noqa: BLE001 - why it does not answer makes no difference
            return False
        finally:
            self.checking = False
        self.used, self.suspect = monotonic(), False
        return not self.over

    async def call(self, tool: str, arguments: Mapping[str, Json], context: Context) -> Json:
        """Call one of its tools. A call that is cut off with the connection is `Unsure`."""
        connection = self.connection
        if self.over or connection is None:
            raise unavailable(self.name)
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                value = await connection.call(tool, arguments, context)
                self.used, self.suspect = monotonic(), False
                return value
            except (HoldfastError, NeedsAnswer, Unsure):
                self.used = monotonic()
                raise
            except Exception:
                if connection.lost.is_set() or self.over:
                    raise Unsure(cut_off(self.name)) from None
                raise
            except anyio.get_cancelled_exc_class():
                self.suspect = True
                raise
            finally:
                self._calls.discard(scope)
        raise Unsure(cut_off(self.name))

    def reconciles(self, tool: str) -> bool:
        """Whether that tool can find out what became of a call."""
        connection = self.connection
        return isinstance(connection, Reconciles) and tool in connection.reconciles

    async def reconcile(
        self, tool: str, arguments: Mapping[str, Json], context: Context
    ) -> Finding:
        """Find out, where that is possible."""
        connection = self.connection
        if self.over or not isinstance(connection, Reconciles):
            return Finding("unknown")
        return await connection.reconcile(tool, arguments, context)


def unavailable(name: str) -> ModelError:
    """The refusal of a call whose server is not there."""
    return ModelError(
        "SURFACE_UNAVAILABLE",
        f"The tool server `{name}` is not there now; nothing was done.",
        hint="It is being connected again: try later, or go on without it.",
    )


def draining(name: str) -> ModelError:
    """The refusal of a call whose server is being removed."""
    return ModelError(
        "SURFACE_DRAINING",
        f"The tool server `{name}` is being removed; nothing was done.",
        hint="Go on without it.",
    )


def removed(name: str) -> ModelError:
    """The refusal of a call whose server was removed."""
    return ModelError(
        "SURFACE_UNAVAILABLE",
        f"The tool server `{name}` was removed; nothing was done.",
        hint="Go on without it.",
    )


def other_tool(name: str, tool: str, *, gone: bool) -> ModelError:
    """The refusal of a call of what is something else by now."""
    what = "is not offered any more" if gone else "has changed since this code was written"
    return ModelError(
        "SURFACE_UNAVAILABLE",
        f"`{tool}` of the tool server `{name}` {what}; nothing was done.",
        hint="Look at what there is now (`search_tools`, `describe_tool`), then call that.",
    )


def cut_off(name: str) -> ModelError:
    """The end of a call whose connection ended before it."""
    return ModelError(
        "SURFACE_UNAVAILABLE",
        f"The connection to the tool server `{name}` was lost while the call was under way.",
        hint="It may have been carried out: look before you do it again.",
    )
