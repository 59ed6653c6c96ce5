"""What the tests of hooks share: a recorder, and a way to fire without saying everything."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.contracts import Draft
from holdfast.contracts.hook import HookPoint
from holdfast.contracts.hook_response import HookResponse, ResponseClass
from holdfast.gate.hooks import Consider, Fired, Hook, HookFunction, HookInput, Hooks, View
from holdfast.gate.hooks import hook as real_hook

BEFORE = HookPoint.BEFORE_TOOL_CALL
AFTER = HookPoint.AFTER_TOOL_CALL

PAYLOADS: dict[ResponseClass, Any] = {
    ResponseClass.OBSERVE: None,
    ResponseClass.INJECT_CONTEXT: [{"summary": "a fact", "text": "The sky is blue."}],
    ResponseClass.MODIFY_PROJECTION: {"summary": "less", "messages": [{"role": "user"}]},
    ResponseClass.MODIFY_TOOL_REQUEST: {"summary": "other", "arguments": {"to": "me"}},
    ResponseClass.MODIFY_APPROVAL_REQUEST: {"summary": "other words", "message": "Really?"},
    ResponseClass.DENY: {"code": "no", "summary": "no"},
    ResponseClass.REQUEST_APPROVAL: {"summary": "ask", "risk": "high"},
    ResponseClass.REWRITE_TOOL_RESULT: {"summary": "other", "result": [1, None]},
    ResponseClass.MARK_PROTECTED_CONTEXT: ["item-1"],
    ResponseClass.STOP_COMPLETION_WITH_REPAIR_NEEDED: {"code": "no", "summary": "no"},
    ResponseClass.STOP_RUN: {"code": "no", "summary": "no"},
}


def hook(point: HookPoint, **terms: Any) -> Callable[[HookFunction], Hook]:
    """`@hook` with a deadline that no busy machine misses."""
    return real_hook(point, **{"timeout_ms": 60_000, **terms})


def response(class_: ResponseClass) -> HookResponse:
    return HookResponse.of(class_, PAYLOADS.get(class_, {"summary": "please"}))


class Recorder:
    """Keeps every batch it is given; fails when told to."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.batches: list[list[Draft]] = []
        self.fails = fails

    async def __call__(self, drafts: list[Draft]) -> None:
        if self.fails is not None:
            raise self.fails
        self.batches.append(drafts)

    @property
    def said(self) -> list[Any]:
        """The payloads of all hook records."""
        return [d.payload for batch in self.batches for d in batch if d.kind == "hook"]

    @property
    def events(self) -> list[Any]:
        """What they say happened: the decision, or the type."""
        inner: list[Any] = [payload["payload"] for payload in self.said]
        return [event.get("decision", event["type"]) for event in inner]


def answers(
    class_: ResponseClass,
    point: HookPoint,
    *,
    asked: list[str] | None = None,
    **terms: Any,
) -> Hook:
    """A hook that always answers so."""

    async def says(question: HookInput) -> HookResponse:
        if asked is not None:
            asked.append(question.hook_id)
        return response(class_)

    return hook(point, **{"id": class_.value, "rights": [class_], **terms})(says)


async def fire(
    hooks: Hooks | Sequence[Hook],
    point: HookPoint = BEFORE,
    view: View | None = None,
    *,
    record: Recorder | None = None,
    consider: Consider | None = None,
    restored: Mapping[str, HookResponse] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    strict: bool = True,
) -> Fired:
    return await (hooks if isinstance(hooks, Hooks) else Hooks(hooks)).fire(
        point,
        view or View("a call", arguments={"to": "you"}),
        run_id="run_1",
        session_id="s",
        subject="eff_1",
        record=record or Recorder(),
        consider=consider,
        restored=restored or {},
        cancelled=cancelled,
        strict=strict,
    )
