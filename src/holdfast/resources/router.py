"""Which resolver a URI goes to. Nothing outside the registered schemes is reachable."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from holdfast.contracts import SideEffect
from holdfast.contracts.resource import ResourceRequest
from holdfast.errors import CallerError, ModelError
from holdfast.resources.source import Resolver, Source

MAX_BYTES = 256 * 1024
"""What one read gives of a resource, unless its route allows less."""

EffectOf: TypeAlias = Callable[[str], SideEffect]
"""What opening a resource touches, by its URI."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


@dataclass(frozen=True, slots=True)
class Route:
    """What answers for a scheme."""

    scheme: str
    """In lower case."""
    resolver: Resolver
    """Opens its resources."""
    side_effect: SideEffect = SideEffect.READ
    """What opening one touches: it decides which capability reads it. Also what listing them touches."""
    max_bytes: int = MAX_BYTES
    """What one read gives at most."""
    effect_of: EffectOf | None = None
    """What opening one touches, by its URI, where that differs."""
    effects: frozenset[SideEffect] = frozenset()
    """What opening may touch, where that differs."""

    def effect(self, uri: str) -> SideEffect:
        """What opening this one touches."""
        return self.side_effect if self.effect_of is None else self.effect_of(uri)

    def has(self, effect: SideEffect) -> bool:
        """Whether opening one may touch that."""
        return effect in (self.effects or (self.side_effect,))


def scheme_of(uri: str) -> str:
    """The scheme of a URI, in lower case; raises `INVALID_ARGUMENT` for a text that has none."""
    scheme, colon, _ = uri.partition(":")
    if not colon or not scheme:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{_shown(uri)}` has no scheme.",
            hint="Write it like `file:///workspace/notes.txt`.",
        )
    return check_scheme(scheme)


def check_scheme(scheme: str) -> str:
    """The scheme in lower case; raises `INVALID_ARGUMENT` for one that is none."""
    # First bounded and ASCII: lower case of some other letters is ASCII.
    found = scheme.lower() if scheme.isascii() and len(scheme) <= 64 else ""
    if not _SCHEME.fullmatch(found):
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{_shown(scheme)}` is no scheme of a URI.",
            hint="A scheme begins with a letter and has letters, digits, `+`, `-` and `.`.",
        )
    return found


class Router:
    """The schemes there are, and what answers for each."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def register(
        self,
        scheme: str,
        resolver: Resolver,
        *,
        side_effect: SideEffect = SideEffect.READ,
        max_bytes: int = MAX_BYTES,
        effect_of: EffectOf | None = None,
        effects: Iterable[SideEffect] = (),
    ) -> Route:
        """Let `resolver` answer for a scheme; raises `INVALID_ARGUMENT` for one that is taken.

        Where it depends on the URI what is touched, `effect_of` says it, and `effects` are those there may be.
        """
        scheme = check_scheme(scheme)
        if scheme in self._routes:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Something answers for `{scheme}:` already.",
                hint="Give yours another scheme.",
            )
        if not 1 <= max_bytes <= MAX_BYTES:
            raise CallerError("INVALID_ARGUMENT", f"`max_bytes` must be from 1 to {MAX_BYTES}.")
        route = self._routes[scheme] = Route(
            scheme, resolver, side_effect, max_bytes, effect_of, frozenset(effects)
        )
        return route

    @property
    def routes(self) -> tuple[Route, ...]:
        """Every route, by scheme."""
        return tuple(self._routes[scheme] for scheme in sorted(self._routes))

    def route(self, uri: str) -> Route:
        """What answers for a URI; raises `PERMISSION_DENIED` when nothing does."""
        scheme = scheme_of(uri)
        found = self._routes.get(scheme)
        if found is None:
            # A denial, not a failed search: what is not registered is outside.
            known = ", ".join(f"`{one.scheme}:`" for one in self.routes)
            raise ModelError(
                "PERMISSION_DENIED",
                f"Nothing answers for `{scheme}:` here.",
                hint=f"There is: {known or 'nothing'}.",
            )
        return found

    @asynccontextmanager
    async def open(self, request: ResourceRequest) -> AsyncGenerator[tuple[Route, Source]]:
        """What a request names, open until the block is left."""
        route = self.route(request.uri)
        source = await route.resolver.open(request)
        try:
            yield route, source
        finally:
            # Also when cancelled: a connection or a file is open.
            with anyio.CancelScope(shield=True):
                await source.aclose()


def _shown(text: str) -> str:
    """A text as given, short, and printable whatever is in it."""
    return text[:80].encode("unicode_escape").decode()
