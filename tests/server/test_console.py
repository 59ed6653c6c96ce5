"""The console over HTTP: the inbox, what is in doubt, runs and sessions; who sees and may what; and what pages never do."""

import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx
import pytest
from starlette.routing import Route
from tests.server.http_client import BASE, Site, ids, listening, site

import holdfast
from holdfast import Agent, Context, capability
from holdfast.contracts.approval import Asks
from holdfast.contracts.token import TOKENS
from holdfast.errors import ModelError
from holdfast.gate.approvals import ANSWERS
from holdfast.gate.executor import NeedsAnswer, Question, Unsure
from holdfast.runtime import Runtime
from holdfast.server.console import routes
from holdfast.server.console.static import assets
from holdfast.testing import ScriptedModel, say, write_code

FULL = ("read", "run", "approve")
HTML = {"Accept": "text/html,application/xhtml+xml"}
HTMX = {"HX-Request": "true"}
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> {{ 7*7 }} `</textarea>`"
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "title": "Size <b>", "minimum": 1, "maximum": 50},
        "colour": {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "extras": {"type": "array", "items": {"enum": ["lid", "box"]}},
        "gift": {"type": "boolean", "default": True},
        "note": {"type": "string", "maxLength": 2000},
        "more": {"type": "object"},
    },
    "required": ["size"],
}
paid: list[str] = []


@capability(side_effect="write")
def pay(to: str, note: str = "") -> str:
    """Pay somebody."""
    paid.append(to)
    return f"paid {to}"


@capability(side_effect="external_system", risk="critical")
def wipe(host: str) -> str:
    """Delete everything."""
    return f"wiped {host}"


@capability(side_effect="read")
def book(what: str, context: Context) -> str:
    """Book something; it has a question."""
    said = context.answers.get("size")
    if said is None:
        raise NeedsAnswer(Question(Asks.INPUT, "Which <b>size</b>?", FORM, key="size"))
    return f"{what}: {said.action} {said.content}"


@capability(side_effect="read")
def enter(url: str, context: Context) -> str:
    """Do something that needs a sign-in."""
    said = context.answers.get("who")
    if said is None:
        raise NeedsAnswer(Question(Asks.SIGN_IN, "Who are you?", url=url, key="who"))
    return said.action


@capability(side_effect="read", approval="none")
def look() -> str:
    """Look."""
    return "seen"


@capability(side_effect="write")
def ship(what: str) -> str | dict[str, int] | None:
    """Ship something; the carrier does not answer."""
    if what != "again" or "again" not in paid:
        paid.append(what)
        raise Unsure(ModelError("TOOL_ERROR", "No answer."))
    return "on its way"


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    paid.clear()
    rules = [{"id": "carrier", "tool": "ship", "then": "allow"}]
    given = [pay, wipe, book, enter, look, ship]
    async with holdfast.open(
        "memory:", config={"policy": {"rules": rules}}, capabilities=given
    ) as found:
        yield found


def agents() -> dict[str, Agent[Any]]:
    helper = Agent(
        ScriptedModel([write_code("x = 1\npay('ann', note='for lamps')"), say("Done.")]),
        name="helper",
        instructions="Help.",
    )
    return {"helper": helper}


@pytest.fixture
async def web(hf: Runtime) -> AsyncIterator[Site]:
    async with site(hf, agents=agents()) as found:
        yield found


# -- hands --------------------------------------------------------------------------------------------


