"""How a record lies in a file: without what its place says already, and squeezed where that pays.

The chain is taken over the whole body. What the file knows from elsewhere is put back before a body leaves the store:
`pos`, `seq` and `stream` from the columns, `prev` from the record before it in its stream. So a record that is moved,
or whose predecessor is another than it was, no longer matches its hash.

Files of formats 1 and 2 hold bodies as they are. They start with a brace, and are left alone.
"""

from __future__ import annotations

from holdfast.journal._squeeze import squeezed, unsqueezed
from holdfast.journal.chain import joined

SQUEEZED, PLAIN = b"\x01", b"\x02"
"""The first byte of a record that was cut: squeezed with dictionary 1, or not."""

WORTH = 512
"""Bytes from which squeezing a record pays: below, it makes an append slower for little."""


def slim(cut: bytes) -> bytes:
    """The stored form of a record's body, cut out of its place."""
    return SQUEEZED + squeezed(cut) if len(cut) >= WORTH else PLAIN + cut


def whole(stored: bytes, seq: int, stream_json: str, pos: int, prev: str) -> bytes:
    """The body of a record at this place, `prev` being the hash before it.

    Bytes that are no record are given back as they are: they will not match any hash.
    """
    first = stored[:1]
    if first == SQUEEZED:
        cut = unsqueezed(stored, 1)
    elif first == PLAIN:
        cut = stored[1:]
    else:
        return stored
    return (joined(cut, pos, prev, seq, stream_json) if cut else None) or stored
