"""A server of today, made with the SDK: it speaks both kinds of protocol."""

import base64
from typing import Annotated, Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.server.request_state import RequestStateSecurity
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CreateMessageResult,
    EmbeddedResource,
    ImageContent,
    ListRootsResult,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PICTURE = base64.b64encode(b"\x89PNG" + b"p" * 100).decode()
BLOB = base64.b64encode(b"b" * 104).decode()
LONG = base64.b64encode(b"s" * 50_000).decode()


class Sure(BaseModel):
    sure: bool


class Where(BaseModel):
    city: str


def ask_sure(path: str) -> Elicit[Sure]:
    return Elicit(f"Delete {path}?", Sure)


def ask_where() -> Elicit[Where]:
    return Elicit("Which city?", Where)


def ask_model() -> Sample:
    text = TextContent(type="text", text="A name for a cat?")
    return Sample([SamplingMessage(role="user", content=text)], max_tokens=10)


def ask_roots() -> ListRoots:
    return ListRoots()


class Sum(BaseModel):
    total: int


def server(keys: list[str] | None = None) -> MCPServer:  # noqa: C901 - many small tools
    security = RequestStateSecurity(keys=list(keys)) if keys else None
    found = MCPServer("modern", version="3", request_state_security=security)
    found.calls = []  # pyright: ignore[reportAttributeAccessIssue] - what was really done

    @found.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        return Sum(total=a + b)

    @found.tool()
    def delete(path: str, sure: Annotated[Sure, Resolve(ask_sure)]) -> str:
        """Delete a file, if somebody is sure."""
        found.calls.append(path)  # pyright: ignore[reportAttributeAccessIssue]
        return f"deleted {path}: {sure.sure}"

    @found.tool()
    def both(
        path: str,
        sure: Annotated[Sure, Resolve(ask_sure)],
        where: Annotated[Where, Resolve(ask_where)],
        name: Annotated[CreateMessageResult, Resolve(ask_model)],
        roots: Annotated[ListRootsResult, Resolve(ask_roots)],
    ) -> str:
        """Ask everybody."""
        content: Any = name.content
        return f"{path} {sure.sure} {where.city} {content.text} {[str(r.uri) for r in roots.roots]}"

    @found.tool()
    async def steps(count: int, ctx: Context) -> str:
        """Say how far it is."""
        for number in range(count):
            await ctx.report_progress(number + 1, count, f"step {number + 1}")
        return "done"

    @found.tool()
    async def hang() -> str:
        """Take for ever."""
        await anyio.sleep_forever()
        return ""

    @found.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("no luck\x1b[31m today")

    @found.tool()
    async def grow(ctx: Context) -> str:
        """Offer more."""
        found.add_tool(lambda: "new", name="grown", description="new")
        await ctx.notify_tools_changed()
        return "grew"

    @found.tool(structured_output=False)
    def parts() -> list[Any]:
        """Everything there is."""
        blob = BlobResourceContents(uri="mem://blob", mime_type="x/y", blob=BLOB)
        text = TextResourceContents(uri="mem://text", mime_type="text/plain", text="inside")
        return [
            TextContent(type="text", text="hello"),
            ImageContent(type="image", data=PICTURE, mime_type="image/png"),
            AudioContent(type="audio", data=LONG, mime_type="audio/wav"),
            EmbeddedResource(type="resource", resource=text),
            EmbeddedResource(type="resource", resource=blob),
            ResourceLink(type="resource_link", uri="mem://far", name="far", size=7),
            ImageContent(type="image", data="!!!", mime_type="image/png"),
        ]

    @found.resource("mem://note", mime_type="text/plain")
    def note() -> str:
        """A note."""
        return "remember"

    @found.resource("mem://blob", mime_type="application/x-blob")
    def blob() -> bytes:
        """A blob."""
        return b"\x00\x01"

    @found.resource("mem://user/{name}")
    def user(name: str) -> str:
        """A user."""
        return name

    @found.prompt()
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Greet {name}."

    return found
