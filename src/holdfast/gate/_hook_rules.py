"""What a hook must be to be taken into a set, and what of its answers counts."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contracts.hook import (
    ALLOWED,
    HookDecision,
    HookFailure,
    HookPoint,
    HookSpec,
    NonBlocking,
)
from holdfast.contracts.hook_response import HookResponse
from holdfast.errors import CallerError


def check_set(specs: Sequence[HookSpec]) -> None:
    """Raise `HOOK_INVALID`, naming the hook and the rule, unless every hook keeps every rule."""
    seen: set[str] = set()
    for spec in specs:
        check(spec)
        if spec.hook_id in seen:
            raise invalid(spec.hook_id, "another hook has the same id", "Ids are unique in a set.")
        seen.add(spec.hook_id)


def check(spec: HookSpec) -> None:
    """Raise `HOOK_INVALID` unless the hook keeps every rule."""
    for why, hint in _broken(spec):
        raise invalid(spec.hook_id, why, hint)


def _broken(spec: HookSpec) -> list[tuple[str, str]]:
    """Every rule it breaks, with a way out."""
    found: list[tuple[str, str]] = []
    point = spec.point.value
    if spec.timeout_ms <= 0:
        found.append(("its `timeout_ms` is not above 0", "A hook always has a deadline."))
    if not spec.policy_ref:
        found.append(("its `policy_ref` is empty", "Name the rule under which it acts."))
    if not spec.executor_ref:
        found.append(("its `executor_ref` is empty", "Say what answers."))
    allowed = ALLOWED[spec.point]
    for right in spec.mutation_rights:
        if right not in allowed:
            may = ", ".join(sorted(f"`{other.value}`" for other in allowed))
            found.append((f"`{right.value}` is not allowed at `{point}`", f"Allowed are {may}."))
    failure = spec.failure.value
    if spec.failure is HookFailure.FAIL_OPEN_OBSERVE_ONLY:
        if spec.security_relevant:
            why = f"it may not fail open: `{point}` is critical, or it may change something"
            found.append((why, "Use `deny`, `interrupt_run` or `fail_run`."))
    elif not spec.blocking:
        # Nobody waits for it, so by the time it fails there is nothing left to stop.
        why = f"it is non-blocking, so `{failure}` could not be kept"
        found.append((why, "Make it blocking, or let it fail open."))
    if spec.blocking and spec.point is HookPoint.ON_MODEL_DELTA:
        why = f"it is blocking, and nobody waits at `{point}`"
        found.append((why, "Leave `blocking` out: what it is told comes from a queue."))
    if isinstance(spec.execution, NonBlocking):
        found += _broken_queue(spec, spec.execution)
    return found


def _broken_queue(spec: HookSpec, execution: NonBlocking) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if spec.changes:
        found.append(("it is non-blocking and not observe-only", "Make it blocking."))
    queue = execution.queue
    if queue.capacity < 1:
        found.append(("its queue has no place", "`capacity` is 1 or more."))
    elif not 0 <= queue.terminal_reserve < queue.capacity:
        why = "its `terminal_reserve` leaves no place for the rest, or is negative"
        found.append((why, "It is less than `capacity`."))
    return found


def judge(spec: HookSpec, response: HookResponse) -> HookDecision | None:
    """How an answer is to be rejected; `None` for one that the point allows and the hook has the right to."""
    if response.response_class not in ALLOWED[spec.point]:
        return HookDecision.REJECTED_POINT_MATRIX
    if response.response_class not in spec.mutation_rights:
        return HookDecision.REJECTED_MUTATION_RIGHT
    return None


def invalid(hook_id: str, why: str, hint: str | None = None) -> CallerError:
    """The refusal of a hook."""
    return CallerError("HOOK_INVALID", f"Hook `{hook_id}`: {why}.", hint=hint)
