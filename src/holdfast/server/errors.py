"""Errors as HTTP answers: the `ErrorObject`, and the status that follows from its code."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from holdfast.errors import CODES, CallerError, HoldfastError, InternalError, OperatorError
from holdfast.server.rpc import encoded

_log = logging.getLogger(__name__)

STATUS = {
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "CONTENT_NOT_ALLOWED": 403,
    "NOT_FOUND": 404,
    "SESSION_NOT_FOUND": 404,
    "METHOD_NOT_FOUND": 404,
    "REQUEST_TIMEOUT": 408,
    "SESSION_BUSY": 409,
    "RUN_OPEN": 409,
    "APPROVAL_CLOSED": 409,
    "EFFECT_NOT_IN_DOUBT": 409,
    "IDEMPOTENCY_CONFLICT": 409,
    "STALE_POSITION": 409,
    "STALE_EPOCH": 409,
    "LEASE_HELD": 409,
    "ILLEGAL_RECORD": 409,
    "CONTENT_ERASED": 410,
    "REQUEST_TOO_LARGE": 413,
    "CONTENT_TOO_LARGE": 413,
    "TOO_MANY_REQUESTS": 429,
    "RATE_LIMITED": 429,
    "SHUTTING_DOWN": 503,
}
"""Codes whose status does not follow from who must act."""

_BY_ACTOR = {"caller": 400, "model": 400, "person": 409, "operator": 503, "us": 500}


class TooMany(CallerError):
    """The caller asks more often than it may."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(1, math.ceil(seconds))
        super().__init__(
            "TOO_MANY_REQUESTS",
            "You ask more often than you may.",
            hint=f"Ask again in {self.seconds} s.",
        )


def shutting_down() -> OperatorError:
    """The refusal of a run that would have to be parked at once."""
    return OperatorError(
        "SHUTTING_DOWN", "The server is about to stop.", hint="Ask again when it is back."
    )


class RunLeft(OperatorError):
    """The server stops before a run is over: it stands on record, and can go on in the next one."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            "SHUTTING_DOWN",
            f"The server is about to stop, and leaves run `{run_id}` on record as it stands.",
            hint="Resume it by its id when the server is back: that gives its result.",
        )

    def to_json(self) -> dict[str, object]:
        """The `ErrorObject`, and which run it is."""
        return {**super().to_json(), "run_id": self.run_id}


def status_of(error: HoldfastError) -> int:
    """The HTTP status of an error."""
    return STATUS.get(error.code) or _BY_ACTOR[CODES[error.code].actor]


Tell = Callable[[HTTPConnection, HoldfastError, int], Response | None]
"""Tells an error in another way than JSON; `None`: not to this client."""


def told(conn: HTTPConnection, error: HoldfastError, status: int | None = None) -> Response:
    """The answer that tells it, as the client likes it: pages get a page, where there are pages."""
    app = conn.scope.get("app")
    tell: Tell | None = None if app is None else getattr(app.state, "tell", None)
    status = status or status_of(error)
    found = None if tell is None else tell(conn, error, status)
    return found or error_response(error, status)


def error_response(error: HoldfastError, status: int | None = None) -> Response:
    """The answer that tells it, as JSON."""
    headers: dict[str, str] = {}
    if error.code == "UNAUTHENTICATED":
        headers["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(error.seconds)
    elif error.code == "SHUTTING_DOWN":
        headers["Retry-After"] = "5"
    return json_response(error.to_json(), status or status_of(error), headers)


# `Any`: models, and what JSON can express.
def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON; models in it are written as they say."""
    return Response(encoded(value), status, headers, media_type="application/json")


async def tell_holdfast(request: Request, why: Exception) -> Response:
    """For Starlette: a refusal of ours."""
    assert isinstance(why, HoldfastError)
    if isinstance(why, InternalError):
        _log.error("A request failed.", exc_info=why)
    return told(request, why)


async def tell_http(request: Request, why: Exception) -> Response:
    """For Starlette: no such route, or not this method."""
    status = getattr(why, "status_code", 500)
    path = request.url.path[:200]
    if status == 405:
        error = CallerError("METHOD_NOT_FOUND", f"`{path}` has no {request.method}.")
        answer = told(request, error, 405)
        answer.headers.update(getattr(why, "headers", None) or {})
        return answer
    if status == 404:
        hint = "`/openapi.json` describes what there is."
        return told(request, CallerError("NOT_FOUND", f"There is no `{path}`.", hint=hint))
    error = CallerError("INVALID_ARGUMENT", "The request can't be understood.")
    return told(request, error, status)


async def tell_bug(request: Request, why: Exception) -> Response:
    """For Starlette: anything else is ours to mend. What it says is for the log, not for who asked."""
    _log.error("A request failed.", exc_info=why)
    return told(request, InternalError(f"{type(why).__name__} in the server."))
