"""A session's saved state in a sealed container.

    magic "HFS1" · length of the header (4 bytes) · header, canonical JSON · engine state · seal (32 bytes)

The seal covers everything before it and is checked first: bytes that holdfast did not write are refused before
the engine, or even the JSON parser, sees them. Loading never runs code. Inside are variables and functions;
never secrets, sockets, file handles or finished output.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from holdfast.contracts.canonical import canonical_json, seal, sealed_by
from holdfast.contracts.session import SNAPSHOT_VERSION
from holdfast.errors import CallerError

MAGIC = b"HFS1"
MAX_BYTES = 64 << 20
_TAG = 32
_OPTIONAL = ("limits", "names", "capabilities", "pending", "sources")


class Snapshot(NamedTuple):
    """What a container holds."""

    session_id: str
    engine: str
    """Engine and version, as `name/version`."""
    state: bytes
    """The engine's own bytes."""
    limits: dict[str, Any] | None = None
    """The limits the engine carries inside the state."""
    names: tuple[str, ...] = ()
    """The variables and functions in it."""
    capabilities: dict[str, str] | None = None
    """Name → digest of every capability in force; only in a snapshot that leaves its session."""
    pending: dict[str, Any] | None = None
    """The run that stands in it, if one does."""
    sources: dict[str, str] | None = None
    """What `Boxes.defines` gave; `None` when it is not known."""


def pack(key: bytes, snapshot: Snapshot) -> bytes:
    """Seal a state; raises `CONTENT_TOO_LARGE` over 64 MiB."""
    header = canonical_json(
        {
            "engine": snapshot.engine,
            "session_id": snapshot.session_id,
            "v": SNAPSHOT_VERSION,
            **{
                name: value
                for name in _OPTIONAL
                if (value := getattr(snapshot, name)) not in (None, ())
            },
        }
    )
    data = b"".join([MAGIC, len(header).to_bytes(4, "big"), header, snapshot.state])
    if len(data) + _TAG > MAX_BYTES:
        raise CallerError(
            "CONTENT_TOO_LARGE",
            f"The session's state has {len(data)} bytes; {MAX_BYTES} are allowed.",
            hint="Drop large variables (assign None), or start a new session.",
        )
    return data + seal(key, data)


def unpack(key: bytes, data: bytes, *, engine: str, session_id: str | None = None) -> Snapshot:
    """What a container holds; refuses what was tampered with, or is another engine's or, if named, session's."""
    if len(data) < len(MAGIC) + 4 + _TAG or not data.startswith(MAGIC) or len(data) > MAX_BYTES:
        raise _corrupt("it is no holdfast state")
    if not sealed_by(key, data[:-_TAG], data[-_TAG:]):
        raise _corrupt("its seal does not match")
    start = len(MAGIC) + 4
    end = start + int.from_bytes(data[len(MAGIC) : start], "big")
    header = json.loads(data[start:end])
    if header["v"] != SNAPSHOT_VERSION:
        raise _mismatch(f"version {header['v']}, not {SNAPSHOT_VERSION}")
    if header["engine"] != engine:
        raise _mismatch(f"engine `{header['engine']}`, not `{engine}`")
    if session_id is not None and header["session_id"] != session_id:
        raise _corrupt(f"it belongs to session `{header['session_id']}`")
    rest = {name: header.get(name) for name in _OPTIONAL}
    rest["names"] = tuple(rest["names"] or ())
    return Snapshot(header["session_id"], header["engine"], data[end:-_TAG], **rest)


def check_capabilities(snapshot: Snapshot, now: dict[str, str]) -> None:
    """Refuse a snapshot whose code counts on capabilities that are not there, or are not what they were."""
    then = snapshot.capabilities or {}
    wrong = [
        f"{name} ({'gone' if name not in now else 'changed'})"
        for name in sorted(then)
        if now.get(name) != then[name]
    ]
    if wrong:
        raise CallerError(
            "SNAPSHOT_CAPABILITY_MISMATCH",
            f"The snapshot was taken with other capabilities: {', '.join(wrong)}.",
            hint="Open the session with the capabilities it had.",
        )


def _corrupt(why: str) -> CallerError:
    return CallerError(
        "SNAPSHOT_CORRUPT",
        f"A saved state was refused: {why}.",
        hint="It was changed after holdfast wrote it, or written with another key.",
    )


def _mismatch(why: str) -> CallerError:
    return CallerError(
        "SNAPSHOT_VERSION_MISMATCH",
        f"A saved state was refused: it has {why}.",
        hint="Load it with the holdfast that wrote it, or run the session's code again.",
    )
