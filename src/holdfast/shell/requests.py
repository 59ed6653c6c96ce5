"""What is refused of a request before anything is done about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.contracts import Json, Language, RunRequest, Setup, check_session_id, parse
from holdfast.contracts._base import sure
from holdfast.errors import CallerError
from holdfast.gate.redact import Redactor

MAX_CODE_BYTES = 1 << 20
"""The longest code a run takes."""


def check_request(redactor: Redactor, request: RunRequest) -> None:
    """Refuse what contradicts itself, code that is too long, and code and inputs that hold a live secret."""
    if request.dry_run and request.plan_id is not None:
        raise CallerError(
            "INVALID_ARGUMENT",
            "A dry run makes a plan of its own, and keeps to none.",
            hint="Leave out the plan to try the code, or the dry run to keep to the plan.",
        )
    _check_code(request.code)
    _check_secrets(redactor, request)


UNSAID = (None, None, None, False, False, False, None)
"""What most requests say beside session, language and code."""


def only_code(session: str, language: Language | str, code: str) -> RunRequest | None:
    """The request to run this, as `parse` would give it; `None` for what only that can check."""
    if not (type(session) is str and type(language) is Language):
        return None
    if not (type(code) is str and code.isascii()):
        return None
    check_session_id(session)
    return sure(RunRequest, session_id=session, language=language, code=code, inputs={})


def check_language(known: Collection[Language], language: Language | str) -> Language:
    """The language, if code in it can be run here."""
    for one in known:
        if one == language:
            return one
    raise CallerError(
        "INVALID_ARGUMENT",
        f"Code in {language} can't be run by this holdfast.",
        hint=f"Languages here: {', '.join(one.value for one in known)}.",
    )


def _check_code(code: str) -> None:
    try:
        size = len(code.encode())
    except UnicodeEncodeError:
        raise CallerError("INVALID_ARGUMENT", "The code is not Unicode text.") from None
    if size > MAX_CODE_BYTES:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"The code has {size} bytes; {MAX_CODE_BYTES} are allowed.",
            hint="Hand data in as inputs, and split the code into several runs.",
        )


def _check_secrets(redactor: Redactor, request: RunRequest) -> None:
    """Refuse code and inputs that hold a live secret: they are recorded, and the code could print them."""
    if not redactor.names:
        return
    inputs: Json = {**request.inputs}
    if redactor.text(request.code) != request.code or redactor.json(inputs) != inputs:
        raise CallerError(
            "INVALID_ARGUMENT",
            "The code or an input holds the value of a secret.",
            hint="Secrets do not pass through code: give them to the capability that needs them.",
        )


def given_setup(given: Setup | Mapping[str, Json] | None) -> Setup | None:
    """What a session is to be opened with, in whatever form it was said."""
    return parse(Setup, dict(given)) if isinstance(given, Mapping) else given
