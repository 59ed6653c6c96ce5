"""A real HTTP server that notes what it is asked, and documents about it."""

import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.datastructures import FormData
from starlette.requests import Request

from holdfast.capabilities.openapi import OpenApiConnection, OpenApiSource, Services
from holdfast.contracts import Capability
from holdfast.contracts.surface import OpenApiSurface
from holdfast.gate.executor import Context

CONTEXT = Context(effect_id="eff-1", attempt=1, session_id="s", run_id="r-1")

Doc = dict[str, Any]
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Asked:
    """A request, as the server saw it."""

    method: str
    path: str
    """As it was sent, still encoded."""
    query: list[tuple[str, str]]
    raw_query: str
    headers: dict[str, str]
    body: bytes
    form: list[tuple[str, str]]
    """The parts of a form, whichever kind it was."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ok(_: Asked) -> Answer:
    return 200, {"content-type": "application/json"}, b"{}"


@dataclass
class Web:
    """The server's side."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list[Asked])
    answers: Callable[[Asked], Answer] = ok

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        body = await request.body()
        kind = request.headers.get("content-type", "")
        form = FormData()
        if "form" in kind:
            form = await request.form()
        one = Asked(
            request.method,
            scope["raw_path"].decode(),
            request.query_params.multi_items(),
            scope["query_string"].decode(),
            dict(request.headers),
            body,
            [(name, str(value)) for name, value in form.multi_items()],
        )
        self.asked.append(one)
        status, headers, data = self.answers(one)
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": data})


@contextmanager
def running() -> Iterator[Web]:
    """A server in a thread of its own."""
    web = Web()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        web.port = listener.getsockname()[1]
        config = uvicorn.Config(web, lifespan="off", ws="none", log_config=None, http="h11")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield web
        finally:
            server.should_exit = True
            thread.join()


def document(paths: Doc, *, version: str = "3.1.0", **more: Any) -> Doc:
    return {"openapi": version, "info": {"title": "Pets", "version": "1"}, "paths": paths, **more}


def operation(**more: Any) -> Doc:
    return {"responses": {"200": {"description": "fine"}}, **more}


def get(*parameters: Doc, path: str = "/x", name: str = "op") -> Doc:
    return document({path: {"get": operation(operationId=name, parameters=list(parameters))}})


def post(media: str, schema: Any, *, required: bool = True, **content: Any) -> Doc:
    body = {"required": required, "content": {media: {"schema": schema, **content}}}
    return document({"/x": {"post": operation(operationId="op", requestBody=body)}})


@dataclass
class Opened:
    """An open surface."""

    connection: OpenApiConnection

    def __getitem__(self, tool: str) -> Capability:
        return next(o.capability for o in self.connection.offers.tools if o.tool == tool)

    @property
    def tools(self) -> list[str]:
        return [one.tool for one in self.connection.offers.tools]

    @property
    def names(self) -> list[str]:
        return [one.capability.name for one in self.connection.offers.tools]

    @property
    def refused(self) -> dict[str, str]:
        return dict(self.connection.offers.refused)

    # `Any`: each gives something else.
    async def __call__(self, tool: str, /, **arguments: Any) -> Any:
        """Call it as the gate does: both schemas are checked."""
        from holdfast.capabilities._contract import Contract

        contract = Contract(self[tool])
        contract.check(arguments)
        value = await self.connection.call(tool, arguments, CONTEXT)
        contract.check_result(value)
        return value


@asynccontextmanager
async def opened(
    told: Doc | str | bytes, folder: Path, *, services: Services | None = None, **spec: Any
) -> AsyncIterator[Opened]:
    """The surface of a document, written into a file."""
    path = folder / "document.yaml"
    data = json.dumps(told) if isinstance(told, dict) else told
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    made = OpenApiSurface(document=str(path), **{"base_url": "http://localhost:1", **spec})
    async with OpenApiSource("pets", made, services).open() as connection:
        yield Opened(connection)
