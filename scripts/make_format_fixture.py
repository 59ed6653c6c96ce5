"""Write a journal in the format of today, and what is in it, for `tests/formats` to read for ever.

    python scripts/make_format_fixture.py

Run it once for each format, before the first release that writes it; a released file is never written again.
"""

import asyncio
import json
import sys
from pathlib import Path

from holdfast.contracts import Body, Draft, Privacy, Retention, digest
from holdfast.journal import _sqlite_schema as schema
from holdfast.journal.sqlite import SqliteJournal
from holdfast.testing import FakeClock
from holdfast.testing._drafts import STORY, asked, created, destroyed, intent, started, state

FOLDER = Path(__file__).parents[1] / "tests" / "formats"
PROJECTIONS = ("sessions", "runs", "effects", "approvals", "usage")
SMALL, LARGE, GONE = b"print('small')", b"a large body, compressed\n" * 400, b"erased on request"


async def write(path: Path) -> None:
    """A journal with every kind of record, row and body."""
    clock = FakeClock()
    journal = SqliteJournal.open(path, clock=clock)
    for draft in STORY:
        await journal.append("finished", [draft])
        clock.advance(1234)
    await journal.append("finished", [destroyed()])
    code = Body.of(SMALL, role="code", mime="text/x-python", privacy=Privacy.INTERNAL)
    big = Body.of(LARGE, role="result", retention=Retention.PERSISTENT)
    gone = Body.of(GONE, role="inputs", privacy=Privacy.SENSITIVE)
    under_way = [created(), started("open_run", bodies=[code, big, gone]), state()]
    await journal.append("open", under_way, expected_pos=0)
    await journal.append("open", [intent("open_effect", "open_run")])
    await journal.append("open", [asked("open_approval", "open_effect", "open_run")])
    own = Draft(
        kind="my_app.thing",
        payload={"text": "ünïcödé \U0001f600 \n", "numbers": [1, -2.5, 1e300, None, True]},
        turn_id="turn",
        actor="someone else",
        cause=3,
        privacy=Privacy.SECRET,
        content=(code.ref,),
    )
    await journal.append("日本 stream", [own])
    await journal.erase(digest(GONE), reason="asked_to")
    await journal.claim("open", "worker", ttl_ms=60_000)
    await journal.close()


async def describe(path: Path) -> dict[str, object]:
    """What a reader must find in it."""
    journal = SqliteJournal.open(path)
    report = await journal.verify()
    records = [record async for record in journal.read_all()]
    found: dict[str, object] = {
        "root": report.root,
        "erased": report.erased,
        "records": [record.model_dump(mode="json") for record in records],
        "heads": [list(head) for head in sorted(await journal.heads())],
        "rows": {name: [list(row) for row in await journal.rows(name)] for name in PROJECTIONS},
        "bodies": {digest(body): body.decode() for body in (SMALL, LARGE)},
        "gone": digest(GONE),
    }
    await journal.close()
    return found


def main() -> int:
    """Write both files, unless they are there."""
    name = f"format-{len(schema.UPGRADES)}"
    path = FOLDER / f"{name}.db"
    if path.exists():
        print(f"{path} is there: a file that was released is never written again")
        return 1
    asyncio.run(write(path))
    found = asyncio.run(describe(path))
    text = json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True)
    path.with_suffix(".json").write_text(text + "\n")
    print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
