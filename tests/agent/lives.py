"""Lives of an agent's run: what people, and death, do to it at whatever moment, until it ends.

A run passes moments: before and after every write to the journal, before and after every question to the model and
every act of a capability. A `Plot` says what happens at which of them. Death is a journal that from then on takes
nothing and a world in which nothing is done any more; the next process finds what was on record.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.lowlevel

import holdfast
from holdfast import Agent, Context, capability
from holdfast.agent.history import history_of
from holdfast.contracts import Record, new_id
from holdfast.contracts._dump import dumped
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.message import check_messages
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest
from holdfast.errors import NotFound
from holdfast.journal import MemoryJournal
from holdfast.journal.pen import LEASE_MS
from holdfast.models.script import Step, say
from holdfast.models.scripted import Scripted
from holdfast.runtime import Runtime
from holdfast.testing import Died, FakeClock, FaultyJournal

SESSION = "life"
CONFIG: dict[str, Any] = {
    "shell": {"jail": "off"},
    "policy": {
        "rules": [
            {"id": "asked", "tool": "ask_*", "then": "ask"},
            {"id": "writes", "side_effect": ["write"], "then": "allow"},
        ]
    },
}
OVER = frozenset(("completed", "failed", "cancelled"))
ENDS = frozenset(f"run_{status}" for status in OVER)

Deed = Literal[
    "crash", "cancel", "cancel after", "give up", "steer", "queue", "approve", "deny", "nothing"
]
"""What can happen to a run."""


@dataclass(frozen=True)
class Plot:
    """One life."""

    script: Sequence[Step]
    """What the model says."""
    code_mode: bool
    moments: dict[int, Deed]
    """What happens at which moment; they are counted through all processes."""
    between: Sequence[Deed]
    """What happens, one by one, whenever the run stands."""
    streams: bool = False
    """Whether somebody watches the answers come."""
    output: bool = False
    """Whether it must give a structured output."""


@dataclass
class Life:
    """One plot as it is lived, and the world it is lived in."""

    plot: Plot
    clock: FakeClock = field(default_factory=FakeClock)
    acts: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Effect, capability and argument of everything that was done."""
    asked: Counter[str] = field(default_factory=Counter[str])
    """Conversations that the model was sent, and how often."""
    dead: bool = False
    deaths: int = 0
    passed: int = 0
    hf: Runtime | None = None
    scope: anyio.CancelScope | None = None
    said: int = 0
    name: str = field(default_factory=lambda: new_id("run"))
    """The run."""
    tally: Counter[str] = field(default_factory=Counter[str])
    """What it came to."""

    def __post_init__(self) -> None:
        self.journal = MemoryJournal(clock=self.clock)
        self.moments: dict[int, Deed] = {**self.plot.moments}
        self.between: list[Deed] = [*self.plot.between]
        script = [*self.plot.script, *[say("Enough.")] * 4]
        if self.plot.output:
            script = [*self.plot.script, say('{"n": "one"}'), *[say('{"n": 1}')] * 5]
        shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        self.agent: Agent[Any] = Agent(
            Mortal(self, script),
            capabilities=[look, keep, put, ask_put],
            code_mode=self.plot.code_mode,
            output=shape if self.plot.output else None,
            retry={"initial_delay_ms": 0, "max_retries": 1},
        )

    # -- moments --------------------------------------------------------------------------------------

    def alive(self) -> None:
        """Nothing is done after death."""
        if self.dead:
            raise Died("dead already")

    def die(self) -> None:
        """The process ends here."""
        self.dead = True
        self.deaths += 1
        raise Died(f"at moment {self.passed}")

    def pass_by(self) -> Deed:
        """Come to the next moment; what is left to do about it by somebody who can wait."""
        self.alive()
        self.passed += 1
        deed: Deed = self.moments.get(self.passed, "nothing")
        if deed == "crash":
            self.die()
        elif deed == "give up":
            if self.scope is not None:
                self.scope.cancel()
        elif deed in ("cancel", "cancel after") and self.hf is not None:
            self.hf.shell.cancel(SESSION, mode="now" if deed == "cancel" else "after_effect")
        return deed

    async def moment(self) -> None:
        """A moment at which somebody may wait."""
        deed = self.pass_by()
        with anyio.CancelScope(shield=True):
            await self.do(deed)
        await anyio.lowlevel.checkpoint()
        self.alive()

    async def do(self, deed: Deed) -> None:
        """Do what needs time."""
        assert self.hf is not None
        if deed in ("steer", "queue"):
            self.said += 1
            with suppress(NotFound):  # there is no session yet, nobody to say it to
                await self.hf.agents.say(SESSION, f"Word {self.said}.", lane=deed)
        elif deed in ("approve", "deny"):
            for one in await self.hf.approvals.list():
                said = "approved" if deed == "approve" else "denied"
                await self.hf.approvals.decide(one.id, said, actor="somebody")

    # -- one process after another --------------------------------------------------------------------

    async def live(self) -> AgentResult:
        """Until the run is over, whatever it takes."""
        for _ in range(60):
            result: AgentResult | None = None
            try:
                async with holdfast.open(Grave(self), CONFIG) as self.hf:
                    result = await self._process(self.hf)
            except BaseException:
                if not self.dead:
                    raise
            finally:
                self.hf = None
            if self.dead:
                self.dead = False
                self.clock.advance(LEASE_MS + 1)
                await self.check()
            elif result is not None:
                return result
        raise AssertionError("it does not end")

    async def _process(self, hf: Runtime) -> AgentResult | None:
        """What one process does: takes the run on until it is over."""
        for _ in range(40):
            result = await self._go_on(hf)
            if result is None:
                continue
            assert result.status in {*OVER, "waiting_for_approval", "needs_attention"}, result
            if result.status in OVER:
                return result
            await self._answer(hf, result)
        raise AssertionError("it goes on and on")

    async def _go_on(self, hf: Runtime) -> AgentResult | None:
        known = await self.journal.row("runs", self.name) is not None
        listener = hf.agents.listen(self.name) if self.plot.streams else None
        found: AgentResult | None = None
        definition = self.agent.definition()
        with anyio.CancelScope() as self.scope:
            if known:
                found = await hf.agents.resume(self.name, definition)
            else:
                found = await hf.agents.run(definition, "Go.", session=SESSION, run_id=self.name)
        self.scope = None
        if listener is not None:
            listener.leave()
        return found

    async def _answer(self, hf: Runtime, result: AgentResult) -> None:
        if result.status == "needs_attention":
            assert result.in_doubt, result
            for effect in result.in_doubt:
                await self._tell(hf, effect)
            return
        deed: Deed = self.between.pop(0) if self.between else "approve"
        if deed == "crash":
            self.dead, self.deaths = True, self.deaths + 1
            raise Died("while it waits")
        if deed in ("cancel", "cancel after", "give up"):
            mode = "now" if deed == "cancel" else "after_effect"
            await hf.runs.cancel(result.run_id, mode=mode)
        await self.do(deed)

    async def _tell(self, hf: Runtime, effect: str) -> None:
        """What became of it, as the world has it."""
        row = await hf.journal.row("effects", effect)
        assert row is not None
        assert row["name"] in ("put", "ask_put"), row
        run_id = str(row["run_id"])
        if any(one == effect for one, _, _ in self.acts):
            await hf.runs.resolve(run_id, effect, "happened", value="ok")
        else:
            await hf.runs.resolve(run_id, effect, "retry")

    # -- what must hold -------------------------------------------------------------------------------

    async def check(self) -> None:
        """At every cut."""
        records = [record async for record in self.journal.read(SESSION)]
        intents = {one.effect_id for one in records if one.kind == "effect_intent"}
        for effect, name, _ in self.acts:
            assert name == "look" or effect in intents, f"`{name}` was done without an intent"
        for kind in ("put", "ask_put"):
            done = Counter(what for _, name, what in self.acts if name == kind)
            assert all(times == 1 for times in done.values()), done
        await self._check_asked(records)
        await self._check_valid(len(records))

    async def _check_asked(self, records: list[Record]) -> None:
        """Every question is on record, with the conversation that it was really asked with."""
        told: Counter[str] = Counter()
        names: dict[str | None, str] = {}
        for record in records:
            if record.payload.get("kind") == "provider_request":
                folded = (await history_of(self.journal, SESSION, upto=record.pos - 1)).transcript
                assert not folded.waiting, f"asked at {record.pos} with calls open"
                assert folded.digest == record.payload["context"], f"another one at {record.pos}"
                names[record.effect_id] = _written(folded.messages)
                told[names[record.effect_id]] += 1
            elif record.kind == "effect_attempt" and record.effect_id in names:
                told[names[record.effect_id]] += 1
        for messages, times in self.asked.items():
            assert told[messages] >= times, f"asked {times} times, on record {told[messages]}"

    async def _check_valid(self, upto: int) -> None:
        for pos in range(1, upto + 1):
            transcript = (await history_of(self.journal, SESSION, upto=pos)).transcript
            if not transcript.waiting:
                assert check_messages(transcript.messages) is None, f"at {pos}"
            transcript.close()
            assert check_messages(transcript.messages) is None, f"at {pos}, closed"

    async def check_end(self, result: AgentResult) -> None:
        """Once it is over."""
        self.moments.clear()
        await self.check()
        records = [record async for record in self.journal.read(SESSION)]
        runs = {one.run_id for one in records if one.run_id is not None}
        for run_id in runs:
            ends = [one.kind for one in records if one.run_id == run_id and one.kind in ENDS]
            row: dict[str, Any] = await self.journal.row("runs", str(run_id)) or {}
            assert len(ends) == 1, f"{run_id} ended with {ends}"
            assert ends[0] == f"run_{row['status']}"
            assert row["ended_at"] is not None
            assert row["pending_approvals"] == []
        session: dict[str, Any] = await self.journal.row("sessions", SESSION) or {}
        assert session["open_run"] is None
        assert session["open_agent"] is None
        done = {effect for effect, _, _ in self.acts}
        for asked in await self.journal.rows("approvals"):
            assert asked.value["status"] != "pending", asked
            if asked.value["status"] not in ("approved", "approved_for_session"):
                assert asked.value["effect_id"] not in done, asked
        await self._count(records, result)
        await self._check_goes_on(result)
        report = await self.journal.verify()
        assert report.ok, report

    async def _count(self, records: list[Record], result: AgentResult) -> None:
        kinds = Counter(one.kind for one in records)
        self.tally.update({"lives": 1, "deaths": self.deaths, "acts": len(self.acts)})
        self.tally.update((result.status, "code" if self.plot.code_mode else "tools"))
        for name, kind in (
            ("resumed", "run_resumed"),
            ("parked", "run_parked"),
            ("steered", "run_prompted"),
            ("done again", "effect_attempt"),
            ("asked again", "model_retry"),
        ):
            self.tally[name] += kinds[kind]
        for row in await self.journal.rows("approvals"):
            self.tally[str(row.value["status"])] += 1

    async def _check_goes_on(self, result: AgentResult) -> None:
        """It is told the same again; and the conversation can go on."""
        done = len(self.acts)
        async with holdfast.open(Grave(self), CONFIG) as self.hf:
            again = await self.hf.agents.resume(result.run_id, self.agent.definition())
            assert again == result
            assert len(self.acts) == done
            more: Agent[Any] = Agent(Mortal(self, [say("Yes.")] * 50), capabilities=[look])
            after = await self.hf.agents.run(more.definition(), "And?", session=SESSION)
            assert (after.status, after.text) == ("completed", "Yes."), after
        self.hf = None
        await self._check_asked([record async for record in self.journal.read(SESSION)])