async def run(client: httpx.AsyncClient, session: str, code: str, **more: Any) -> Any:
    answer = await client.post(f"/v1/sessions/{session}/run", json={"code": code, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def asks(client: httpx.AsyncClient, session: str, code: str) -> tuple[str, str]:
    """A run that comes to a question: the approval, and the run."""
    done = await run(client, session, code)
    assert done["status"] == "waiting_for_approval", done
    return done["approval_id"], done["run_id"]


async def doubts(client: httpx.AsyncClient, session: str, what: str = "sofa") -> tuple[str, str]:
    done = await run(client, session, f"x = ship({what!r})\nx")
    view = (await client.get(f"/v1/runs/{done['run_id']}")).json()
    assert view["status"] == "needs_attention", view
    return view["in_doubt"][0], view["id"]


async def page(client: httpx.AsyncClient, path: str, status: int = 200, **more: Any) -> str:
    """A page, as a browser gets it."""
    answer = await client.get(path, headers=HTML, **more)
    assert answer.status_code == status, answer.text
    return checked(answer)


def checked(answer: httpx.Response) -> str:
    """A page that does nothing by itself, whatever is in it."""
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text
    assert "<script>" not in text
    for tag in re.findall(r"<script\b[^>]*>", text):
        assert re.fullmatch(r'<script src="/static/console/[\w./-]+\?v=\w+"(?: defer)?>', tag), tag
    tags = " ".join(re.findall(r"<[a-zA-Z][^>]*>", text))
    assert re.search(r'\s(?:style|on\w+|hx-on[\w:-]*)\s*=\s*["\']', tags) is None
    assert "javascript:" not in tags
    return text


async def send(
    client: httpx.AsyncClient, path: str, headers: dict[str, str] | None = None, /, **said: str
) -> httpx.Response:
    """What a form sends."""
    given = {"Content-Type": "application/x-www-form-urlencoded", **(headers or HTML)}
    return await client.post(path, content=urlencode(said), headers=given)


async def ended(client: httpx.AsyncClient, run_id: str) -> Any:
    view = (await client.get(f"/v1/runs/{run_id}", params={"wait_ms": 20_000})).json()
    with anyio.fail_after(20):
        while view["status"] in ("running", "waiting_for_approval", "needs_attention"):
            await anyio.sleep(0.01)
            view = (await client.get(f"/v1/runs/{run_id}")).json()
    return view


async def signed_in(web: Site, *scopes: str) -> httpx.AsyncClient:
    browser = await web.client()
    await browser.get("/enter", params={"code": await web.tokens.link(scopes or ("admin",))})
    return browser


async def all_pages(client: httpx.AsyncClient) -> tuple[list[str], list[str]]:
    """The addresses of every page to read: of one thing of a session, and of many; with something on each."""
    approval, _ = await asks(client, "a-1", "pay('bob')")
    effect, _ = await doubts(client, "a-2")
    plan = (await run(client, "a-3", "pay('eve')", dry_run=True))["plan_id"]
    done = await run(client, "a-4", "1 + 1")
    of_run = (await client.get("/v1/journal", params={"run_id": done["run_id"]})).json()["items"]
    named = [
        f"/inbox/{approval}",
        f"/inbox/{plan}",
        f"/doubts/{effect}",
        "/sessions/a-4",
        f"/runs/{done['run_id']}",
        f"/journal/{of_run[0]['seq']}",
    ]
    lists = ["/", "/inbox/items", "/inbox/count", "/inbox/decided", "/runs", "/sessions"]
    return named, [*lists, "/charts", "/tools", "/tools/pay", "/journal"]


# -- all pages ----------------------------------------------------------------------------------------


async def test_pages_do_nothing_but_what_their_policy_says(web: Site):
    client = await web.client("admin")
    named, lists = await all_pages(client)
    gets = [one for one in routes() if isinstance(one, Route) and "GET" in (one.methods or ())]
    missed = {one.path for one in gets}
    for path in [*named, *lists, "/runs/new"]:
        await page(client, path)
        missed -= {next(one.path for one in gets if one.path_regex.match(path))}
    assert missed == {"/static/console/{name:path}"}  # no pages
    await page(client, "/nothing", 404)
    await page(await web.client(), "/", 401)


async def test_looking_changes_nothing(web: Site, hf: Runtime):
    client = await web.client("admin")
    named, lists = await all_pages(client)
    before = await hf.journal.last_seq()
    for path in [*named, *lists, "/runs/new"]:
        for headers in (HTML, HTMX):
            assert (await client.get(path, headers=headers)).status_code == 200
    assert await hf.journal.last_seq() == before
    for path in ("/inbox/x", "/doubts/x", "/sign-out", "/sessions/a-1/end", "/sessions/a-1/stop"):
        assert (await client.get(path)).status_code in (404, 405)
    assert [one.id for one in await hf.shell.list()] == ["a-1", "a-2", "a-4"]


async def test_everything_needs_a_scope(web: Site, hf: Runtime):
    admin, nobody = await web.client("admin"), await web.client("run")
    named, lists = await all_pages(admin)
    for path in [*named, *lists]:
        assert "needs the scope <code>read</code>" in await page(nobody, path, 403)
    reader = await web.client("read")
    assert "needs the scope <code>run</code>" in await page(reader, "/runs/new", 403)
    text = await page(reader, "/runs")
    assert "/runs/new" not in text
    for path, said in (
        ("/runs", {"code": "1"}),
        ("/sessions/a-4/end", {}),
        ("/sessions/a-4/stop", {}),
    ):
        assert (await send(reader, path, **said)).status_code == 403
    refused = [one.payload async for one in hf.journal.read(TOKENS) if one.kind == "access_refused"]
    assert {str(one["path"]) for one in refused} >= {"/", "/runs", "/sessions/a-4/end"}


async def test_a_reader_sees_what_waits_and_can_not_decide(web: Site, hf: Runtime):
    client, reader = await web.client(*FULL), await web.client("read")
    approval, _ = await asks(client, "s", "pay('bob')")
    effect, _ = await doubts(client, "t")
    for path in ("/", f"/inbox/{approval}", f"/doubts/{effect}"):
        text = await page(reader, path)
        assert 'method="post"' not in text
        assert "needs the scope <code>approve</code>" in text
    for headers in (HTML, HTMX):
        for path, said in (
            (f"/inbox/{approval}", {"decision": "approved"}),
            (f"/doubts/{effect}", {"answer": "retry"}),
        ):
            answer = await send(reader, path, headers, **said)
            assert answer.status_code == 403
            assert "scope <code>approve</code>" in checked(answer)
    assert answer.headers["hx-retarget"] == "#toasts"
    assert (await hf.approvals.show(approval)).status == "pending"
    assert paid == ["sofa"]


async def test_a_tenant_sees_only_its_own(web: Site, hf: Runtime):
    ours, theirs = await web.client(*FULL, prefix="a-"), await web.client(*FULL, prefix="b-")
    named, lists = await all_pages(ours)
    for path in named:
        await page(theirs, path, 404)
    for path in lists:
        assert re.search(r"\ba-\d\b", await page(theirs, path)) is None, path
    assert "waiting: </span>0" in await page(theirs, "/inbox/count")
    assert "waiting: </span>3" in await page(ours, "/inbox/count")
    answer = await send(theirs, named[0], decision="approved")
    assert answer.status_code == 404
    assert (await send(theirs, named[2], answer="retry")).status_code == 404
    assert (await send(theirs, "/sessions/a-4/end")).status_code == 404
    assert (await send(theirs, "/runs", code="1", session_id="a-4")).status_code == 404
    assert (await page(theirs, "/runs?session_id=a-4", 404)).count("NOT_FOUND")
    answers = [one.payload async for one in hf.journal.read(ANSWERS)]
    assert [one["reason_code"] for one in answers] == ["approval.not_yours"]
    assert (await hf.approvals.list())[0].status == "pending"


async def test_what_others_wrote_is_text(web: Site):
    client = await web.client("admin")
    lines = f"x\n{HOSTILE}"
    code = f"# {HOSTILE}\npay({HOSTILE!r}, note={lines!r})"
    approval, run_id = await asks(client, "s", code)
    asked, _ = await asks(client, "q", f"book({HOSTILE!r})")
    await doubts(client, "d", HOSTILE)
    await run(client, "e", f"raise ValueError({HOSTILE!r})")
    await run(client, "p", f"pay({HOSTILE!r})", dry_run=True)
    for path in ("/", f"/inbox/{asked}", "/runs", "/sessions/e"):
        text = await page(client, path)
        assert "&lt;" in text
        assert "<img" not in text
        assert "{{ 7*7 }}" in text or path != "/"
    await send(client, f"/inbox/{approval}", decision="denied", reason=HOSTILE)
    await ended(client, run_id)
    for path in (f"/inbox/{approval}", "/inbox/decided", "/runs"):
        text = await page(client, path)
        assert "<img" not in text
        assert "&lt;script&gt;" in text
    assert "<img" not in await page(client, f"/{HOSTILE}".replace("?", ""), 404)


async def test_what_can_not_be_seen_is_spelled_out(web: Site):
    client = await web.client("admin")
    await asks(client, "s", "pay('ann\\u202etxt.exe', note='zero\\u200bwidth')")
    text = await page(client, "/")
    assert "\u202e" not in text
    assert "ann\\u202etxt.exe" in text
    assert "zero\\u200bwidth" in text


# -- coming and going ---------------------------------------------------------------------------------


async def test_who_is_not_signed_in_is_told_how(web: Site):
    stranger = await web.client()
    answer = await stranger.get("/", headers=HTML)
    assert answer.status_code == 401
    assert f"holdfast token link --at {BASE}<" in checked(answer)
    elsewhere = await stranger.get("/", headers={**HTML, "Host": "127.0.0.1:8000"})
    assert "holdfast token link --at http://127.0.0.1:8000<" in checked(elsewhere)
    assert "www-authenticate" not in answer.headers
    assert (await stranger.get("/")).json()["code"] == "UNAUTHENTICATED"
    assert (await stranger.get("/v1/runs", headers=HTML)).json()["code"] == "UNAUTHENTICATED"
    link = await web.tokens.link(["admin"])
    await (await web.client()).get("/enter", params={"code": link})
    text = await page(stranger, "/enter", 401, params={"code": link})
    assert "This link is used up" in text
    toast = await stranger.get("/inbox/count", headers=HTMX)
    assert (toast.status_code, toast.headers["hx-reswap"]) == (401, "beforeend")


async def test_a_person_with_a_name_decides_by_it(web: Site):
    client = await web.client(*FULL)
    approval, _ = await asks(client, "a-1", "pay('bob')")
    hidden, _ = await asks(client, "b-1", "pay('bob')")
    browser = await web.client()
    link = await web.tokens.link(["read", "approve"], prefix="a-", name="Ada Lovelace")
    await browser.get("/enter", params={"code": link})
    text = await page(browser, "/")
    assert "Ada Lovelace" in text
    assert hidden not in text
    await send(browser, f"/inbox/{approval}", {**HTML, "Origin": BASE}, decision="denied")
    decision = (await client.get(f"/v1/approvals/{approval}")).json()["decision"]
    assert decision["actor"] == "Ada Lovelace"
    assert decision["via"].startswith("console:tok_")
    assert "<strong>you</strong>" in await page(browser, f"/inbox/{approval}")
    assert "Ada Lovelace" in await page(client, f"/inbox/{approval}")


async def test_signing_out_ends_the_cookie_everywhere(web: Site):
    browser = await signed_in(web)
    kept = browser.cookies["holdfast"]
    assert "Sign out" in await page(browser, "/")
    origin = {**HTML, "Origin": BASE}
    assert (await send(browser, "/sign-out")).status_code == 403
    answer = await send(browser, "/sign-out", origin)
    assert answer.status_code == 200
    assert "You are signed out" in checked(answer)
    assert f"holdfast token link --at {BASE}<" in answer.text
    assert "holdfast" not in browser.cookies
    browser.cookies.set("holdfast", kept)
    await page(browser, "/", 401)
    program = await web.client("admin")
    assert "Sign out" not in await page(program, "/")
    assert (await send(program, "/sign-out")).status_code == 400
    await page(program, "/")


async def test_other_sites_can_not_decide_with_a_signed_in_browser(web: Site, hf: Runtime):
    browser, client = await signed_in(web), await web.client(*FULL)
    approval, run_id = await asks(client, "s", "pay('bob')")
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}):
        answer = await send(browser, f"/inbox/{approval}", {**HTML, **origin}, decision="approved")
        assert answer.status_code == 403
    assert (await hf.approvals.show(approval)).status == "pending"
    said = {"decision": "approved"}
    answer = await browser.post(f"/inbox/{approval}", json=said, headers={"Origin": BASE, **HTML})
    assert answer.status_code == 400
    answer = await send(browser, f"/inbox/{approval}", {**HTML, "Origin": BASE}, **said)
    assert answer.status_code == 303
    assert (await ended(client, run_id))["status"] == "completed"
    decision = (await hf.approvals.show(approval)).decision
    assert decision is not None
    assert str(decision.actor).startswith("browser:tok_")
    assert str(decision.via).startswith("console:tok_")


