"""What a hook must be: every rule, from code and from a settings file."""

import tomllib
from typing import Any

import pytest
from pydantic import ValidationError
from tests.gate.hooks_support import AFTER, BEFORE

from holdfast.contracts.hook import HookFailure, HookPoint, HookSource, HookSpec
from holdfast.contracts.hook_config import HookConfig
from holdfast.contracts.hook_response import HookResponse, ResponseClass
from holdfast.errors import CallerError
from holdfast.gate.hooks import Hook, HookInput, Hooks, configured, hook


def looks(question: HookInput) -> None:
    """Nothing."""


def refusal(point: HookPoint, **terms: Any) -> str:
    with pytest.raises(CallerError) as refused:
        hook(point, **{"id": "mine", **terms})(looks)
    assert refused.value.code == "HOOK_INVALID"
    assert "`mine`" in refused.value.message
    return refused.value.message


@pytest.mark.parametrize("ms", [0, -1])
def test_timeout_ms_is_above_0(ms: int):
    assert "`timeout_ms` is not above 0" in refusal(AFTER, timeout_ms=ms)


def test_policy_ref_is_not_empty():
    assert "`policy_ref` is empty" in refusal(AFTER, policy_ref="")


def test_rights_are_those_of_the_point():
    said = refusal(AFTER, rights=["deny"])
    assert "`deny` is not allowed at `after_tool_call`" in said


def test_non_blocking_hooks_only_look():
    said = refusal(AFTER, rights=["request_retry"], blocking=False, failure="deny")
    assert "non-blocking" in said
    spec = hook(AFTER, id="mine", rights=["request_retry"])(looks).spec
    made = hook(AFTER, id="other")(looks).spec
    broken = spec.model_copy(
        update={"execution": made.execution, "failure": HookFailure.FAIL_OPEN_OBSERVE_ONLY}
    )
    with pytest.raises(CallerError, match="may not fail open"):
        Hooks([Hook(broken, looks)])


@pytest.mark.parametrize(
    ("point", "rights"), [(BEFORE, ()), (AFTER, ["request_retry"]), (BEFORE, ["deny"])]
)
def test_security_relevant_hooks_do_not_fail_open(point: HookPoint, rights: list[str]):
    said = refusal(point, rights=rights, failure="fail_open_observe_only")
    assert "it may not fail open" in said


@pytest.mark.parametrize("failure", ["deny", "interrupt_run", "fail_run"])
def test_a_hook_nobody_waits_for_can_not_stop_anything(failure: str):
    said = refusal(AFTER, blocking=False, failure=failure)
    assert f"it is non-blocking, so `{failure}` could not be kept" in said
    assert "may not fail open" in refusal(BEFORE, blocking=False)


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ({"capacity": 0, "terminal_reserve": 0}, "no place"),
        ({"capacity": 4, "terminal_reserve": 4}, "leaves no place for the rest"),
        ({"capacity": 4, "terminal_reserve": -1}, "or is negative"),
    ],
)
def test_queues_have_room(queue: dict[str, int], why: str):
    assert why in refusal(AFTER, queue=queue)


def test_executor_ref_is_not_empty():
    made = hook(AFTER, id="mine")(looks)
    spec = made.spec.model_copy(update={"executor_ref": ""})
    with pytest.raises(CallerError, match="`executor_ref` is empty"):
        Hooks([Hook(spec, looks)])


def test_ids_are_unique():
    with pytest.raises(CallerError, match="another hook has the same id"):
        Hooks([hook(AFTER, id="mine")(looks), hook(BEFORE, id="mine")(looks)])


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"rights": ["fly"]}, "`rights.0`"),
        ({"phase": "soon"}, "`phase`"),
        ({"failure": "shrug"}, "`failure`"),
        ({"privacy": "all"}, "`privacy`"),
        ({"overflow": "grow"}, "`overflow`"),
        ({"order": 1 << 31}, "`order`"),
        ({"timeout_ms": "soon"}, "`timeout_ms`"),
    ],
)
def test_words_that_mean_nothing_are_refused(terms: dict[str, Any], why: str):
    assert why in refusal(AFTER, **terms)


def test_a_point_that_is_none_is_refused():
    with pytest.raises(CallerError, match="`point`"):
        hook("after_lunch")(looks)


# --- defaults ---


def test_an_observer_is_served_from_a_queue_and_fails_open():
    spec = hook("after_tool_call")(looks).spec
    assert spec.model_dump(mode="json") == {
        "hook_id": f"{__name__}.looks",
        "point": "after_tool_call",
        "source": "in_process",
        "ordering": {"phase": "normal", "order": 100},
        "execution": {
            "mode": "non_blocking",
            "queue": {"capacity": 64, "terminal_reserve": 4},
            "overflow": "drop_observe_only",
        },
        "timeout_ms": 250,
        "failure": "fail_open_observe_only",
        "mutation_rights": ["observe"],
        "privacy": "envelope_and_redacted_summary",
        "policy_ref": f"hook.{__name__}.looks",
        "executor_ref": f"python:{__name__}:looks",
    }


@pytest.mark.parametrize(("point", "rights"), [(AFTER, ["request_retry"]), (BEFORE, [])])
def test_a_security_relevant_hook_blocks_and_fails_closed(point: HookPoint, rights: list[str]):
    spec = hook(point, rights=rights)(looks).spec
    assert spec.blocking
    assert spec.security_relevant
    assert spec.failure is HookFailure.INTERRUPT_RUN
    assert spec.mutation_rights[0] is ResponseClass.OBSERVE


