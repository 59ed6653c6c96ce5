"""A long session is gone on with from its outline: the same conversation as from all records, or else from those."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.agent.hooks_support import at, once
from tests.agent.loop_support import records, scripted, sums_up, written
from tests.agent.test_interleavings import lives

import holdfast
from holdfast import Agent, capability
from holdfast.agent import history, outlines
from holdfast.agent.history import History, history_of, steps_of
from holdfast.agent.outline import TOLD, Later, Outlining
from holdfast.agent.transcript import Transcript
from holdfast.contracts import Body, Draft, canonical_json
from holdfast.contracts.agent import ContextOutlined
from holdfast.contracts.effect import EffectSeen
from holdfast.errors import CallerError, StaleEpoch
from holdfast.journal import Journal, MemoryJournal
from holdfast.models.script import Line, call, cut, garble, say, together, write_code
from holdfast.testing import FaultyJournal, ScriptedModel

CONFIG: dict[str, Any] = {
    "shell": {"jail": "off"},
    "policy": {"rules": [{"id": "ask", "tool": "send", "then": "ask"}], "default": "allow"},
}
SHORT: dict[str, Any] = {"at_tokens": 60, "keep_turns": 1, "min_turns_between": 1}


@capability(side_effect="read")
async def look(what: str) -> dict[str, Any]:
    """Look."""
    return {"what": what, "found": [f"result of {what}"] * 3}


@capability(side_effect="write")
async def breaks(why: str) -> None:
    """Does not work."""
    raise ValueError(why)


@capability(side_effect="external_system")
async def send(to: str) -> str:
    """Send."""
    return f"sent to {to}"


class Held:
    """Holds every history that is told from an outline against the one told from all records."""

    def __init__(self) -> None:
        self.times = 0
        self._real = history._outlined

    async def __call__(self, journal: Journal, stream: str) -> History | None:
        found = await self._real(journal, stream)
        if found is None:
            return None
        self.times += 1
        full = await whole(journal, stream)
        assert found.transcript == full.transcript
        for name in ("originals", "spec", "run_id"):
            assert getattr(found, name) == getattr(full, name)
        row = await journal.row("runs", str(found.run_id))
        if row is not None and row["ended_at"] is None:  # somebody may go on with it
            for one in fields(History):
                mine, theirs = getattr(found, one.name), getattr(full, one.name)
                if one.name == "pasts":
                    mine, theirs = mine.calls, theirs.calls
                assert mine == theirs, one.name
        return found


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """An outline after every run, and none that says anything else than the records."""
    monkeypatch.setattr(outlines, "EVERY", 1)
    found = Held()
    monkeypatch.setattr(history, "_outlined", found)
    yield found
    assert found.times


async def whole(journal: Journal, session: str) -> History:
    """A history told from all records."""
    found = History()
    async for _, one in steps_of(journal, session):
        found = one
    return found


def says(lines: Sequence[Line]) -> ScriptedModel:
    """A model that says this, however long the conversation is; asked to sum up, it does."""
    left = iter(lines)
    return written(lambda asked: say("In short.") if sums_up(asked) else next(left))


Part = tuple[Sequence[Line], dict[str, Any]]
"""What a model says in one run, and how its agent is made."""


async def talk(path: Path, *runs: Part, hooks: Any = (), ends_early: bool = False) -> None:
    """Some runs in one session, each in a process of its own; then everything is as it should be."""
    for number, (script, how) in enumerate(runs):
        options: dict[str, Any] = {"code_mode": False, **how}
        agent: Agent[Any] = Agent(
            says(script),
            capabilities=[look, breaks, send],
            retry={"max_retries": 1, "initial_delay_ms": 0},
            **options,
        )
        async with holdfast.open(f"sqlite:///{path}", CONFIG, hooks=hooks) as hf:
            run = await agent.run(f"Prompt {number}.", session="s", runtime=hf)
            assert run.status != "failed" or ends_early, run.error
            status = run.status
            while status == "waiting_for_approval":
                for one in await hf.approvals.list():
                    await hf.approvals.decide(one.id, "approved", actor="ann")
                async with holdfast.open(f"sqlite:///{path}", CONFIG, hooks=hooks) as other:
                    status = (await other.agents.resume(run.id, agent.definition())).status
            live = await hf.agents.messages("s")
            assert live == (await history_of(hf.journal, "s")).transcript
    async with holdfast.open(f"sqlite:///{path}", CONFIG) as hf:
        assert (await hf.journal.verify()).ok
        row = await hf.journal.row("outlines", "s")
        await hf.journal.rebuild()
        assert await hf.journal.row("outlines", "s") == row


# -- the same conversation ------------------------------------------------------------------------------


def test_of_any_life(held: Held) -> None:
    """Cancelled, steered, parked, died at any moment, that of the outline included; then another run goes on."""
    assert lives(25)["lives"] >= 25


@pytest.mark.parametrize("code_mode", [False, True], ids=["tools", "code"])
async def test_of_odd_answers_and_results(tmp_path: Path, held: Held, code_mode: bool) -> None:
    script: list[Line] = [
        together(say("Ünïcode \u2028 \U0001f600", thinking="hm"), call("look", what="\U0001f600")),
        together(call("breaks", why="so"), call("nosuch", b=1), garble("look", "{")),
        together(call("look", what="x" * 3000), write_code("1 / 0"), write_code("await look('a')")),
        say("Done."),
    ]
    options = {"code_mode": code_mode, "view_bytes": 512}
    await talk(tmp_path / "j", *[(script, options)] * 3)


async def test_of_runs_that_ended_early(tmp_path: Path, held: Held) -> None:
    """What was seen of an answer stays; calls without a result get one that says so."""
    await talk(
        tmp_path / "j",
        ([cut("I was"), cut("about to")], {}),
        ([call("look", what="a"), call("look", what="b")], {"max_turns": 1}),
        ([say("Well.")], {}),
        ends_early=True,
    )


async def test_of_a_run_that_said_nothing(tmp_path: Path, held: Held) -> None:
    """Its last words are none, not those of the run before."""
    await talk(tmp_path / "j", ([say("One.")], {}), ([say("")], {}), ([say("")], {}))
    async with holdfast.open(f"sqlite:///{tmp_path / 'j'}", CONFIG) as hf:
        assert (await hf.agents.messages("s")).last_text == ""


async def test_of_calls_that_people_were_asked_about(tmp_path: Path, held: Held) -> None:
    both = together(call("send", to="ann"), call("look", what="a"))
    await talk(tmp_path / "j", *[([both, call("send", to="bob"), say("Sent.")], {})] * 2)


async def test_of_a_conversation_that_is_told_in_short(tmp_path: Path, held: Held) -> None:
    """And at length again, by somebody who has not seen it."""
    looks: list[Line] = [call("look", what=f"w{number}") for number in range(6)]
    await talk(tmp_path / "j", *[([*looks, say("Done.")], {"compact": SHORT})] * 2)
    async with holdfast.open(f"sqlite:///{tmp_path / 'j'}", CONFIG) as hf:
        assert await records(hf, "s", "context_compacted")
        short = await hf.agents.messages("s")
        at_length = await hf.agents.restore_context("s")
        assert at_length.count == len(at_length.messages) > len(short.messages)
    await talk(tmp_path / "j", ([say("And so on.")], {}))


async def test_of_what_hooks_changed(tmp_path: Path, held: Held) -> None:
    hooks = [
        at("after_tool_call", lambda q: q.rewrite({"n": 1}, "hidden"), "rewrite_tool_result"),
        at("after_model_call", once(lambda q: q.retry("rude")), "request_retry"),
    ]
    lines: list[Line] = [say("Rude."), call("look", what="a"), say("Nice.")]
    await talk(tmp_path / "j", (lines, {}), (lines[1:], {}), hooks=hooks)


async def test_of_what_waited_for_it(tmp_path: Path, held: Held) -> None:
    url = f"sqlite:///{tmp_path / 'j'}"
    await talk(tmp_path / "j", ([say("One.")], {}))
    async with holdfast.open(url, CONFIG) as hf:
        await hf.agents.say("s", "Wait.", lane="queue")
    await talk(tmp_path / "j", ([call("look", what="a"), say("Two.")], {}), ([say("Three.")], {}))


# -- or from the records --------------------------------------------------------------------------------


async def spoken(journal: Journal, *answers: str) -> None:
    """A run for each answer."""
    async with holdfast.open(journal, CONFIG) as hf:
        for answer in answers:
            lines = (call("look", what=f"the {answer}"), say(answer))
            agent = Agent(says(lines), capabilities=[look], code_mode=False)
            await agent.run(f"Say {answer}.", session="s", runtime=hf)


class Kept(MemoryJournal):
    """Stays open when a runtime is closed."""

    async def close(self) -> None:
        """Not yet."""


async def newest(journal: Journal) -> dict[str, Any]:
    """The newest piece of the outline."""
    row = await journal.row("outlines", "s")
    assert row is not None
    return json.loads(await journal.content(str(row["outline"])))


@pytest.fixture
def outlined(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outline after every run."""
    monkeypatch.setattr(outlines, "EVERY", 1)


