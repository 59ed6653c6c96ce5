"""Takes up a run that stands: in the engine's state at the call or, without it, from the start of its code."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from holdfast.contracts import SessionLimits
from holdfast.errors import CallerError
from holdfast.shell.box import AtAwait, AtCall, Box, Stop
from holdfast.shell.definitions import Definitions
from holdfast.shell.services import outside_of
from holdfast.shell.standing import Standing

if TYPE_CHECKING:
    from holdfast.shell.session import Session


async def reopen(
    session: Session, found: Standing, limits: SessionLimits
) -> tuple[Box, AtCall | AtAwait | None]:
    """A box that stands where the run stood; or one in the session's state, to run the code again."""
    contents, opening = session.contents, session.opening
    if found.state is not None and found.inside is not None:
        await contents.drop()
        try:
            box, stop = await session.boxes.reopen(
                found.inside,
                found.state,
                found.progress,
                code=found.request.code,
                run_limits=limits,
                names=opening.discovery(limits),
                outside=opening.outside(),
                inputs=found.request.inputs,
            )
        except CallerError:
            pass  # the code is still there
        else:
            contents.have(box, set(found.names), Definitions(session.boxes, found.sources))
            return box, stop
    return await contents.ready(limits, used=session.used), None


def again(session: Session, box: Box, found: Standing, limits: SessionLimits) -> Awaitable[Stop]:
    """Run the code from its start; what it was answered is on record."""
    opening, contents = session.opening, session.contents
    contents.reads(found.request.code, found.request.inputs)
    return box.run(
        found.request.code,
        inputs=found.request.inputs,
        limits=limits,
        names=opening.discovery(limits),
        # With what is gone by now: what it answered is on record.
        outside=outside_of(opening.toolbox, found.pasts),
        meant=opening.meant(found.request.code, contents),
    )
