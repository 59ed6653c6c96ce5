"""A call that needs to know something asks a person before anything is done, and is made once, with the answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.crash.test_prefixes import Noting
from tests.gate.questions_support import (
    CODE,
    FORM,
    SIGN_IN,
    SIZE,
    STATE,
    UNJAILED,
    Bookings,
    answered,
    prefixes,
    waiting,
)
from tests.gate.support import World, approve, kinds, later, said
from tests.gate.test_recovery_table import KEYS, intended

import holdfast
from holdfast.contracts import Json
from holdfast.contracts.approval import Asks
from holdfast.errors import CallerError
from holdfast.gate.dispatch import Filled
from holdfast.gate.executor import Answer, Question
from holdfast.gate.recovery import Action, action
from holdfast.shell.rehearsal import rehearse


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


# -- asked, answered, made ----------------------------------------------------------------------------


async def test_parked_call_is_made_once_with_the_answer_in_another_process(url: str) -> None:
    world = Bookings()
    async with holdfast.open(url, UNJAILED, capabilities=[world.book()]) as hf:
        run, view = await waiting(hf)
        assert (view.tool, view.asks, view.summary) == ("book", Asks.INPUT, "Which size?")
        assert (view.form, view.arguments) == (FORM, {"what": "bed"})
        assert [one.value for one in view.allowed] == ["approved", "denied"]
        assert run.external_calls[0].status == "approval_pending"
        assert run.error is not None
        assert "to answer a question of `book`" in run.error.message
        assert (await hf.runs.show(str(run.run_id))).status == "waiting_for_approval"
        assert world.done == []
    async with holdfast.open(url, UNJAILED, capabilities=[world.book()]) as hf:
        assert (await hf.runs.resume(str(run.run_id))).status == "waiting_for_approval"
        assert len(world.calls) == 1
        run = await answered(hf, run, content={"size": 3, "colour": "red"})
        assert run.result == "bed: size={'colour': 'red', 'size': 3}"
        assert run.external_calls[0].status == "ok"
        assert world.done == ["bed"]
        accepted = Answer("accept", {"colour": "red", "size": 3}, STATE)
        assert world.calls == [(1, {}), (2, {"size": accepted})]
        (again,) = await said(hf, run, "effect_attempt")
        assert (again["attempt"], again["reason"]) == (2, "answered")
        (settled,) = await said(hf, run, "approval_settled")
        assert settled["status"] == "approved"
        assert (await hf.journal.verify()).ok
        assert (await rehearse(hf.shell.services, str(run.run_id))).same
        assert len(world.calls) == 2


async def test_intent_is_on_disk_before_anybody_is_asked() -> None:
    world = Bookings()
    for effect in ("external_system", "read"):
        async with holdfast.open(
            "memory:", UNJAILED, capabilities=[world.book(side_effect=effect)]
        ) as hf:
            run, _ = await waiting(hf)
            found = await kinds(hf, run)
            assert found.index("effect_intent") < found.index("approval_requested"), effect
            run = await answered(hf, run, content={"size": 3})
            assert run.result == "bed: size={'size': 3}"
            (result,) = [
                one for one in await said(hf, run, "effect_result") if not _asks(one["effect_id"])
            ]
            assert result["attempt"] == 2


def _asks(effect_id: object) -> bool:
    return "_q" in str(effect_id)


@pytest.mark.parametrize(
    ("how", "action_"), [("denied", "decline"), ("later", "cancel")], ids=["denied", "timed-out"]
)
async def test_no_is_an_answer_too(how: str, action_: str) -> None:
    world = Bookings()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:
        run, _ = await waiting(hf)
        if how == "later":
            later(hf)
            run = await hf.runs.resume(str(run.run_id))
        else:
            run = await answered(hf, run, how)
        assert run.result == f"not booked: {action_}"
        assert world.calls[1] == (2, {"size": Answer(action_, None, STATE)})  # type: ignore[arg-type] # one of them
        assert world.done == []


async def test_sign_in_goes_on_after_it_and_ends_without_it() -> None:
    world = Bookings()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book(SIGN_IN)]) as hf:
        run, view = await waiting(hf)
        assert (view.asks, view.url) == (Asks.SIGN_IN, "https://id.example.com/in")
        assert run.error is not None
        assert "https://id.example.com/in" in str(run.error.hint)
        run = await answered(hf, run)
        assert (run.result, world.done) == ("bed: id=None", ["bed"])
        for how in ("denied", "later"):
            world.calls.clear()
            run, _ = await waiting(hf, "result = book('sofa')")
            if how == "later":
                later(hf)
                run = await hf.runs.resume(str(run.run_id))
            else:
                run = await answered(hf, run, how)
            assert run.error is not None
            assert (run.status, run.error.code) == ("permission_denied", "SIGN_IN_REQUIRED")
            assert len(world.calls) == 1
    assert world.done == ["bed"]


async def test_several_rounds_know_all_answers() -> None:
    world = Bookings()
    when = Question(Asks.INPUT, "When?", {"type": "object", "properties": {}}, key="when")
    tool = world.book(SIZE, when, SIGN_IN)
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:
        run, _ = await waiting(hf)
        run = await answered(hf, run, content={"size": 3})
        run = await answered(hf, run)
        run = await answered(hf, run)
        assert run.result == "bed: size={'size': 3}, when={}, id=None"
        assert [attempt for attempt, _ in world.calls] == [1, 2, 3, 4]
        assert [sorted(given) for _, given in world.calls] == [
            [],
            ["size"],
            ["size", "when"],
            ["id", "size", "when"],
        ]
        assert world.done == ["bed"]


async def test_rounds_are_bounded() -> None:
    world = Bookings()
    many = [Question(Asks.INPUT, f"No. {n}?", key=str(n)) for n in range(12)]
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book(*many)]) as hf:
        run, _ = await waiting(hf)
        for _ in range(9):
            run = await answered(hf, run)
            assert run.status == "waiting_for_approval"
        run = await answered(hf, run)
        assert "10 times already" in str(run.result)
        assert world.done == []
        assert await hf.approvals.list() == []


async def test_consent_comes_first() -> None:
    world = Bookings()
    config: dict[str, Any] = {"shell": {"jail": "off"}}
    async with holdfast.open("memory:", config, capabilities=[world.book()]) as hf:
        run, view = await waiting(hf)
        assert (view.asks, world.calls) == (Asks.CONSENT, [])
        run = await approve(hf, run)
        view = await hf.approvals.show(str(run.approval_id))
        assert (view.asks, len(world.calls)) == (Asks.INPUT, 1)
        run = await answered(hf, run, content={"size": 1})
        assert world.done == ["bed"]
        intent = (await said(hf, run, "effect_intent"))[1]
        assert intent["approval_id"] != view.id


async def test_who_is_there_is_asked_first() -> None:
    world = Bookings()
    seen: list[Any] = []

    def ask(request: holdfast.ApprovalView) -> Filled:
        seen.append(request.form)
        return Filled({"size": 2})

    async with holdfast.open(
        "memory:", UNJAILED, capabilities=[world.book()], on_approval=ask
    ) as hf:
        run = await hf.shell.run(CODE)
        assert run.result == "bed: size={'size': 2}"
        assert (seen, world.done) == ([FORM], ["bed"])
        (view,) = await hf.approvals.list(status="all")
        assert view.decision is not None
        assert (view.decision.actor, view.decision.via) == ("callback", "callback")


@pytest.mark.parametrize("says", [True, Filled({"size": 0})], ids=["no-form", "unfit"])
async def test_answer_of_a_function_that_does_not_fit_is_none(says: Any) -> None:
    world = Bookings()
    async with holdfast.open(
        "memory:", UNJAILED, capabilities=[world.book()], on_approval=lambda _: says
    ) as hf:
        run = await hf.shell.run(CODE)
        assert run.result == "not booked: cancel"
        (view,) = await hf.approvals.list(status="all")
        assert (view.status, view.reason_code) == ("denied", "approval.answer_does_not_fit")


async def test_command_fills_in(tmp_path: Path) -> None:
    world = Bookings()
    program = tmp_path / "ask.py"
    program.write_text(
        "import json, sys\nasked = json.load(sys.stdin)\n"
        'print(json.dumps({"decision": "approved", "content": {"size": len(asked["form"])}}))\n'
    )
    config = {**UNJAILED, "approvals": {"command": ["python3", str(program)]}}
    async with holdfast.open("memory:", config, capabilities=[world.book()]) as hf:
        assert (await hf.shell.run(CODE)).result == "bed: size={'size': 3}"


async def test_nobody_to_ask() -> None:
    world = Bookings()
    config = {**UNJAILED, "approvals": {"inbox": False}}
    async with holdfast.open("memory:", config, capabilities=[world.book()]) as hf:
        assert (await hf.shell.run(CODE)).result == "not booked: cancel"


async def test_others_go_on_meanwhile() -> None:
    books, world = Bookings(), World()
    code = "import asyncio\nresult = await asyncio.gather(abook('bed'), asend('ann'))"
    plain = books.book()

    async def abook(what: str, context: holdfast.Context) -> str:
        """Book something."""
        return plain(what, context)

    tools = [holdfast.capability(abook, side_effect="external_system"), world.asend()]
    async with holdfast.open("memory:", UNJAILED, capabilities=tools) as hf:
        run, _ = await waiting(hf, code)
        assert world.done == ["ann"]
        run = await answered(hf, run, content={"size": 3})
        assert run.result == ["bed: size={'size': 3}", "sent to ann"]
        assert (world.done, books.done) == (["ann"], ["bed"])


# -- nothing is in doubt ------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [{}, {"idempotent": True}, {"side_effect": "read"}])
async def test_wherever_the_process_dies_it_is_asked_once_and_made_once(
    terms: dict[str, Any],
) -> None:
    """After every record, with what was intended and is not on record done by then, or not."""
    world = Bookings()
    journal = Noting()
    async with holdfast.open(journal, UNJAILED, capabilities=[world.book(**terms)]) as hf:
        run, _ = await waiting(hf)
        run = await answered(hf, run, content={"size": 3})
        end = run.result
    doubts = 0
    for part in await prefixes(journal):
        world.done.clear()
        async with holdfast.open(part, UNJAILED, capabilities=[world.book(**terms)]) as hf:
            active = await hf.runs.list(status="active")
            if not active:
                continue
            run = await hf.runs.resume(active[0].id)
            if run.status == "interrupted":
                # Of an attempt that began, nobody knows: the first one, or the one with the answer.
                doubts += 1
                found = await kinds(hf, run)
                assert ("approval_requested" in found) == ("effect_attempt" in found)
                await hf.runs.resolve(str(run.run_id), run.in_doubt[0], "retry")
                run = await hf.runs.resume(str(run.run_id))
            if run.status == "waiting_for_approval":
                run = await answered(hf, run, content={"size": 3})
            assert run.result == end
            asked = await hf.approvals.list(status="all")
            assert len(asked) == 1
            assert len(world.done) <= 1
            assert (await hf.journal.verify()).ok
    assert (doubts > 0) == (not terms)


def test_table_has_a_row_for_what_waits_for_an_answer() -> None:
    from holdfast.contracts import EffectKind, SideEffect

    for touches in SideEffect:
        for key in KEYS:
            intent = intended(EffectKind.TOOL_EXECUTION, touches, key)
            for reconciles in (False, True):
                assert action(intent, reconciles=reconciles, asks=True) is Action.ANSWER


async def test_capability_that_changed_meanwhile_is_not_called(url: str) -> None:
    world = Bookings()
    async with holdfast.open(url, UNJAILED, capabilities=[world.book()]) as hf:
        run, _ = await waiting(hf)
        await hf.approvals.decide(str(run.approval_id), "approved", content={"size": 3})
    other = world.book(risk="critical")
    async with holdfast.open(url, UNJAILED, capabilities=[other]) as hf:
        run = await hf.runs.resume(str(run.run_id))
        assert "approval.capability_changed" in str(run.result)
        assert (world.done, len(world.calls)) == ([], 1)
        (effect,) = [
            one for one in await hf.runs.effects(str(run.run_id)) if one.kind == "tool_execution"
        ]
        assert effect.status == "denied_before_execution"


async def test_rule_that_denies_by_now_goes_before_the_answer(url: str) -> None:
    world = Bookings()
    async with holdfast.open(url, UNJAILED, capabilities=[world.book()]) as hf:
        run, _ = await waiting(hf)
    never = {**UNJAILED, "policy": {"rules": [{"id": "never", "tool": "book", "then": "deny"}]}}
    async with holdfast.open(url, never, capabilities=[world.book()]) as hf:
        run = await answered(hf, run, content={"size": 3})
        assert "never" in str(run.result)
        assert (world.done, len(world.calls)) == ([], 1)
        (settled,) = await said(hf, run, "approval_settled")
        assert settled["reason_code"] == "approval.void"


async def test_cancelled_run_asks_nobody_any_more() -> None:
    world = Bookings()
    config = {**UNJAILED, "session": {"budget": {"calls": 2}}}
    async with holdfast.open("memory:", config, capabilities=[world.book()]) as hf:
        run, view = await waiting(hf)
        shown = await hf.runs.cancel(str(run.run_id))
        assert (shown.status, shown.in_doubt) == ("cancelled", ())
        assert (await hf.approvals.show(view.id)).status == "cancelled"
        effects = await hf.runs.effects(str(run.run_id))
        assert {one.status for one in effects} == {"cancelled"}
        # It was not made, so it uses nothing up.
        for _ in range(2):
            run, _ = await waiting(hf)
            run = await answered(hf, run, content={"size": 3})
            assert run.result == "bed: size={'size': 3}"
    assert world.done == ["bed", "bed"]


async def test_slot_is_free_while_it_waits() -> None:
    world = Bookings()
    tool = world.book(concurrency=1, rate_per_min=2)
    async with holdfast.open("memory:", UNJAILED, capabilities=[tool]) as hf:
        run, _ = await waiting(hf)
        other = await hf.shell.run(CODE, session="other")
        assert other.status == "waiting_for_approval"
        # An answer is no further call: both may be made.
        for one in (run, other):
            one = await answered(hf, one, content={"size": 3})
            assert one.result == "bed: size={'size': 3}"


async def test_dry_run_asks_nobody() -> None:
    world = Bookings()
    async with holdfast.open(
        "memory:", UNJAILED, capabilities=[world.book(side_effect="read")]
    ) as hf:
        run = await hf.shell.run(CODE, dry_run=True)
        assert "a dry run asks nobody" in str(run.result)
        assert await hf.approvals.list(status="all") == []


# -- answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (None, "size"),
        ({}, "size"),
        ({"size": 0}, "`size`"),
        ({"size": "3"}, "`size`"),
        ({"size": 3, "colour": "green"}, "`colour`"),
        ([3], "object"),
        ({"size": 3, "note": "x" * 70_000}, "bytes"),
    ],
)
async def test_answer_that_does_not_fit_is_not_recorded(content: Json, names: str) -> None:
    world = Bookings()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:
        run, view = await waiting(hf)
        with pytest.raises(CallerError) as raised:
            await hf.approvals.decide(view.id, "approved", content=content)
        assert raised.value.code == "INVALID_ARGUMENT"
        assert names in raised.value.message
        assert [one async for one in hf.journal.read("holdfast:approvals")] == []
        assert (await answered(hf, run, content={"size": 3})).status == "ok"


async def test_content_where_none_is_wanted() -> None:
    world, sends = Bookings(), World()
    config: dict[str, Any] = {"shell": {"jail": "off"}}
    async with holdfast.open("memory:", config, capabilities=[sends.send()]) as hf:
        run = await hf.shell.run("send('ann')")
        with pytest.raises(CallerError, match="takes no content"):
            await hf.approvals.decide(str(run.approval_id), "approved", content={"size": 3})
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book(SIGN_IN)]) as hf:
        _, view = await waiting(hf)
        with pytest.raises(CallerError, match="takes no content"):
            await hf.approvals.decide(view.id, "approved", content={"token": "x"})
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:
        _, view = await waiting(hf)
        with pytest.raises(CallerError, match="takes no content"):
            await hf.approvals.decide(view.id, "denied", content={"size": 3})


async def test_for_the_whole_session_is_no_answer_to_a_question() -> None:
    world = Bookings()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:
        _, view = await waiting(hf)
        with pytest.raises(CallerError) as raised:
            await hf.approvals.decide(view.id, "approved_for_session")
        assert raised.value.code == "DECISION_REFUSED"
        assert (await hf.approvals.show(view.id)).status == "pending"
        assert await hf.approvals.grants("s") == []


@pytest.mark.parametrize(
    "field",
    [{"type": "string", "format": "password"}, {"type": "string", "writeOnly": True}],
    ids=["password", "write-only"],
)
async def test_form_never_asks_for_a_secret(field: Json) -> None:
    world = Bookings()
    form: dict[str, Json] = {"type": "object", "properties": {"deep": {"items": field}}}
    asks = Question(Asks.INPUT, "Your password?", form, key="secret")
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book(asks)]) as hf:
        run = await hf.shell.run("book('bed')")
        assert run.error is not None
        assert run.error.code == "PERMISSION_DENIED"
        assert "signing in" in str(run.error.hint)
        assert await hf.approvals.list(status="all") == []


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (Question(Asks.INPUT, "?", {"type": "string"}), "object"),
        (Question(Asks.INPUT, "?", {"type": "object", "properties": 3}), "no JSON Schema"),
        (Question(Asks.INPUT, "?", {"$ref": "https://example.com/x"}), "no JSON Schema"),
        (Question(Asks.INPUT, "?", {"title": "x" * 20_000}), "bytes"),
        (Question(Asks.SIGN_IN, "?", url="javascript:alert(1)"), "address"),
        (Question(Asks.SIGN_IN, "?", url="https://e.com/" + "x" * 3000), "address"),
        (Question(Asks.INPUT, "?", key="x" * 300), "key"),
        (Question(Asks.INPUT, "?", state="x" * (2 << 20)), "needs back"),
    ],
)
async def test_question_that_nobody_can_be_asked(question: Question, why: str) -> None:
    world = Bookings()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book(question)]) as hf:
        run = await hf.shell.run(CODE)
        assert why in str(run.result)
        assert await hf.approvals.list(status="all") == []


async def test_secrets_do_not_get_into_questions_and_answers() -> None:
    world = Bookings()
    told = Question(Asks.INPUT, "Is it hunter2-hunter2?", FORM, key="size")
    async with holdfast.open(
        "memory:", UNJAILED, capabilities=[world.book(told)], secrets={"P": "hunter2-hunter2"}
    ) as hf:
        run, view = await waiting(hf)
        assert "hunter2" not in view.summary
        form_free = {"size": 3, "note": "hunter2-hunter2"}
        run = await answered(hf, run, content=form_free)
        assert "hunter2" not in str(run.result)
        assert "size" in str(run.result)
    asks = Question(Asks.INPUT, "?", key="k", state={"t": "hunter2-hunter2"})
    async with holdfast.open(
        "memory:", UNJAILED, capabilities=[world.book(asks)], secrets={"P": "hunter2-hunter2"}
    ) as hf:
        run = await hf.shell.run(CODE)
        assert "holds the value of a secret" in str(run.result)


async def test_state_and_answer_are_for_the_asker_alone() -> None:
    world = Bookings()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:
        run, view = await waiting(hf)
        assert "opaque-7" not in view.model_dump_json()
        run = await answered(hf, run, content={"size": 31337})
        for record in [one async for one in hf.journal.read_all()]:
            assert "opaque-7" not in json.dumps(record.payload)
            assert "31337" not in json.dumps(record.payload)
            for ref in record.content:
                if ref.role in ("question_state", "answer"):
                    assert ref.privacy == "sensitive"
                    with pytest.raises(CallerError) as raised:
                        await hf.journal.content(ref)
                    assert raised.value.code == "CONTENT_NOT_ALLOWED"


async def test_answer_is_erased_with_its_session() -> None:
    from holdfast.journal.retention import sweep

    world = Bookings()
    async with holdfast.open("memory:", UNJAILED, capabilities=[world.book()]) as hf:
        run, view = await waiting(hf)
        await answered(hf, run, content={"size": 3})
        view = await hf.approvals.show(view.id)
        assert view.decision is not None
        digest = str(view.decision.answer)
        assert digest not in await sweep(hf.journal)
        await hf.shell.destroy("s")
        await sweep(hf.journal)
        with pytest.raises(CallerError) as raised:
            await hf.journal.content(digest)
        assert raised.value.code == "CONTENT_ERASED"
