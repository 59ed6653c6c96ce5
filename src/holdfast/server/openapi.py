"""The OpenAPI 3.1 document, made from the operations and the contracts' JSON Schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter

from holdfast._version import __version__
from holdfast.contracts import ErrorObject
from holdfast.contracts._described import Described
from holdfast.server._openapi_others import OTHERS, SCHEMAS
from holdfast.server.rest.bodies import RunAccepted
from holdfast.server.rest.endpoint import Endpoint
from holdfast.server.rest.examples import ACCEPTED
from holdfast.server.rpc import encoded

_REF = "#/components/schemas/{model}"
_ERROR = {"$ref": "#/components/schemas/ErrorObject"}
_ALWAYS = (400, 401, 403, 408, 413, 429, 500, 503)
"""Errors that any operation may answer with."""

_SAYS = {
    200: "Done.",
    201: "Made.",
    202: "Under way: look at `url`.",
    204: "Done, and there is nothing to say.",
    400: "The request can't be carried out as it was made.",
    401: "No token, or none that counts.",
    403: "The token is not good for this.",
    404: "There is no such thing, or it is another's.",
    408: "The request took too long to come in.",
    409: "Somebody else moved first, or it is not in a state for this.",
    410: "It was erased.",
    413: "The request is too large.",
    429: "Too many requests; `Retry-After` says when to ask again.",
    500: "A bug in holdfast; please report it.",
    503: "The machine or its set-up stands in the way, or the server is about to stop.",
}

_PATHS: dict[str, dict[str, Any]] = {
    "session_id": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
}
"""Parameters of paths; the others are just text."""

_TEXT = {"type": "string", "minLength": 1, "maxLength": 512}

_ABOUT = """holdfast runs code that a model writes, in a box; what leaves the box passes a gate, and is on record first.

Every request carries a token (`Authorization: Bearer hf_…`; `holdfast token create`). Scopes: `read`, `run`, `approve`,
`admin`. Errors are an `ErrorObject` with a stable `code`. Lists come in parts: give `next` as `after`.
A POST may carry an `Idempotency-Key`: sent again with the same body, it is done once."""


# `Any`: JSON.
def document(endpoints: Sequence[Endpoint], *, parts: Iterable[str] = ()) -> dict[str, Any]:
    """The document of these operations, and of the other parts that are there."""
    schemas = _Schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas)
    for part in parts:
        for path, operations in OTHERS.get(part, {}).items():
            paths[path] = {method: _other(said) for method, said in operations.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "holdfast", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _named({**schemas.components, **SCHEMAS}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    """The schemas of all types that operations name, each once."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        asked = [model for one in endpoints for model in (one.query, one.body) if model is not None]
        inputs: list[tuple[Any, Any, TypeAdapter[Any]]] = [
            (("in", model), "validation", TypeAdapter(model)) for model in dict.fromkeys(asked)
        ]
        told = [*dict.fromkeys(repr(one.answer) for one in endpoints)]
        by_name = {repr(one.answer): one.answer for one in endpoints}
        outputs: list[tuple[Any, Any, TypeAdapter[Any]]] = [
            (("out", name), "serialization", TypeAdapter(by_name[name])) for name in told
        ]
        more: list[tuple[Any, Any, TypeAdapter[Any]]] = [
            (("out", model.__name__), "serialization", TypeAdapter(model))
            for model in (ErrorObject, RunAccepted)
        ]
        found, defs = TypeAdapter.json_schemas(
            [*inputs, *outputs, *more], ref_template=_REF, schema_generator=Described
        )
        self._found: dict[Any, Any] = {key: schema for (key, _), schema in found.items()}
        self.components: dict[str, Any] = _named(defs.get("$defs", {}))

    def asked(self, model: type[BaseModel]) -> dict[str, Any]:
        """What a body or a query looks like."""
        return self._found["in", model]

    def told(self, answer: Any) -> dict[str, Any]:
        """What an answer looks like."""
        return self._found["out", repr(answer)]

    def accepted(self) -> dict[str, Any]:
        """What a 202 looks like."""
        return self._found["out", RunAccepted.__name__]

    def fields(self, model: type[BaseModel]) -> dict[str, Any]:
        """The fields of a query, each with its schema."""
        schema = self.asked(model)
        if "$ref" in schema:
            schema = self.components[schema["$ref"].rpartition("/")[2]]
        return cast("dict[str, Any]", schema.get("properties", {}))


def _named(schemas: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(schemas.items()))


