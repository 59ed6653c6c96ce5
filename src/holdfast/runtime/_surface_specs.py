"""A surface as people write it down: a table of the settings, a mapping, a spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from holdfast.contracts import parse
from holdfast.contracts._base import Asked
from holdfast.contracts.surface import (
    HttpSurface,
    ModuleSurface,
    OpenApiSurface,
    StdioSurface,
    SurfaceName,
    SurfaceSpec,
)
from holdfast.errors import CallerError

_KINDS: dict[str, type[StdioSurface | HttpSurface | ModuleSurface | OpenApiSurface]] = {
    "stdio": StdioSurface,
    "http": HttpSurface,
    "module": ModuleSurface,
    "openapi": OpenApiSurface,
}
_TELLING = {"command": "stdio", "url": "http", "reference": "module", "document": "openapi"}
"""The field that only one kind has."""
_SAY_WHAT = "A surface says what it is by one of `command`, `url`, `reference` and `document`"


class _Named(Asked):
    name: SurfaceName


def with_kind(given: object) -> object:
    """What was written, with its kind, which need not be said: `command` is a program, `url` an address."""
    if not isinstance(given, Mapping) or "kind" in given:
        return cast("object", given)
    said = cast("Mapping[str, Any]", given)
    kinds = [kind for field, kind in _TELLING.items() if field in said]
    return {**said, "kind": kinds[0]} if len(kinds) == 1 else dict(said)


def _written(given: object) -> object:
    """The same, of a table in the settings, where it is told by what there is to be."""
    found = with_kind(given)
    if isinstance(found, Mapping) and "kind" not in found:
        raise PydanticCustomError("surface_kind", _SAY_WHAT)
    return cast("object", found)


Written = Annotated[SurfaceSpec, BeforeValidator(_written)]
"""A surface in the settings."""


def spec_of(given: SurfaceSpec | Mapping[str, Any]) -> SurfaceSpec:
    """What was given, as a spec; raises `INVALID_ARGUMENT` that names what is wrong."""
    if isinstance(given, tuple(_KINDS.values())):
        return given
    said = cast("dict[str, Any]", with_kind(given))
    found = _KINDS.get(str(said.get("kind"))) if isinstance(given, Mapping) else None
    if found is None:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"{_SAY_WHAT}.",
            hint='`{"command": "npx", "args": ["-y", "…"]}` is an MCP server that is started here.',
        )
    return parse(found, said)


def check_name(name: str) -> str:
    """The name of a surface; raises `INVALID_ARGUMENT` for one that can't start a tool's name."""
    hint = "Use a lower-case letter, then up to 39 lower-case letters, digits and `_`."
    return parse(_Named, {"name": name}, hint=hint).name