async def test_errors_are_pages_for_people_and_json_for_programs(web: Site):
    client = await web.client("admin")
    for path, status, code in (
        ("/nothing", 404, "NOT_FOUND"),
        ("/inbox/apr_1", 404, "NOT_FOUND"),
        ("/doubts/eff_1", 404, "NOT_FOUND"),
        ("/sessions/a b", 400, "INVALID_SESSION_ID"),
        ("/runs?session_id=a%20b", 400, "INVALID_SESSION_ID"),
        ("/sign-out", 405, "METHOD_NOT_FOUND"),
    ):
        assert code in await page(client, path, status)
        plain = await client.get(path)
        assert (plain.status_code, plain.json()["code"]) == (status, code)
    assert (await client.get("/v1/nothing", headers=HTML)).json()["code"] == "NOT_FOUND"


# -- the inbox ----------------------------------------------------------------------------------------


async def test_an_item_says_what_will_happen_and_on_whose_behalf(web: Site):
    client = await web.client(*FULL)
    code = "a = look()\nif a:\n    pay('ann@example.com', note='first\\nsecond')"
    approval, run_id = await asks(client, "billing", code)
    for path in ("/", f"/inbox/{approval}"):
        text = await page(client, path)
        for shown in (
            "Pay somebody.",
            "ann@example.com",
            "first\nsecond",
            "writes",
            "medium risk",
            'href="/sessions/billing"',
            f'href="/runs/{run_id}"',
            "started by <code>token:tok_",
            "rule <code>default.ask</code>",
            "No rule decides about <code>pay</code>",
            "Line 3 of the code",
            'data-deadline="',
        ):
            assert shown in text, shown
    assert "waiting: </span>1" in text


