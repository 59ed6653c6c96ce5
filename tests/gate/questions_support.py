"""What the tests of questions share: capabilities that ask, and what became of them."""

from dataclasses import dataclass, field
from typing import Any

from tests.crash.copies import again
from tests.crash.test_prefixes import Noting
from tests.gate.support import allowing

import holdfast
from holdfast import ApprovalView, Context, RunResult, capability
from holdfast.capabilities.declare import Declared
from holdfast.contracts import Json
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import Answer, NeedsAnswer, Question
from holdfast.journal import MemoryJournal

FORM: dict[str, Json] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 1, "title": "Size"},
        "colour": {"type": "string", "enum": ["red", "blue"]},
    },
    "required": ["size"],
}
STATE: Json = {"token": "opaque-7"}
SIZE = Question(Asks.INPUT, "Which size?", FORM, key="size", state=STATE)
SIGN_IN = Question(Asks.SIGN_IN, "Sign in, please.", url="https://id.example.com/in", key="id")
UNJAILED: dict[str, Any] = allowing(shell={"jail": "off"})
CODE = """
try:
    result = book("bed")
except Exception as why:
    result = f"{type(why).__name__}: {why}"
"""


@dataclass
class Bookings:
    """The other side: it asks before it books, and knows what it has booked."""

    calls: list[tuple[int, dict[str, Answer]]] = field(
        default_factory=list[tuple[int, dict[str, Answer]]]
    )
    """Attempt and answers of each time it was called."""
    done: list[str] = field(default_factory=list[str])

    def book(self, *questions: Question, **terms: Any) -> Declared[..., Any]:
        """A write that nobody may repeat, unless `terms` say otherwise; it has these questions first."""
        wanted = questions or (SIZE,)

        def book(what: str, context: Context) -> str:
            """Book something."""
            self.calls.append((context.attempt, dict(context.answers)))
            for one in wanted:
                answer = context.answers.get(one.key)
                if answer is None:
                    raise NeedsAnswer(one)
                if answer.action != "accept":
                    return f"not booked: {answer.action}"
            said = ", ".join(f"{key}={one.content}" for key, one in context.answers.items())
            self.done.append(what)
            return f"{what}: {said}"

        return capability(book, **{"side_effect": "external_system", **terms})


async def waiting(hf: holdfast.Runtime, code: str = CODE) -> tuple[RunResult, ApprovalView]:
    """A run that waits for an answer, and its question."""
    run = await hf.shell.run(code, session="s")
    assert run.status == "waiting_for_approval", run
    return run, await hf.approvals.show(str(run.approval_id))


async def answered(
    hf: holdfast.Runtime, run: RunResult, decision: str = "approved", content: Json = None
) -> RunResult:
    """Answer what a run asks, and go on with it."""
    await hf.approvals.decide(str(run.approval_id), decision, actor="ann", content=content)
    return await hf.runs.resume(str(run.run_id))


async def prefixes(journal: Noting) -> list[MemoryJournal]:
    """Every journal that a process could have left which died while it wrote this one, append by append."""
    records = [(one.stream, await again(journal, one)) async for one in journal.read_all()]
    found: list[MemoryJournal] = []
    for number in sorted(journal.ends):
        part = MemoryJournal()
        for stream, draft in records[:number]:
            await part.append(stream, [draft])
        found.append(part)
    return found
