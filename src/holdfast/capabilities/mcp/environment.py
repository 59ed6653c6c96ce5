"""What of our environment reaches a server: a few names that every program needs, and what the surface asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from holdfast.capabilities.mcp.failures import failed
from holdfast.capabilities.mcp.services import Services

ALWAYS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "TMPDIR", "TZ", "USER")
"""Handed on to every program, where we have it."""

_NAME = re.compile(r"\$(?:\$|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")


def environment(surface: str, wanted: Mapping[str, str], services: Services) -> dict[str, str]:
    """The environment of a program: the few, and what is wanted."""
    ours = _ours(services)
    found = {name: ours[name] for name in ALWAYS if name in ours}
    return found | filled(surface, wanted, services)


def filled(surface: str, wanted: Mapping[str, str], services: Services) -> dict[str, str]:
    """These values with each `$NAME` and `${NAME}` from our environment; `$$` is a `$`."""
    ours = _ours(services)

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        if name not in ours:
            raise failed(
                surface,
                f"`${name}` is not in the environment",
                hint=f"Set `{name}` for the process that runs holdfast, and write `$$` for a plain `$`.",
            )
        if services.hide is not None:
            services.hide(name, ours[name])
        return ours[name]

    return {name: _NAME.sub(value, text) for name, text in wanted.items()}


def _ours(services: Services) -> Mapping[str, str]:
    return os.environ if services.environ is None else services.environ
