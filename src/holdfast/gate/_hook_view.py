"""What a hook is shown, and what its accepted answer makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from holdfast.contracts import Json, Risk, SideEffect
from holdfast.contracts._base import Told, listed, optional
from holdfast.contracts.hook import HookPoint, HookPrivacy, HookSpec
from holdfast.contracts.hook_response import (
    MAX_SUMMARY,
    ApprovalChange,
    ApprovalWanted,
    ContextItem,
    HookResponse,
    ProjectionChange,
    ResponseClass,
    ToolRequestChange,
    ToolResultRewrite,
)
from holdfast.errors import CallerError

MAX_INJECTED = 4
"""Items that all hooks of a point together may add to the context."""

_RISKS = tuple(Risk)


@dataclass(frozen=True, slots=True)
class View:
    """What a point is about, as it stands now. Each hook sees what the accepted answers before it made of it."""

    summary: str
    """One line without arguments or results; this is what hooks see unless they may see more."""
    effect_id: str | None = None
    """The effect, at points that guard one."""
    tool: str | None = None
    """The capability."""
    side_effect: SideEffect | None = None
    """What it may touch."""
    risk: Risk | None = None
    """How much harm a mistake would do; no hook lowers it."""
    arguments: Mapping[str, Json] | None = None
    """What it is called with."""
    result: Json = None
    """What it gave."""
    messages: Sequence[Mapping[str, Json]] | None = None
    """What the model is sent."""
    context: tuple[ContextItem, ...] = ()
    """What hooks added to the context."""
    protected: tuple[str, ...] = ()
    """What hooks protected from compaction."""
    message: str | None = None
    """What the person who is asked reads."""
    timeout_ms: int | None = None
    """How long that person has to answer."""
    refs: tuple[str, ...] = ()
    """The content, by digest."""
    terminal: bool = False
    """Whether this is the last of its kind (the last piece of a stream): observers keep room for it."""


class HookInput(Told):
    """The question to a hook. As JSON it is what a command reads and a URL gets; answer with one of its methods."""

    hook_id: str
    """The hook itself."""
    point: HookPoint
    """Where it is asked."""
    session_id: str
    """Whose session."""
    run_id: str
    """Which run."""
    subject: str
    """What it is about: an effect, a run, or a turn of one (`run:turn`)."""
    invocation_id: str
    """This question; never used twice."""
    policy_ref: str
    """The rule under which the hook acts."""
    privacy: HookPrivacy
    """How much of it is shown."""
    summary: str
    """One line."""
    effect_id: str | None = optional()
    """The effect."""
    tool: str | None = optional()
    """The capability."""
    side_effect: SideEffect | None = optional()
    """What it may touch."""
    risk: Risk | None = optional()
    """How much harm a mistake would do."""
    refs: tuple[str, ...] = listed()
    """The content, by digest; with `content_refs_only` or more."""
    arguments: dict[str, JsonValue] | None = optional()
    """With `content_capture_allowed`: what it is called with."""
    result: JsonValue = optional()
    """With `content_capture_allowed`: what it gave."""
    messages: tuple[dict[str, JsonValue], ...] | None = optional()
    """With `content_capture_allowed`: what the model is sent."""

    def deny(self, code: str, summary: str) -> HookResponse:
        """Refuse the operation."""
        return self._refuse(ResponseClass.DENY, code, summary)

    def stop_run(self, code: str, summary: str) -> HookResponse:
        """End the run."""
        return self._refuse(ResponseClass.STOP_RUN, code, summary)

    def repair_needed(self, code: str, summary: str) -> HookResponse:
        """Don't let the run complete."""
        return self._refuse(ResponseClass.STOP_COMPLETION_WITH_REPAIR_NEEDED, code, summary)

    def modify(self, arguments: Mapping[str, Json], summary: str = "") -> HookResponse:
        """Call it with these arguments instead."""
        said: dict[str, object] = {"summary": cut(summary), "arguments": dict(arguments)}
        return HookResponse.of(ResponseClass.MODIFY_TOOL_REQUEST, said)

    def rewrite(self, result: Json, summary: str = "") -> HookResponse:
        """Give the caller this result instead."""
        said: dict[str, object] = {"summary": cut(summary), "result": result}
        return HookResponse.of(ResponseClass.REWRITE_TOOL_RESULT, said)

    def ask(self, summary: str, *, risk: Risk | None = None) -> HookResponse:
        """Ask a person first."""
        said = {"summary": cut(summary), "risk": risk}
        return HookResponse.of(ResponseClass.REQUEST_APPROVAL, said)

    def modify_approval(
        self,
        summary: str = "",
        *,
        risk: Risk | None = None,
        timeout_ms: int | None = None,
        message: str | None = None,
    ) -> HookResponse:
        """Ask the person in another way."""
        said = {"summary": cut(summary), "risk": risk, "timeout_ms": timeout_ms, "message": message}
        return HookResponse.of(ResponseClass.MODIFY_APPROVAL_REQUEST, said)

    def inject(self, *texts: str, summary: str = "") -> HookResponse:
        """Let the model see these texts, too."""
        items = [{"summary": cut(summary), "text": text} for text in texts]
        return HookResponse.of(ResponseClass.INJECT_CONTEXT, items)

    def project(self, messages: Sequence[Mapping[str, Json]], summary: str = "") -> HookResponse:
        """Send the model these messages instead."""
        said: dict[str, object] = {"summary": cut(summary), "messages": [dict(m) for m in messages]}
        return HookResponse.of(ResponseClass.MODIFY_PROJECTION, said)

    def protect(self, *ids: str) -> HookResponse:
        """Keep these parts of the context."""
        return HookResponse.of(ResponseClass.MARK_PROTECTED_CONTEXT, ids)

    def retry(self, summary: str = "") -> HookResponse:
        """Try it again."""
        return self.request(ResponseClass.REQUEST_RETRY, summary)

    def request(self, what: ResponseClass | str, summary: str = "") -> HookResponse:
        """Any of the answers that need no more than a line."""
        return HookResponse.of(ResponseClass(what), {"summary": cut(summary)})

    def _refuse(self, what: ResponseClass, code: str, summary: str) -> HookResponse:
        return HookResponse.of(what, {"code": code, "summary": cut(summary)})


