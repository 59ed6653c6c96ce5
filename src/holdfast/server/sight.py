"""Whether a record's payload may be shown, and what of it. Whose it is: `journal/belonging.py`."""

from __future__ import annotations

from typing import Any

from holdfast.contracts import Record
from holdfast.journal.log import READABLE

_SECRETS = {"token_created": frozenset({"secret"})}
"""Kind → what of it is for nobody but this server, be it just a digest."""


# `Any`: JSON.
def without_secrets(record: Record) -> dict[str, Any]:
    """What a record says, without what is for nobody but this server."""
    hidden = _SECRETS.get(record.kind)
    if hidden is None:
        return dict(record.payload)
    return {name: value for name, value in record.payload.items() if name not in hidden}


def readable(record: Record) -> bool:
    """Whether the payload may leave this machine: not that of a class that is for nobody, or not known here."""
    return record.privacy in READABLE
