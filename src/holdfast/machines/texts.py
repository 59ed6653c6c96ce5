"""Every text a model reads that holdfast writes, to the letter.

JSON in them: two spaces of indent, keys sorted, non-ASCII kept; no payload prints `null`. What a peer sent is untrusted:
with a `Fence` its payload is cut at a size, the rest named by digest, and put between fences that it can't close itself.
Without one the texts are exactly those of `machines.md` §7.3 and §18.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.contracts.canonical import canonical_text, digest
from holdfast.errors import CallerError

MAX_NAMES = 20
"""Names that a notice lists; of more it says how many."""


class Fence(NamedTuple):
    """How untrusted payloads are shown."""

    max_bytes: int = 16 * 1024
    """More than this is cut."""


class ProgressPhase(StrEnum):
    """How far a peer has come."""

    ACCEPTED = "accepted"
    IN_PROGRESS = "in_progress"
    PARTIAL_RESULT = "partial_result"


class TerminalStatus(StrEnum):
    """How a peer ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Prefix(StrEnum):
    """How a notice starts."""

    GENERIC = "[SYSTEM NOTICE]"
    MCP_PENDING = "[SYSTEM NOTICE][MCP_PENDING]"
    BG_JOB = "[SYSTEM NOTICE][BG_JOB]"
    TOOL_SCOPE = "[SYSTEM NOTICE][TOOL_SCOPE]"
    TOOL_SCOPE_WARNING = "[SYSTEM NOTICE][TOOL_SCOPE][WARNING]"
    AUTH_REAUTH_REQUIRED = "[SYSTEM NOTICE][AUTH_REAUTH_REQUIRED]"
    PEER_REQUEST = "[SYSTEM NOTICE][PEER_REQUEST]"
    PEER_RESPONSE_PROGRESS = "[SYSTEM NOTICE][PEER_RESPONSE_PROGRESS]"
    PEER_RESPONSE_TERMINAL = "[SYSTEM NOTICE][PEER_RESPONSE_TERMINAL]"


# -- payloads -----------------------------------------------------------------------------------------


def payload(value: Any) -> str:
    """`value` as the model reads it."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _labelled(label: str, value: Any, fence: Fence | None, end: str) -> str:
    if fence is None:
        return f"{label}: {payload(value)}{end}"
    shown, rest = _cut(payload(value), fence.max_bytes)
    # Longer than any run of backticks inside, so nothing inside ends it.
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{label} (untrusted peer content):\n{marks}json\n{shown}\n{marks}\n{rest}"


def _cut(text: str, max_bytes: int) -> tuple[str, str]:
    # A lone surrogate is legal in JSON and in a Python string, not in UTF-8.
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return text, ""
    shown = data[:max_bytes].decode("utf-8", "ignore")
    return shown, f"[cut after {max_bytes} of {len(data)} bytes; all of it: {digest(data)}]\n"


def _is_empty(value: Any) -> bool:
    return value is None or value == {}


def _named(display_name: str | None) -> str:
    name = (display_name or "").strip()
    return f" (display_name: {name})" if name else ""


# -- what a peer sent, as it is shown -----------------------------------------------------------------


def message_prefix(peer: str) -> str:
    """The line above a peer's message."""
    return f"[COMMS MESSAGE from {peer}]"


def message(peer: str, body: str) -> str:
    """A peer's message."""
    return f"{message_prefix(peer)}\n{body}"


def instruction(peer_id: str, request_id: str, display_name: str | None = None) -> str:
    """How to answer a peer's request."""
    arguments = {"in_reply_to": request_id, "peer_id": peer_id, "status": "completed"}
    if name := (display_name or "").strip():
        arguments["display_name"] = name
    return (
        f"Reply with send_response with arguments {canonical_text(arguments)}."
        ' Use status="failed" instead of "completed" when the request cannot be fulfilled,'
        " and include result only when the request contract provides a typed result payload."
    )


