"""Why a call is not made, or did not work, in words for the agent that wrote the code."""

from __future__ import annotations

from holdfast.contracts import ApprovalRequest, ErrorObject
from holdfast.errors import HoldfastError, ModelError, PersonError
from holdfast.gate.broker import Settled
from holdfast.gate.policy import Ruling
from holdfast.gate.redact import Redactor

MAX_TEXT = 4000
"""Characters of an error that are kept."""

# Exceptions of capabilities that the code sees as they are; any other becomes a `RuntimeError`.
_PASSED = frozenset(
    (
        "ArithmeticError",
        "FileExistsError",
        "FileNotFoundError",
        "IndexError",
        "IsADirectoryError",
        "KeyError",
        "LookupError",
        "NotADirectoryError",
        "NotImplementedError",
        "OSError",
        "PermissionError",
        "RuntimeError",
        "TimeoutError",
        "TypeError",
        "UnicodeDecodeError",
        "ValueError",
        "ZeroDivisionError",
    )
)

_WHY = {
    "approval.denied": "it was denied",
    "approval.command_failed": "the program that was to decide failed",
    "approval.dispatcher_error": "whoever was to decide could not be asked",
    "approval.unavailable": "whoever was to decide could not be asked",
    "approval.no_answer": "there was no answer",
    "approval.invalid_answer": "the answer could not be understood",
    "approval.timeout": "nobody answered in time",
    "approval.cancelled": "the question was withdrawn",
    "missing.approval_dispatcher": "there is nobody to ask",
    "approval.decision_not_allowed": "the answer was not one that was offered",
    "approval.extension_self_response": "who asked can't answer",
}


class Refused(Exception):
    """A call that is not made; `error` is for the code, which sees it as an exception of type `kind`."""

    def __init__(
        self,
        error: HoldfastError,
        *,
        kind: str | None = None,
        rules: tuple[str, ...] = (),
        void: str = "approval.void",
    ) -> None:
        super().__init__(error.code)
        self.error = error
        self.kind = kind
        self.rules = rules
        """The rules that had a say, as far as it came to that."""
        self.void = void
        """Why an approval that was asked for is of no use any more."""


def denied(name: str, ruling: Ruling, *, settled: Settled | None = None) -> ModelError:
    """The refusal by a rule, or by a person."""
    if settled is None:
        return ModelError(
            "PERMISSION_DENIED",
            f"`{name}` may not be called like this: {ruling.reason} (rule `{ruling.rule_id}`).",
            hint="current_policy() tells what is allowed. Do it another way, or go without.",
        )
    said, code = settled.decision, settled.reason_code
    words = said.reason if said is not None else None
    if not words:
        words = _WHY.get(code, "there was no answer" if said is None else "it was denied")
    return ModelError(
        "PERMISSION_DENIED",
        f"`{name}` was not approved: {words} ({code}).",
        hint="Do not ask for the same again; do it another way, or go without.",
    )


def hook_denied(name: str, hook_id: str, code: str, summary: str) -> ModelError:
    """The refusal by a hook."""
    return ModelError(
        "PERMISSION_DENIED",
        f"`{name}` may not be called like this: {summary or code} (hook `{hook_id}`, {code}).",
        hint="Do it another way, or go without.",
    )


def try_again(name: str, summary: str) -> ErrorObject:
    """What the code is told when a hook is not content with a result. The result stays on record."""
    return ErrorObject(
        code="TOOL_ERROR",
        message=f"`{name}` should be called again: {summary or 'a hook asks for it'}.",
        hint="Call it again, with other arguments if they were the reason.",
    )


def withheld(name: str, why: str) -> ErrorObject:
    """What the code is told when a hook that may not fail did, after the call. The result stays on record."""
    return ErrorObject(
        code="PERMISSION_DENIED",
        message=f"`{name}` was called, and its result is withheld. {why}",
        hint="Do not call it again to get the result: what it did is done. Whoever runs this holdfast can see it.",
    )