def question(
    spec: HookSpec, view: View, *, session_id: str, run_id: str, subject: str, invocation_id: str
) -> HookInput:
    """What the hook is asked: no more of the view than it may see."""
    content = spec.privacy is HookPrivacy.CONTENT_CAPTURE_ALLOWED
    refs = content or spec.privacy is HookPrivacy.CONTENT_REFS_ONLY
    messages = view.messages if content else None
    return HookInput(
        hook_id=spec.hook_id,
        point=spec.point,
        session_id=session_id,
        run_id=run_id,
        subject=subject,
        invocation_id=invocation_id,
        policy_ref=spec.policy_ref,
        privacy=spec.privacy,
        summary=cut(view.summary),
        effect_id=view.effect_id,
        tool=view.tool,
        side_effect=view.side_effect,
        risk=view.risk,
        refs=view.refs if refs else (),
        arguments=dict(view.arguments) if content and view.arguments is not None else None,
        result=view.result if content else None,
        messages=None if messages is None else tuple(dict(message) for message in messages),
    )


def cut(text: str) -> str:
    """`text`, or as much of it as fits with the remark that something is missing."""
    if len(text) <= MAX_SUMMARY:
        return text
    remark = f" [truncated; original_chars={len(text)}; limit={MAX_SUMMARY}]"
    return text[: MAX_SUMMARY - len(remark)] + remark


def guard(view: View, response: HookResponse) -> None:
    """Refuse what no domain takes: endless summaries, too much context, a lower risk."""
    if any(len(summary) > MAX_SUMMARY for summary in response.summaries):
        raise _refused(f"a summary is longer than {MAX_SUMMARY} characters")
    payload = response.payload
    if isinstance(payload, ApprovalWanted | ApprovalChange):
        if payload.risk is not None and _level(payload.risk) < _level(view.risk):
            raise _refused("it would lower the risk")
    elif isinstance(payload, tuple):
        added = sum(isinstance(item, ContextItem) for item in payload)
        if added and len(view.context) + added > MAX_INJECTED:
            raise _refused(f"more than {MAX_INJECTED} items would be added to the context")


def apply(view: View, response: HookResponse) -> View:
    """The view once the answer is in force. What only asks or refuses leaves it as it is."""
    payload = response.payload
    match payload:
        case ToolRequestChange():
            return replace(view, arguments=payload.arguments)
        case ToolResultRewrite():
            return replace(view, result=payload.result)
        case ProjectionChange():
            return replace(view, messages=payload.messages)
        case ApprovalWanted():
            return replace(view, risk=payload.risk or view.risk)
        case ApprovalChange():
            return replace(
                view,
                risk=payload.risk or view.risk,
                timeout_ms=payload.timeout_ms or view.timeout_ms,
                message=view.message if payload.message is None else payload.message,
            )
        case tuple():
            items = tuple(item for item in payload if isinstance(item, ContextItem))
            ids = tuple(item for item in payload if isinstance(item, str))
            return replace(view, context=(*view.context, *items), protected=(*view.protected, *ids))
        case _:
            return view


def _level(risk: Risk | None) -> int:
    return -1 if risk is None else _RISKS.index(risk)


def _refused(why: str) -> CallerError:
    return CallerError("HOOK_INVALID", f"The hook's answer was refused: {why}.")
