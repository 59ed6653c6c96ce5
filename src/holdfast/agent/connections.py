"""The models that runs ask: found by their ids, their keys known to whoever redacts, closed with the runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from holdfast.gate.redact import MIN_CHARS, Redactor
from holdfast.models.base import Model
from holdfast.models.catalog import close

_CLOSING_S = 5
"""How long all connections together may take to close."""

_USERS: RunVar[Counter[int]] = RunVar("holdfast.agent.connections")
"""How many runtimes of this event loop ask a model: the last one closes it, and nobody under the others' hands."""


class Connections:
    """Of one runtime."""

    def __init__(self, find: Callable[[str], Model], redactor: Redactor) -> None:
        """`find` makes a model by its id."""
        self._find = find
        self._redactor = redactor
        self._named: dict[str, Model] = {}
        self._held: dict[int, Model] = {}
        self._closing = AsyncExitStack()

    def models(self, asked: Sequence[str | Model]) -> list[Model]:
        """The models, in order; from here on their keys appear nowhere."""
        found = [self._by_id(one) if isinstance(one, str) else one for one in asked]
        for model in found:
            self._hide(model)
            if hasattr(model, "aclose"):
                self._hold(model)
        return found

    async def close(self) -> None:
        """End the connections that nobody else needs, also when the runtime is left in a hurry."""
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await self._closing.aclose()
        self._held.clear()
        self._named.clear()

    def _by_id(self, id_: str) -> Model:
        known = self._named.get(id_)
        if known is None:
            known = self._find(id_)
            if hasattr(known, "aclose"):  # one client for all runs; a script may be another by now
                self._named[id_] = known
        return known

    def _hide(self, model: Model) -> None:
        secrets: Callable[[], Mapping[str, str]] | None = getattr(model, "secrets", None)
        for name, value in secrets().items() if secrets is not None else ():
            # Servers that want no key get a word in its place. One that is written in the id is no secret.
            if len(value) >= MIN_CHARS and value not in model.id:
                self._redactor.add(name, value)

    def _hold(self, model: Model) -> None:
        if id(model) in self._held:
            return
        self._held[id(model)] = model
        _users()[id(model)] += 1
        self._closing.push_async_callback(_let_go, model)


async def meet(model: Model) -> None:
    """Read a model's profile for the first time: that may import a client library, which takes a second or two."""
    if hasattr(model, "aclose"):
        await anyio.to_thread.run_sync(_profile, model, abandon_on_cancel=True)


def _profile(model: Model) -> Any:
    return model.profile


def _users() -> Counter[int]:
    found = _USERS.get(None)
    if found is None:
        found = Counter[int]()
        _USERS.set(found)
    return found


async def _let_go(model: Model) -> None:
    users = _users()
    users[id(model)] -= 1
    if users[id(model)] <= 0:
        del users[id(model)]
        await close(model)