async def test_lines_are_counted_as_the_language_counts_them(web: Site):
    client = await web.client(*FULL)
    await asks(client, "s", "x = 'one\u2028and\x0cthe same'\npay('bob')")
    text = await page(client, "/")
    assert "Line 2 of the code" in text
    assert "one\\u2028and\\x0cthe same" in text


async def test_an_agent_is_named_with_what_it_was_asked(web: Site):
    client = await web.client(*FULL)
    said = {"prompt": "Order <lamps>.", "session_id": "shop"}
    done = (await client.post("/v1/agents/helper/runs", json=said)).json()
    assert done["status"] == "waiting_for_approval"
    text = await page(client, "/")
    for shown in ("agent <strong>helper</strong>", "Order &lt;lamps&gt;.", "Line 2 of the code"):
        assert shown in text, shown


async def test_a_decision_works_without_script_and_says_who_decided(web: Site, hf: Runtime):
    client, other = await web.client(*FULL), await web.client(*FULL)
    approval, run_id = await asks(client, "s", "pay('bob')")
    answer = await send(client, f"/inbox/{approval}", decision="approved")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/inbox/{approval}")
    assert (await ended(client, run_id))["result"]["result"] == "paid bob"
    assert "by <strong>you</strong>" in await page(client, f"/inbox/{approval}")
    text = await page(other, f"/inbox/{approval}")
    view = await hf.approvals.show(approval)
    assert view.decision is not None
    assert f"by <strong>{view.decision.actor}</strong>" in text
    assert "over HTTP" in text
    assert 'method="post"' not in text
    assert approval in await page(other, "/inbox/decided")
    assert approval not in await page(other, "/")


