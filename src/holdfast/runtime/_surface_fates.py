"""What is behind the machine's record of a surface: its connections, and how it fared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from holdfast.contracts import Capability
from holdfast.errors import HoldfastError
from holdfast.gate.executor import NeedsAnswer, Question
from holdfast.runtime._surface_links import Link
from holdfast.runtime._surface_tool import SurfaceTool


@dataclass(frozen=True, slots=True)
class Served:
    """A connection as the machine counts them."""

    link: Link
    tools: tuple[SurfaceTool, ...]
    offered: Mapping[str, Capability]
    """What it offers, by what its server calls it."""
    refused: Mapping[str, str]


@dataclass(slots=True)
class Fate:
    """What is known about a surface beside its machine's record."""

    generation: int = 0
    """Counts its connections."""
    failures: int = 0
    """Attempts that failed since it last came up."""
    again_at: int | None = None
    """When it is tried again."""
    stale: bool = False
    """Whether it offers something else than it did when it was asked."""
    question: Question | None = None
    """What a person has to do before it can come up: somebody has to sign in."""
    forced: int = 0
    """How often it was removed while calls were under way."""
    tried: bool = False
    """Whether an attempt has ended since it was last wanted: then nobody waits for the next."""
    links: set[Link] = field(default_factory=set[Link])
    """Open, or being opened."""


def words_of(why: BaseException) -> str:
    """Why it failed, in a line."""
    while isinstance(why, BaseExceptionGroup):
        found = cast("BaseExceptionGroup[BaseException]", why)
        why = found.exceptions[0]
    if isinstance(why, HoldfastError):
        return f"{why.message} {why.hint}" if why.hint else why.message
    text = str(why).strip() or type(why).__name__
    plain = isinstance(why, TimeoutError | NeedsAnswer)
    return text if plain else f"{type(why).__name__}: {text}"
