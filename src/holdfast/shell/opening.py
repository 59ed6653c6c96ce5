"""What a session is opened with, and what its code may call because of that."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.contracts import Draft, SessionLimits, Setup
from holdfast.contracts.payload import SessionOpened
from holdfast.gate.executor import Toolbox
from holdfast.gate.policy import Policy
from holdfast.journal.pen import Pen
from holdfast.shell.box import ANYTHING, Call
from holdfast.shell.contents import Contents
from holdfast.shell.discovery import discovery
from holdfast.shell.services import Services, outside_of


class Opening:
    """How one session is open here."""

    def __init__(self, services: Services, pen: Pen) -> None:
        self.setup = services.setup
        """What it is open with."""
        self.remembered = services.setup
        """What it is opened with when nobody says otherwise."""
        self.toolbox: Toolbox = services.tools(services.setup)
        self.policy: Policy = services.policy.within(services.setup.rules)
        self._services = services
        self._pen = pen
        self._more: tuple[object, ...] = ()
        """Capabilities that whoever holds the session brought along."""
        self._named: tuple[SessionLimits, Toolbox, Mapping[str, Call]] | None = None
        self._outside: dict[str, bool] | None = None
        self._epoch = -1
        self._told: object = None

    async def fit(
        self, setup: Setup | None, more: tuple[object, ...] = (), *, on_record: bool
    ) -> None:
        """Open it with `setup`, or with what it remembers; another one goes on record, if the session is.

        Only here: what it remembers may be gone by now, and a session can be ended, or opened otherwise, all the same.
        """
        if self.settled(setup, more):
            return
        wanted = self.remembered if setup is None else setup
        surfaces = self._services.surfaces
        if surfaces is not None:
            await surfaces.boundary(wanted)
        moved = surfaces is not None and surfaces.epoch != self._epoch
        if wanted != self.setup or more != self._more or moved:
            self._more = more
            self.use(wanted)
        if wanted != self.remembered and on_record:
            await self._pen.append([Draft.of(SessionOpened(setup=wanted))])
        self.remembered = wanted

    def settled(self, setup: Setup | None, more: tuple[object, ...] = ()) -> bool:
        """Whether `fit` would change nothing, and not have to wait to know that."""
        surfaces = self._services.surfaces
        if surfaces is not None and (not surfaces.quiet or surfaces.epoch != self._epoch):
            return False
        known = self.setup is self.remembered and (setup is None or setup is self.setup)
        return known and more == self._more

    async def boundary(self, turn: int) -> list[str]:
        """Between two questions of a model: take what it may call by now, and give what it has to be told of that."""
        surfaces = self._services.surfaces
        if surfaces is None:
            return []
        await surfaces.boundary(self.setup, wait=False)
        if surfaces.epoch != self._epoch:
            self.use(self.setup)
        self._told, words = surfaces.news(self.setup, self._told, self.toolbox.all(), turn)
        return words

    def use(self, setup: Setup) -> None:
        """From now on it may call what this gives."""
        if self._services.surfaces is not None:
            self._epoch = self._services.surfaces.epoch
        self.toolbox = self._services.tools(setup, self._more)
        self.policy = self._services.policy.within(setup.rules)
        self.setup = setup
        self._named = self._outside = None

    def discovery(self, limits: SessionLimits) -> Mapping[str, Call]:
        """What the code can ask about its box; made again only when what it tells changes."""
        named = self._named
        same = named is not None and (named[0] is limits or named[0] == limits)
        if named is None or not same or named[1] is not self.toolbox:
            found = discovery(self.toolbox, self.policy, limits)
            named = self._named = (limits, self.toolbox, found)
        return named[2]

    def outside(self) -> Mapping[str, bool]:
        """What the code can call, and whether it awaits it; the same object as long as that is the same."""
        if self._outside is None:
            self._outside = outside_of(self.toolbox)
        return self._outside

    def meant(self, code: str, contents: Contents) -> frozenset[str]:
        """Awaited capabilities that can only be meant by their names, as no code has bound one of these."""
        if "await" not in code or ANYTHING in contents.names:
            return frozenset()
        bound = contents.names
        return frozenset(
            one.name for one in self.toolbox.all() if one.asynchronous and one.name not in bound
        )

    def defaults(self, setup: Setup | None = None) -> SessionLimits:
        """The limits of a session that is opened like this."""
        setup = setup or self.setup
        return setup.limits or self._services.limits