async def test_a_denial_takes_reason_and_code_along(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    approval, run_id = await asks(client, "s", "pay('bob')")
    said = {"decision": "denied", "reason": "Not on a Friday.", "reason_code": "denied.not_now"}
    answer = await send(client, f"/inbox/{approval}", HTMX, **said)
    assert answer.status_code == 200
    text = checked(answer)
    assert "<html" not in text
    assert "Not on a Friday." in text
    assert "denied.not_now" in text
    assert "Not on a Friday." in (await ended(client, run_id))["error"]["message"]
    view = await hf.approvals.show(approval)
    assert (view.status, view.reason_code) == ("denied", "denied.not_now")
    assert paid == []


async def test_the_second_of_two_is_told_who_was_first(web: Site, hf: Runtime):
    client, other = await web.client(*FULL), await web.client(*FULL)
    approval, _ = await asks(client, "s", "pay('bob')")
    assert (await send(client, f"/inbox/{approval}", decision="denied")).status_code == 303
    view = await hf.approvals.show(approval)
    assert view.decision is not None
    for headers in (HTML, HTMX):
        answer = await send(other, f"/inbox/{approval}", headers, decision="approved")
        assert answer.status_code == 409
        text = checked(answer)
        assert f"Too late: {view.decision.actor} decided first." in text
        assert "It is denied" in text
    answer = await send(client, f"/inbox/{approval}", HTMX, decision="approved")
    assert "Too late: you decided first." in answer.text
    late = [one.payload async for one in hf.journal.read(ANSWERS)][1:]
    assert [one["reason_code"] for one in late] == ["approval.late_response"] * 3
    assert paid == []


async def test_what_is_critical_is_not_approved_for_a_session(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    grave, _ = await asks(client, "g", "wipe('db-1')")
    text = await page(client, f"/inbox/{grave}")
    assert "critical risk" in text
    assert "approved_for_session" not in text
    answer = await send(client, f"/inbox/{grave}", decision="approved_for_session")
    assert answer.status_code == 400
    assert "it is still pending" in checked(answer)
    assert (await hf.approvals.show(grave)).status == "pending"
    approval, run_id = await asks(client, "s", "[pay(n) for n in 'ab']")
    assert "approved_for_session" in await page(client, f"/inbox/{approval}")
    await send(client, f"/inbox/{approval}", decision="approved_for_session")
    assert (await ended(client, run_id))["result"]["result"] == ["paid a", "paid b"]
    assert "Granted for this session" in await page(client, "/sessions/s")


@pytest.mark.parametrize("decision", ["", "yes", "APPROVED"])
async def test_only_the_three_answers_are_answers(web: Site, hf: Runtime, decision: str):
    client = await web.client(*FULL)
    approval, _ = await asks(client, "s", "pay('bob')")
    answer = await send(client, f"/inbox/{approval}", decision=decision)
    assert answer.status_code == 400
    assert (await hf.approvals.show(approval)).status == "pending"


async def test_a_question_is_a_form_that_can_be_mended(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    asked, run_id = await asks(client, "q", "book('bed')")
    text = await page(client, f"/inbox/{asked}")
    assert "Which &lt;b&gt;size&lt;/b&gt;?" in text
    assert "holdfast has not checked these words" in text
    for name in ("size", "colour", "extras.0", "extras.1", "gift", "note", "more"):
        assert f'name="content.{name}"' in text, name
    assert '<input id="f-' in text
    assert 'min="1" max="50" required' in text
    given = {"decision": "approved", "content.note": "<kept>", "content.colour": "1"}
    for size, said in (("99", "size"), ("many", "must be a number"), ("", "size")):
        answer = await send(client, f"/inbox/{asked}", **given, **{"content.size": size})
        assert answer.status_code == 400
        text = checked(answer)
        assert said in text
        assert "&lt;kept&gt;</textarea>" in text
        assert re.search(r"<option value=\"1\" selected>Green", text)
    full = {**given, "content.size": "12", "content.extras.1": "1", "content.more": '{"a": 1}'}
    answer = await send(client, f"/inbox/{asked}", HTMX, **full)
    assert answer.status_code == 200
    result = (await ended(client, run_id))["result"]["result"]
    content = {"size": 12, "colour": "g", "extras": ["box"], "note": "<kept>", "more": {"a": 1}}
    for name, value in {**content, "gift": False}.items():
        assert f"{name!r}: {value!r}" in result
    assert "&lt;kept&gt;" not in await page(client, f"/inbox/{asked}"), "it is for who asked"


async def test_a_sign_in_is_a_link_that_shows_where_it_goes(web: Site):
    client = await web.client(*FULL)
    asked, run_id = await asks(client, "q", "enter('https://login.example/a?b=<c>')")
    text = await page(client, f"/inbox/{asked}")
    assert 'href="https://login.example/a?b=&lt;c&gt;" target="_blank" rel="noopener' in text
    assert "<strong>login.example</strong>" in text
    await send(client, f"/inbox/{asked}", decision="approved")
    assert (await ended(client, run_id))["result"]["result"] == "accept"


async def test_a_plan_is_approved_as_a_whole(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    code = "pay('ann')\npay('bob')"
    plan = (await run(client, "s", code, dry_run=True))["plan_id"]
    text = await page(client, "/")
    assert "2 calls" in text
    assert "Approve the plan" in text
    assert "ann" in await page(client, f"/inbox/{plan}")
    assert (await send(client, f"/inbox/{plan}", decision="approved")).status_code == 303
    assert "by <strong>you</strong>" in await page(client, f"/inbox/{plan}")
    late = await send(client, f"/inbox/{plan}", HTMX, decision="denied")
    assert late.status_code == 409
    assert "does not count" in checked(late)
    assert (await run(client, "s", code, plan_id=plan))["status"] == "ok"
    assert paid == ["ann", "bob"]


async def test_many_items_come_in_parts(web: Site, hf: Runtime, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.server.console.inbox.SHOWN", 2)
    client = await web.client(*FULL)
    found = [(await asks(client, f"s-{n}", "pay('bob')"))[0] for n in range(3)]
    first = await page(client, "/")
    assert [one in first for one in found] == [True, True, False]
    (more,) = re.findall(r'href="(/\?after=[^"]+)"', first)
    second = await page(client, more)
    assert [one in second for one in found] == [False, False, True]
    assert ('hx-get="/inbox/items"' in first, 'hx-get="/inbox/items"' in second) == (True, False)
    for one in found:
        await send(client, f"/inbox/{one}", decision="denied")
    newest = await page(client, "/inbox/decided")
    assert [one in newest for one in found] == [False, True, True]


# -- in doubt -----------------------------------------------------------------------------------------


async def test_in_doubt_it_happened_with_a_value(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    effect, run_id = await doubts(client, "s")
    text = await page(client, "/")
    for shown in ("in doubt", "sofa", "It happened", "It did not happen", "Try it again"):
        assert shown in text, shown
    said = {"answer": "happened", "value": '{"id": 7}', "resume": "1"}
    answer = await send(client, f"/doubts/{effect}", **said)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/doubts/{effect}")
    assert (await ended(client, run_id))["result"]["result"] == {"id": 7}
    text = await page(client, f"/doubts/{effect}")
    assert "It happened, says <strong>you</strong>" in text
    late = await send(await web.client(*FULL), f"/doubts/{effect}", HTMX, answer="retry")
    assert late.status_code == 409
    assert re.search(r"Too late: token:tok_\w+ answered first", checked(late))
    assert paid == ["sofa"]


async def test_in_doubt_what_it_gave_must_be_what_it_can_give(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    effect, _ = await doubts(client, "s")
    for bad, why in {
        '{"id": 7': "looks like JSON, and is none",
        "[on its way": "looks like JSON, and is none",
        '"on its way': "looks like JSON, and is none",
        "5": "gave what it does not promise",
    }.items():
        answer = await send(client, f"/doubts/{effect}", HTMX, answer="happened", value=bad)
        assert answer.status_code == 400, bad
        assert why in checked(answer), bad
    assert (await client.get("/v1/runs?status=needs_attention")).json()["items"]
    said = {"answer": "happened", "value": 5}
    told = await client.post(f"/v1/effects/{effect}/resolve", json=said)
    assert (told.status_code, told.json()["code"]) == (400, "INVALID_ARGUMENT")
    await send(client, f"/doubts/{effect}", answer="happened", value="on its way", resume="1")


async def test_in_doubt_it_did_not_happen_or_is_tried_again(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    effect, run_id = await doubts(client, "s")
    answer = await send(client, f"/doubts/{effect}", HTMX, answer="did_not_happen", resume="1")
    assert answer.status_code == 200
    assert "It did not happen" in checked(answer)
    assert (await ended(client, run_id))["status"] == "failed"
    effect, run_id = await doubts(client, "t", "again")
    await send(client, f"/doubts/{effect}", answer="retry", resume="1")
    assert (await ended(client, run_id))["result"]["result"] == "on its way"


async def test_in_doubt_nothing_goes_on_unless_it_is_wanted(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    effect, run_id = await doubts(client, "s")
    for bad in ("", "maybe"):
        assert (await send(client, f"/doubts/{effect}", answer=bad)).status_code == 400
    assert (await send(client, f"/doubts/{effect}", answer="happened")).status_code == 303
    assert (await hf.runs.show(run_id)).ended_at is None
    assert effect not in await page(client, "/")


# -- runs and sessions --------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_in_parts_and_by_filters(
    web: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.server.console.runs.SHOWN", 2)
    client = await web.client(*FULL)
    runs = [(await run(client, f"s-{n}", "1"))["run_id"] for n in range(3)]
    failed = (await run(client, "s-0", "1/0"))["run_id"]
    first = await page(client, "/runs")
    assert [first.find(one) > 0 for one in (failed, *runs)] == [True, False, False, True]
    assert first.find(failed) < first.find(runs[2])
    (older,) = re.findall(r'href="\?([^"]*after=[^"]+)"', first)
    second = await page(client, "/runs?" + older.replace("&amp;", "&"))
    assert [one in second for one in (failed, *runs)] == [False, True, True, False]
    only = await page(client, "/runs?status=failed")
    assert (failed in only, runs[0] in only) == (True, False)
    only = await page(client, "/runs?session_id=s-1")
    assert [one in only for one in runs] == [False, True, False]
    assert "Nothing fits these filters" in await page(client, "/runs?status=cancelled")
    rows = checked(await client.get("/runs", headers=HTMX))
    assert "<html" not in rows
    assert failed in rows


async def test_programs_can_list_newest_first_too(web: Site):
    client = await web.client(*FULL)
    runs = [(await run(client, f"s-{n}", "1"))["run_id"] for n in range(3)]
    first = (await client.get("/v1/runs", params={"newest": True, "limit": 2})).json()
    assert ids(first["items"]) == runs[:0:-1]
    rest = (await client.get("/v1/runs", params={"newest": True, "after": first["next"]})).json()
    assert (ids(rest["items"]), rest["next"]) == (runs[:1], None)
    asked = [(await asks(client, f"q-{n}", "pay('bob')"))[0] for n in range(2)]
    found = (await client.get("/v1/approvals", params={"newest": True})).json()
    assert ids(found["items"]) == asked[::-1]


async def test_a_page_says_from_where_on_it_wants_news(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    await asks(client, "s", "pay('bob')")
    last = await hf.journal.last_seq()
    assert f'data-live-stream="/v1/events" data-live-after="{last}"' in await page(client, "/")
    assert "data-live-stream" not in await page(await web.client(), "/", 401)


async def test_a_run_is_started_by_a_form_once(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    text = await page(client, "/runs/new?session_id=notes")
    assert 'value="notes"' in text
    (key,) = re.findall(r'name="key" value="([^"]+)"', text)[:1]
    said = {"key": key, "code": "x = 41\nx + 1", "session_id": "notes"}
    first = await send(client, "/runs", **said)
    assert first.status_code == 303
    again = await send(client, "/runs", **said)
    assert again.headers["location"] == first.headers["location"]
    run_id = first.headers["location"].removeprefix("/runs/")
    assert (await ended(client, run_id))["result"]["result"] == 42
    assert len(await hf.runs.list()) == 1
    unnamed = {"key": "form_abc", "code": "1"}
    first, again = [await send(client, "/runs", **unnamed) for _ in range(2)]
    assert first.headers["location"] == again.headers["location"]


async def test_a_form_that_can_not_be_run_keeps_what_was_typed(web: Site):
    client = await web.client(*FULL)
    answer = await send(client, "/runs", code="1 + <b>", session_id="a b")
    assert answer.status_code == 400
    text = checked(answer)
    assert "1 + &lt;b&gt;</textarea>" in text
    assert "Session id" in text
    assert (await send(client, "/runs", code="  ")).status_code == 400


async def test_an_agent_is_started_by_a_form(web: Site, hf: Runtime):
    client = await web.client(*FULL, prefix="t-")
    assert "<option>helper</option>" in await page(client, "/runs/new")
    answer = await send(client, "/runs", kind="agent", agent="helper", prompt="Go.")
    assert answer.status_code == 303
    (found,) = [one for one in await hf.runs.list() if one.kind == "agent"]
    assert answer.headers["location"] == f"/runs/{found.id}"
    assert found.session_id.startswith("t-")
    assert (await send(client, "/runs", kind="agent", agent="x", prompt="Go.")).status_code == 404


async def test_a_session_has_a_page_and_can_be_stopped_and_ended(web: Site, hf: Runtime):
    client = await web.client(*FULL)
    approval, run_id = await asks(client, "notes", "pay('bob')")
    assert "/sessions/notes" in await page(client, "/sessions")
    text = await page(client, "/sessions/notes")
    assert run_id in text
    assert "End it and erase" in text
    assert "End it" not in await page(await web.client("read"), "/sessions/notes")
    assert (await send(client, "/sessions/notes/stop")).status_code == 303
    assert (await send(client, "/sessions/notes/end")).status_code == 303
    assert ids((await client.get("/v1/sessions")).json()["items"]) == []
    assert "destroyed" in await page(client, "/sessions/notes")
    assert "erased" in await page(client, f"/inbox/{approval}")


# -- what pages need ----------------------------------------------------------------------------------


async def test_files_of_pages_are_kept_by_browsers_as_long_as_they_do_not_change(web: Site):
    stranger = await web.client()
    text = await page(stranger, "/", 401)
    found = re.findall(r'(?:src|href)="(/static/console/[^"]+)"', text)
    assert len(found) >= 5
    for path in found:
        answer = await stranger.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        tag = {"If-None-Match": answer.headers["etag"]}
        assert (await stranger.get(path, headers=tag)).status_code == 304
        plain = await stranger.get(path.partition("?")[0])
        assert plain.headers["cache-control"] == "no-cache"
    for path in ("nothing.css", "../page.py", "vendor/README.md", "%2e%2e/page.py"):
        answer = await stranger.get(f"/static/console/{path}")
        assert answer.status_code in (401, 404), path


def test_what_is_not_ours_is_what_its_note_says():
    import hashlib

    note = (files("holdfast.server.console") / "static" / "vendor" / "README.md").read_text()
    data = assets()["vendor/htmx.min.js"].data
    assert hashlib.sha256(data).hexdigest() in note
    assert b"2.0.11" in data
    assert "2.0.11" in note


async def test_it_is_all_there_over_a_real_socket(hf: Runtime):
    async with listening(hf) as server:
        link = await server.tokens.link(["admin"])
        async with httpx.AsyncClient(base_url=server.url, headers=HTML) as browser:
            entered = await browser.get("/enter", params={"code": link})
            assert entered.status_code == 200
            approval = (await hf.shell.run("pay('bob')", session="s")).approval_id
            text = await page(browser, "/")
            assert str(approval) in text
            answer = await send(
                browser, f"/inbox/{approval}", {**HTML, "Origin": server.url}, decision="denied"
            )
            assert answer.status_code == 303
            assert "by <strong>you</strong>" in await page(browser, f"/inbox/{approval}")


async def test_without_a_console_there_is_none(hf: Runtime):
    async with site(hf, console=False) as web:
        client = await web.client("admin")
        answer = await client.get("/", headers=HTML)
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
