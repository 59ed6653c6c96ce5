"""What became of surfaces in this process, put on record for whoever looks from another one."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contracts import Draft, digest_json
from holdfast.contracts.surface import SURFACES, SurfaceChanged
from holdfast.journal import Journal
from holdfast.machines import mcp_status
from holdfast.machines import surface_types as t
from holdfast.runtime._surface_board import Board
from holdfast.runtime._surface_tool import SurfaceTool

_NAMES = 1000


class Notes:
    """Hears of every change; each failure is told once."""

    board: Board
    """Whose changes they are; set before the first."""

    def __init__(self, journal: Journal, owner: str) -> None:
        self._journal = journal
        self._owner = owner
        self._failed: dict[str, str] = {}

    def __call__(self, name: str, op: t.Op, phase: str) -> None:
        """Put a change on record."""
        board, status = self.board, mcp_status.status(self.board.record(name))
        fate = board.fate(name)
        if phase == "pending" and fate.failures:
            return
        if phase == "failed":
            if self._failed.get(name) == status.detail and fate.failures > 1:
                return
            self._failed[name] = status.detail
        served = board.serving(name) if phase == "applied" and op is not t.Op.REMOVE else None
        names = () if served is None else [one.capability.name for one in served.tools]
        said = SurfaceChanged.model_validate(
            {
                "name": name,
                "op": op.value.lower(),
                "phase": phase,
                "generation": fate.generation,
                "tools": None if served is None else _digest_of(served.tools),
                "names": tuple(names[:_NAMES]),
                "refused": {} if served is None else dict([*served.refused.items()][:_NAMES]),
                "cause": status.cause.value if phase == "failed" and status.cause else None,
                "detail": (status.detail or None) if phase == "failed" else None,
                "owner": self._owner,
            }
        )
        self._journal.post(SURFACES, lambda: [Draft.of(said)], failed=_ignore)


def _ignore(why: BaseException) -> None:
    """A note for others that could not be written is missed by nobody here."""


def _digest_of(tools: Sequence[SurfaceTool]) -> str:
    return digest_json(sorted(one.capability.digest for one in tools))