def uses_outline(monkeypatch: pytest.MonkeyPatch, *, wanted: bool) -> None:
    """From here on, fail where a conversation is told from all records, or where it is not."""
    real = history._outlined

    async def checked(journal: Journal, stream: str) -> History | None:
        found = await real(journal, stream)
        assert (found is not None) == wanted
        return found

    monkeypatch.setattr(history, "_outlined", checked)


async def same(journal: Journal, monkeypatch: pytest.MonkeyPatch, *, outline: bool) -> Transcript:
    """The conversation, told in the way that is wanted, is what the records say."""
    full = (await whole(journal, "s")).transcript
    with monkeypatch.context() as patch:
        uses_outline(patch, wanted=outline)
        assert (await history_of(journal, "s")).transcript == full
    return full


@pytest.mark.usefixtures("outlined")
async def test_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Kept()
    await spoken(journal, "One.", "Two.")
    assert (await same(journal, monkeypatch, outline=True)).count == 8
    # From the beginning each piece is told from the one before it on: nothing is told twice.
    second = await newest(journal)
    first = json.loads(await journal.content(second["before"]))
    everything = [one async for one in journal.read("s") if one.pos <= second["upto"]]
    outlining = Outlining(Later.of(everything))
    steps = [step for one in everything if (step := outlining.step(one)) and step[0] in TOLD]
    assert first["steps"] + second["steps"] == json.loads(json.dumps(steps))
    assert first["before"] is None


