"""From the arguments of a call to the request that is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from holdfast.capabilities.openapi.bodies import encoded
from holdfast.capabilities.openapi.document import Object
from holdfast.capabilities.openapi.operations import Operation
from holdfast.capabilities.openapi.parameters import in_header, in_path, in_query
from holdfast.contracts import Json

ACCEPT = "application/json, */*;q=0.1"
"""What is asked for: JSON, and whatever there is if there is none."""
_PART = re.compile(r"\{([^{}]+)\}")


@dataclass(slots=True)
class Request:
    """One request, up to where the server is."""

    method: str
    path: str
    query: list[str] = field(default_factory=list[str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None

    def give(self, headers: Mapping[str, str]) -> None:
        """Add headers, in place of any that are called the same."""
        names = {one.lower() for one in headers}
        kept = {name: one for name, one in self.headers.items() if name.lower() not in names}
        self.headers = {**kept, **headers}

    def url(self, base: str) -> str:
        """The address of it all."""
        address = f"{base.rstrip('/')}{self.path}"
        return f"{address}?{'&'.join(self.query)}" if self.query else address


def request_for(operation: Operation, arguments: Mapping[str, Json], effect_id: str) -> Request:
    """The request of a call; raises `INVALID_ARGUMENT` for a value that can't be sent where it belongs."""
    paths: dict[str, str] = {}
    parts: Object = {}
    request = Request(operation.method, "", headers={"Accept": ACCEPT})
    for argument in operation.arguments:
        if argument.name not in arguments:
            continue
        parameter, value = argument.parameter, arguments[argument.name]
        match parameter.where:
            case "path":
                paths[parameter.name] = in_path(parameter, value)
            case "query":
                request.query += in_query(parameter, value)
            case "header":
                if (text := in_header(parameter, value)) is not None:
                    request.headers[parameter.name] = text
            case "body":
                parts[parameter.name] = value
    request.path = _PART.sub(lambda found: paths[found[1]], _as_sent(operation.path))
    _add_body(request, operation, parts)
    if operation.key_header is not None:
        request.headers[operation.key_header] = effect_id
    return request


def _as_sent(path: str) -> str:
    return "".join(
        part if part.startswith("{") else quote(part, safe="/%:@!$&'()*+,;=~-._")
        for part in re.split(r"(\{[^{}]+\})", path)
    )


def _add_body(request: Request, operation: Operation, parts: Object) -> None:
    body = operation.body
    if body is None or not (parts or body.required):
        return
    value: Json = parts if body.properties is not None else parts.get("body")
    request.body, request.headers["Content-Type"] = encoded(body, value)
