"""What a client library raises, as the one typed failure it means.

`pydantic-ai` has sorted most of it by then: by status, by the provider's own error code, and, where a provider sends no
code for it (Anthropic, Gemini and some OpenAI-compatible servers for a prompt that is too long), by its wording. That
last resort is theirs; here nothing is decided by text.
"""

from __future__ import annotations

import json
from typing import Any, cast

import httpx2
from pydantic_ai import exceptions as theirs

from holdfast.contracts.model import ModelAnswer
from holdfast.errors import ModelFailure

_LONGEST = 300

_FILTERED = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})
"""Error codes with which a provider says that it won't answer this."""

_TIMEOUTS = frozenset({408, 504})
_TOO_LARGE = 413

_BY_KIND: tuple[tuple[type[Exception], str], ...] = (
    (theirs.ContentFilterError, "MODEL_CONTENT_FILTERED"),
    (theirs.ModelRequestTimeout, "MODEL_TIMEOUT"),
    (theirs.ModelTimeoutError, "MODEL_TIMEOUT"),
    (theirs.ModelRateLimitError, "MODEL_RATE_LIMITED"),
    # Waiting does not help, but somebody with the account can.
    (theirs.ModelQuotaExceededError, "MODEL_AUTH"),
    (theirs.ModelUnavailableError, "MODEL_OVERLOADED"),
    (theirs.ModelServerError, "MODEL_OVERLOADED"),
    (theirs.ModelContextWindowExceededError, "MODEL_CONTEXT_EXCEEDED"),
    (theirs.ModelAuthenticationError, "MODEL_AUTH"),
    (theirs.ModelNotFoundError, "MODEL_UNKNOWN"),
    (theirs.ModelRequestRejectedError, "MODEL_INVALID_REQUEST"),
    (theirs.UserError, "MODEL_INVALID_REQUEST"),
    # An answer that can't be read, as a whole or from some place on.
    (theirs.UnexpectedModelBehavior, "MODEL_STREAM_CUT"),
    (json.JSONDecodeError, "MODEL_STREAM_CUT"),
    (UnicodeDecodeError, "MODEL_STREAM_CUT"),
    (httpx2.TimeoutException, "MODEL_TIMEOUT"),
    (httpx2.TransportError, "MODEL_STREAM_CUT"),
    (httpx2.StreamError, "MODEL_STREAM_CUT"),
)

_HINTS: dict[str, str] = {
    "MODEL_AUTH": "Check the API key and what it may be used for.",
    "MODEL_UNKNOWN": "Check the model's name, and the base URL if you gave one.",
    "MODEL_CONTEXT_EXCEEDED": "Make the conversation shorter, or take a model with more room.",
    "MODEL_CONTENT_FILTERED": "Ask for something else, or ask another model.",
    "MODEL_STREAM_CUT": "Ask again; what came so far is kept.",
}


def failure(why: Exception, model: str, partial: ModelAnswer | None = None) -> ModelFailure:
    """The typed failure; `partial` is what the answer was until then."""
    if isinstance(why, ModelFailure):
        return why
    code = _code(why)
    status = why.status_code if isinstance(why, theirs.ModelHTTPError) else None
    return ModelFailure(
        code,
        f"`{model}`{_answered(status)}: {_said(why)}.",
        hint=_hint(why, code),
        retry_after_ms=_retry_after(why),
        partial=partial,
    )


def timed_out(
    model: str, timeout_ms: int | None, partial: ModelAnswer | None = None
) -> ModelFailure:
    """The failure of a call that took longer than it may."""
    return ModelFailure(
        "MODEL_TIMEOUT", f"`{model}` did not answer within {timeout_ms} ms.", partial=partial
    )


def broke_off(model: str, partial: ModelAnswer | None) -> ModelFailure:
    """The failure of an answer that ended without saying that it is the end."""
    return ModelFailure(
        "MODEL_STREAM_CUT",
        f"`{model}` stopped in the middle of its answer.",
        hint=_HINTS["MODEL_STREAM_CUT"],
        partial=partial,
    )


def filtered(model: str, refusal: object, partial: ModelAnswer) -> ModelFailure:
    """The failure of an answer that the provider, or the model itself, withheld."""
    said = f": {_cut(refusal)}" if isinstance(refusal, str) and refusal else ""
    return ModelFailure(
        "MODEL_CONTENT_FILTERED",
        f"`{model}` won't answer this{said}.",
        hint=_HINTS["MODEL_CONTENT_FILTERED"],
        partial=partial if partial.parts else None,
    )


def _code(why: Exception) -> str:
    if isinstance(why, theirs.ModelAPIError):
        if _FILTERED & {why.provider_error_code, why.provider_error_type}:
            return "MODEL_CONTENT_FILTERED"
        if isinstance(why, theirs.ModelHTTPError):
            if why.status_code in _TIMEOUTS:
                return "MODEL_TIMEOUT"
            if why.status_code == _TOO_LARGE:
                return "MODEL_CONTEXT_EXCEEDED"
    for kind, code in _BY_KIND:
        if isinstance(why, kind):
            return code
    if isinstance(why, theirs.ModelConnectionError):
        # Before anything was sent it is the provider that is not there; afterwards, its answer that is lost.
        unsent = why.phase in ("connect", "pool")
        return "MODEL_OVERLOADED" if unsent else "MODEL_STREAM_CUT"
    if isinstance(why, theirs.ModelHTTPError):
        return "MODEL_INVALID_REQUEST" if why.status_code < 500 else "MODEL_OVERLOADED"
    if isinstance(why, theirs.ModelAPIError):
        return "MODEL_OVERLOADED" if why.in_stream else "MODEL_STREAM_CUT"
    # Client libraries trip over an answer of another shape in ways of their own.
    return "MODEL_STREAM_CUT"


def _retry_after(why: Exception) -> int | None:
    seconds = getattr(why, "retry_after", None)
    return None if seconds is None else max(0, round(float(seconds) * 1_000))


def _hint(why: Exception, code: str) -> str | None:
    if isinstance(why, theirs.ModelQuotaExceededError):
        return "The account has no credit or quota left; waiting does not help."
    if isinstance(why, theirs.ModelConnectionError) and code == "MODEL_OVERLOADED":
        return "Check that the provider can be reached from here, and the base URL if you gave one."
    if isinstance(why, theirs.ModelHTTPError) and why.suggested_model_id is not None:
        return f"Did you mean `{why.suggested_model_id}`?"
    return _HINTS.get(code)


def _answered(status: int | None) -> str:
    return "" if status is None else f" answered {status}"


def _said(why: Exception) -> str:
    """What the provider said, without the envelope."""
    body = getattr(why, "body", None)
    if isinstance(body, dict):
        error: Any = cast("dict[str, Any]", body).get("error", body)
        if isinstance(error, dict):
            error = cast("dict[str, Any]", error).get("message")
        if isinstance(error, str) and error:
            return _cut(error)
    if isinstance(why, theirs.ModelHTTPError):
        return _cut(body) if isinstance(body, str) and body else "it gives no reason"
    return _cut(str(why) or type(why).__name__)


def _cut(text: object) -> str:
    whole = " ".join(str(text).split())
    return (whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST - 1]}…").rstrip(".")