def _written(messages: Sequence[Any]) -> str:
    return json.dumps([dumped(one) for one in messages])


class Grave(FaultyJournal):
    """The journal of one process: once that is dead it can do nothing."""

    def __init__(self, life: Life) -> None:
        super().__init__(life.journal, fail_at=0)
        self._life = life

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        """Two moments."""
        self._life.pass_by()
        found = await self.inner.append(*args, **kwargs)
        self._life.pass_by()
        return found

    def post(self, *args: Any, **kwargs: Any) -> None:
        """Two moments; a timer may be the one who dies here, so whoever comes next finds out."""
        with suppress(Died):
            self._life.pass_by()
            self.inner.post(*args, **kwargs)
            self._life.pass_by()

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        """Not after death."""
        self._life.alive()
        return await self.inner.claim(*args, **kwargs)

    async def renew(self, *args: Any, **kwargs: Any) -> Any:
        """Not after death."""
        self._life.alive()
        return await self.inner.renew(*args, **kwargs)

    async def release(self, *args: Any, **kwargs: Any) -> None:
        """Not after death."""
        self._life.alive()
        await self.inner.release(*args, **kwargs)

    async def erase(self, *args: Any, **kwargs: Any) -> bool:
        """Not after death."""
        self._life.alive()
        return await self.inner.erase(*args, **kwargs)

    async def close(self) -> None:
        """It outlives this process."""


