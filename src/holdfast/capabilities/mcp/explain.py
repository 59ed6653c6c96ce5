"""Why a call did not work: what the SDK, its transport and the HTTP client say, as errors of holdfast."""

from __future__ import annotations

from typing import cast

import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, REQUEST_TIMEOUT
from pydantic import ValidationError

from holdfast.capabilities.mcp.failures import cut, failed, tool_error, unavailable
from holdfast.capabilities.mcp.http import TooLong, Unmet
from holdfast.capabilities.mcp.underway import Underway
from holdfast.capabilities.words import clean, one_line
from holdfast.errors import HoldfastError, PersonError
from holdfast.gate.executor import NeedsAnswer

GONE = 410
"""Stands for a session that the server has forgotten."""

# The request never left: nobody answered at the address.
NOT_MADE = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)

_NOT_YET = (429, 503)
_UNSIGNED = (401, 403)
# What the transport says when a server answered with nothing but a status.
_STATUS_ONLY = "Server returned an error response"


def explained(surface: str, call: Underway, why: Exception, *, lost: bool) -> Exception:
    """Why a call failed, for its caller."""
    if call.failure is not None:
        return _unsent(surface, call, call.failure)
    if isinstance(why, MCPError):
        if call.status is not None and (lost or why.message == _STATUS_ONLY):
            return _refused(surface, call, call.status)
        if lost or why.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
            return cut(surface, call.tool, one_line(why.message))
        said = clean(why.message)
        return tool_error(
            call.tool, f"the arguments are wrong: {said}" if why.code == INVALID_PARAMS else said
        )
    if isinstance(why, ValidationError):
        return tool_error(call.tool, f"its answer breaks the protocol: {_first(why)}")
    return tool_error(call.tool, one_line(str(why)) or type(why).__name__)


def _unsent(surface: str, call: Underway, why: Exception) -> Exception:
    if isinstance(why, HoldfastError | NeedsAnswer):
        return why
    said = one_line(str(why)) or type(why).__name__
    if isinstance(why, TooLong):
        return tool_error(call.tool, said)
    if isinstance(why, (*NOT_MADE, Unmet)):
        return unavailable(surface, said)
    return cut(surface, call.tool, said)


def _refused(surface: str, call: Underway, status: int) -> Exception:
    if status in _UNSIGNED:
        return unsigned(surface, status)
    if status == GONE:
        return unavailable(surface, "it has forgotten the session")
    if status in _NOT_YET:
        return unavailable(surface, f"it answered with status {status}")
    return cut(surface, call.tool, f"it answered with status {status}")


def unsigned(surface: str, status: int) -> PersonError:
    """A server that wants to know who asks."""
    return PersonError(
        "SIGN_IN_REQUIRED",
        f"`{surface}` wants a sign-in: it answered with status {status}.",
        hint='Set `auth = "oauth"` or a lease for it, or the header that it wants.',
    )


def unconnected(
    surface: str, why: BaseException, *, noted: Exception | int | None, said: str, code: int | None
) -> Exception:
    """Why a connection could not be made, for whoever set it up."""
    if isinstance(noted, HoldfastError | NeedsAnswer):
        return noted
    if isinstance(why, HoldfastError | NeedsAnswer):
        return why
    if noted in _UNSIGNED:
        return unsigned(surface, cast("int", noted))
    if isinstance(noted, Exception):
        return failed(surface, one_line(str(noted)) or type(noted).__name__)
    if isinstance(noted, int):
        return failed(surface, f"it answers with status {noted}", hint="Is the address right?")
    if isinstance(why, TimeoutError):
        return failed(surface, "it did not come up in time", said=said, hint=_SLOW)
    if isinstance(why, FileNotFoundError | PermissionError | NotADirectoryError):
        return failed(surface, f"`{why.filename}` is not there, or may not be used", said=said)
    if code is not None:
        return failed(surface, f"its program ended with exit code {code}", said=said)
    if isinstance(why, ValidationError):
        return failed(surface, f"what it says breaks the protocol: {_first(why)}", said=said)
    return failed(surface, one_line(str(why)) or type(why).__name__, said=said)


_SLOW = "Raise `connect_timeout_ms` if it needs longer."


def _first(why: ValidationError) -> str:
    problem = why.errors(include_url=False, include_input=False, include_context=False)[0]
    return one_line(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
