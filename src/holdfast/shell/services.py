"""What every session of a shell works with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.contracts import Capability, Language, RunRequest, SessionLimits, Setup
from holdfast.gate.approvals import Approvals
from holdfast.gate.executor import Toolbox
from holdfast.gate.gate import Gate
from holdfast.gate.past import Pasts
from holdfast.gate.policy import Policy
from holdfast.journal import Journal
from holdfast.shell.box import Boxes


class Tools(Protocol):
    """Makes toolboxes."""

    def __call__(self, setup: Setup, more: Sequence[object] = ()) -> Toolbox:
        """What a session that is opened like this may call, with `more` that its holder brings along."""
        ...


class Boundaries(Protocol):
    """Tools that come and go: what is wanted of them is done where nothing is under way."""

    @property
    def epoch(self) -> int:
        """Changes whenever what sessions see does."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether a boundary would find nothing to do now."""
        ...

    async def boundary(self, setup: Setup, *, wait: bool = True) -> None:
        """A session that is opened like this is about to do something; `wait` until what it sees is known."""
        ...

    def news(
        self, setup: Setup, before: object, tools: Iterable[Capability], turn: int
    ) -> tuple[object, list[str]]:
        """How things stand, and what a model is told that was last told `before`, ahead of that question."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """Handed in by whoever puts a runtime together."""

    journal: Journal
    boxes: Mapping[Language, Boxes]
    key: bytes
    """Seals saved states."""
    limits: SessionLimits
    """Those of sessions that are opened without any."""
    gate: Gate
    approvals: Approvals
    policy: Policy
    """The operator's rules; a session's own come on top."""
    setup: Setup
    """What sessions are opened with unless they say otherwise."""
    tools: Tools
    """What a session that is opened like this may call."""
    owner: str
    """Who holds the leases."""
    surfaces: Boundaries | None = None
    """Tools that come and go."""

    async def toolbox(self, setup: Setup) -> Toolbox:
        """What a session that is opened like this may call by now."""
        if self.surfaces is not None:
            await self.surfaces.boundary(setup)
        return self.tools(setup)


def setup_of(services: Services, row: Mapping[str, Any] | None) -> Setup:
    """What a session on record was opened with; without a word, or a session, as the settings say."""
    if row is None or row["status"] != "open" or row.get("setup") is None:
        return services.setup
    return Setup.model_validate(row["setup"])


def run_limits(request: RunRequest, limits: SessionLimits) -> SessionLimits:
    """The session's limits, and over them what a run says of its own."""
    given = request.limits
    own = {} if given is None else {name: getattr(given, name) for name in given.model_fields_set}
    if request.timeout_ms is not None:
        own["wall_ms"] = request.timeout_ms
    return limits.model_copy(update=own) if own else limits


def outside_of(toolbox: Toolbox, pasts: Pasts | None = None) -> dict[str, bool]:
    """What code can call, and whether it awaits it; of a recorded run, as it was then."""
    found = {one.name: one.asynchronous for one in toolbox.all()}
    for past in pasts.calls.values() if pasts is not None else ():
        if past.intent is not None:
            found[past.name] = past.intent.awaited
    return found
