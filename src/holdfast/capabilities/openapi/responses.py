"""What comes back: the body of a success, as JSON; or an error that says what the server said."""

from __future__ import annotations

import json
from base64 import b64encode
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.capabilities.openapi._failures import Unusable
from holdfast.capabilities.openapi.document import Document, Object
from holdfast.capabilities.openapi.parameters import is_json
from holdfast.capabilities.openapi.schemas import Schemas
from holdfast.capabilities.words import clean
from holdfast.contracts import Json
from holdfast.contracts.canonical import canonical_json
from holdfast.errors import HoldfastError, ModelError

if TYPE_CHECKING:
    from holdfast.capabilities.builtin._wire import Answer

MAX_SAID = 1000
"""Characters of what a server says about an error."""
MAX_SCHEMA_BYTES = 64 * 1024
"""Of the schema of results; a longer one is left out."""

_HINTS = {
    401: "The credential is missing, wrong or expired: the surface's `auth` or `headers` say which.",
    403: "The credential does not allow this. Do it another way, or go without.",
    404: "There is no such thing: check the arguments.",
    429: "Wait, and call it less often.",
}


def result_schema(document: Document, operation: Object, method: str) -> Object:
    """What the successes of an operation hold; empty where the document does not say, or can't be followed."""
    responses = operation.get("responses")
    ways = responses if isinstance(responses, dict) else {}
    good = {code: one for code, one in ways.items() if code[:1] == "2"}
    if not good or method == "HEAD":
        return {}
    schemas = Schemas(document, "out")
    try:
        found = [_content(document, code, one, schemas) for code, one in good.items()]
        kinds = [one for at, one in enumerate(found) if one not in found[:at]]
        if not all(isinstance(one, dict) and one for one in kinds):
            return {}
        schema: Object = {"anyOf": kinds}
        if len(kinds) == 1 and isinstance(kinds[0], dict):
            schema = kinds[0]
        if definitions := schemas.definitions():
            schema = {**schema, "$defs": definitions}
        return schema if len(canonical_json(schema)) <= MAX_SCHEMA_BYTES else {}
    except (Unusable, HoldfastError):
        return {}


def _content(document: Document, code: str, response: Json, schemas: Schemas) -> Json:
    told = document.followed(response, "response")
    content = told.get("content")
    if not isinstance(content, dict) or not content:
        # Many a document just does not say what there is.
        return {"type": "null"} if code in ("204", "205") else {}
    for media, part in content.items():
        if is_json(media):
            # JSON is what is asked for, whatever else there is.
            if "*" in media or not isinstance(part, dict):
                return {}
            return schemas.converted(part.get("schema", {}))
    texts = all(media.lower().startswith("text/") for media in content)
    return {"type": "string"} if texts else {}


def result_of(tool: str, answer: Answer) -> Json:
    """What code gets for an answer; raises `TOOL_ERROR` for one that is no success."""
    if not 200 <= answer.status < 300:
        raise refused(tool, answer)
    if not answer.body:
        return None
    kind = answer.content_type.partition(";")[0].strip().lower()
    if is_json(kind) or not kind:
        found = _json(answer.body)
        if found is not None:
            return found[0]
        if kind:
            raise ModelError(
                "TOOL_ERROR",
                f"`{tool}` worked ({answer.status}), but the server's answer is not the JSON that it"
                f" says it is: {_said(answer)}",
                hint="It was carried out. Do not do it again to get another answer.",
            )
    try:
        return answer.body.decode("utf-8-sig")
    except UnicodeDecodeError:
        if kind.startswith("text/"):
            return answer.body.decode("latin-1")
    return {"content_type": kind, "base64": b64encode(answer.body).decode()}


def refused(tool: str, answer: Answer) -> ModelError:
    """The error of an answer that is no success."""
    status = answer.status
    phrase = HTTPStatus(status).phrase if status in list(HTTPStatus) else ""
    said = _said(answer)
    if answer.location is not None:
        said = "it wants the request made elsewhere, which is not done"
    hint = _HINTS.get(status) or (
        "The server has trouble of its own. Try again later, or go without."
        if status >= 500
        else "The words are the server's. Call it differently, or do without."
    )
    shown = f"{status} {phrase}".strip()
    text = f"`{tool}` failed: the server answered {shown}{f': {said}' if said else ''}"
    return ModelError("TOOL_ERROR", text, hint=hint)


def _json(body: bytes) -> tuple[Json] | None:
    try:
        found = json.loads(body, parse_constant=_no_number)
        canonical_json(found)
    except (ValueError, RecursionError, HoldfastError):
        return None
    return (found,)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _said(answer: Answer) -> str:
    return clean(answer.body[: 4 * MAX_SAID].decode(errors="replace"), MAX_SAID)
