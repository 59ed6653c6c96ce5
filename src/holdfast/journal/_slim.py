"""How a record lies in a file: without what its place says already, and squeezed.

The chain is taken over the whole body. What the file knows from elsewhere is put back before a body leaves the store:
`pos`, `seq` and `stream` from the columns, `prev` from the record before it in its stream. So a record that is moved,
or whose predecessor is another than it was, no longer matches its hash.

Files of formats 1 and 2 hold bodies as they are. They start with a brace, and are left alone.
"""

from __future__ import annotations

from holdfast.journal._squeeze import squeezed, unsqueezed

SLIM = b"\x01"
"""The first byte of a slim body that was squeezed with dictionary 1."""

_HOLE = b"\x00"  # canonical JSON has no control characters


def slim(body: bytes) -> bytes:
    """The stored form of a record's body."""
    # Searched from the end: behind the payload there are only numbers and texts, and in a text every quote is escaped.
    pos = body.rindex(b',"pos":')
    privacy = body.index(b',"privacy":', pos)
    seq = body.rindex(b',"seq":')
    time = body.index(b',"time":', seq)
    cut = body[:pos] + _HOLE + body[privacy:seq] + _HOLE + body[time:]
    return SLIM + squeezed(cut)


def whole(stored: bytes, seq: int, stream: str, pos: int, prev: str) -> bytes:
    """The body of a record at this place; `stream` is its name as JSON, `prev` the hash before it.

    Bytes that are no record are given back as they are: they will not match any hash.
    """
    if stored[:1] != SLIM:
        return stored
    parts = (unsqueezed(stored, 1) or b"").split(_HOLE)
    if len(parts) != 3:
        return stored
    first, second, third = parts
    place = f',"pos":{pos},"prev":"{prev}"'.encode()
    return b"".join((first, place, second, f',"seq":{seq},"stream":{stream}'.encode(), third))