def test_a_decorated_function_can_still_be_called():
    @hook(BEFORE, rights=["deny"])
    def never(question: HookInput) -> HookResponse:
        return question.deny("never", "Never.")

    spec = never.spec
    question = HookInput(
        hook_id=spec.hook_id,
        point=spec.point,
        session_id="s",
        run_id="r",
        subject="e",
        invocation_id="i",
        policy_ref=spec.policy_ref,
        privacy=spec.privacy,
        summary="",
    )
    assert never(question).response_class is ResponseClass.DENY


def test_an_object_with_a_name_of_its_class_can_be_a_hook():
    class Looks:
        async def __call__(self, question: HookInput) -> None: ...

    made = hook(AFTER)(Looks())
    assert made.spec.executor_ref.endswith("Looks")
    assert made.asynchronous


# --- digests ---


CHANGES: dict[str, Any] = {
    "hook_id": "other",
    "point": "before_approval_request",
    "source": "extension",
    "ordering": {"phase": "early"},
    "execution": {"mode": "non_blocking"},
    "timeout_ms": 1,
    "failure": "deny",
    "mutation_rights": [],
    "privacy": "content_refs_only",
    "policy_ref": "other",
    "executor_ref": "other",
}


@pytest.mark.parametrize("field", HookSpec.model_fields)
def test_any_change_changes_the_digest(field: str):
    spec = hook(BEFORE, id="mine", rights=["deny"])(looks).spec
    said = spec.model_dump(mode="json")
    other = HookSpec.model_validate({**said, field: CHANGES[field]})
    assert other.digest != spec.digest
    assert HookSpec.model_validate(said).digest == spec.digest


def test_the_order_of_rights_does_not_matter():
    one = hook(BEFORE, id="mine", rights=["deny", "request_approval"])(looks)
    two = hook(BEFORE, id="mine", rights=["request_approval", "observe", "deny"])(looks)
    assert one.spec == two.spec
    assert Hooks([one]).digest == Hooks([two]).digest
    assert Hooks([one]).digest != Hooks([]).digest


# --- from a settings file ---

SETTINGS = """
[[hooks]]
id = "no-prod"
point = "before_tool_call"
rights = ["deny"]
command = ["true"]
phase = "early"
order = 7
timeout_ms = 2000
failure = "deny"
privacy = "content_capture_allowed"
"""


def test_a_configured_hook_has_the_same_spec():
    (said,) = tomllib.loads(SETTINGS)["hooks"]
    (made,) = configured([said])
    code = hook(
        BEFORE,
        id="no-prod",
        rights=["deny"],
        phase="early",
        order=7,
        timeout_ms=2000,
        failure="deny",
        privacy="content_capture_allowed",
    )(looks)
    same = code.spec.model_copy(
        update={"source": HookSource.HOST_CONFIG, "executor_ref": made.spec.executor_ref}
    )
    assert made.spec == same
    assert configured([HookConfig.model_validate(said)])[0].spec == same


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"command": None}, "either a `command` or a `url`"),
        ({"url": "https://example.com"}, "either a `command` or a `url`"),
        ({"command": []}, "names no program"),
        ({"command": [""]}, "names no program"),
        ({"command": ["holdfast-no-such-program"]}, "`holdfast-no-such-program` is not there"),
        ({"command": None, "url": "ftp://example.com"}, "`url` is not `https"),
        ({"command": None, "url": "http://["}, "Invalid IPv6 URL"),
        ({"command": None, "url": "http://example.com"}, "plain HTTP"),
        ({"rights": ["stop_run"]}, "`stop_run` is not allowed"),
        ({"failure": "fail_open_observe_only"}, "may not fail open"),
        ({"surprise": 1}, "`surprise`"),
    ],
)
def test_a_configured_hook_that_could_not_work_is_refused(change: dict[str, Any], why: str):
    (said,) = tomllib.loads(SETTINGS)["hooks"]
    with pytest.raises(CallerError) as refused:
        configured([{**said, **change}])
    assert refused.value.code == "HOOK_INVALID"
    assert "`no-prod`" in refused.value.message
    assert why in refused.value.message


def test_what_answers_is_named_without_secrets():
    config = HookConfig(id="x", point=BEFORE, url="https://u:pw@example.com:99/ask?key=s3cret")
    assert config.executor_ref.startswith("url:https://example.com/ask#")
    other = config.model_copy(update={"url": "https://u:pw@example.com:99/ask?key=other"})
    assert other.executor_ref != config.executor_ref
    command = HookConfig(id="x", point=BEFORE, command=("check", "--token=s3cret"))
    assert command.executor_ref.startswith("command:check#")


@pytest.mark.parametrize(
    "said",
    [
        {"type": "observe"},
        {"type": "fly"},
        {"type": "deny"},
        {"type": "observe_only", "payload": {"summary": ""}},
        {"type": "deny", "payload": {"code": "not a token!", "summary": ""}},
        {"type": "modify_approval_request", "payload": {"summary": "", "timeout_ms": 0}},
        {"type": "request_retry", "payload": {"summary": "", "more": 1}},
        {"type": "mark_protected_context", "payload": [{"summary": "", "text": ""}]},
    ],
)
def test_what_is_no_response_is_refused(said: dict[str, Any]):
    with pytest.raises(ValidationError):
        HookResponse.model_validate(said)
