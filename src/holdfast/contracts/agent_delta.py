"""Events that are on no record: the pieces of an answer that is being given, and how far calls are."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import JsonValue

from holdfast.contracts._agent_event import Event
from holdfast.contracts._base import optional, unless


class _Piece(Event):
    """What every event has that is on no record; its `seq` is that of the record it follows."""

    turn: int
    """The question."""
    attempt: int
    """Which attempt at it."""


class TextDelta(_Piece):
    """More words."""

    kind: Literal["text_delta"] = "text_delta"
    """Which event it is."""
    text: str
    """The words."""
    index: int = unless(0)
    """Which part of the answer they belong to."""


class ThinkingDelta(_Piece):
    """More of what the model says to itself."""

    kind: Literal["thinking_delta"] = "thinking_delta"
    """Which event it is."""
    text: str
    """The words."""
    index: int = unless(0)
    """Which part of the answer they belong to."""


class ToolCallDelta(_Piece):
    """More of a call."""

    kind: Literal["tool_call_delta"] = "tool_call_delta"
    """Which event it is."""
    text: str
    """More of its arguments, as JSON."""
    index: int = unless(0)
    """Which part of the answer it belongs to."""
    call_id: str | None = optional()
    """The call, with the first piece of one."""
    name: str | None = optional()
    """Its tool, with the first piece of one."""


class OutputPartial(_Piece):
    """As much of the structured output as there is. It may turn out not to fit."""

    kind: Literal["output_partial"] = "output_partial"
    """Which event it is."""
    value: JsonValue = None
    """The value so far; what was given out once stays as it is, and more is added."""
    complete: bool = unless(False)
    """Whether nothing is missing."""


class DeltasMissed(_Piece):
    """You were too slow for the pieces of this answer, and some are gone; `answer` will hold all of it."""

    kind: Literal["deltas_missed"] = "deltas_missed"
    """Which event it is."""
    count: int
    """How many are gone."""


class ToolProgress(Event):
    """How far a call is, as its server says. Of several that came at once, the last one is told."""

    kind: Literal["tool_progress"] = "tool_progress"
    """Which event it is."""
    effect_id: str
    """The call; of one that only reads, `effect_started` may come later, together with its end."""
    progress: float
    """Grows; what it counts is the server's business."""
    total: float | None = optional()
    """How far it goes, if that is known."""
    message: str | None = optional()
    """The server's words."""


Delta: TypeAlias = (
    TextDelta | ThinkingDelta | ToolCallDelta | OutputPartial | DeltasMissed | ToolProgress
)
"""On no record."""

DELTAS: tuple[type[Delta], ...] = (
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    OutputPartial,
    DeltasMissed,
    ToolProgress,
)
"""Those on no record."""
