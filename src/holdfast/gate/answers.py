"""What a call on record gave, as the code got it."""

from __future__ import annotations

from holdfast.errors import InternalError
from holdfast.gate.crossing import Outcome, call_record
from holdfast.gate.past import Past, stored_json
from holdfast.journal import Journal


async def answer(journal: Journal, past: Past) -> Outcome:
    """The outcome of a call that has one on record."""
    result, intent = past.result, past.intent
    assert result is not None
    assert intent is not None
    effect, took = intent.side_effect, (result.duration_ms or 0) / 1000
    if result.error is not None:
        record = call_record(past.name, effect, past.request, took=took, error=result.error)
        return Outcome(record, error=result.error, kind=result.raised)
    if not result.content_refs:
        raise InternalError(f"Effect `{past.effect_id}` has a result without a value.")
    original = result.content_refs[0]
    record = call_record(past.name, effect, past.request, took=took, response=original)
    if past.seen_error is not None:
        return Outcome(record, error=past.seen_error)
    return Outcome(record, await stored_json(journal, past.seen or original))
