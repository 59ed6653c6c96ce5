"""What a model is told about its surfaces at a boundary: each change once, in fixed words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.contracts import Capability
from holdfast.machines import texts
from holdfast.machines.mcp_status import pending_server_ids
from holdfast.runtime._surface_board import Board


@dataclass(frozen=True, slots=True)
class Seen:
    """How things stood when a session was last told."""

    tools: dict[str, Capability] = field(default_factory=dict[str, Capability])
    """By the names that code calls them."""
    pending: tuple[str, ...] = ()
    """Surfaces that were being connected."""
    trouble: frozenset[str] = frozenset()
    """Surfaces that could not be reached."""
    sign_in: frozenset[str] = frozenset()
    """Those of them for which somebody has to sign in."""
    up: frozenset[str] = frozenset()
    """Surfaces that could be reached."""
    forced: dict[str, int] = field(default_factory=dict[str, int])
    """How often each was removed while calls were under way."""


def seen_now(board: Board, names: Iterable[str], tools: Iterable[Capability]) -> Seen:
    """How things stand for a session that sees these surfaces, and these of their tools."""
    names = [*names]
    trouble = {one for one in names if _troubled(board, one)}
    waiting = {
        one: board.record(one) for one in names if one not in trouble and not board.alive(one)
    }
    return Seen(
        tools={one.name: one for one in tools},
        pending=tuple(pending_server_ids(waiting)),
        trouble=frozenset(trouble),
        sign_in=frozenset(one for one in trouble if board.fate(one).question is not None),
        up=frozenset(one for one in names if board.alive(one)),
        forced={one: board.fate(one).forced for one in names if board.fate(one).forced},
    )


def _troubled(board: Board, name: str) -> bool:
    """Whether it is wanted, and can't be reached: it was lost, or did not come up."""
    if board.alive(name) or name not in board.specs:
        return False
    return board.serving(name) is not None or board.fate(name).failures > 0


def told(before: Seen | None, now: Seen) -> list[str]:
    """What there is to tell; of a session that was told nothing yet, only what it can't see for itself."""
    said: list[str] = []
    known = before or Seen(now.tools, forced=now.forced)
    added = sorted(now.tools.keys() - known.tools.keys())
    removed = sorted(known.tools.keys() - now.tools.keys())
    both = sorted(now.tools.keys() & known.tools.keys())
    changed = [name for name in both if now.tools[name] != known.tools[name]]
    if added or removed or changed:
        said.append(texts.tools_came_and_went(added, removed, changed))
    for name in sorted(now.forced):
        if now.forced[name] > known.forced.get(name, 0):
            said.append(texts.removal_forced(name))
    for name in sorted(now.trouble - known.trouble):
        if name in now.sign_in:
            said.append(texts.reauth_required(name))
        else:
            said.append(texts.server_unreachable(name))
    said += [texts.server_back(name) for name in sorted(known.trouble & now.up)]
    if now.pending and now.pending != known.pending:
        said.append(texts.servers_connecting([*now.pending]))
    return said