def request(
    peer_id: str,
    request_id: str,
    intent: str,
    params: Any,
    display_name: str | None = None,
    *,
    fence: Fence | None = None,
) -> str:
    """A peer's request."""
    head = f"[COMMS REQUEST from peer_id {peer_id}{_named(display_name)} (id: {request_id})]"
    shown = "" if _is_empty(params) else _labelled("Params", params, fence, "\n")
    return (
        f"{head}\nIntent: {intent}\n{shown}\n"
        "This is a correlated peer request."
        f" {instruction(peer_id, request_id, display_name)}"
        " Do not answer this request with send_message."
    )


def response(
    peer: str, request_id: str, status: str, result: Any, *, fence: Fence | None = None
) -> str:
    """A peer's answer."""
    shown = "" if _is_empty(result) else "\n" + _labelled("Result", result, fence, "").rstrip("\n")
    return f"[COMMS RESPONSE from {peer} (to request: {request_id})]\nStatus: {status}{shown}"


def ack(peer: str, request_id: str) -> str:
    """A peer's acknowledgement; for logs."""
    return f"[COMMS ACK from {peer} (to request: {request_id})]"


def event(source: str, body: str) -> str:
    """Something that is not from a peer."""
    head = f"[EVENT via {source}]"
    return f"{head} {body.strip()}" if body.strip() else head


# -- notices ------------------------------------------------------------------------------------------


def notice(prefix: Prefix, body: str) -> str:
    """A notice: prefix, one space, body."""
    return f"{prefix} {body}"


def request_notice(
    peer_id: str,
    request_id: str,
    intent: str,
    params: Any,
    display_name: str | None = None,
    *,
    fence: Fence | None = None,
) -> str:
    """A request waits for an answer."""
    return notice(
        Prefix.PEER_REQUEST,
        f"Correlated peer request from peer_id {peer_id}{_named(display_name)}."
        f" Intent: {intent}. Request ID: {request_id}. {_labelled('Params', params, fence, '. ')}"
        "This is not a normal user request and not a prompt for direct user-facing output."
        f" {instruction(peer_id, request_id, display_name)}"
        " Do not use send_message for this reply.",
    )


def progress_notice(
    peer: str, request_id: str, phase: ProgressPhase, value: Any, *, fence: Fence | None = None
) -> str:
    """A request of ours moves."""
    shown = _labelled("Payload", value, fence, ".").rstrip("\n")
    return notice(
        Prefix.PEER_RESPONSE_PROGRESS,
        f"Correlated peer response progress from {peer}. Request ID: {request_id}."
        f" Phase: {phase}. {shown}",
    )


def terminal_notice(fact: TerminalFact, *, fence: Fence | None = None) -> str:
    """A request of ours is answered."""
    shown = _labelled("Result", fact.payload, fence, ".").rstrip("\n")
    return notice(
        Prefix.PEER_RESPONSE_TERMINAL,
        f"Correlated peer response from {fact.display}. Request ID: {fact.correlation_id}."
        f" Status: {fact.status}. {shown}",
    )


def servers_connecting(servers: list[str]) -> str:
    """Tool servers that are not there yet."""
    return notice(
        Prefix.MCP_PENDING,
        f"Servers connecting: {', '.join(servers)}. Tools will appear when ready.",
    )


def background_job(name: str, job_id: str, status: str, detail: str) -> str:
    """A background job is over."""
    return notice(
        Prefix.BG_JOB,
        f"Background job `{name}` (id={job_id}) {status}: {detail}\n"
        "Use shell_job_status to get the full output.",
    )


def tools_changed(status: str) -> str:
    """Other tools from here on."""
    return notice(Prefix.TOOL_SCOPE, f"Tool configuration changed at turn boundary: {status}")


def deferred_catalog_changed(status: str) -> str:
    """Other tools can be asked for from here on."""
    return notice(Prefix.TOOL_SCOPE, f"Deferred catalog changed at turn boundary: {status}")


