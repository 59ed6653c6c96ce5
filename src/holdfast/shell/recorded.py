"""Answers the calls of a replayed run from the record, and makes none."""

from __future__ import annotations

from holdfast.contracts import EffectStatus, canonical_json, digest
from holdfast.errors import OperatorError
from holdfast.gate.answers import answer
from holdfast.gate.crossing import Crossing, Doubt, Outcome, as_asked
from holdfast.gate.past import Past, mismatch, stored_json
from holdfast.journal import Journal
from holdfast.shell.errand import Parked

_REFUSED = EffectStatus.DENIED_BEFORE_EXECUTION


def stands(run_id: str, parked: Parked) -> OperatorError:
    """The end of a replay at calls that have no result on record."""
    names = ", ".join(f"`{one.name}`" for one in (*parked.waiting, *parked.doubts))
    return OperatorError(
        "REPLAY_MISMATCH",
        f"Run `{run_id}` stands at {names}, of which no result is on record; nothing was done.",
        hint="A run that waits can be replayed once it has ended.",
    )


class Recorded:
    """In place of the gate: whatever is not on record stops the replay."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def perform(self, crossing: Crossing) -> Outcome | Doubt:
        """What the code got when it made this call; nothing, where it ended without an answer."""
        past = crossing.past
        if past is not None and not past.answered and crossing.name == past.name:
            return Doubt(past.effect_id, past.name)
        if past is None or not past.answered:
            raise OperatorError(
                "REPLAY_MISMATCH",
                f"Call {crossing.ordinal}, `{crossing.name}`, has no result on record;"
                " nothing was done.",
                hint="The code, its inputs or the engine are not what they were.",
                effect_id=crossing.effect_id,
            )
        await self._check_same(crossing, past)
        return await answer(self._journal, past)

    async def _check_same(self, crossing: Crossing, past: Past) -> None:
        executor = crossing.desk.toolbox.get(crossing.name)
        same = crossing.name == past.name
        refused = past.result is not None and past.result.terminal_status is _REFUSED
        if same and (executor is None or crossing.known or refused):
            # How its arguments are told by name, only the capability knew; and those of a call that was not made
            # may be on record without what was secret in them.
            return
        now = as_asked(crossing, executor)
        same = same and digest(canonical_json(now)) == past.request
        if not same:
            then = await stored_json(self._journal, past.arguments)
            raise mismatch(past, crossing.name, then=then, now=now)
