"""`GET /healthz`: whether this server can do its work. Answers anybody, and tells details only to who may read all.

Every check does what it is about: something is written to the journal (a lease on a stream of its own, no record), and
the engine is asked about a line of code. What was found is good for a moment, so that nobody can keep the server busy
by asking.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter
from typing import Any, Literal, NamedTuple

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import HoldfastError
from holdfast.runtime import Runtime
from holdfast.server.callers import Caller
from holdfast.server.errors import json_response

PATH = "/healthz"
STREAM = "holdfast:health"
"""What is leased and given back to see whether the journal can be written."""

State = Literal["ok", "degraded", "failing"]


class Check(NamedTuple):
    """What one look found."""

    name: str
    state: State
    detail: str
    seconds: float = 0.0
    """How long it took."""


class Health:
    """Looks now and then."""

    def __init__(self, hf: Runtime, *, every: float = 2.0, patience: float = 5.0) -> None:
        """`every`: seconds for which what was found is good; `patience`: how long one look may take."""
        self._hf = hf
        self._every = every
        self._patience = patience
        self._found: list[Check] = []
        self._until = 0.0
        self._looking = anyio.Lock()

    async def look(self) -> list[Check]:
        """Everything that was found, just now or a moment ago."""
        async with self._looking:
            if monotonic() >= self._until:
                looks = {"journal": self.journal, "workers": self._workers}
                self._found = [await self._one(name, look) for name, look in looks.items()]
                self._found += [await self._one("surfaces", self._surfaces)]
                self._until = monotonic() + self._every
            return self._found

    async def journal(self) -> Check:
        """Write to the journal."""
        began = perf_counter()
        journal = self._hf.journal
        try:
            lease = await journal.claim(STREAM, self._hf.shell.services.owner, ttl_ms=1000)
            await journal.release(lease)
        except HoldfastError as why:
            if why.code != "LEASE_HELD":  # that was found out by writing
                raise
        return Check("journal", "ok", "It can be written.", perf_counter() - began)

    async def _workers(self) -> Check:
        began = perf_counter()
        for boxes in self._hf.shell.services.boxes.values():
            await boxes.validate("1")
        return Check("workers", "ok", "They answer.", perf_counter() - began)

    async def _surfaces(self) -> Check:
        views = await self._hf.surfaces.list()
        lost = [one.name for one in views if one.status in ("failed", "disconnected")]
        problem = self._hf.surfaces.problem
        if lost or problem:
            detail = f"Not there: {', '.join(lost)}." if lost else str(problem)
            return Check("surfaces", "degraded", detail)
        return Check("surfaces", "ok", f"{len(views)} are wanted.")

    async def _one(self, name: str, look: Callable[[], Awaitable[Check]]) -> Check:
        try:
            with anyio.fail_after(self._patience):
                return await look()
        except TimeoutError:
            return Check(name, "failing", f"No answer within {self._patience:g} s.", self._patience)
        except HoldfastError as why:
            return Check(name, "failing", why.message)


def health_of(app: Starlette) -> Health:
    """The health of an app, made on first use. `app.state.hf` is the open runtime."""
    found: Health | None = getattr(app.state, "health", None)
    if found is None:
        found = app.state.health = Health(app.state.hf)
    return found


def routes() -> list[BaseRoute]:
    """`GET /healthz`."""
    return [Route(PATH, healthz, methods=["GET"])]


async def healthz(request: Request) -> Response:
    """200 while this server can do its work, 503 when it can't or is about to stop."""
    app: Starlette = request.app
    checks = await health_of(app).look()
    state = _worst([one.state for one in checks])
    # `Any`: a small server (in a test) need not have one.
    work: Any = getattr(app.state, "work", None)
    stopping: bool = work is not None and work.closing
    told: dict[str, Any] = {"status": "stopping" if stopping else state}
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is not None and caller.may("read") and caller.prefix is None:
        told["checks"] = {
            one.name: {
                "status": one.state,
                "detail": one.detail,
                "ms": round(one.seconds * 1000, 3),
            }
            for one in checks
        }
    return json_response(told, 503 if stopping or state == "failing" else 200)


def _worst(states: list[State]) -> State:
    if "failing" in states:
        return "failing"
    return "degraded" if "degraded" in states else "ok"