class Mortal:
    """A model whose questions and answers are moments."""

    id = "scripted:mortal"

    def __init__(self, life: Life, script: Sequence[Step]) -> None:
        self._life = life
        self._inner = Scripted(script, id=self.id)

    @property
    def profile(self) -> ModelProfile:
        """The script's."""
        return self._inner.profile

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Two moments."""
        await self._note(request)
        found = await self._inner.request(request)
        await self._life.moment()
        return found

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """One before, and one at each piece."""
        await self._note(request)
        async for piece in self._inner.stream(request):
            await self._life.moment()
            yield piece

    async def _note(self, request: ModelRequest) -> None:
        self._life.alive()
        self._life.asked[_written(request.messages)] += 1
        await self._life.moment()


# -- what it can do -------------------------------------------------------------------------------------

current: list[Life] = []
"""The life that is lived; capabilities find it here."""


async def _act(name: str, what: str, context: Context) -> None:
    life = current[-1]
    await life.moment()
    life.acts.append((context.effect_id, name, what))
    await life.moment()


@capability(side_effect="read")
async def look(what: str, context: Context) -> dict[str, Any]:
    """Look at something."""
    await _act("look", what, context)
    return {"what": what, "seen": True, "as": ["it", "is"]}


@capability(side_effect="write", idempotent=True)
async def keep(what: str, context: Context) -> str:
    """Keep something; recognised when it comes again."""
    await _act("keep", what, context)
    return "kept"


@capability(side_effect="write")
async def put(what: str, context: Context) -> str:
    """Put something somewhere, which must not be done twice."""
    await _act("put", what, context)
    return "ok"


@capability(side_effect="write")
async def ask_put(what: str, context: Context) -> str:
    """The same, once somebody has approved it."""
    await _act("ask_put", what, context)
    return "ok"


async def lived(plot: Plot) -> Life:
    """Live it, and check everything."""
    life = Life(plot)
    current.append(life)
    try:
        with anyio.fail_after(30):  # nobody waits for ever
            result = await life.live()
        await life.check_end(result)
    finally:
        current.remove(life)
    return life
