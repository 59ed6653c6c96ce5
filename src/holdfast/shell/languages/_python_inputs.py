"""What a run's inputs must be like: they become variables that the code can't assign to."""

from __future__ import annotations

import keyword
from collections.abc import Container, Mapping
from typing import Any
from unicodedata import normalize

from holdfast.contracts import ErrorObject, Json, canonical_json
from holdfast.errors import CallerError
from holdfast.shell.languages._python_capture import RESULT, rebound


def check_inputs(inputs: Mapping[str, Any], *taken: Container[str]) -> None:
    """Refuse inputs that can't be variables, or not beside the functions that have `taken` their names."""
    for name in inputs:
        why = _bad_name(name, taken)
        if why is not None:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Input {name[:80]!r} {why}.",
                hint="Inputs become variables: name them like variables.",
            )
    try:
        canonical_json(dict(inputs))
    except CallerError as why:
        raise CallerError("INVALID_ARGUMENT", f"An input is not JSON. {why.message}") from None


def rebinding(code: str, inputs: Mapping[str, Json]) -> ErrorObject | None:
    """Why the code may not run with these inputs: it assigns to one."""
    found = rebound(code, frozenset(inputs))
    if found is None:
        return None
    name, span = found
    return ErrorObject(
        code="INVALID_ARGUMENT",
        message=f"The code assigns to its input `{name}`, which is read-only.",
        hint="Assign to another name.",
        span=span,
    )


def _bad_name(name: str, taken: tuple[Container[str], ...]) -> str | None:
    if not name.isidentifier() or normalize("NFKC", name) != name:
        return "is not an identifier"
    if keyword.iskeyword(name):
        return "is a keyword"
    if name.startswith("__"):
        return "starts with two underscores"
    if any(name in names for names in taken):
        return "is the name of a function the code can call"
    if name == RESULT:
        return "is where the code puts its answer"
    return None
