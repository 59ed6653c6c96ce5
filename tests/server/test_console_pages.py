"""The pages of one run, of charts, tools and the journal, over HTTP: what they show, to whom, and what they do not."""

import html
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import anyio
import httpx
import pytest
from tests.agent.watching import until
from tests.server.http_client import Site, site

import holdfast
from holdfast import Agent, capability
from holdfast.runtime import Runtime
from holdfast.server.console import story
from holdfast.server.limits import UNLIMITED
from holdfast.testing import ScriptedModel, say, write_code

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'--></pre></svg>{{7*7}}"
gates: dict[str, anyio.Event] = {}


@capability(side_effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


@capability(side_effect="write")
async def note(what: str) -> str:
    """Write something down; it takes as long as the test wants."""
    if what in gates:
        await gates[what].wait()
    return f"noted {what}"


@capability(side_effect="write")
async def jot(what: str) -> str:
    """The same, and nobody is asked."""
    return await note(what)


@capability(side_effect="write", timeout_ms=50)
async def ship(what: str) -> str:
    """The same, and nobody knows what became of it when it takes too long."""
    return await note(what)


@pytest.fixture(autouse=True)
def fresh() -> None:
    gates.clear()


TOOLS = [look, note, jot, ship]


def clerk() -> Agent[str]:
    return Agent(
        ScriptedModel([write_code("a = await look('till')\nawait note(a)"), say("All is noted.")]),
        name="clerk",
        instructions="Keep the books.",
    )


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    config: dict[str, Any] = {
        "shell": {"limits": {"max_external_calls": 2000, "wall_ms": 60_000}},
        "policy": {
            "rules": [
                {"id": "free", "tool": "jot", "then": "allow"},
                {"id": "carrier", "tool": "ship", "then": "allow"},
            ]
        },
    }
    async with holdfast.open("memory:", config=config, capabilities=TOOLS) as found:
        yield found


@pytest.fixture
async def web(hf: Runtime) -> AsyncIterator[Site]:
    async with site(hf, limits=UNLIMITED, agents={"clerk": clerk()}) as found:
        yield found


class Strict(HTMLParser):
    """Fails at what the policy of the page would stop: scripts, styles and handlers inside it."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert tag not in ("style", "iframe", "object", "embed", "base", "img")
        assert tag != "script" or "src" in names
        assert not [name for name in names if name == "style" or name.startswith(("on", "hx-on"))]
        for name, value in attrs:
            assert name not in ("href", "src", "action") or (value or "")[:1] in "/?#", value


async def run(client: httpx.AsyncClient, code: str, session: str = "s") -> dict[str, Any]:
    answer = await client.post(f"/v1/sessions/{session}/run", json={"code": code})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def page(client: httpx.AsyncClient, path: str, status: int = 200) -> str:
    answer = await client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == status, answer.text
    if status == 200:
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        Strict().feed(answer.text)
    return answer.text


def replay(text: str) -> dict[str, Any]:
    found = re.search(r'data-replay="([^"]*)"', text)
    assert found is not None
    return json.loads(html.unescape(found[1]))


# -- one run ------------------------------------------------------------------------------------------


async def test_a_run_that_is_over(web: Site):
    client = await web.client("read", "run")
    done = await run(client, "a = await look('x')\nprint('hello')\na")
    text = await page(client, f"/runs/{done['run_id']}")
    assert "completed" in text
    assert "saw x" in text  # the result
    assert "hello" in text  # what it printed
    assert 'data-line="3"' in text
    assert "default.read" in text  # the rule that let the call pass
    assert "data-live-session=" not in text
    assert "Cancel" not in text


async def test_a_run_that_waits_stands_on_its_line(web: Site):
    client = await web.client("read", "run", "approve")
    parked = await run(client, "a = await look('x')\n\nawait note(a)")
    text = await page(client, f"/runs/{parked['run_id']}")
    assert re.search(r'class="stands"[^>]*data-line="3"', text)
    assert "waits for a person to approve note" in text
    assert "data-live-session=" in text
    assert f'hx-post="/inbox/{parked["approval_id"]}"' in text
    assert 'value="approved_for_session"' in text
    assert "st-waiting" in text
    assert "url(#hatch)" in text
    reader = await web.client("read")
    text = await page(reader, f"/runs/{parked['run_id']}")
    assert "Look at it" in text
    assert 'value="approved"' not in text
    assert "Cancel" not in text


async def test_the_record_says_who_approved(web: Site, hf: Runtime):
    client = await web.client("read", "run", "approve")
    parked = await run(client, "await note('x')")
    said = {"decision": "approved", "reason": "Seen it."}
    await client.post(f"/v1/approvals/{parked['approval_id']}/decision", json=said)
    await until(lambda: web.app.state.work.find(parked["run_id"]) is None)
    text = await page(client, f"/runs/{parked['run_id']}")
    assert "Seen it." in text
    assert "http:token:" in text
    assert "approved" in text


async def test_any_moment_without_script(web: Site):
    client = await web.client("read", "run")
    parked = await run(client, "a = await look('x')\nawait note(a)")
    whole = await page(client, f"/runs/{parked['run_id']}")
    told = replay(whole)
    first, last = told["seqs"][0], told["seqs"][-1]
    text = await page(client, f"/runs/{parked['run_id']}?at={first}")
    assert "is-ahead" in text
    assert 'class="stands"' not in text
    assert f'value="{first}"' in text
    assert await page(client, f"/runs/{parked['run_id']}?at={last}")
    assert "is-ahead" not in whole
    for strange in ("0", "999999999"):
        await page(client, f"/runs/{parked['run_id']}?at={strange}")
    for wrong in ("x", "-1", "1" * 30, "%00"):
        answer = await client.get(f"/runs/{parked['run_id']}?at={wrong}")
        assert answer.status_code == 400
    # What the slider knows adds up to what the server says.
    assert len(told["xs"]) == len(told["seqs"]) == len(told["times"])
    assert all(one[6][0] in told["seqs"] for one in told["steps"])


async def test_an_agents_run_shows_turns_and_code(web: Site):
    client = await web.client("read", "run", "approve")
    answer = await client.post("/v1/agents/clerk/runs", json={"prompt": "Do the till."})
    run_id = answer.json()["run_id"]
    text = await page(client, f"/runs/{run_id}")
    assert "clerk" in text
    assert "Do the till." in text
    assert "turn 1" in text
    assert "model call" in text
    assert re.search(r'class="stands"[^>]*data-line="2"', text)
    child = re.search(r'href="/runs/(run_[0-9a-f]+)"', text)
    assert child is not None
    inner = await page(client, f"/runs/{child[1]}")
    assert f'href="/runs/{run_id}"' in inner  # and back
    said = {"decision": "approved"}
    key = answer.json()["approvals"][0]
    await client.post(f"/v1/approvals/{key}/decision", json=said)
    await until(lambda: web.app.state.work.find(run_id) is None)
    text = await page(client, f"/runs/{run_id}")
    assert "All is noted." in text
    assert "turn 2" in text
    assert "Tokens in / out" in text


async def test_an_effect_in_doubt(web: Site):
    client = await web.client("read", "run", "approve")
    gates["x"] = anyio.Event()
    stands = await run(client, "await ship('x')")
    run_id, effect = stands["run_id"], stands["in_doubt"][0]
    text = await page(client, f"/runs/{run_id}")
    assert "Nobody knows whether" in text
    assert "nobody knows whether ship happened" in text  # at its line
    assert "st-in_doubt" in text
    assert f'href="/doubts/{effect}"' in text
    said = {"answer": "happened", "value": "it is there"}
    await client.post(f"/v1/effects/{effect}/resolve", json=said)
    await client.post(f"/v1/runs/{run_id}/resume", json={})
    text = await page(client, f"/runs/{run_id}")
    assert "it is there" in text
    assert "happened, says token:" in text
    assert "st-in_doubt" not in text
    # The moment at which it was in doubt can be looked at still.
    known = replay(text)
    marks = next(one for one in known["steps"] if known["names"][one[0]] == "ship")[6]
    assert len(marks) == 6
    assert "nobody knows whether ship happened" in await page(
        client, f"/runs/{run_id}?at={marks[2]}"
    )


async def test_a_thousand_calls_stay_usable(web: Site):
    client = await web.client("read", "run")
    done = await run(client, "for n in range(1000):\n    await look(str(n))")
    text = await page(client, f"/runs/{done['run_id']}")
    assert len(text) < 600_000
    assert text.count('class="step"') == 50
    assert "50 of 1\u2009001" in text
    assert text.count('class="bar ') < 400
    assert "1000×" in text  # all from one line
    after = re.search(r'rel="next" href="\?after=(\d+)', text)
    assert after is not None
    second = await page(client, f"/runs/{done['run_id']}?after={after[1]}")
    assert second.count('class="step"') == 50
    assert f'id="step-{after[1]}"' in second
    assert 'rel="prev"' in second


async def test_hostile_text_is_inert(web: Site, hf: Runtime):
    client = await web.client("read", "run", "approve")
    code = f"print({HOSTILE!r})\nawait look({HOSTILE!r})\nawait note({HOSTILE!r})"
    parked = await run(client, code)
    run_id, key = parked["run_id"], parked["approval_id"]
    for _ in range(2):
        text = await page(client, f"/runs/{run_id}")
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "49" not in re.sub(r"[0-9a-f]{6,}|\d{4,}|[\d.]+", "", text)
        assert "&lt;script&gt;" in text
        said = {"decision": "denied", "reason": HOSTILE}
        await client.post(f"/v1/approvals/{key}/decision", json=said)
        await until(lambda: web.app.state.work.find(run_id) is None)


async def test_a_run_that_fails_shows_where(web: Site):
    client = await web.client("read", "run")
    done = await run(client, "x = 1\nx / 0")
    text = await page(client, f"/runs/{done['run_id']}")
    assert re.search(r'class="broke"[^>]*data-line="2"', text)
    assert "failed" in text


async def test_a_run_under_way_and_its_end(web: Site):
    client = await web.client("read", "run")
    gates["x"] = anyio.Event()
    body = {"code": "await jot('x')"}
    answer = await client.post("/v1/sessions/s/run", json=body, headers={"Prefer": "respond-async"})
    run_id = answer.json()["run_id"]
    text = await page(client, f"/runs/{run_id}")  # on record, or about to be
    assert run_id[-6:] in text
    while "st-open" not in text:
        await anyio.sleep(0.01)
        text = await page(client, f"/runs/{run_id}")
    assert "jot is under way" in text
    assert "Resume" not in text  # somebody is at it
    part = await page(client, f"/runs/{run_id}?part=live")
    assert "<html" not in part
    assert 'id="replay"' in part
    gates["x"].set()
    await until(lambda: web.app.state.work.find(run_id) is None)
    assert "noted x" in await page(client, f"/runs/{run_id}?part=live")


async def test_cancelling_and_resuming_by_form(web: Site):
    client = await web.client("read", "run")
    parked = await run(client, "await note('x')")
    run_id = parked["run_id"]
    path = f"/runs/{run_id}"
    assert (await client.post(f"{path}/cancel", json={})).status_code == 400  # no form
    again = await client.post(f"{path}/resume", data={"x": "1"})
    assert (again.status_code, again.headers["location"]) == (303, path)
    reader = await web.client("read")
    assert (await reader.post(f"{path}/cancel", data={"reason": "no"})).status_code == 403
    assert (await reader.post(f"{path}/resume", data={"x": "1"})).status_code == 403
    assert "waiting for approval" in await page(reader, path)
    said = await client.post(f"{path}/cancel", data={"reason": "Not needed."})
    assert (said.status_code, said.headers["location"]) == (303, path)
    text = await page(client, path)
    assert "cancelled" in text
    assert (await client.get(f"{path}/cancel")).status_code == 405


async def test_a_tenant_sees_its_own_runs_alone(web: Site, hf: Runtime):
    anybody = await web.client("read", "run")
    mine = await run(anybody, "await look('x')", session="acme-1")
    theirs = await run(anybody, "await look('x')", session="other")
    tenant = await web.client("read", "run", prefix="acme-")
    await page(tenant, f"/runs/{mine['run_id']}")
    for path in ("", "?part=live"):
        refused = await page(tenant, f"/runs/{theirs['run_id']}{path}", 404)
        assert "other" not in refused
    for act in ("cancel", "resume"):
        answer = await tenant.post(f"/runs/{theirs['run_id']}/{act}", data={"reason": "x"})
        assert answer.status_code == 404
    nobody = await web.client()
    await page(nobody, f"/runs/{mine['run_id']}", 401)
    runner = await web.client("run")
    await page(runner, f"/runs/{mine['run_id']}", 403)
    await page(anybody, "/runs/run_none", 404)


# -- charts, tools, the journal -----------------------------------------------------------------------


async def test_charts_of_what_ran(web: Site):
    client = await web.client("read", "run", "approve")
    assert "Nothing ran yet" in await page(client, "/charts")
    for _ in range(3):
        await run(client, "await look('x')", session="acme-1")
    await run(client, "1 / 0", session="other")
    await client.post("/v1/agents/clerk/runs", json={"prompt": "x", "session_id": "ag"})
    text = await page(client, "/charts")
    assert text.count('class="column st-completed"') == 3
    assert text.count('class="column st-failed"') == 1
    assert "None of them cost anything." in text  # no chart of nothing
    assert re.search(r"1 <span[^>]*>of 4 that ended, 25 %", text)
    assert "scripted:script" in text
    assert "<details" in text
    assert "look" in text
    own = await page(client, "/charts?session_id=acme-1")
    assert "st-failed" not in own
    tenant = await web.client("read", prefix="acme-")
    seen = await page(tenant, "/charts")
    assert "st-failed" not in seen
    assert "other" not in seen
    await page(tenant, "/charts?session_id=other", 404)
    await page(client, "/charts?session_id=a+b", 400)
    await page(await web.client("run"), "/charts", 403)


async def test_tools_and_one_of_them(web: Site):
    client = await web.client("read")
    text = await page(client, "/tools")
    assert "Look at something." in text
    best = await page(client, "/tools?query=write+something+down")
    assert best.index('href="/tools/note"') < best.index("</table>")
    one = await page(client, "/tools/note")
    assert "Write something down" in one
    assert "def note" in one
    await page(client, "/tools/none", 404)
    await page(client, "/tools?session_id=none", 404)
    tenant = await web.client("read", prefix="acme-")
    await page(tenant, "/tools?session_id=other", 404)


async def test_surfaces_are_for_admins_to_change(web: Site, hf: Runtime):
    admin, reader = await web.client("admin"), await web.client("read", "run")
    await hf.surfaces.add("calc", {"kind": "module", "reference": "nowhere_at_all"})
    assert "calc" in await page(reader, "/tools")
    assert "Reload" not in await page(reader, "/tools")
    assert "Reload" in await page(admin, "/tools")
    for act in ("reload", "remove"):
        refused = await reader.post(f"/tools/surfaces/calc/{act}", data={"x": "1"})
        assert refused.status_code == 403
        assert (await admin.get(f"/tools/surfaces/calc/{act}")).status_code == 405
    unknown = await admin.post("/tools/surfaces/none/reload", data={"x": "1"})
    assert unknown.status_code == 404
    done = await admin.post("/tools/surfaces/calc/reload", data={"x": "1"})
    assert (done.status_code, done.headers["location"]) == (303, "/tools#surface-calc")
    await admin.post("/tools/surfaces/calc/remove", data={"x": "1"})
    assert 'id="surface-calc"' not in await page(admin, "/tools")


async def test_the_journal_is_searched(web: Site):
    client = await web.client("read", "run")
    done = await run(client, "await look('x')", session="acme-1")
    other = await run(client, "await look('y')", session="other")
    text = await page(client, "/journal")
    assert text.index("run_completed</code>") < text.index("effect_result</code>")  # newest first
    assert done["run_id"] in text
    for query, there, not_there in (
        (f"run_id={done['run_id']}", "effect_intent", other["run_id"]),
        ("kind=run_completed", "run_completed", "effect_intent</code>"),
        ("session_id=other", other["run_id"], done["run_id"]),
        ("text=execute+LOOK", "effect_intent", "run_completed</code>"),
        ("text=no-such-thing", "No record is like that", "effect_intent</code>"),
    ):
        found = await page(client, f"/journal?{query}")
        assert there in found, query
        assert not_there not in found, query
    for _ in range(20):
        await run(client, "await look('x')", session="acme-1")
    first = await page(client, "/journal")
    older = re.search(r'rel="next" href="\?before=(\d+)', first)
    assert older is not None
    seqs = [int(one) for one in re.findall(r'data-open href="/journal/(\d+)"', first)]
    second = await page(client, f"/journal?before={older[1]}")
    rest = [int(one) for one in re.findall(r'data-open href="/journal/(\d+)"', second)]
    assert seqs == sorted(seqs, reverse=True)
    assert rest[0] == seqs[-1] - 1  # nothing left out, nothing twice
    jumped = await client.get("/journal?seq=3")
    assert (jumped.status_code, jumped.headers["location"]) == (303, "/journal/3")
    for wrong in ("before=0", "before=x", f"text={'x' * 201}", "session_id=a+b"):
        await page(client, f"/journal?{wrong}", 400)


async def test_a_record_with_all_that_belongs_to_it(web: Site, hf: Runtime):
    client = await web.client("read", "run")
    done = await run(client, f"await look({HOSTILE!r})", session="acme-1")
    records = await hf.runs.records(done["run_id"])
    for record in records:
        text = await page(client, f"/journal/{record.seq}")
        assert record.hash in text
        assert record.prev in text
        assert "<script>alert" not in text
    intent = next(one for one in records if one.kind == "effect_intent")
    text = await page(client, f"/journal/{intent.seq}")
    assert "&lt;script&gt;alert(1)" in text  # its arguments
    await page(client, "/journal/999999", 404)
    await page(client, "/journal/0", 404)
    tenant = await web.client("read", prefix="other")
    await page(tenant, f"/journal/{intent.seq}", 404)
    assert done["run_id"] not in await page(tenant, "/journal")
    await page(tenant, f"/journal?run_id={done['run_id']}", 404)
    await page(tenant, "/journal?session_id=acme-1", 404)


async def test_the_proof_names_the_first_bad_record(tmp_path: Any):
    path = tmp_path / "journal.db"
    async with holdfast.open(f"sqlite:///{path}", capabilities=[look]) as hf:
        for _ in range(3):
            await hf.shell.run("await look('x')", session="s")
        async with site(hf, limits=UNLIMITED) as web:
            client = await web.client("read")
            whole = await client.post("/journal/verify", data={"x": "1"})
            assert "The journal is whole." in whole.text
            part = await client.post(
                "/journal/verify", data={"x": "1"}, headers={"HX-Request": "true"}
            )
            assert "<html" not in part.text
            assert (await client.get("/journal/verify")).status_code in (404, 405)
            tenant = await web.client("read", prefix="acme-")
            refused = await tenant.post("/journal/verify", data={"x": "1"})
            assert refused.status_code == 404
            damage(path, 4)
            broken = await client.post("/journal/verify", data={"x": "1"})
            assert "is not what was written" in broken.text
            assert 'href="/journal/4"' in broken.text


def damage(path: Any, seq: int) -> None:
    with sqlite3.connect(path) as db:
        db.execute("update records set hash = zeroblob(32) where seq = ?", (seq,))


async def test_a_run_that_is_longer_than_a_page(web: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(story, "MOST_RECORDS", 20)
    client = await web.client("read", "run")
    done = await run(client, "for n in range(30):\n    await look(str(n))")
    text = await page(client, f"/runs/{done['run_id']}")
    assert "This run is longer than a page." in text
    assert len(replay(text)["seqs"]) == 20