def _operation(one: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    parameters = [_path(name) for name in re.findall(r"{(\w+)}", one.path)]
    for name, schema in schemas.fields(one.query).items():
        parameters.append(_parameter(name, schema))
    if one.keyed or one.later:
        parameters.append(_key())
    if one.later:
        parameters.append(_prefer())
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "description": " ".join(filter(None, (one.handle.__doc__, one.about, _needs(one.scope)))),
        "tags": [one.path.split("/")[2]],
        "x-scope": one.scope,
        "parameters": parameters,
        "responses": _responses(one, schemas),
    }
    if one.body is not None:
        content: dict[str, Any] = {"schema": schemas.asked(one.body)}
        if one.example is not None:
            content["example"] = one.example
        required = bool(one.body.model_json_schema().get("required"))
        found["requestBody"] = {"required": required, "content": {"application/json": content}}
    return found


def _needs(scope: str) -> str:
    return f"Needs the scope `{scope}`."


def _responses(one: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schemas.told(one.answer)}
    if one.gives is not None:
        content["example"] = json.loads(encoded(one.gives))
    found: dict[str, Any] = {
        str(one.status): {
            "description": _SAYS[one.status],
            "content": {"application/json": content},
        }
    }
    if one.later:
        found["202"] = {
            "description": _SAYS[202],
            "headers": {"Location": {"schema": {"type": "string"}}},
            "content": {
                "application/json": {
                    "schema": schemas.accepted(),
                    "example": json.loads(encoded(ACCEPTED)),
                }
            },
        }
    conflict = (409,) if one.keyed or one.later else ()
    return {**found, **_errors((*_ALWAYS, *one.errors, *conflict))}


def _errors(statuses: Iterable[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in sorted(set(statuses)):
        said: dict[str, Any] = {
            "description": _SAYS[status],
            "content": {
                "application/json": {"schema": _ERROR, "example": _EXAMPLES.get(status, _EXAMPLE)}
            },
        }
        if status == 429:
            said["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
        found[str(status)] = said
    return found


_EXAMPLE = {
    "code": "INVALID_ARGUMENT",
    "message": "`code`: Field required.",
    "hint": "See the fields of `RunCode` in docs/reference.",
}
_EXAMPLES = {
    401: {"code": "UNAUTHENTICATED", "message": "This needs a token that counts."},
    403: {"code": "FORBIDDEN", "message": "This needs the scope `approve`."},
    404: {"code": "NOT_FOUND", "message": "There is no such session, run or record."},
    408: {"code": "REQUEST_TIMEOUT", "message": "The request did not come in within 30 s."},
    409: {"code": "SESSION_BUSY", "message": "Session `notes` is in use."},
    413: {"code": "REQUEST_TOO_LARGE", "message": "The request has more than 16777216 bytes."},
    429: {"code": "TOO_MANY_REQUESTS", "message": "You ask more often than you may."},
    500: {"code": "INTERNAL_ERROR", "message": "KeyError in the server."},
    503: {"code": "SHUTTING_DOWN", "message": "The server is about to stop."},
}


def _other(said: dict[str, Any]) -> dict[str, Any]:
    """An operation of another module."""
    kind, schema = said["answer"]
    content = {kind: {"schema": schema, "example": said["gives"]}}
    answers: dict[str, Any] = {"200": {"description": _SAYS[200], "content": content}}
    for status in said.get("also", ()):
        answers[str(status)] = {"description": _SAYS[status]}
    query = [_parameter(name, schema) for name, schema in said.get("query", {}).items()]
    query += [
        _parameter(name, schema, "header") for name, schema in said.get("headers", {}).items()
    ]
    found: dict[str, Any] = {
        **{name: said[name] for name in ("operationId", "summary")},
        "parameters": query,
        "responses": {**answers, **_errors((*_ALWAYS, 404))},
        "tags": ["server"],
    }
    if "x-scope" in said:
        found["x-scope"] = said["x-scope"]
    else:
        found["security"] = []
    if "description" in said:
        found["description"] = said["description"]
    if "body" in said:
        asked = {"application/json": {"schema": said["body"], "example": said["example"]}}
        found["requestBody"] = {"required": True, "content": asked}
    return found


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _PATHS.get(name, _TEXT)}


def _parameter(name: str, schema: dict[str, Any], place: str = "query") -> dict[str, Any]:
    found = {"name": name, "in": place, "required": False, "schema": _plain(schema)}
    if "description" in schema:
        found["description"] = schema["description"]
    return found


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema for a query, in which nothing is null: it is left out then."""
    kinds = schema.get("anyOf")
    if kinds is None:
        return {key: value for key, value in schema.items() if key not in ("title", "description")}
    kept = [one for one in kinds if one.get("type") != "null"]
    return kept[0] if len(kept) == 1 else {"anyOf": kept}


def _key() -> dict[str, Any]:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "The same key with the same body is done once; with another body it is refused (409).",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    }


def _prefer() -> dict[str, Any]:
    return {
        "name": "Prefer",
        "in": "header",
        "required": False,
        "description": "`respond-async`: answer 202 at once; `wait=SECONDS`: after so long.",
        "schema": {"type": "string", "pattern": r"^(respond-async|wait=[0-9]{1,3})$"},
    }
