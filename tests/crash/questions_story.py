"""The story of a keyless write that asks a person first: it is asked once, answered once, and the mail is sent once."""

from dataclasses import dataclass
from pathlib import Path

from tests.crash import story
from tests.crash.story import Guide, Tale, demand, look

from holdfast import RunResult
from holdfast.contracts.approval import Asks
from holdfast.journal.sqlite import SqliteJournal
from holdfast.runtime import Runtime

TEXT = "7 apples, size {'size': 3}, ['7 apples']"


class Answering(Guide):
    """Whoever uses holdfast, and answers what is asked."""

    async def _approve(self, result: RunResult) -> None:
        demand(result.approval_id is not None, result)
        shown = await self.hf.approvals.show(str(result.approval_id))
        demand((shown.tool, shown.asks) == ("order", Asks.INPUT), shown)
        demand(shown.arguments == {"what": "7 apples"}, shown)
        demand(look(self.folder, "select * from mails") == [], "it is done, and asks")
        await self.hf.approvals.decide(shown.id, "approved", actor="ann", content={"size": 3})


@dataclass(frozen=True)
class Asked(Tale):
    """A program whose keyless write has a question."""

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What the world has in the end, beside the mail."""
        return [("note", "1"), ("reserve", "7 apples")]

    async def live(self, folder: Path, journal: SqliteJournal, *, check: bool) -> int:
        """Be one process of it."""
        if check and await journal.last_seq():
            await story.check_journal(journal)
            await story.check_intents(journal, folder)
        async with story.opened(journal, folder) as hf:
            guide = Answering(hf, folder, self)
            result = await guide.go_on()
            if check:
                await story.check_end(hf, folder, result, self)
                await check_question(hf, folder)
        if check:
            await story.check_journal(journal)
        return guide.doubts


async def check_question(hf: Runtime, folder: Path) -> None:
    """It was asked once, and the answer is what was sent."""
    asked = await hf.approvals.list(status="all")
    demand([one.status for one in asked] == ["approved"], asked)
    mails = look(folder, "select text from mails")
    demand(mails == [(TEXT,)], mails)


QUESTION = Asked(
    """
base = base + 1
have = stock("apples")
held = reserve("apples", have)
mail = order("7 apples")
noted = await note(1)
print("done")
result = [base, have, held, mail, noted]
""",
    "[base, have, held, mail, noted]",
    [11, 7, "reserve 7 apples", "mail 1", 10],
    ("stock", "reserve", "order", "note"),
    asks="order",
    keyless="order",
)

TALES = {"question": QUESTION}