@pytest.mark.usefixtures("outlined")
async def test_one_of_another_version_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Kept()
    await spoken(journal, "One.", "Two.")
    monkeypatch.setattr(outlines, "VERSION", outlines.VERSION + 1)
    await same(journal, monkeypatch, outline=False)
    await spoken(journal, "Three.")  # and the next one stands for everything
    assert (await newest(journal))["before"] is None
    await same(journal, monkeypatch, outline=True)


@pytest.mark.usefixtures("outlined")
@pytest.mark.parametrize("piece", ["newest", "first"])
async def test_one_that_was_erased_is_not(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Kept()
    await spoken(journal, "One.", "Two.")
    row = await journal.row("outlines", "s")
    assert row is not None
    digest = str(row["outline"]) if piece == "newest" else (await newest(journal))["before"]
    assert await journal.erase(digest, reason="wanted gone")
    await same(journal, monkeypatch, outline=False)
    assert (await journal.verify()).ok


@pytest.mark.usefixtures("outlined")
@pytest.mark.parametrize("wrong", ["head", "upto", "unsaid"])
async def test_one_of_another_past_is_not(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Kept()
    await spoken(journal, "One.")
    piece = await newest(journal)
    if wrong == "head":
        piece["head"] = "0" * 64
    elif wrong == "upto":
        piece["upto"] -= 1
    body = Body.of(canonical_json(piece), role="outline", mime="application/json")
    said = ContextOutlined(outline=body.ref.digest, upto=piece["upto"])
    if wrong == "unsaid":  # a row that no record made

        async def row(projection: str, key: str) -> Any:
            found = await MemoryJournal.row(journal, projection, key)
            changed = {**(found or {}), "outline": body.ref.digest}
            return changed if projection == "outlines" else found

        piece["steps"].pop()
        body = Body.of(canonical_json(piece), role="outline", mime="application/json")
        draft = Draft(kind="own.body", bodies=(body,))
        await journal.append("elsewhere", [draft])
        monkeypatch.setattr(journal, "row", row)
    else:
        await journal.append("s", [Draft.of(said, bodies=(body,))])
    await same(journal, monkeypatch, outline=False)
    await spoken(journal, "Two.")
    await same(journal, monkeypatch, outline=wrong != "unsaid")


@pytest.mark.usefixtures("outlined")
async def test_one_that_was_corrected_since_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record says that the model was shown something else than what the outline says."""
    journal = Kept()
    await spoken(journal, "One.")
    (told,) = [one for one in (await newest(journal))["steps"] if one[0] == "result"]
    body = Body.of(b'"something else"', role="result", mime="application/json")
    seen = EffectSeen(effect_id=told[1], value=body.ref.digest, rewritten=True)
    await journal.append("s", [Draft.of(seen, bodies=(body,))])
    full = await same(journal, monkeypatch, outline=False)
    assert "something else" in [getattr(one, "text", "") for one in full.messages]
    await spoken(journal, "Two.")
    assert (await newest(journal))["before"] is None
    await same(journal, monkeypatch, outline=True)


@pytest.mark.usefixtures("outlined")
async def test_one_of_a_session_that_is_no_more_is_not() -> None:
    journal = Kept()
    await spoken(journal, "One.", "Two.")
    async with holdfast.open(journal, CONFIG) as hf:
        await hf.shell.destroy("s")
    await spoken(journal, "Three.")
    assert (await history_of(journal, "s")).transcript.count == 4
    assert (await newest(journal))["before"] is None


# -- and what it costs ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("outlined")
async def test_it_holds_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what somebody wants gone is gone from it, too."""
    journal = Kept()
    await spoken(journal, "Ananas.", "Banana.")
    for piece in (
        await newest(journal),
        json.loads(await journal.content((await newest(journal))["before"])),
    ):
        text = json.dumps(piece)
        assert "nana" not in text
        assert piece["steps"]
    answers = [one for one in (await newest(journal))["steps"] if one[0] == "answer"]
    assert await journal.erase(answers[-1][1], reason="wanted gone")
    for told in (history_of, whole):
        with pytest.raises(CallerError) as why:
            await told(journal, "s")
        assert why.value.code == "CONTENT_ERASED"


async def test_short_runs_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "EVERY", 20)
    journal = Kept()
    await spoken(journal, *(f"Word {number}." for number in range(16)))
    found = [one async for one in journal.read("s") if one.kind == "context_outlined"]
    total = (await journal.head("s")).pos
    assert 3 <= len(found) <= total // 20
    await same(journal, monkeypatch, outline=True)


async def test_a_short_session_has_none() -> None:
    journal = Kept()
    await spoken(journal, "One.", "Two.")
    assert await journal.row("outlines", "s") is None


@pytest.mark.usefixtures("outlined")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_run_is_over_whether_or_not_it_can_be_written(after: bool) -> None:
    """As when the lease was lost by then; the next run looks where the stream stands."""
    journal = Kept()
    agent = Agent(scripted("One.", "Two."), code_mode=False)
    async with holdfast.open(Unwilling(journal, after=after), CONFIG) as hf:
        for answer in ("One.", "Two."):
            assert (await agent.run("Go.", session="s", runtime=hf)).output == answer
    assert (await journal.verify()).ok
    assert (await history_of(journal, "s")).transcript.count == 4


class Unwilling(FaultyJournal):
    """Refuses outlines."""

    def __init__(self, journal: Journal, *, after: bool) -> None:
        super().__init__(journal, fail_at=0)
        self._late = after

    async def append(self, stream: str, records: Any, **how: Any) -> Any:
        """Before or after it is written."""
        refused = any(one.kind == "context_outlined" for one in records)
        if not refused or self._late:
            found = await self.inner.append(stream, records, **how)
            if not refused:
                return found
        raise StaleEpoch(stream, None, 0, "that lost its lease")