def not_as_promised(why: HoldfastError) -> ErrorObject:
    """What the code is told when a person has said that a call gave what it can't give. Their word stays on record."""
    return ErrorObject(
        code=why.code,
        message=f"A person says that it happened, and what it gave can't be that. {why.message}",
        hint="Do not call it again to get the result: what it did is done. Whoever runs this holdfast can look.",
    )


def unknown_tool(name: str) -> ModelError:
    """The refusal of a name that is no capability of the session."""
    return ModelError(
        "PERMISSION_DENIED",
        f"There is no capability `{name[:80]}` in this session (rule `default.unknown`).",
        hint="list_tools() names those there are.",
    )


def not_in_plan(name: str) -> ModelError:
    """The refusal of a call that the approved plan does not have."""
    return ModelError(
        "PERMISSION_DENIED",
        f"`{name}` with these arguments is not in the approved plan, or was made already.",
        hint="Make only the calls of the plan; a new dry run makes a new plan.",
    )


def changed(name: str) -> ModelError:
    """The refusal of an approval for a capability that is not what it was."""
    return ModelError(
        "PERMISSION_DENIED",
        f"`{name}` has changed since it was approved (approval.capability_changed).",
        hint="Call it again: the new form has to be approved.",
    )


def grant_ended(name: str) -> ModelError:
    """The refusal of a call whose grant has ended before it had its turn."""
    return ModelError(
        "PERMISSION_DENIED",
        f"`{name}` was not called: the consent to it was revoked, or expired, before it had its turn"
        " (approval.grant_ended).",
        hint="Call it again: a person is asked then.",
    )


def holds_secret(name: str) -> ModelError:
    """The refusal of arguments that hold the value of a secret."""
    return ModelError(
        "PERMISSION_DENIED",
        f"An argument of `{name}` holds the value of a secret.",
        hint="Secrets do not pass through code: capabilities have them in their configuration.",
    )


def timed_out(name: str, timeout_ms: int) -> ModelError:
    """The end of a call that took too long."""
    return ModelError(
        "TIMEOUT_TOOL",
        f"`{name}` took longer than {timeout_ms} ms.",
        hint="Ask it for less at a time, or try again later.",
    )


def cancelled(name: str) -> ModelError:
    """The end of a call whose run was cancelled."""
    return ModelError("CANCELLED", f"`{name}` was cancelled together with its run.")


def asks_nobody(name: str) -> ModelError:
    """The end of a call of a dry run that needs to know something from a person."""
    return ModelError(
        "TOOL_ERROR",
        f"`{name}` has a question for a person, and a dry run asks nobody.",
        hint="Run the code without `dry_run`.",
    )


def not_signed_in(request: ApprovalRequest) -> PersonError:
    """The end of a call for which nobody signed in."""
    where = f" at {request.url}" if request.url else ""
    return PersonError(
        "SIGN_IN_REQUIRED",
        f"`{request.tool}` needs somebody to sign in, and nobody did.",
        hint=f"Sign in{where}, then call it again.",
    )


def redacted(redactor: Redactor, error: ErrorObject) -> ErrorObject:
    """The error without any secret in it, and no longer than a record has room for."""
    clean = ErrorObject.model_validate(redactor.json(error.model_dump(mode="json")))
    message, hint = _cut(clean.message), clean.hint and _cut(clean.hint)
    if message is clean.message and hint is clean.hint:
        return clean
    return clean.model_copy(update={"message": message, "hint": hint})


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def failure_of(name: str, why: Exception) -> tuple[ErrorObject, str | None]:
    """The error of a capability that raised, and the exception the code sees."""
    if isinstance(why, HoldfastError):
        return ErrorObject.of(why), None
    kind = type(why).__name__
    text = str(why.args[0]) if isinstance(why, KeyError) and why.args else str(why)
    if kind in _PASSED and type(why).__module__ == "builtins":
        return ErrorObject(code="TOOL_ERROR", message=text or f"{name} failed: {kind}"), kind
    return ErrorObject(code="TOOL_ERROR", message=f"{kind}: {text}" if text else kind), None
