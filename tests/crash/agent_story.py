"""The stories of agents that are killed: one thinks in code, one calls its tools itself.

`AgentTale.live` takes a story from wherever the journal has it to its end, in the process that began it or in any
later one. What must hold, at every cut: each effect at most once and only after its intent; every question to the
model on record before it is asked; the conversation is one that a provider takes; what the live run sent is what is
folded from the records. And in the end: output, conversation and world are those of an undisturbed run.
"""

import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash import story, world
from tests.crash.points import here
from tests.crash.story import Wrong, demand, look

import holdfast
from holdfast import Agent
from holdfast.agent.history import History, history_of
from holdfast.contracts import Record
from holdfast.contracts._dump import dumped
from holdfast.contracts.message import check_messages
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest
from holdfast.errors import CallerError
from holdfast.journal import Journal
from holdfast.journal.sqlite import SqliteJournal
from holdfast.machines.texts import EXTRACTION_PROMPT
from holdfast.models.script import Step, call, fail, garble, say, together, write_code
from holdfast.models.scripted import Scripted
from holdfast.runtime import Runtime
from holdfast.runtime.agent import Run

SESSION = "story"
PROMPT = "Order what we need, and tell Ann."
STEER = "Be quick about it."
AFTERWARDS = "Is that all?"

CONFIG: dict[str, Any] = {
    "shell": {"jail": "off", "limits": {"wall_ms": 60_000}},
    "session": {"capabilities": [str(Path(world.__file__))]},
    "policy": {
        "rules": [
            {"id": "mail", "tool": "send", "then": "ask"},
            {"id": "money", "tool": "pay*", "then": "ask"},
            {"id": "writes", "side_effect": ["write"], "then": "allow"},
        ]
    },
}
OUTPUT = {
    "type": "object",
    "properties": {"mail": {"type": "string"}, "stock": {"type": "integer"}},
    "required": ["mail", "stock"],
    "additionalProperties": False,
}
GIVEN = {"mail": "mail 1", "stock": 7}
"""What each of them gives in the end."""


