"""Who is asked, in which order, what counts, and what is on record before it does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gate.hooks_support import AFTER, BEFORE, Recorder, answers, fire, hook, response

from holdfast.contracts import Risk, SideEffect, canonical_json, digest
from holdfast.contracts.hook import (
    ALLOWED,
    SECURITY_CRITICAL,
    HookPhase,
    HookPoint,
    HookPrivacy,
)
from holdfast.contracts.hook_response import MAX_SUMMARY, HookResponse, ResponseClass
from holdfast.errors import CallerError, HoldfastError, JournalError
from holdfast.gate.hooks import Hook, HookInput, Hooks, HookStatus, View, apply, cut
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing._drafts import created, started

WAITED = [point for point in HookPoint if point is not HookPoint.ON_MODEL_DELTA]
"""The points at which somebody waits for an answer."""
MATRIX = [(point, class_) for point in WAITED for class_ in ResponseClass]
TABLE = """\
run_starting inject_context stop_run
before_context_assembly inject_context
after_context_assembly request_compaction stop_run
before_provider_projection modify_projection stop_run
before_model_call modify_projection request_approval stop_run
on_model_delta
after_model_call request_retry stop_run
before_structured_output_validation modify_validation_hints
after_structured_output_validation request_retry
before_tool_call deny modify_tool_request request_approval
after_tool_call request_retry rewrite_tool_result
before_approval_request modify_approval_request deny
after_approval_decision
before_subagent_start deny modify_subagent_request
after_subagent_terminal request_usage_rollup_repair
before_isolation_process_start deny modify_process_request
after_isolation_process_exit request_cleanup_repair
on_run_cancel_requested request_cleanup_repair
before_run_complete request_retry validate_detach stop_completion_with_repair_needed
after_run_terminal
before_compaction mark_protected_context
after_compaction request_projection_audit_repair
"""
CHANGING = [pair for pair in MATRIX if pair[1] is not ResponseClass.OBSERVE]


def test_there_are_22_points_and_20_classes():
    assert len(HookPoint) == 22
    assert len(ResponseClass) == 20
    assert set(ALLOWED) == set(HookPoint)
    assert len(SECURITY_CRITICAL) == 5
    assert all(ResponseClass.OBSERVE in classes for classes in ALLOWED.values())
    assert {(p.value, c.value) for p, c in CHANGING if c in ALLOWED[p]} == {
        (line.split()[0], class_) for line in TABLE.splitlines() for class_ in line.split()[1:]
    }


# --- the matrix ---


@pytest.mark.parametrize(("point", "class_"), CHANGING)
async def test_matrix_with_the_right(point: HookPoint, class_: ResponseClass):
    record = Recorder()
    if class_ not in ALLOWED[point]:
        with pytest.raises(CallerError, match="is not allowed at") as refused:
            answers(class_, point)
        assert refused.value.code == "HOOK_INVALID"
        # It answers so all the same; its rights are those of the point.
        rights = [right for right in ALLOWED[point] if right is not ResponseClass.OBSERVE]
        liar = answers(class_, point, rights=rights, blocking=True)
        fired = await fire([liar], point, record=record, strict=False)
        assert fired.outcomes[0].status is HookStatus.REJECTED_POINT_MATRIX
        assert record.events == ["rejected_point_matrix"]
        assert fired.first(class_) is None
    else:
        fired = await fire([answers(class_, point)], point, record=record)
        assert fired.outcomes[0].status is HookStatus.APPLIED
        assert [[draft.kind for draft in batch] for batch in record.batches] == [
            ["hook", "effect_intent", "effect_result"]
        ]
        assert record.events == ["accepted_journaled_before_apply"]


@pytest.mark.parametrize(("point", "class_"), CHANGING)
async def test_matrix_without_the_right(point: HookPoint, class_: ResponseClass):
    record = Recorder()
    observer = answers(class_, point, rights=(), blocking=True)
    before = View("a call", arguments={"to": "you"})
    fired = await fire([observer], point, before, record=record, strict=False)
    allowed = class_ in ALLOWED[point]
    expected = "rejected_mutation_right" if allowed else "rejected_point_matrix"
    assert record.events == [expected]
    assert fired.outcomes[0].status.value == expected
    assert fired.view is before
    assert (fired.denied, fired.wants_approval, fired.wants_retry) == (None, None, None)


@pytest.mark.parametrize("point", WAITED)
async def test_looking_is_allowed_everywhere_and_leaves_no_record(point: HookPoint):
    record = Recorder()
    looks = answers(ResponseClass.OBSERVE, point, blocking=True)
    fired = await fire([looks], point, record=record)
    assert fired.outcomes[0].status is HookStatus.COMPLETED
    assert record.batches == []


async def test_without_hooks_nothing_happens():
    view = View("a call")
    hooks = Hooks([answers(ResponseClass.DENY, BEFORE)])
    assert not hooks.any(AFTER)
    assert hooks.any(BEFORE)
    fired = await fire(hooks, AFTER, view)
    assert fired.view is view
    assert fired.outcomes == ()
    assert fired.denied is fired.denied_by is None


# --- order ---


@given(
    st.lists(
        st.tuples(
            st.sampled_from(HookPhase),
            st.integers(-3, 3),
            st.text("abc", min_size=1, max_size=3),
        ),
        max_size=8,
        unique_by=lambda one: one[2],
    )
)
def test_order_is_phase_then_order_then_id(terms: list[tuple[HookPhase, int, str]]):
    made = [
        answers(ResponseClass.DENY, BEFORE, id=id_, phase=phase, order=order)
        for phase, order, id_ in terms
    ]
    phases = list(HookPhase)
    expected = sorted(terms, key=lambda one: (phases.index(one[0]), one[1], one[2]))
    hooks = Hooks(made)
    assert [found.spec.hook_id for found in hooks.at(BEFORE)] == [id_ for _, _, id_ in expected]
    assert hooks.digest == Hooks(made[::-1]).digest


async def test_hooks_are_asked_in_their_order():
    asked: list[str] = []
    terms = [("late", -100, "d"), ("normal", 0, "c"), ("early", 0, "b"), ("early", 0, "a")]
    hooks = [
        answers(
            ResponseClass.OBSERVE,
            AFTER,
            asked=asked,
            id=id_,
            phase=phase,
            order=order,
            blocking=True,
        )
        for phase, order, id_ in terms
    ]
    fired = await fire(hooks, AFTER)
    assert asked == ["a", "b", "c", "d"]
    assert [outcome.hook_id for outcome in fired.outcomes] == asked
    ids = [outcome.invocation_id for outcome in fired.outcomes]
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("point", "class_"),
    [
        (BEFORE, ResponseClass.DENY),
        (HookPoint.BEFORE_MODEL_CALL, ResponseClass.STOP_RUN),
        (HookPoint.BEFORE_RUN_COMPLETE, ResponseClass.STOP_COMPLETION_WITH_REPAIR_NEEDED),
    ],
)
async def test_after_a_refusal_nobody_is_asked(point: HookPoint, class_: ResponseClass):
    asked: list[str] = []
    fired = await fire(
        [
            answers(class_, point, asked=asked, id="first"),
            answers(class_, point, asked=asked, id="second"),
        ],
        point,
    )
    assert asked == ["first"]
    assert len(fired.outcomes) == 1
    assert fired.denied == response(class_)
    assert fired.denied_by == "first"


# --- what an answer makes of the view ---


async def test_each_hook_sees_what_the_ones_before_made():
    seen: list[Any] = []

    def add(key: str) -> Hook:
        @hook(
            BEFORE,
            id=key,
            rights=["modify_tool_request"],
            privacy=HookPrivacy.CONTENT_CAPTURE_ALLOWED,
        )
        def more(question: HookInput) -> HookResponse:
            seen.append(question.arguments)
            return question.modify({**(question.arguments or {}), key: 1})

        return more

    fired = await fire([add("a"), add("b")], BEFORE, View("a call", arguments={"x": 0}))
    assert seen == [{"x": 0}, {"x": 0, "a": 1}]
    assert fired.view.arguments == {"x": 0, "a": 1, "b": 1}


Make = Callable[[HookInput], HookResponse]


@pytest.mark.parametrize(
    ("make", "changed"),
    [
        (lambda q: q.modify({"to": "me"}, "other"), {"arguments": {"to": "me"}}),
        (lambda q: q.rewrite(None), {"result": None}),
        (lambda q: q.rewrite([1]), {"result": [1]}),
        (lambda q: q.ask("sure?", risk=Risk.HIGH), {"risk": Risk.HIGH}),
        (lambda q: q.ask("sure?"), {}),
        (lambda q: q.project([{"role": "user"}]), {"messages": ({"role": "user"},)}),
        (lambda q: q.protect("a", "b"), {"protected": ("a", "b")}),
        (
            lambda q: q.modify_approval(risk=Risk.CRITICAL, timeout_ms=5, message="Hm?"),
            {"risk": Risk.CRITICAL, "timeout_ms": 5, "message": "Hm?"},
        ),
        (lambda q: q.modify_approval("nothing"), {}),
        (lambda q: q.retry(), {}),
        (lambda q: q.stop_run("why", "because"), {}),
        (lambda q: q.repair_needed("why", "because"), {}),
        (lambda q: q.deny("why", "because"), {}),
        (lambda q: q.request("request_compaction", "full"), {}),
    ],
)
async def test_answers_change_the_view(make: Make, changed: dict[str, Any]):
    view = View("a call", result="old", risk=Risk.MEDIUM, message="?", arguments={})
    answer = make(question_of(answers(ResponseClass.DENY, BEFORE)))
    assert apply(view, answer) == replace(view, **changed)


def question_of(made: Hook, **fields: Any) -> HookInput:
    spec = made.spec
    return HookInput(
        hook_id=spec.hook_id,
        point=spec.point,
        session_id="s",
        run_id="r",
        subject="e",
        invocation_id="i",
        policy_ref=spec.policy_ref,
        privacy=spec.privacy,
        summary="a call",
        **fields,
    )


async def test_injected_texts_add_up_to_four():
    point = HookPoint.BEFORE_CONTEXT_ASSEMBLY

    def inject(count: int, id: str) -> Hook:
        @hook(point, id=id, rights=["inject_context"])
        async def more(question: HookInput) -> HookResponse:
            return question.inject(*[f"{question.hook_id}{i}" for i in range(count)])

        return more

    record = Recorder()
    hooks = [inject(3, "a"), inject(2, "b"), inject(1, "c")]
    fired = await fire(hooks, point, record=record, strict=False)
    assert [item.text for item in fired.view.context] == ["a0", "a1", "a2", "c0"]
    assert fired.outcomes[1].status is HookStatus.REJECTED_POLICY
    assert record.said[1]["payload"]["reason"] == "HOOK_INVALID"
    with pytest.raises(HoldfastError, match="more than 4 items"):
        await fire(hooks, point)


async def test_no_hook_lowers_the_risk():
    @hook(BEFORE, rights=["request_approval"], failure="deny")
    async def calm(question: HookInput) -> HookResponse:
        return question.ask("it is nothing", risk=Risk.LOW)

    record = Recorder()
    with pytest.raises(HoldfastError, match="lower the risk") as refused:
        await fire([calm], view=View("a call", risk=Risk.HIGH), record=record)
    assert refused.value.code == "PERMISSION_DENIED"
    assert record.events == ["rejected_policy"]
    fired = await fire([calm], view=View("a call"))
    assert fired.view.risk is Risk.LOW
    assert fired.wants_approval is not None


@pytest.mark.parametrize("length", [MAX_SUMMARY, MAX_SUMMARY + 1])
async def test_a_longer_summary_than_2048_is_rejected(length: int):
    @hook(AFTER, rights=["request_retry"])
    async def wordy(question: HookInput) -> dict[str, Any]:
        return {"type": "request_retry", "payload": {"summary": "x" * length}}

    fired = await fire([wordy], AFTER, strict=False)
    assert (fired.wants_retry is not None) == (length == MAX_SUMMARY)


def test_summaries_are_cut_with_a_remark_inside_the_limit():
    assert cut("x" * 2048) == "x" * 2048
    short = cut("x" * 5000)
    assert len(short) == 2048
    assert short.endswith("x [truncated; original_chars=5000; limit=2048]")


# --- what a hook sees ---


@pytest.mark.parametrize("privacy", HookPrivacy)
async def test_privacy_is_enforced(privacy: HookPrivacy):
    seen: list[HookInput] = []

    @hook(BEFORE, privacy=privacy)
    def looks(question: HookInput) -> None:
        seen.append(question)

    view = View(
        "s" * 3000,
        effect_id="eff_1",
        tool="send",
        side_effect=SideEffect.WRITE,
        arguments={"secret": 1},
        result="secret",
        messages=[{"secret": 1}],
        refs=("d" * 64,),
    )
    await fire([looks], BEFORE, view)
    (question,) = seen
    assert (question.tool, question.side_effect) == ("send", SideEffect.WRITE)
    assert (question.session_id, question.run_id, question.effect_id) == ("s", "run_1", "eff_1")
    assert len(question.summary) == 2048
    content = privacy is HookPrivacy.CONTENT_CAPTURE_ALLOWED
    assert ("secret" in question.model_dump_json()) == content
    envelope = privacy is HookPrivacy.ENVELOPE_AND_REDACTED_SUMMARY
    assert question.refs == (() if envelope else ("d" * 64,))


async def test_what_a_hook_does_to_its_question_changes_nothing():
    inner: dict[str, Any] = {"cents": 1}
    messages: list[dict[str, Any]] = [{"parts": ["a"]}]

    @hook(BEFORE, privacy="content_capture_allowed")
    def meddles(question: HookInput) -> None:
        arguments: Any = question.arguments
        arguments["invoice"]["cents"] = 2
        shown: Any = question.messages
        shown[0]["parts"].append("b")
        result: Any = question.result
        result.append(2)

    view = View("a call", arguments={"invoice": inner}, messages=messages, result=[1])
    fired = await fire([meddles], BEFORE, view)
    assert fired.outcomes[0].status is HookStatus.COMPLETED
    assert inner == {"cents": 1}
    assert messages == [{"parts": ["a"]}]
    assert fired.view.result == [1]


async def test_an_answer_can_not_be_changed_once_given():
    given: list[HookResponse] = []

    @hook(BEFORE, rights=["modify_tool_request"])
    async def changes(question: HookInput) -> HookResponse:
        given.append(question.modify({"to": ["a"]}))
        return given[0]

    def consider(view: View, answer: HookResponse) -> View:
        payload: Any = given[0].payload
        payload.arguments["to"].append("b")
        return apply(view, answer)

    record = Recorder()
    fired = await fire([changes], record=record, consider=consider)
    assert fired.view.arguments == {"to": ["a"]}


# --- on record before it is in force ---


async def test_the_triple_is_one_append_before_the_answer_is_in_force():
    asked: list[str] = []
    events: list[str] = []

    class Watching(Recorder):
        async def __call__(self, drafts: list[Any]) -> None:
            events.append(f"record {len(drafts)}")
            await super().__call__(drafts)

    @hook(BEFORE, id="b", privacy="content_capture_allowed", failure="deny")
    async def looks(question: HookInput) -> None:
        events.append(f"b sees {question.arguments}")

    changes = answers(ResponseClass.MODIFY_TOOL_REQUEST, BEFORE, id="a", asked=asked)
    record = Watching()
    fired = await fire([changes, looks], record=record)
    assert events == ["record 3", "b sees {'to': 'me'}"]
    decided, intent, result = record.batches[0]
    effect = intent.payload["effect_id"]
    assert decided.payload["subject"] == "eff_1"
    assert decided.payload["payload"] == {
        "type": "response_decision",
        "invocation_id": fired.outcomes[0].invocation_id,
        "decision": "accepted_journaled_before_apply",
        "response_class": "modify_tool_request",
        "mutation_right_decision": "checked_against_point_and_spec_rights",
        "target_domain_refs": [effect],
    }
    assert (intent.payload["kind"], intent.payload["name"]) == ("hook_mutation", "a")
    assert intent.payload["policy_refs"] == ["hook.a"]
    assert result.payload["effect_id"] == effect
    assert result.payload["terminal_status"] == "completed"
    assert {draft.actor for draft in record.batches[0]} == {"hook:a"}
    assert {draft.run_id for draft in record.batches[0]} == {"run_1"}
    (body,) = decided.bodies
    assert body.ref.role == "hook_response"
    assert decided.payload["response"] == body.ref.digest == digest(body.data)
    assert HookResponse.model_validate_json(body.data) == fired.outcomes[0].response


@pytest.mark.parametrize("error", [JournalError("JOURNAL_FULL", "no room"), OSError("disk")])
async def test_if_it_can_not_be_recorded_it_is_not_applied(error: Exception):
    asked: list[str] = []
    considered: list[View] = []

    def consider(view: View, answer: HookResponse) -> View:
        considered.append(apply(view, answer))
        return considered[-1]

    hooks = [
        answers(ResponseClass.MODIFY_TOOL_REQUEST, BEFORE, id="a", asked=asked),
        answers(ResponseClass.OBSERVE, BEFORE, id="b", rights=(), asked=asked),
    ]
    with pytest.raises(type(error)) as raised:
        await fire(hooks, record=Recorder(fails=error), consider=consider)
    assert raised.value is error
    assert asked == ["a"]
    assert len(considered) == 1


async def test_the_domain_may_reject():
    def consider(view: View, answer: HookResponse) -> View:
        raise CallerError("INVALID_ARGUMENT", "`to` is no address")

    changes = answers(ResponseClass.MODIFY_TOOL_REQUEST, BEFORE, failure="deny")
    record = Recorder()
    with pytest.raises(HoldfastError, match="`to` is no address") as refused:
        await fire([changes], record=record, consider=consider)
    assert refused.value.code == "PERMISSION_DENIED"
    assert isinstance(refused.value.__cause__, CallerError)
    assert record.events == ["rejected_policy"]
    assert record.said[0]["payload"]["reason"] == "INVALID_ARGUMENT"
    assert "response" not in record.said[0]
    fired = await fire([changes], consider=consider, strict=False)
    assert fired.outcomes[0].status is HookStatus.REJECTED_POLICY
    assert fired.view.arguments == {"to": "you"}


async def test_an_observer_that_fails_open_may_say_what_it_likes():
    liar = answers(
        ResponseClass.REQUEST_RETRY,
        AFTER,
        rights=(),
        blocking=True,
        failure="fail_open_observe_only",
    )
    record = Recorder()
    fired = await fire([liar], AFTER, record=record)
    assert fired.outcomes[0].status is HookStatus.REJECTED_MUTATION_RIGHT
    assert record.events == ["rejected_mutation_right"]


# --- restored ---


async def test_a_restored_answer_is_applied_and_nobody_is_asked():
    asked: list[str] = []
    record = Recorder()
    hooks = [
        answers(ResponseClass.MODIFY_TOOL_REQUEST, BEFORE, id="a", asked=asked),
        answers(ResponseClass.REQUEST_APPROVAL, BEFORE, id="b", asked=asked),
    ]
    known = {"a": HookResponse.of(ResponseClass.MODIFY_TOOL_REQUEST, _to("them"))}
    fired = await fire(hooks, record=record, restored=known)
    assert asked == ["b"]
    assert fired.view.arguments == {"to": "them"}
    assert fired.outcomes[0].status is HookStatus.RESTORED
    assert fired.wants_approval is not None
    assert len(record.batches) == 1


async def test_a_restored_refusal_refuses_again():
    asked: list[str] = []
    hooks = [answers(ResponseClass.DENY, BEFORE, id=id_, asked=asked) for id_ in "ab"]
    fired = await fire(hooks, restored={"a": response(ResponseClass.DENY)})
    assert fired.denied is not None
    assert asked == []


def _to(whom: str) -> dict[str, Any]:
    return {"summary": "", "arguments": {"to": whom}}


async def test_answers_come_back_from_a_real_journal(tmp_path: Path):
    journal = SqliteJournal.open(str(tmp_path / "journal.db"))

    async def record(drafts: list[Any]) -> None:
        await journal.append("s", drafts)

    async def fired(restored: dict[str, HookResponse], hooks: Hooks):
        return await hooks.fire(
            BEFORE,
            View("a call", arguments={"to": "you"}),
            run_id="run_1",
            session_id="s",
            subject="eff_1",
            record=record,
            restored=restored,
        )

    asked: list[str] = []
    hooks = Hooks([answers(ResponseClass.MODIFY_TOOL_REQUEST, BEFORE, id="a", asked=asked)])
    await journal.append("s", [created(), started("run_1"), *hooks.registered("s")])
    first = await fired({}, hooks)
    records = [found async for found in journal.read("s")]
    records = records[2:]
    assert [found.kind for found in records] == ["hook", "hook", "effect_intent", "effect_result"]
    assert records[0].payload["payload"] == {
        "type": "registered",
        "spec_hash": hooks.specs[0].digest,
        "executor_ref": hooks.specs[0].executor_ref,
        "policy_ref": "hook.a",
    }
    said = records[1].payload
    known = HookResponse.model_validate_json(await journal.content(str(said["response"])))
    second = await fired({str(said["hook_id"]): known}, hooks)
    assert second.view == first.view
    assert asked == ["a"]
    assert (await journal.head("s")).pos == 6
    assert (await journal.verify()).ok
    await journal.close()


def test_what_is_recorded_is_canonical():
    answer = response(ResponseClass.DENY)
    assert canonical_json(answer.model_dump(mode="json")) == (
        b'{"payload":{"code":"no","summary":"no"},"type":"deny"}'
    )
