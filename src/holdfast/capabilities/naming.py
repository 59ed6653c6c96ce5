"""Names for tools that code can call: ASCII identifiers, one for each tool, the same whenever the tools are.

A server may call its tools anything. A tool whose name is an identifier already keeps it, whatever others there are;
the rest get what is left, in the order of their own names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from holdfast.capabilities._names import check_name
from holdfast.contracts.canonical import digest
from holdfast.errors import CallerError

MAX_NAME = 64
"""Characters: providers of models take no longer ones."""

_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_DIGEST = 8


def named(tools: Iterable[str], prefix: str) -> dict[str, str]:
    """What code calls each of these tools."""
    wanted = {tool: identifier(prefix + tool) for tool in sorted(set(tools))}
    found: dict[str, str] = {}
    taken: set[str] = set()
    for tool in sorted(wanted, key=lambda tool: (wanted[tool] != prefix + tool, tool)):
        found[tool] = _free(wanted[tool], taken)
        taken.add(found[tool])
    return found


def identifier(text: str) -> str:
    """The nearest identifier that code may use as a name."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = _OTHER.sub("_", plain).strip("_") or "tool"
    if name[0].isdigit():
        name = f"tool_{name}"
    if len(name) > MAX_NAME:
        # The end of a long name may be all that tells it from another.
        name = f"{name[: MAX_NAME - _DIGEST - 1]}_{digest(text.encode(errors='replace'))[:_DIGEST]}"
    try:
        return check_name(name)
    except CallerError:
        return f"{name}_tool"


def _free(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while True:
        ending = f"_{number}"
        other = f"{name[: MAX_NAME - len(ending)]}{ending}"
        if other not in taken:
            return other
        number += 1