class Witness:
    """A model that says what its script says, and notes in the world what it was asked."""

    id = "scripted:witness"

    def __init__(self, script: list[Step]) -> None:
        self._inner = Scripted([*script, *[say("That is all.")] * 3], id=self.id)

    @property
    def profile(self) -> ModelProfile:
        """The script's."""
        return self._inner.profile

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Note it, answer it."""
        said = json.dumps([dumped(one) for one in request.messages])
        with world.connect() as db:
            db.execute("create table if not exists asked (messages text)")
            db.execute("insert into asked values (?)", (said,))
        here("model: asked")
        found = await self._inner.request(request)
        here("model: answered")
        return found

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """In one piece."""
        yield await self.request(request)


@dataclass(frozen=True)
class AgentTale:
    """What the model says, and how it ends."""

    script: tuple[Step, ...]
    code_mode: bool
    shown: tuple[str, ...]
    """How the results begin that the model is shown, in order."""
    kept: tuple[tuple[str, str], ...]
    """What the world has in the end, beside the mail."""
    mails: tuple[str, ...]
    keyless: frozenset[str]
    questions: int
    """Answers of the run, those about its output included."""

    def agent(self) -> Agent[Any]:
        """The agent, as every process defines it."""
        return Agent(
            Witness([*self.script]),
            instructions="You look after the stock.",
            output=OUTPUT,
            code_mode=self.code_mode,
            retry={"initial_delay_ms": 1},
        )

    async def live(self, folder: Path, journal: SqliteJournal, *, check: bool) -> int:
        """Be one process of the story, to its end; how often somebody had to say what became of a keyless write."""
        if check and await journal.last_seq():
            await story.check_journal(journal)
            await check_cut(journal, folder)
        async with opened(journal, folder) as hf:
            guide = AgentGuide(hf, folder, self)
            run = await guide.go_on()
            if check:
                await check_end(hf, folder, run, self)
        if check:
            await story.check_journal(journal)
            await check_prefixes(journal)
        return guide.doubts


CODE = AgentTale(
    script=(
        write_code("have = stock('apples')\nhave"),
        write_code("mail = send('ann', 'we have ' + str(have))\nmail"),
        fail("MODEL_OVERLOADED"),
        together(call("describe_tool", name="note"), call("search_tools", query="reserve")),
        write_code("1 / 0"),
        write_code(
            "import asyncio\n"
            "order = reserve('apples', have)\n"
            "notes = await asyncio.gather(note(1), note(2), pay_later('ann', 77))\n"
            "print('done')\n"
            "[mail, order, notes]"
        ),
        say("Ann has a mail, and all is ordered."),
        say('{"mail": 1}'),
        say(json.dumps(GIVEN)),
    ),
    code_mode=True,
    shown=(
        "result: 7",
        "result: mail 1",
        "async def note(",
        '[{"name": "reserve"',
        "RUNTIME_ERROR: ZeroDivisionError",
        'stdout:\ndone\n\nresult: ["mail 1", "reserve 7 apples", [10, 20, "pay_later 77 to ann"]]',
    ),
    kept=(("note", "1"), ("note", "2"), ("pay_later", "77 to ann"), ("reserve", "7 apples")),
    mails=("we have 7",),
    keyless=frozenset(("send",)),
    questions=8,
)
"""A read, a keyless write that is approved, a failure of the model, a look at the tools, code that fails, three calls
at a time of which one asks, an output that is asked for and repaired."""

TOOLS = AgentTale(
    script=(
        together(
            say("All at once."),
            call("note", number=1),
            call("send_later", text="hi"),
            call("pay_later", to="ann", cents=77),
            call("stock", item="apples"),
        ),
        call("stock", item="apples"),
        call("reserve", item="apples", count=7),
        together(call("nosuch", x=1), garble("note", "{"), call("note", number="many")),
        call("send", to="ann", text="bye"),
        say(json.dumps(GIVEN)),
    ),
    code_mode=False,
    shown=(
        "10",
        "mail 1",
        "pay_later 77 to ann",
        "7",
        "7",
        "reserve 7 apples",
        "UNKNOWN_TOOL",
        "SYNTAX_ERROR",
        "INVALID_ARGUMENT",
        "mail 2",
    ),
    kept=(("note", "1"), ("pay_later", "77 to ann"), ("reserve", "7 apples")),
    mails=("bye", "hi"),
    keyless=frozenset(("send", "send_later")),
    questions=6,
)
"""What may be repeated, what must not, what asks and a read, side by side; then one at a time; and calls that can't
be made."""

TALES = {"agent-code": CODE, "agent-tools": TOOLS}


@asynccontextmanager
async def opened(journal: Journal, folder: Path) -> AsyncGenerator[Runtime]:
    """A runtime on the journal; the world is in the same folder."""
    os.environ["WORLD"] = str(folder / "world.db")
    config = {**CONFIG, "journal": {"url": f"sqlite:///{folder / 'journal.db'}"}}
    async with holdfast.open(journal, config) as hf:
        yield hf


class AgentGuide:
    """Whoever uses the agent: starts it, says something meanwhile, answers, looks what happened, resumes."""

    def __init__(self, hf: Runtime, folder: Path, tale: AgentTale) -> None:
        self.hf = hf
        self.folder = folder
        self.tale = tale
        self.agent = tale.agent()
        self.doubts = 0

    async def go_on(self) -> Run[Any]:
        """Take the run to its end."""
        run_id = await find(self.hf.journal)
        if run_id is None:
            run = await self.agent.run(PROMPT, session=SESSION, runtime=self.hf)
        else:
            run = await self.agent.resume(run_id, runtime=self.hf)
        for _ in range(12):
            if run.status == "waiting_for_approval":
                await self._approve(run)
            elif run.status == "needs_attention":
                await self._resolve(run)
            else:
                return run
            run = await self.agent.resume(run, runtime=self.hf)
        raise Wrong(f"it does not end: {run.result}")

    async def _approve(self, run: Run[Any]) -> None:
        demand(len(run.approvals) > 0, run.result)
        if not await self.hf.journal.rows("inputs"):
            await self.hf.agents.say(SESSION, STEER)
        for key in run.approvals:
            try:
                await self.hf.approvals.decide(key, "approved", actor="ann")
            except CallerError as why:  # whoever died had said so
                demand(why.code == "APPROVAL_CLOSED", why)

    async def _resolve(self, run: Run[Any]) -> None:
        """It names keyless writes and nothing else; say what the world says."""
        demand(len(run.result.in_doubt) > 0, run.result)
        for key in run.result.in_doubt:
            self.doubts += 1
            row = await self.hf.journal.row("effects", key)
            demand(row is not None and row["name"] in self.tale.keyless, row)
            assert row is not None
            sent = look(self.folder, "select number from mails where effect=?", key)
            if sent:
                value = f"mail {sent[0][0]}"
                await self.hf.runs.resolve(str(row["run_id"]), key, "happened", value=value)
            else:
                await self.hf.runs.resolve(str(row["run_id"]), key, "retry")


async def find(journal: Journal) -> str | None:
    """The story's run, if it is on record."""
    async for record in journal.read(SESSION):
        if record.kind == "run_started" and record.payload["kind"] == "agent":
            return record.run_id
    return None


# -- what must hold -----------------------------------------------------------------------------------


