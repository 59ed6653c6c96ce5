"""What a model is shown of a result: no more than it can use, and how to get at the rest.

The same result always gives the same text: a conversation that is built again from the journal is the same
conversation, byte for byte, and a provider's cache of it still holds.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.contracts import ErrorObject, Json, RunResult, RunStatus
from holdfast.contracts.canonical import json_string

_STDERR_SHARE = 4
"""Of the room there is, standard error gets one part in so many."""


def value_view(value: Json, *, limit: int, handle: str) -> str:
    """A value as text of at most about `limit` bytes; `handle` says where all of it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(text, limit, handle)


_encoder = json.JSONEncoder(ensure_ascii=False, sort_keys=True, check_circular=False)
# Made once, as in `contracts/canonical.py`: `encode` makes it anew for every value.
_make: Any = getattr(json.encoder, "c_make_encoder", None)
_pieces: Any = _make and _make(
    None, _encoder.default, json_string, None, ": ", ", ", True, False, True
)


def in_order(value: Json) -> str:
    """A value as text, in the order in which it is recorded: who reads it there shows the same."""
    return "".join(_pieces(value, 0)) if _pieces is not None else _encoder.encode(value)


def cut(text: str, limit: int, handle: str) -> str:
    """The beginning and the end of a long text; `handle` says where all of it is."""
    data = text.encode()
    if len(data) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    start = data[:head].decode(errors="ignore")
    end = data[-tail:].decode(errors="ignore")
    left_out = len(data) - len(start.encode()) - len(end.encode())
    return f"{start}\n… {left_out} of {len(data)} bytes left out; {handle} …\n{end}"


def error_view(error: ErrorObject) -> str:
    """An error as a model can act on it."""
    where = f" (line {error.span.line}, column {error.span.column})" if error.span else ""
    hint = f"\nHint: {error.hint}" if error.hint else ""
    return f"{error.code}: {error.message}{where}{hint}"


def run_view(result: RunResult, *, limit: int) -> tuple[str, bool]:
    """A run of code as a model is shown it, and whether it went wrong."""
    parts: list[str] = []
    if result.error is not None:
        parts.append(error_view(result.error))
    if result.stdout:
        handle = "print less, or keep it in a variable"
        parts.append(f"stdout:\n{cut(result.stdout, limit // 2, handle)}")
    if result.stderr:
        parts.append(f"stderr:\n{cut(result.stderr, limit // _STDERR_SHARE, 'print less')}")
    if result.error is None and (result.result is not None or not parts):
        handle = "all of it is still in the session: look at parts of it with code"
        parts.append(f"result: {value_view(result.result, limit=limit, handle=handle)}")
    parts += [
        f"{one.severity.value} {one.code}: {one.message}"
        for one in result.diagnostics
        if one.severity.value != "error"
    ]
    return "\n".join(parts), result.status is not RunStatus.OK
