"""A call that was cut off: its capability finds out what became of it."""

from __future__ import annotations

from typing import Literal

import anyio

from holdfast.contracts import EffectStatus, ErrorObject
from holdfast.errors import JournalError
from holdfast.gate._refusals import redacted
from holdfast.gate.act import Act
from holdfast.gate.crossing import Doubt, Outcome
from holdfast.gate.executor import Finding
from holdfast.gate.redact import Redactor
from holdfast.gate.results import Results

Why = Literal["not_started", "recovered"]
"""Why an effect is done again: it never began, or that is harmless."""


async def found_out(act: Act, results: Results, redactor: Redactor) -> Outcome | Doubt | Why:
    """What the code gets once the capability was asked what became of a call; or why to do it again."""
    found = await _asked(act)
    match found.status:
        case "completed":
            return await results.gave(act, found.value, resolved="reconciled")
        case "failed":
            error = found.error or ErrorObject(
                code="TOOL_ERROR", message=f"`{act.crossing.name}` did not happen."
            )
            clean = redacted(redactor, error)
            return await results.ended(act, EffectStatus.FAILED, clean, resolved="reconciled")
        case "not_started":
            return "not_started"
        case "unknown" if not act.careful:
            return "recovered"
        case _:
            crossing = act.crossing
            return results.doubt(crossing.desk, crossing.effect_id, crossing.name)


async def _asked(act: Act) -> Finding:
    act.inquiry.over = True  # whoever looks what became of a call asks nobody
    try:
        with anyio.fail_after(act.passing.limits.timeout_ms / 1000):
            return await act.passing.executor.reconcile(act.passing.arguments, act.context)
    except JournalError:
        raise
    except Exception:  # noqa: BLE001 - a reconciler that fails has not found out
        return Finding("unknown")
