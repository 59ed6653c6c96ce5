"""Hooks: functions, programs and URLs that are asked at fixed points, with rights and deadlines.

A hook answers with one of twenty things (`contracts/hook_response.py`); the table `ALLOWED`
(`contracts/hook.py`) says which at which point, its `rights` which of these are its own. How one point is gone
through is `_hook_firing.py`; hooks nobody waits for are `_hook_observers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from holdfast.contracts import Draft, digest_json, new_id
from holdfast.contracts.hook import (
    HookFailure,
    HookOverflow,
    HookPhase,
    HookPoint,
    HookPrivacy,
    HookQueue,
    HookSource,
    HookSpec,
)
from holdfast.contracts.hook_config import HookConfig, HookTerms
from holdfast.contracts.hook_response import HookResponse, ResponseClass
from holdfast.gate._hook_call import Hook, HookFunction
from holdfast.gate._hook_firing import (
    Consider,
    Fired,
    Firing,
    HookInterrupts,
    HookStatus,
    Outcome,
    Record,
)
from holdfast.gate._hook_observers import Observers, Taken
from holdfast.gate._hook_records import Scribe
from holdfast.gate._hook_rules import check, check_set, invalid
from holdfast.gate._hook_view import HookInput, View, apply, cut, question

__all__ = [
    "Consider",
    "Fired",
    "Hook",
    "HookFunction",
    "HookInput",
    "HookInterrupts",
    "HookStatus",
    "Hooks",
    "Outcome",
    "Record",
    "View",
    "apply",
    "configured",
    "cut",
    "hook",
]

DRAIN_MS = 2_000
"""How long closing waits for what observers have not been told yet."""

_PHASES = tuple(HookPhase)
_NOTHING: Mapping[str, HookResponse] = {}
_Terms = TypeVar("_Terms", bound=HookTerms)


def hook(
    point: HookPoint | str,
    *,
    id: str | None = None,
    rights: Sequence[ResponseClass | str] = (),
    order: int = 100,
    phase: HookPhase | str = HookPhase.NORMAL,
    timeout_ms: int = 250,
    failure: HookFailure | str | None = None,
    blocking: bool | None = None,
    privacy: HookPrivacy | str = HookPrivacy.ENVELOPE_AND_REDACTED_SUMMARY,
    queue: HookQueue | None = None,
    overflow: HookOverflow | str = HookOverflow.DROP_OBSERVE_ONLY,
    policy_ref: str | None = None,
) -> Callable[[HookFunction], Hook]:
    """Make a function a hook: it gets a `HookInput` and answers with one of its methods, or `None` to just look.

    An async function is awaited, any other runs in a thread. Raises `HOOK_INVALID` for rights the point does not
    allow and for everything else that could not be kept.
    """

    def made(function: HookFunction) -> Hook:
        where = getattr(function, "__module__", None) or type(function).__module__
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        terms = _terms(
            HookTerms,
            {
                "id": id or f"{where}.{name}",
                "point": point,
                "rights": rights,
                "order": order,
                "phase": phase,
                "timeout_ms": timeout_ms,
                "failure": failure,
                "blocking": blocking,
                "privacy": privacy,
                "queue": queue or HookQueue(),
                "overflow": overflow,
                "policy_ref": policy_ref,
            },
        )
        spec = terms.lower(HookSource.IN_PROCESS, f"python:{where}:{name}")
        check(spec)
        return Hook(spec, function)

    return made


def configured(configs: Iterable[HookConfig | Mapping[str, Any]]) -> list[Hook]:
    """The hooks of a settings file: each entry of `[[hooks]]`, as a model or as it was read.

    Raises `HOOK_INVALID` for one that could not work: also for a program that is not there.
    """
    found: list[Hook] = []
    for config in configs:
        if not isinstance(config, HookConfig):
            config = _terms(HookConfig, config)
        check(config.spec())
        # Only programs that use these pay for them.
        if config.command is not None:
            from holdfast.gate._hook_command import command_hook

            found.append(command_hook(config))
        else:
            from holdfast.gate._hook_http import http_hook

            found.append(http_hook(config))
    return found


class Hooks:
    """A set of hooks, checked and in order; it never changes. Enter it to have non-blocking ones served."""

    def __init__(
        self,
        hooks: Sequence[Hook] = (),
        *,
        aside: Record | None = None,
        drain_ms: int = DRAIN_MS,
    ) -> None:
        """Raises `HOOK_INVALID` for a set that breaks a rule.

        `aside` appends what becomes known of non-blocking hooks, whose run may be over by then; without it that
        goes to the `record` of the firing, from another task.
        """
        check_set([spec_of(hook) for hook in hooks])
        ordered = sorted(hooks, key=lambda hook: _key(hook.spec))
        points = {hook.spec.point for hook in ordered}
        self._at = {
            point: tuple(hook for hook in ordered if hook.spec.point is point) for point in points
        }
        self._observers = Observers(ordered, aside=aside, drain_ms=drain_ms)
        self.specs: tuple[HookSpec, ...] = tuple(hook.spec for hook in ordered)
        """What is fixed about them, point by point in the order in which they are asked."""
        self.digest: str = digest_json([spec.digest for spec in self.specs])
        """Changes with any of them."""

    async def __aenter__(self) -> Self:
        await self._observers.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._observers.__aexit__(kind, error, trace)

    def any(self, point: HookPoint) -> bool:
        """Whether any hook is asked there."""
        return point in self._at

    def at(self, point: HookPoint) -> tuple[Hook, ...]:
        """The hooks of a point, in order."""
        return self._at.get(point, ())

    def offer(
        self, point: HookPoint, view: View, *, run_id: str, session_id: str, subject: str
    ) -> list[Draft]:
        """Tell the hooks of a point nobody waits at; the records of those whose queue was full and that mind.

        The only way to fire from code that can't wait. Hooks at such a point are never blocking.
        """
        found: list[Draft] = []
        for hook in self._at.get(point, ()):
            scribe = Scribe(hook.spec, run_id, subject, new_id("hook"))
            asked = question(
                hook.spec,
                view,
                session_id=session_id,
                run_id=run_id,
                subject=subject,
                invocation_id=scribe.invocation_id,
            )
            taken = self._observers.offer(hook, asked, scribe, None, terminal=view.terminal)
            if taken is Taken.FAILED:
                found.append(scribe.failed("Its queue was full."))
        return found

    def registered(self, subject: str, *, run_id: str | None = None) -> list[Draft]:
        """The records that say which hooks are in force for the subject, a session or a run."""
        return [Scribe(spec, run_id, subject).registered() for spec in self.specs]

    async def fire(
        self,
        point: HookPoint,
        view: View,
        *,
        run_id: str,
        session_id: str,
        subject: str,
        record: Record,
        consider: Consider | None = None,
        restored: Mapping[str, HookResponse] = _NOTHING,
        cancelled: Callable[[], bool] = lambda: False,
        strict: bool = True,
    ) -> Fired:
        """Ask the hooks of a point about `view`, one after the other, until one refuses.

        An accepted answer is in force, for the next hook and the caller, once `record` has its three records.
        `consider` is the domain's say: it gives the view with the answer in force (`apply` does that) or raises to
        reject it. `restored` has the answers on record, by hook: these hooks are not asked again.

        Raises `PERMISSION_DENIED` or `HOOK_FAILED` when a hook that may not fail open did, and, unless `strict` is
        false, when an answer of such a hook was rejected; `CANCELLED` when one could not be asked any more; and
        whatever `record` raises, with nothing changed.
        """
        hooks = self._at.get(point)
        if hooks is None:
            return Fired(view)
        firing = Firing(
            point=point,
            view=view,
            session_id=session_id,
            run_id=run_id,
            subject=subject,
            record=record,
            consider=consider or apply,
            restored=restored,
            cancelled=cancelled,
            strict=strict,
            observers=self._observers,
        )
        return await firing.go(hooks)


def spec_of(given: object) -> HookSpec:
    """What is fixed about a hook; raises `HOOK_INVALID` for what is none."""
    if isinstance(given, Hook):
        return given.spec
    name = getattr(given, "__name__", None) or repr(given)[:80]
    raise invalid(name, "it is no hook", 'Write `@hook("before_tool_call", …)` above a function.')


def _key(spec: HookSpec) -> tuple[str, int, int, str]:
    ordering = spec.ordering
    return spec.point.value, _PHASES.index(ordering.phase), ordering.order, spec.hook_id


def _terms(model: type[_Terms], said: Mapping[str, Any]) -> _Terms:
    try:
        return model.model_validate(said)
    except ValidationError as why:
        first = why.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        raise invalid(str(said.get("id", "?")), f"`{where}`: {what}" if where else what) from None
