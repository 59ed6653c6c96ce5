"""An open connection to an MCP server, as everybody but its owner sees it.

Its methods may be called from any task. A caller that is cancelled tells the server so, and harms nobody else; a call
that fails fails alone. The task that owns it is in `serving.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, METHOD_NOT_FOUND, InputResponses
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from holdfast.capabilities.connection import Offers, ResourceLine
from holdfast.capabilities.mcp.asking import Asking
from holdfast.capabilities.mcp.content import Plain, bodies, part, value_of
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.explain import GONE, NOT_MADE, explained
from holdfast.capabilities.mcp.failures import unavailable
from holdfast.capabilities.mcp.http import Unmet
from holdfast.capabilities.mcp.listing import pages
from holdfast.capabilities.mcp.rounds import Rounds
from holdfast.capabilities.mcp.schema import offers
from holdfast.capabilities.mcp.services import PromptLine, Services, Step
from holdfast.capabilities.mcp.session import Given, Session
from holdfast.capabilities.mcp.underway import CURRENT, Calls, Underway
from holdfast.capabilities.mcp.wire import Wire
from holdfast.capabilities.words import clean, one_line
from holdfast.contracts import Json
from holdfast.contracts.canonical import digest_json
from holdfast.contracts.surface import HttpSurface, StdioSurface
from holdfast.gate.executor import Context, Unsure

CHECK_SECONDS = 5.0
"""How long a server may take to say that it is alive."""

MAX_INSTRUCTIONS = 4000
"""Characters of what a server wants a model to know."""


class McpConnection:
    """A connection to one server."""

    def __init__(
        self,
        surface: str,
        spec: StdioSurface | HttpSurface,
        services: Services,
        log: ErrorLog,
    ) -> None:
        self.offers = Offers()
        self.changed = anyio.Event()
        self.lost = anyio.Event()
        self.server: str | None = None
        self.protocol: str | None = None
        self.instructions: str | None = None
        self.readable = False
        """Whether it has something to read."""
        self.calls = Calls()
        """The calls that are under way."""
        self.asking = Asking(services, self.calls, log)
        """Answers what the server asks."""
        self.noted: Exception | int | None = None
        """What went wrong last with a request that belongs to no call."""
        self.suspect = anyio.Event()
        """Set when a request found nobody at the server's address."""
        self._surface = surface
        self._spec = spec
        self._services = services
        self._log = log
        self._session: Session | None = None
        self._wire: Wire | None = None
        self._listed = ""
        self._known: Mapping[str, str] = {}
        """The digests of the tools among `offers`, which is what its users know of."""
        self._last: Mapping[str, str] = {}
        """Those of what it was last heard to offer."""
        self._listing = anyio.Lock()
        """Held while tools are listed: pages of two lists must not be mixed up."""

    # -- calls ----------------------------------------------------------------------------------------

    async def call(self, tool: str, arguments: Mapping[str, Json], context: Context) -> Json:
        """Call one of its tools. Raises `TOOL_ERROR`, `SURFACE_UNAVAILABLE`, `Unsure`, `NeedsAnswer`."""
        session = self._open()
        call = Underway(tool, context, contract=self._known.get(tool))
        self._check(call)
        token = CURRENT.set(call)
        self.calls.under_way.append(call)
        send = partial(self._sent, session, call, dict(arguments))
        try:
            result = await Rounds(tool, context, self.asking, send).go()
        except (MCPError, ValidationError, RuntimeError, ValueError) as why:
            raise explained(self._surface, call, why, lost=self.lost.is_set()) from None
        finally:
            self.calls.under_way.remove(call)
            CURRENT.reset(token)
        if isinstance(result, Plain):
            return result.value
        keep = self._services.keep
        return await value_of(tool, result, None if keep is None else partial(keep, context))

    async def _sent(
        self,
        session: Session,
        call: Underway,
        arguments: dict[str, Any],
        responses: InputResponses | None,
        state: str | None,
    ) -> Given:
        try:
            return await self._once(session, call, arguments, responses, state)
        except MCPError as why:
            # The headers of a request follow from the tool's schema: these do not fit what it is by now.
            if why.code != HEADER_MISMATCH and not isinstance(call.failure, Unmet):
                raise
        call.failure, call.looked = None, True
        # Without a session, nothing else tells that the server at an address is another one than before.
        await self.look_again()
        self._check(call)
        return await self._once(session, call, arguments, responses, state)

    def _once(
        self,
        session: Session,
        call: Underway,
        arguments: dict[str, Any],
        responses: InputResponses | None,
        state: str | None,
    ) -> Awaitable[Given]:
        """Make the call; in the shorter way, if it can be: what is not listed, the SDK looks for."""
        on_progress = None if self._services.progress is None else self._step(call)
        wire, fresh = self._wire, responses is None and state is None
        if fresh and call.contract is not None and wire is not None and wire.direct:
            return session.call(wire, call.tool, arguments, on_progress)
        return session.call_tool(
            call.tool,
            arguments,
            progress_callback=on_progress,
            input_responses=responses,
            request_state=state,
            allow_input_required=True,
        )

    def _check(self, call: Underway) -> None:
        """Raise `SURFACE_UNAVAILABLE` unless its tool is what it was when the call was made."""
        if self._last.get(call.tool) != call.contract:
            raise unavailable(self._surface, f"`{call.tool}` is another one than it was")

    def _step(self, call: Underway) -> Any:
        async def told(progress: float, total: float | None, message: str | None) -> None:
            if self._services.progress is not None:
                said = None if message is None else one_line(self._services.redact(message))
                who = call.context
                self._services.progress(
                    Step(
                        who.effect_id, call.tool, progress, total, said, who.run_id, who.session_id
                    )
                )

        return told

    # -- what else there is ---------------------------------------------------------------------------

    async def resources(self) -> Sequence[ResourceLine]:
        """What there is to read: resources, then templates."""
        session = self._open()
        with self._asking("resources/list"):
            listed = await pages(
                lambda params: session.list_resources(params=params), optional=True
            )
            more = await pages(
                lambda params: session.list_resource_templates(params=params), optional=True
            )
        found = [
            ResourceLine(
                one.uri, one_line(one.name), clean(one.description or ""), one.mime_type, one.size
            )
            for page in listed
            for one in page.resources
        ]
        return found + [
            ResourceLine(
                one.uri_template,
                one_line(one.name),
                clean(one.description or ""),
                one.mime_type,
                template=True,
            )
            for page in more
            for one in page.resource_templates
        ]

    async def read(self, uri: str) -> Sequence[tuple[bytes, str]]:
        """A resource: its parts, each with its mime type."""
        session = self._open()
        with self._asking("resources/read"):
            return bodies(await session.read_resource(uri))

    async def prompts(self) -> Sequence[PromptLine]:
        """The prompts it has to offer."""
        session = self._open()
        with self._asking("prompts/list"):
            listed = await pages(lambda params: session.list_prompts(params=params), optional=True)
        return [
            PromptLine(
                one.name,
                clean(one.description or ""),
                tuple((arg.name, bool(arg.required)) for arg in one.arguments or ()),
            )
            for page in listed
            for one in page.prompts
        ]

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Json:
        """A prompt, filled in: its messages, each with its role and content."""
        session = self._open()
        with self._asking("prompts/get"):
            found = await session.get_prompt(name, dict(arguments or {}))
        # Nothing is kept: there is no call whose result it would be kept with.
        return [
            {"role": one.role, "content": await part(one.content, None)} for one in found.messages
        ]

    async def check(self) -> None:
        """Return if it is alive; raise if not."""
        session = self._open()
        try:
            with anyio.fail_after(CHECK_SECONDS):
                if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    await session.send_discover(session.protocol_version)
                else:
                    await session.send_ping()
        except TimeoutError:
            raise unavailable(
                self._surface, f"it does not answer within {CHECK_SECONDS:g} s"
            ) from None
        except MCPError as why:
            if why.code != METHOD_NOT_FOUND:  # which is a sign of life, too
                raise unavailable(self._surface, one_line(why.message)) from None

    async def relist(self) -> Offers:
        """What it offers now; from here on that is `offers`, and `changed` is a fresh event."""
        session = self._open()
        assert self._wire is not None
        # Before the question: what changes while it is answered may not be in the answer.
        self.changed = anyio.Event()
        with _asking(self, "tools/list", None):  # whoever wants it says how long it may take
            self._listed, self.offers = await self._tools(session, self._wire)
        self._known = self._last
        return self.offers

    # -- for its owner --------------------------------------------------------------------------------

    async def greet(self, session: Session, wire: Wire) -> None:
        """Learn who is there and what it offers."""
        info = session.server_info
        self.protocol = session.protocol_version
        if info is not None:
            self.server = one_line(f"{info.name} {info.version}", 100)
        if session.instructions:
            self.instructions = clean(session.instructions, MAX_INSTRUCTIONS)
        can = session.server_capabilities
        self.readable = can is not None and can.resources is not None
        self._session, self._wire = session, wire
        self._listed, self.offers = await self._tools(session, wire)
        self._known = self._last
        for tool, why in self.offers.refused.items():
            self._log.note(f"the tool `{one_line(tool, 80)}` is refused: {why}")

    async def look_again(self) -> None:
        """Set `changed` if it offers something else by now."""
        assert self._session is not None
        assert self._wire is not None
        listed, _ = await self._tools(self._session, self._wire)
        if listed != self._listed:
            self.changed.set()

    async def _tools(self, session: Session, wire: Wire) -> tuple[str, Offers]:
        capabilities = session.server_capabilities
        if capabilities is None or capabilities.tools is None:
            return "", Offers()
        async with self._listing:
            wire.pages.clear()
            usable = {
                tool.name
                for page in await pages(lambda params: session.list_tools(params=params))
                for tool in page.tools
            }
            listed = [tool for page in wire.pages.values() for tool in page]
        found = offers(self._surface, self._spec, listed)
        tools = tuple(one for one in found.tools if one.tool in usable)
        odd = {
            one.tool: "its description breaks the protocol"
            for one in found.tools
            if one.tool not in usable
        }
        self._last = {one.tool: one.capability.digest for one in tools}
        return digest_json(listed), Offers(tools, {**found.refused, **odd})

    def note(self, what: Exception | int) -> None:
        """Take in what went wrong with a request."""
        call = CURRENT.get()
        if call is None or call not in self.calls.under_way:
            self.noted = what
        elif isinstance(what, int):
            call.status = what
        else:
            call.failure = what
        if what == GONE:
            self.lost.set()
        elif isinstance(what, NOT_MADE):
            self.suspect.set()

    @property
    def surface(self) -> str:
        """Whose connection it is."""
        return self._surface

    def _asking(self, method: str) -> AbstractContextManager[None]:
        # Nobody else may say how long it may take: there is no call that it would be part of.
        return _asking(self, method, self._spec.timeout_ms / 1000)

    def _open(self) -> Session:
        if self._session is None or self.lost.is_set():
            raise unavailable(self._surface, "the connection is gone")
        return self._session


@contextmanager
def _asking(connection: McpConnection, method: str, seconds: float | None) -> Generator[None]:
    """Ask something that is no call; turns what goes wrong with it into an error of holdfast."""
    connection.noted = None
    try:
        with anyio.move_on_after(seconds) as scope:
            yield
    except (MCPError, ValidationError, RuntimeError, ValueError) as why:
        raise _unanswered(connection, method, why) from None
    if scope.cancelled_caught:
        late = f"`{method}` was not answered within {seconds:g} s"
        raise unavailable(connection.surface, late)


def _unanswered(connection: McpConnection, method: str, why: Exception) -> Exception:
    noted = connection.noted
    call = Underway(method, Context("", 1, "", ""))
    if isinstance(noted, int):
        call.status = noted
    else:
        call.failure = noted
    found = explained(connection.surface, call, why, lost=connection.lost.is_set())
    # A question that is not answered has done nothing.
    return found.error if isinstance(found, Unsure) else found
