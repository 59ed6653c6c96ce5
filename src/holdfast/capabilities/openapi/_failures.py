"""Why a document, or one of its operations, can't be used."""

from __future__ import annotations

from holdfast.errors import OperatorError


class BadDocument(Exception):
    """The document as a whole can't be used; the text goes on after «The OpenAPI document can't be used:»."""


class Unusable(Exception):
    """One operation, or one part of it, can't be offered; the text is why."""


def failed(surface: str, why: str, hint: str) -> OperatorError:
    """A surface that can't be connected."""
    return OperatorError(
        "SURFACE_FAILED", f"The OpenAPI surface `{surface}` can't be connected: {why}.", hint=hint
    )
