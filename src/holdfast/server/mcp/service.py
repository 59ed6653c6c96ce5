"""The MCP server over a runtime, whatever it is spoken to through: each request of the protocol, and who does it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, cast

import anyio
from anyio.abc import TaskGroup
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    LoggingLevel,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    Tool,
    UnsubscribeRequestParams,
)

from holdfast._version import __version__
from holdfast.contracts import new_id
from holdfast.errors import HoldfastError, InternalError
from holdfast.runtime import Runtime
from holdfast.server.callers import Caller
from holdfast.server.mcp import exposed, tools
from holdfast.server.mcp.calls import Calls
from holdfast.server.mcp.client import Client, Context, client_of
from holdfast.server.mcp.content import contents_of, messages_of, refused
from holdfast.server.mcp.following import LEVELS
from holdfast.server.mcp.resources import SCHEME, TEMPLATES, Shown
from holdfast.server.mcp.running import cancel
from holdfast.server.mcp.watching import Watcher, Watching
from holdfast.server.work import Work

NAME = "holdfast"
INSTRUCTIONS = (
    "A sandbox for code, with a memory. `run_code` runs Python that may call the capabilities `search_tools` lists."
    " What changes the world may have to be approved by a person first: then you are told so, and `run_resume` gives the result."
)
PAGE = 100
MAX_LINKS = 10_000
"""Connections of which something is remembered."""
STATE_SECONDS = 86_400.0
"""How long a client may take to come back with an answer."""
_SHOWN = 100


@dataclass(slots=True)
class Link:
    """What is remembered of a connection."""

    level: LoggingLevel = "warning"
    """The least urgent line that it wants to hear."""
    runs: dict[str, str] = field(default_factory=dict[str, str])
    """Its requests under way, and the run of each."""


class Service:
    """Everything that clients can ask."""

    def __init__(
        self,
        hf: Runtime,
        work: Work,
        background: TaskGroup,
        *,
        expose: bool = False,
        local: Caller | None = None,
        note: Callable[..., Awaitable[None]] | None = None,
    ) -> None:
        self._note = note
        self._hf = hf
        self._work = work
        self._background = background
        self._local = local
        self._process = new_id("con")
        self._links: OrderedDict[str, Link] = OrderedDict()
        self._watching = Watching(hf.journal, background)
        self._calls = Calls(hf, work, background, expose=expose)
        self.server: Server[Any] = self._server()
        """What a transport is given."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        hf: Runtime,
        work: Work,
        *,
        expose: bool = False,
        local: Caller | None = None,
        note: Callable[..., Awaitable[None]] | None = None,
    ) -> AsyncGenerator[Self]:
        """A service. Leaving ends what it does in the background.

        `local` is who sits at the other end of a pipe; `note` puts on record what is refused, as `Refusals.note` does.
        """
        async with anyio.create_task_group() as background:
            try:
                yield cls(hf, work, background, expose=expose, local=local, note=note)
            finally:
                background.cancel_scope.cancel()

    def _server(self) -> Server[Any]:
        made: Server[Any] = Server(
            NAME,
            version=__version__,
            title="holdfast",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        # Not by the constructor, which warns: later versions of the protocol have it no more.
        made.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        security = RequestStateSecurity(
            keys=[self._hf.shell.services.key],
            ttl=STATE_SECONDS,
            bind_principal=lambda ctx: self._client(ctx).caller.id,
        )
        made.middleware.append(self._watch_cancels)
        made.middleware.append(RequestStateBoundary(security, default_audience=NAME))
        return made

    # -- who ------------------------------------------------------------------------------------------

    def _client(self, ctx: Context) -> Client:
        return client_of(ctx, self._local, self._process)

    def _link(self, client: Client) -> Link:
        found = self._links.pop(client.connection, None) or Link()
        self._links[client.connection] = found
        if len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        return found

    def _level(self, ctx: Context, client: Client) -> LoggingLevel | None:
        """The least urgent line that this request's client wants."""
        if not client.modern:
            return self._link(client).level
        said = (cast("dict[str, Any]", ctx.meta or {})).get(LOG_LEVEL_META_KEY)
        return said if said in LEVELS else None

    async def _watch_cancels(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A client that takes a request back wants its run cancelled; one that is just gone may come back."""
        if ctx.method == "notifications/cancelled":
            link = self._link(self._client(ctx))
            run_id = link.runs.pop(str((ctx.params or {}).get("requestId")), None)
            if run_id is not None:
                self._background.start_soon(cancel, self._hf, self._work, run_id)
        return await call_next(ctx)

    # -- tools ----------------------------------------------------------------------------------------

    async def _list_tools(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        client = self._client(ctx)
        found: list[Tool] = [tools.tool_of(name) for name in tools.named_for(client.caller)]
        async with _told():
            found += await self._calls.tools(client)
        page, after = _page(found, params)
        return ListToolsResult(tools=page, next_cursor=after)

    async def _call_tool(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        client = self._client(ctx)
        level = self._level(ctx, client)
        with self._under_way(ctx, client) as note:
            try:
                return await self._calls.call(ctx, client, level, params, note)
            except HoldfastError as why:
                if self._note is not None and _is_anothers(why, client):
                    await self._note(
                        why.code,
                        actor=client.caller.id,
                        via=client.via,
                        method="MCP",
                        path=f"/mcp {params.name}",
                    )
                return refused(why)

    def _under_way(self, ctx: Context, client: Client) -> _UnderWay:
        return _UnderWay(self._link(client), str(ctx.request_id))

    # -- resources ------------------------------------------------------------------------------------

    async def _list_resources(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        client = self._client(ctx)
        cursor = None if params is None else params.cursor
        async with _told():
            client.caller.need("read")
            own: list[Resource] = []
            if cursor is None:
                own = [
                    _resource(one) for one in self._calls.offers().resources if not one.variables
                ]
            found, after = await Shown(self._hf, client.caller).page(cursor)
        return ListResourcesResult(resources=[*own, *found], next_cursor=after)

    async def _list_templates(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        async with _told():
            offered = [one for one in self._calls.offers().resources if one.variables]
        own = [
            ResourceTemplate(
                name=one.capability.name,
                uri_template=one.uri,
                description=one.capability.description,
            )
            for one in offered
        ]
        return ListResourceTemplatesResult(resource_templates=[*TEMPLATES, *own])

    async def _read_resource(
        self, ctx: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult | InputRequiredResult:
        client, uri = self._client(ctx), str(params.uri)
        async with _told():
            if uri.startswith(f"{SCHEME}:"):
                return ReadResourceResult(contents=[await Shown(self._hf, client.caller).read(uri)])
            level = self._level(ctx, client)
            with self._under_way(ctx, client) as note:
                found = await self._calls.read(ctx, client, level, params, note)
        if isinstance(found, InputRequiredResult):
            return found
        return ReadResourceResult(contents=[contents_of(uri, found.value)])

    async def _subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        client = self._client(ctx)
        async with _told():
            client.caller.need("read")
        watcher = Watcher(ctx.session, client.caller)
        await self._watching.add(client.connection, str(params.uri), watcher)
        return EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._watching.remove(self._client(ctx).connection, str(params.uri))
        return EmptyResult()

    async def _listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        client = self._client(ctx)
        async with _told():
            client.caller.need("read")
        return await self._watching.listen(ctx, params, client.caller)

    # -- prompts --------------------------------------------------------------------------------------

    async def _list_prompts(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        async with _told():
            found = [exposed.prompt_of(one) for one in self._calls.offers().prompts.values()]
        page, after = _page(found, params)
        return ListPromptsResult(prompts=page, next_cursor=after)

    async def _get_prompt(
        self, ctx: Context, params: GetPromptRequestParams
    ) -> GetPromptResult | InputRequiredResult:
        client = self._client(ctx)
        async with _told():
            level = self._level(ctx, client)
            with self._under_way(ctx, client) as note:
                found = await self._calls.prompt(ctx, client, level, params, note)
            if isinstance(found, InputRequiredResult):
                return found
            messages = messages_of(params.name, found.value)
        return GetPromptResult(description=found.capability.description, messages=messages)

    # -- the rest -------------------------------------------------------------------------------------

    async def _complete(self, ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        client, start = self._client(ctx), params.argument.value
        found: list[str] = []
        async with _told():
            if isinstance(params.ref, PromptReference):
                found = self._calls.values(params.ref.name, params.argument.name)
            elif params.ref.uri in (TEMPLATES[0].uri_template, TEMPLATES[1].uri_template):
                client.caller.need("read")
                kind = "session" if params.ref.uri == TEMPLATES[0].uri_template else "run"
                found = await Shown(self._hf, client.caller).named(kind, start)
        fits = [one for one in found if one.startswith(start)]
        return CompleteResult(
            completion=Completion(
                values=fits[:_SHOWN], total=len(fits), has_more=len(fits) > _SHOWN
            )
        )

    async def _set_level(self, ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        self._link(self._client(ctx)).level = params.level
        return EmptyResult()


class _UnderWay:
    """Remembers which run a request is about, for as long as it is under way."""

    def __init__(self, link: Link, request_id: str) -> None:
        self._link = link
        self._request_id = request_id

    def __enter__(self) -> Any:
        return partial(self._link.runs.__setitem__, self._request_id)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # One that is taken back is taken out by who hears of that; it may come a moment later.
        if kind is None or issubclass(kind, Exception):
            self._link.runs.pop(self._request_id, None)


def _is_anothers(why: HoldfastError, client: Client) -> bool:
    """Whether somebody tried what is not theirs."""
    return why.code == "FORBIDDEN" or (
        why.code in ("NOT_FOUND", "SESSION_NOT_FOUND") and client.caller.prefix is not None
    )


@asynccontextmanager
async def _told() -> AsyncGenerator[None]:
    """A refusal of ours as an error of the protocol, with the `ErrorObject` in its data."""
    try:
        yield
    except InternalError as why:
        raise MCPError(INTERNAL_ERROR, why.message, why.to_json()) from why
    except HoldfastError as why:
        raise MCPError(INVALID_PARAMS, why.message, why.to_json()) from why


def _page(
    found: Sequence[Any], params: PaginatedRequestParams | None
) -> tuple[list[Any], str | None]:
    """A part of a list, and where the next one begins."""
    cursor = None if params is None else params.cursor
    start = 0
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdigit()):
            raise MCPError(INVALID_PARAMS, "There is no such cursor.")
        start = int(cursor)
    rest = found[start + PAGE :]
    return [*found[start : start + PAGE]], str(start + PAGE) if rest else None


def _resource(one: Any) -> Resource:
    return Resource(name=one.capability.name, uri=one.uri, description=one.capability.description)