def tool_scope_failed(error: str) -> str:
    """No tools for now."""
    return notice(
        Prefix.TOOL_SCOPE_WARNING,
        f"Tool scope apply failed ({error}); closing the visible tool set until the next boundary.",
    )


def tools_came_and_went(
    added: Sequence[str], removed: Sequence[str], changed: Sequence[str]
) -> str:
    """Other tools from here on, by name."""
    parts = (("added", added), ("removed", removed), ("changed", changed))
    said = [f"{what}: {_names(names)}" for what, names in parts if names]
    return tools_changed("; ".join(said) + ".")


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown} and {len(names) - MAX_NAMES} more"


def server_unreachable(server: str) -> str:
    """A tool server can't be reached, and is tried again."""
    return notice(
        Prefix.TOOL_SCOPE_WARNING,
        f"Tool server `{server}` can't be reached. Calls of its tools are refused until it is back.",
    )


def server_back(server: str) -> str:
    """A tool server can be reached again."""
    return notice(Prefix.TOOL_SCOPE, f"Tool server `{server}` can be reached again.")


def removal_forced(server: str) -> str:
    """A tool server was removed before its calls had ended."""
    return notice(
        Prefix.TOOL_SCOPE_WARNING,
        f"Tool server `{server}` was removed while calls of its tools were under way; they were cut off.",
    )


def reauth_required(binding: str) -> str:
    """A credential needs a person."""
    return notice(
        Prefix.AUTH_REAUTH_REQUIRED,
        f"The credential `{binding}` is no longer accepted. Somebody has to sign in again.",
    )


# -- structured output --------------------------------------------------------------------------------

EXTRACTION_PROMPT = (
    "Provide the final output as valid JSON matching the required schema."
    " Output ONLY the JSON, no additional text or markdown formatting."
)


def extraction_retry(error: str) -> str:
    """Once more."""
    return (
        f"The previous output was invalid: {error}. Please provide valid JSON matching the schema."
        " Output ONLY the JSON, no additional text."
    )


# -- the typed parts of a terminal answer -------------------------------------------------------------

# With its hyphens or with none. The `uuid` module is not pure: it can make new ones.
_UUID = re.compile(
    r"([0-9a-f]{8})(-?)([0-9a-f]{4})\2([0-9a-f]{4})\2([0-9a-f]{4})\2([0-9a-f]{12})", re.IGNORECASE
)


class TerminalFact(NamedTuple):
    """Who answered which request, and how."""

    transport: str | None
    route: str
    display: str
    correlation_id: str
    status: TerminalStatus
    payload: Any

    @property
    def context_key(self) -> str:
        """The same for a repeated answer, which then replaces the first instead of stacking."""
        return f"peer_response_terminal:{self.route}:{self.correlation_id}"


def terminal_fact(
    transport: str | None,
    route: str,
    display: str | None,
    correlation_id: str,
    status: TerminalStatus,
    payload: Any,
) -> TerminalFact:
    """The fact, or `INVALID_ARGUMENT` for the first part that is wrong. Names are kept as they came."""
    if transport is not None and not transport.strip():
        raise _wrong("transport identity cannot be empty")
    _check("route identity", route)
    if display is None:
        raise _wrong("display identity is required")
    _check("display identity", display)
    return TerminalFact(transport, route, display, _uuid(correlation_id), status, payload)


def _check(part: str, value: str) -> None:
    if not value.strip():
        raise _wrong(f"{part} cannot be empty")
    if any(unicodedata.category(char) == "Cc" for char in value):
        raise _wrong(f"{part} cannot contain control characters")


def _uuid(value: str) -> str:
    if not value.strip():
        raise _wrong("correlation id cannot be empty")
    found = _UUID.fullmatch(value)
    if found is None:
        raise _wrong(f"correlation id must be a UUID: {value}")
    return "-".join(found.group(1, 3, 4, 5, 6)).lower()


def _wrong(message: str) -> CallerError:
    return CallerError("INVALID_ARGUMENT", message)
