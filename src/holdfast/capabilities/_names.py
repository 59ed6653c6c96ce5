"""Which names a capability may have, and which parameters code can name in a call."""

from __future__ import annotations

import builtins
import keyword
from unicodedata import normalize

from holdfast.contracts import check_tool_name
from holdfast.errors import CallerError

TAKEN = frozenset(("list_tools", "describe_tool", "search_tools", "current_policy", "result"))
"""What these names mean to code can't be changed."""

# Put there for people at a prompt; code does not have them.
_NOT_BUILT_IN = frozenset(("copyright", "credits", "license", "_"))
_BUILT_IN = frozenset(dir(builtins)) - _NOT_BUILT_IN


def check_name(name: str) -> str:
    """`name` itself, or `INVALID_TOOL_NAME` when code could not call a capability by it."""
    check_tool_name(name)
    why = None
    if keyword.iskeyword(name):
        why = "is a keyword of Python"
    elif name in TAKEN:
        why = "means something else to code"
    elif name in _BUILT_IN:
        why = "is a built-in of Python"
    elif name.startswith("__"):
        why = "starts with two underscores"
    if why is None:
        return name
    raise CallerError(
        "INVALID_TOOL_NAME",
        f"A capability can't be called `{name[:80]}`: that {why}.",
        hint='Give it another name: `@capability(name="…")`.',
    )


def is_plain(name: str) -> bool:
    """Whether a parameter of that name can be written in a signature and means the same there."""
    return (
        name.isidentifier()
        and normalize("NFKC", name) == name
        and not keyword.iskeyword(name)
        and not name.startswith("__")
    )
