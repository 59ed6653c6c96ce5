"""`data:`: what the URI itself holds (RFC 2397)."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_to_bytes

from holdfast.contracts.resource import ResourceRequest
from holdfast.errors import CallerError
from holdfast.resources.source import Held, Source

_DEFAULT = "text/plain;charset=us-ascii"


class DataResolver:
    """Opens `data:` URIs."""

    async def open(self, request: ResourceRequest) -> Source:
        """The bytes in the URI; raises `INVALID_ARGUMENT` when it is none."""
        header, comma, body = request.uri.partition(":")[2].partition(",")
        if not comma:
            raise _bad("it has no comma")
        mime, is_base64 = header, header.lower().endswith(";base64")
        if is_base64:
            mime = header[: -len(";base64")]
        data = unquote_to_bytes(body)
        if is_base64:
            try:
                data = base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                raise _bad("what follows the comma is not base64") from None
        return Held(data, mime or _DEFAULT)


def _bad(why: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"That is no `data:` URI: {why}.",
        hint="Write `data:text/plain,hello` or `data:image/png;base64,…`.",
    )
