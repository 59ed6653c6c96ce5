"""Lines of a script: what a `Scripted` model says next, in words that read well in a test.

```python
[
    write_code("rows = query_db('select 1')\nlen(rows)"),
    together(say("Both at once."), call("lookup", id=1), call("lookup", id=2)),
    fail("MODEL_RATE_LIMITED", retry_after_ms=2_000),
    cut("The answer is"),
    say("The answer is 1."),
]
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import JsonValue

from holdfast.contracts import parse
from holdfast.contracts.message import Part, TextPart, ThinkingPart, ToolCallPart
from holdfast.contracts.model import FinishReason, ModelAnswer, ModelUsage
from holdfast.errors import CODES, CallerError, ModelFailure
from holdfast.models._recorded import MARK, answers_of

RUN_CODE = "run_code"
"""The tool that `write_code` calls."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing a scripted model does when it is asked. Made by the functions of this module."""

    parts: tuple[Part, ...] = ()
    """What it says; a call without an id gets one."""
    finish: FinishReason | None = None
    """Why it stops; `None`: as its parts suggest."""
    usage: ModelUsage | None = None
    """What that used; `None`: it is counted."""
    model: str | None = None
    """Who answered, as a provider would name it."""
    response_id: str | None = None
    """The answer's name."""
    failure: str | None = None
    """The code of the failure with which it ends."""
    message: str | None = None
    """What the failure says."""
    retry_after_ms: int | None = None
    """How long the failure asks to be left alone."""
    latency_ms: float = 0
    """How long it waits before anything else."""


_STEPS = (
    "a string, a `ModelAnswer`, a `ModelFailure`, or what `say`, `call`, `fail` and the like give"
)

Step = str | Line | ModelAnswer | ModelFailure | Mapping[str, Any]
"""What a script may hold; a mapping is the JSON of a recorded `ModelAnswer`, or `{"fail": code, …}`."""


def say(text: str, *, thinking: str | None = None, usage: ModelUsage | None = None) -> Line:
    """The model says `text`, after thinking if so told, and calls nothing."""
    thought = () if thinking is None else (ThinkingPart(text=thinking, provider="scripted"),)
    return Line((*thought, TextPart(text=text)), usage=usage)


def call(tool: str, /, **arguments: JsonValue) -> Line:
    """The model calls `tool`."""
    return Line((ToolCallPart(id="", name=tool, arguments=arguments),))


def write_code(code: str, **more: JsonValue) -> Line:
    """The model writes code: it calls `run_code` with it."""
    return call(RUN_CODE, code=code, **more)


def garble(tool: str, written: str) -> Line:
    """The model calls `tool` with arguments that are no JSON object."""
    return Line((ToolCallPart(id="", name=tool, malformed=written),))


def together(*steps: Step, usage: ModelUsage | None = None) -> Line:
    """All of it in one answer, in this order."""
    lines = [as_line(step) for step in steps]
    refused = next((one.failure for one in lines if one.failure is not None), None)
    if refused is not None:
        raise _unfit(f"`{refused}` can't be part of an answer", "Make it a line of its own.")
    given = [one.usage for one in lines if one.usage is not None]
    return Line(
        tuple(part for one in lines for part in one.parts),
        usage=usage or (given[-1] if given else None),
        latency_ms=sum(one.latency_ms for one in lines),
    )


def fail(code: str, message: str | None = None, *, retry_after_ms: int | None = None) -> Line:
    """The provider fails in this typed way; the next line comes when it is asked again."""
    if not code.startswith("MODEL_") or code not in CODES:
        known = ", ".join(sorted(one for one in CODES if one.startswith("MODEL_")))
        raise _unfit(f"`{code}` is no failure of a model", f"It can be one of: {known}.")
    return Line(failure=code, message=message, retry_after_ms=retry_after_ms)


def cut(so_far: Step = "") -> Line:
    """The answer breaks off after `so_far`; the next line comes when it is asked again."""
    line = as_line(so_far)
    if line.failure is not None:
        raise _unfit("A failure can't be cut", "Give `cut` what was said before the end.")
    return replace(
        line if line.parts != (TextPart(text=""),) else Line(), failure="MODEL_STREAM_CUT"
    )


def after(latency_ms: float, step: Step) -> Line:
    """The same, `latency_ms` later."""
    line = as_line(step)
    return replace(line, latency_ms=line.latency_ms + latency_ms)


def as_line(step: object) -> Line:
    """Any step as a `Line`; raises `INVALID_ARGUMENT` for what is none."""
    if isinstance(step, Line):
        return step
    if isinstance(step, str):
        return say(step)
    if isinstance(step, ModelAnswer):
        return Line(step.parts, step.finish, step.usage, step.model, step.response_id)
    if isinstance(step, ModelFailure):
        partial = as_line(step.partial) if isinstance(step.partial, ModelAnswer) else Line()
        return replace(
            partial, failure=step.code, message=step.message, retry_after_ms=step.retry_after_ms
        )
    if isinstance(step, Mapping):
        return _recorded(cast("Mapping[str, Any]", step))
    raise _unfit(f"A `{type(step).__name__}` is no line of a script", f"Give {_STEPS}.")


def _recorded(step: Mapping[str, Any]) -> Line:
    if "fail" not in step:
        answer = as_line(parse(ModelAnswer, dict(step)))
        # What nobody counted is counted here, as it is for every other line.
        return answer if "usage" in step else replace(answer, usage=None, finish=step.get("finish"))
    partial = _recorded(step["partial"]) if step.get("partial") else Line()
    line = fail(str(step["fail"]), step.get("message"), retry_after_ms=step.get("retry_after_ms"))
    return replace(line, parts=partial.parts, usage=partial.usage)


def read_recording(text: str) -> list[Line]:
    """The lines of a recording: a JSON array, one JSON value per line, or a run that `holdfast.testing.save` wrote."""
    try:
        if text.lstrip().startswith("["):
            items: object = json.loads(text)
        else:
            items = [json.loads(one) for one in text.splitlines() if one.strip()]
    except ValueError as why:
        raise _unfit(
            f"A recording is no JSON: {why}", "Write an array, or one value per line."
        ) from why
    if isinstance(items, list) and items and isinstance(items[0], dict) and MARK in items[0]:
        items = answers_of(cast("list[dict[str, Any]]", items))
    return [as_line(item) for item in cast("Iterable[object]", items)]


def _unfit(why: str, hint: str) -> CallerError:
    return CallerError("INVALID_ARGUMENT", f"{why}.", hint=hint)