async def check_cut(journal: Journal, folder: Path) -> None:
    """What must hold wherever a process died."""
    records = [record async for record in journal.read(SESSION)]
    check_intents(records, folder)
    await check_asked(journal, records, folder)
    check_once(folder)
    check_valid(await history_of(journal, SESSION))


def check_valid(history: History) -> None:
    """A provider would take the conversation: at most the newest calls are open, and then say so once it is closed."""
    transcript = history.transcript
    if not transcript.waiting:
        demand(check_messages(transcript.messages) is None, check_messages(transcript.messages))
    transcript.close()
    demand(check_messages(transcript.messages) is None, check_messages(transcript.messages))


def check_intents(records: list[Record], folder: Path) -> None:
    """Nothing was done that was not on record before, but for reads."""
    intents = {one.effect_id for one in records if one.kind == "effect_intent"}
    for effect, name in look(folder, "select distinct effect, name from acts"):
        demand(effect in intents, f"`{name}` was done without an intent")


async def check_asked(journal: Journal, records: list[Record], folder: Path) -> None:
    """The model was asked nothing that is not on record; and what it was sent is what the records say."""
    there = look(folder, "select 1 from sqlite_schema where name='asked'")
    asked = Counter(row[0] for row in look(folder, "select messages from asked")) if there else {}
    told: Counter[str] = Counter()
    names: dict[str | None, str] = {}
    for record in records:
        if record.payload.get("kind") == "provider_request":
            before = await history_of(journal, SESSION, upto=record.pos - 1)
            folded = before.transcript
            demand(not folded.waiting, f"asked at {record.pos} with calls open")
            demand(folded.digest == record.payload["context"], f"another one at {record.pos}")
            names[record.effect_id] = json.dumps([dumped(one) for one in folded.messages])
            told[names[record.effect_id]] += 1
        elif record.kind == "effect_attempt" and record.effect_id in names:
            told[names[record.effect_id]] += 1
    for messages, times in asked.items():
        said = f"asked {times} times, {told[messages]} on record: {messages}"
        demand(told[messages] >= times, said)


def check_once(folder: Path) -> None:
    """No mail is there twice."""
    for text, times in look(folder, "select text, count(*) from mails group by text"):
        demand(times == 1, f"sent {times} times: {text}")


async def check_prefixes(journal: Journal) -> None:
    """Wherever the records end, the conversation is one that a provider takes."""
    head = await journal.head(SESSION)
    for pos in range(1, head.pos + 1):
        check_valid(await history_of(journal, SESSION, upto=pos))


async def check_end(hf: Runtime, folder: Path, run: Run[Any], tale: AgentTale) -> None:
    """The same end as undisturbed: output, conversation, world, record."""
    demand(run.status == "completed", run.result)
    demand(run.output == GIVEN, run.result)
    demand(run.result.usage.output_tokens > 0, run.result)
    check_shown(run, tale)
    kept = look(folder, "select name, what from kept order by name, what")
    demand(tuple(kept) == tale.kept, kept)
    mails = look(folder, "select text from mails order by text")
    demand(tuple(row[0] for row in mails) == tale.mails, mails)
    for row in await hf.journal.rows("effects"):
        demand(row.value["status"] not in ("open", "unknown"), row)
    demand((await hf.runs.show(run.id)).status == "completed", "its row does not say so")
    again = await tale.agent().resume(run.id, runtime=hf)
    demand(again.result == run.result, "told again, it is another end")
    # What this process has in mind of the conversation is what the next question is asked with.
    more = await Agent(Witness([*tale.script]), code_mode=tale.code_mode).run(
        AFTERWARDS, session=SESSION, runtime=hf
    )
    demand(more.output == "That is all.", more.result)
    await check_cut(hf.journal, folder)


def check_shown(run: Run[Any], tale: AgentTale) -> None:
    """The conversation is the one it would have been."""
    whole = [*run.messages]
    upto = next(
        (n for n, one in enumerate(whole) if one.role == "user" and one.text == AFTERWARDS), None
    )
    messages = whole[:upto]  # somebody may have checked before
    shown = [one.text for one in messages if one.role == "tool"]
    demand(len(shown) == len(tale.shown), shown)
    for text, begins in zip(shown, tale.shown, strict=True):
        demand(text.startswith(begins), f"{text!r} for {begins!r}")
    said = [one.text for one in messages if one.role == "user"]
    demand(said[0] == PROMPT and said[1] == STEER, said)
    demand(len(said) == 2 or said[2] == EXTRACTION_PROMPT, said)
    answers = [one for one in messages if one.role == "assistant"]
    demand(len(answers) == tale.questions, f"{len(answers)} answers")
