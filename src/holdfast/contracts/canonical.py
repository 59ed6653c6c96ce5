"""Canonical JSON and digests. The only module that hashes.

Canonical means: object keys sorted by code point, no spaces, raw UTF-8. The same value always gives the
same bytes, so a digest names a value and not one of its spellings.
"""

from __future__ import annotations

import hmac
import json
from hashlib import sha3_256
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from holdfast.errors import CallerError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# A cycle ends in RecursionError just as well as in the encoder's own, slower check.
_encoder = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)
# `JSONEncoder.encode` makes this anew for every value, which costs as much as a small value does.
_make: Any = getattr(json.encoder, "c_make_encoder", None)
_pieces: Any = _make and _make(
    None, _encoder.default, encode_basestring, None, ":", ",", True, False, False
)


def _encode(value: Any) -> str:
    return "".join(_pieces(value, 0)) if _pieces is not None else _encoder.encode(value)


json_string = encode_basestring
"""One string as JSON text."""


def canonical_text(value: Any) -> str:
    """The canonical JSON of `value`; raises `PAYLOAD_NOT_JSON` for what JSON can't express.

    Keys must be strings already: the caller validates shapes (pydantic does it for every contract), this
    function guards numbers, cycles and depth.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as why:
        raise not_json(str(why)) from None


def canonical_json(value: Any) -> bytes:
    """The canonical JSON of `value` as UTF-8."""
    return utf8(canonical_text(value))


def utf8(text: str) -> bytes:
    """`text` as UTF-8; raises `PAYLOAD_NOT_JSON` for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as why:
        raise not_json(f"a character that is no Unicode text, at {why.start}") from None


def not_json(why: str) -> CallerError:
    """The refusal of a value that JSON can't express."""
    return CallerError(
        "PAYLOAD_NOT_JSON",
        f"The value can't be written as JSON: {why}.",
        hint="Use null, booleans, finite numbers, text, lists, and objects with text keys.",
    )


def digest(data: bytes) -> str:
    """Lower-case hex SHA3-256 of `data`."""
    return sha3_256(data).hexdigest()


def digest_json(value: Any) -> str:
    """The digest of the canonical JSON of `value`."""
    return digest(canonical_json(value))


def seal(key: bytes, data: bytes) -> bytes:
    """The 32-byte tag that only holders of `key` can make for `data`."""
    return hmac.digest(key, data, "sha3_256")


def sealed_by(key: bytes, data: bytes, tag: bytes) -> bool:
    """Whether `tag` is the seal of `data`; takes the same time either way."""
    return hmac.compare_digest(seal(key, data), tag)
