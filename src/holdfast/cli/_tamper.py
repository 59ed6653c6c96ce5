# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Changes one byte of a stored record behind holdfast's back, as an attacker would. For the demo."""

from __future__ import annotations

from pathlib import Path

import apsw


def flip_a_byte(journal: Path, seq: int) -> None:
    """Flip one bit in the middle of a record, in place."""
    db = apsw.Connection(str(journal), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with db.blob_open("main", "records", "body", seq, True) as blob:
            middle = blob.length() // 2
            blob.seek(middle)
            byte = blob.read(1)[0]
            blob.seek(middle)
            blob.write(bytes([byte ^ 1]))
    finally:
        db.close()
