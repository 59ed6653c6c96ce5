"""Tools that no session is given, because something else has their name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.runtime._surface_tool import SurfaceTool


class _Clash(NamedTuple):
    tool: SurfaceTool
    first: SurfaceTool | None
    """Who has the name; `None`: something of a session's own."""


class Clashes:
    """What was found when sessions were given their tools; it counts while both sides are offered."""

    def __init__(self, offered: Callable[[str], Sequence[SurfaceTool]]) -> None:
        """`offered` gives the tools of a surface as they are now."""
        self._offered = offered
        self._found: dict[str, dict[str, _Clash]] = {}

    def add(self, tool: SurfaceTool, first: SurfaceTool | None) -> None:
        """Somebody else is called like this one."""
        self._found.setdefault(tool.surface, {})[tool.tool] = _Clash(tool, first)

    def of(self, surface: str) -> Mapping[str, str]:
        """The tools of a surface that clash, by the names that it gives them, and why."""
        known = self._found.get(surface, {})
        return {name: _why(one) for name, one in known.items() if self._holds(one)}

    def _holds(self, clash: _Clash) -> bool:
        sides = [clash.tool] if clash.first is None else [clash.tool, clash.first]
        return all(any(one is side for one in self._offered(side.surface)) for side in sides)


def _why(clash: _Clash) -> str:
    first = clash.first
    who = "Something of the session's own" if first is None else _whose(first)
    return f"{who} is called `{clash.tool.capability.name}`, too."


def _whose(tool: SurfaceTool) -> str:
    return f"A tool of the surface `{tool.surface}`"
