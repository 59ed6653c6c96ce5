"""What can't have happened can't be recorded."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from holdfast.contracts import Draft, EffectStatus
from holdfast.journal import Journal
from holdfast.testing._conformance._base import Conformance, leaves_no_trace
from holdfast.testing._drafts import (
    answered,
    asked,
    completed,
    created,
    destroyed,
    failed,
    intent,
    result,
    started,
    state,
    used,
)

NO_SESSION = [state(), destroyed(), started("r")]
NO_RUN = [
    completed("r"),
    failed("r"),
    failed("r", cancelled=True),
    intent("e", "r"),
    asked("a", "e", "r"),
    used("r"),
]
DONE = [status for status in EffectStatus if status is not EffectStatus.UNKNOWN]


class Legality(Conformance):
    """Records that may not follow those before them."""

    async def illegal(self, journal: Journal, draft: Draft, stream: str = "s") -> None:
        await leaves_no_trace(journal, "ILLEGAL_RECORD", journal.append(stream, [draft]))

    async def test_a_session_is_created_once(self, journal: Journal):
        await journal.append("s", [created()])
        await self.illegal(journal, created())
        await journal.append("t", [created()])
        await journal.append("s", [destroyed(), created()])

    async def test_envelope_and_payload_name_the_same_effect(self, journal: Journal):
        await journal.append("s", [created(), intent("e")])
        for draft in (intent("f"), result("e")):
            fields = {"kind": draft.kind, "payload": draft.payload, "effect_id": "another"}
            await self.illegal(journal, Draft.model_validate(fields))
        await journal.append("s", [result("e")])

    @pytest.mark.parametrize("draft", NO_SESSION, ids=lambda draft: draft.kind)
    async def test_it_needs_an_open_session(self, journal: Journal, draft: Draft):
        await self.illegal(journal, draft)
        await journal.append("other", [created()])
        await self.illegal(journal, draft)
        await journal.append("s", [created(), destroyed()])
        await self.illegal(journal, draft)

    @pytest.mark.parametrize("draft", NO_RUN, ids=lambda draft: draft.kind)
    async def test_it_needs_a_run_under_way(self, journal: Journal, draft: Draft):
        await self.illegal(journal, draft)
        await journal.append("other", [created(), started("r")])
        await self.illegal(journal, draft)  # a run of another stream does not count
        await journal.append("other", [completed("r")])
        await journal.append("s", [created()])
        await self.illegal(journal, draft)
        with_run = draft.model_copy(update={"run_id": "mine"})
        if "id" in draft.payload or "effect_id" in draft.payload:
            await journal.append("s", [started("mine"), completed("mine")])
            await self.illegal(journal, with_run)
        else:
            await journal.append("s", [started("mine"), with_run])

    async def test_a_run_needs_an_id_of_its_own(self, journal: Journal):
        await journal.append("s", [created(), started("r")])
        await self.illegal(journal, started(None))
        await self.illegal(journal, started("r"))
        await journal.append("s", [completed("r")])
        await self.illegal(journal, started("r"))
        await journal.append("t", [created()])
        await self.illegal(journal, started("r"), "t")

    @pytest.mark.parametrize("end", [completed, failed])
    async def test_a_run_ends_once(self, journal: Journal, end: type):
        await journal.append("s", [created(), started("r"), end("r")])
        for again in (completed("r"), failed("r"), failed("r", cancelled=True), completed(None)):
            await self.illegal(journal, again)

    async def test_an_effect_has_one_intent(self, journal: Journal):
        await journal.append("s", [intent("e")])
        await self.illegal(journal, intent("e"))
        await self.illegal(journal, intent("e"), "t")
        await journal.append("s", [result("e")])
        await self.illegal(journal, intent("e"))

    async def test_a_result_never_precedes_its_intent(self, journal: Journal):
        await self.illegal(journal, result("e"))
        await journal.append("other", [intent("e")])
        await self.illegal(journal, result("e"))  # nor does it come in another stream

    @pytest.mark.parametrize("status", DONE)
    async def test_an_effect_has_one_result(self, journal: Journal, status: EffectStatus):
        await journal.append("s", [intent("e"), result("e", status=status)])
        for again in EffectStatus:
            await self.illegal(journal, result("e", status=again))

    async def test_an_unknown_effect_can_still_be_settled_once(self, journal: Journal):
        unknown = result("e", status=EffectStatus.UNKNOWN)
        await journal.append("s", [intent("e"), unknown, unknown, result("e")])
        await self.illegal(journal, result("e"))
        await self.illegal(journal, unknown)

    async def test_an_approval_is_asked_and_answered_once(self, journal: Journal):
        await self.illegal(journal, answered("a"))
        await journal.append("s", [asked("a")])
        await self.illegal(journal, asked("a"))
        await self.illegal(journal, asked("a"), "t")
        await journal.append("s", [answered("a")])
        await self.illegal(journal, answered("a"))
        await self.illegal(journal, asked("a"))

    @pytest.mark.parametrize("payload", [{}, {"metrics": 7}, {"metrics": {"duration_ms": "x"}}])
    async def test_a_draft_changed_after_it_was_checked_fails_alone(
        self, journal: Journal, payload: dict[str, JsonValue]
    ):
        await journal.append("s", [created(), started("r")])
        changed = completed("r").model_copy(update={"payload": payload})
        failures: list[BaseException] = []
        journal.post("s", lambda: [changed], failed=failures.append)
        journal.post("t", lambda: [created()], failed=failures.append)
        await journal.flush()
        assert [getattr(failure, "code", failure) for failure in failures] == ["ILLEGAL_RECORD"]
        assert await journal.last_seq() == 3
        await self.illegal(journal, changed)

    async def test_what_a_batch_does_counts_for_its_own_next_record(self, journal: Journal):
        await journal.append("s", [created(), started("r"), intent("e", "r"), result("e", "r")])
        await leaves_no_trace(
            journal,
            "ILLEGAL_RECORD",
            journal.append("s", [completed("r"), used("r")]),
        )
