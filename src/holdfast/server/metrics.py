"""`GET /metrics`: figures for Prometheus. About the whole server, so for nobody who sees only a part of it.

What is true now comes from the projections, what has happened from the records since this process opened the journal,
and what concerns HTTP is counted on its way through (`Counting`).
"""

from __future__ import annotations

import os
from collections import Counter
from time import perf_counter, time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast._version import __version__
from holdfast.errors import CallerError, HoldfastError
from holdfast.journal.log import Row
from holdfast.runtime import Runtime
from holdfast.server import events, health
from holdfast.server._counted import Counted
from holdfast.server._prometheus import MEDIA_TYPE, Counts, Histogram, Text
from holdfast.server.callers import Caller

PATH = "/metrics"
_METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
_PAGE = 1000


class Metrics:
    """The figures of one server. `metrics_of(app)` is the app's."""

    def __init__(self, hf: Runtime) -> None:
        self._hf = hf
        self._counted = Counted(hf.journal)
        self._since = time()
        self.requests = Counts("method", "route", "status")
        self.seconds = Histogram("route")
        self.open = 0
        """Requests under way."""

    async def text(self, hub: events.Hub, state: health.Health) -> str:
        """All of them."""
        text = Text()
        text.figure("holdfast_info", "gauge", "The version.", {(__version__,): 1}, ("version",))
        start = "When this server started, in seconds since 1970."
        text.figure("holdfast_start_time_seconds", "gauge", start, self._since)
        text.figure("process_resident_memory_bytes", "gauge", "Memory in use.", resident())
        await self._happened(text)
        await self._standing(text)
        await self._journal(text, state)
        await self._parts(text)
        self._http(text, hub)
        return str(text)

    async def _happened(self, text: Text) -> None:
        counted = self._counted
        await counted.catch_up()
        text.counts("holdfast_records_total", "Records, by the first word.", counted.records)
        text.counts("holdfast_runs_ended_total", "Runs that are over.", counted.runs)
        text.counts("holdfast_effects_total", "Effects that have a result.", counted.effects)
        text.counts("holdfast_approvals_total", "Approvals that are decided.", counted.approvals)
        text.counts("holdfast_model_tokens_total", "Tokens of models.", counted.tokens)
        text.counts("holdfast_model_cost_usd_total", "Money, where prices are known.", counted.cost)
        behind = "Records that the figures above do not know of yet."
        text.figure("holdfast_metrics_behind_records", "gauge", behind, counted.behind)

    async def _standing(self, text: Text) -> None:
        runs = Counter((str(row.value["status"]),) for row in await self._rows("runs", "active"))
        text.figure("holdfast_runs", "gauge", "Runs that are not over.", runs, ("status",))
        effects = await self._rows("effects", "open")
        doubts = sum(row.value["status"] == "unknown" for row in effects)
        text.figure("holdfast_effects_open", "gauge", "Effects without a result.", len(effects))
        said = "Effects of which nobody knows what became of them."
        text.figure("holdfast_effects_in_doubt", "gauge", said, doubts)
        waiting = [
            int(str(r.value["requested_at"])) for r in await self._rows("approvals", "pending")
        ]
        text.figure("holdfast_approvals_pending", "gauge", "Approvals that wait.", len(waiting))
        oldest = max(0.0, self._hf.approvals.now() - min(waiting)) / 1000 if waiting else 0.0
        said = "How long the oldest of them has waited."
        text.figure("holdfast_approvals_oldest_seconds", "gauge", said, oldest)

    async def _journal(self, text: Text, state: health.Health) -> None:
        last = await self._hf.journal.last_seq()
        text.figure("holdfast_journal_seq", "gauge", "The newest record's number.", last)
        try:
            took = (await state.journal()).seconds
        except HoldfastError:
            took = float("inf")
        writable = 0 if took == float("inf") else 1
        text.figure("holdfast_journal_writable", "gauge", "Whether it can be written.", writable)
        if writable:
            said = "How long a write took just now, from asking to knowing."
            text.figure("holdfast_journal_write_seconds", "gauge", said, took)

    async def _parts(self, text: Text) -> None:
        shell = self._hf.shell
        text.figure("holdfast_sessions_live", "gauge", "Sessions at hand here.", shell.warm)
        # Not every engine has processes.
        workers = {
            (language.value,): float(getattr(boxes, "workers", 0))
            for language, boxes in shell.services.boxes.items()
        }
        text.figure("holdfast_workers", "gauge", "Worker processes.", workers, ("language",))
        views = await self._hf.surfaces.list()
        surfaces = Counter((one.status,) for one in views)
        text.figure("holdfast_surfaces", "gauge", "Tool surfaces.", surfaces, ("status",))

    def _http(self, text: Text, hub: events.Hub) -> None:
        text.counts("holdfast_http_requests_total", "Requests answered.", self.requests)
        text.histogram("holdfast_http_request_seconds", "Until the answer began.", self.seconds)
        text.figure("holdfast_http_requests_open", "gauge", "Requests under way.", self.open)
        text.figure("holdfast_sse_clients", "gauge", "Clients that watch.", hub.clients)
        said = "Clients that were cut because they did not read."
        text.figure("holdfast_sse_cut_total", "counter", said, hub.cut)

    async def _rows(self, projection: str, tag: str) -> list[Row]:
        """Those that are under way; what is over is not looked at."""
        found: list[Row] = []
        after = ""
        while True:
            part = await self._hf.journal.rows(projection, tag=tag, after=after, limit=_PAGE)
            found += part
            if len(part) < _PAGE:
                return found
            after = part[-1].key


class Counting:
    """Middleware around the whole app: counts requests by route, method and status."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        metrics, began, status = metrics_of(scope["app"]), perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                metrics.seconds.add(_route(scope), seconds=perf_counter() - began)
            await send(message)

        metrics.open += 1
        try:
            await self._app(scope, receive, counted)
        finally:
            metrics.open -= 1
            method: str = scope["method"] if scope["method"] in _METHODS else "other"
            metrics.requests.add(method, _route(scope), str(status))


def _route(scope: Scope) -> str:
    """The route's pattern, never what was filled in: that would be a figure for each session."""
    # `Any`: routes of every kind.
    route: Any = scope.get("route")
    return str(getattr(route, "path", "")) or "none"


def metrics_of(app: Starlette) -> Metrics:
    """The figures of an app, made on first use. `app.state.hf` is the open runtime."""
    found: Metrics | None = getattr(app.state, "metrics", None)
    if found is None:
        found = app.state.metrics = Metrics(app.state.hf)
    return found


def routes() -> list[BaseRoute]:
    """`GET /metrics`."""
    return [Route(PATH, metrics, methods=["GET"])]


async def metrics(request: Request) -> Response:
    """The figures of this server, as Prometheus reads them."""
    caller: Caller = request.state.caller
    caller.need("read")
    if caller.prefix is not None:
        raise CallerError(
            "FORBIDDEN",
            "These figures are about all sessions.",
            hint="Use a token without a prefix.",
        )
    app: Starlette = request.app
    told = await metrics_of(app).text(events.hub_of(app), health.health_of(app))
    return Response(told, media_type=MEDIA_TYPE)


def resident() -> int:
    """Bytes of memory that this process has; 0 where that can't be told."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
