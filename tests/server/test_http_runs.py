"""Runs over HTTP: asked for twice, longer than anybody waits, and across the end of the server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import websockets
from tests.agent.watching import until
from tests.server.http_client import Site, listening, site

import holdfast
from holdfast import Agent, capability
from holdfast.contracts.token import TOKENS
from holdfast.errors import CallerError
from holdfast.journal import MemoryJournal
from holdfast.runtime import Runtime
from holdfast.server.idempotency import Keys, key_of
from holdfast.server.limits import UNLIMITED
from holdfast.testing import ScriptedModel, call, say

calls: list[str] = []
gates: dict[str, anyio.Event] = {}
ALLOW = {"policy": {"default": "allow"}}


@capability(side_effect="write")
async def note(what: str) -> str:
    """Write something down; it takes as long as the test wants."""
    calls.append(what)
    if what in gates:
        await gates[what].wait()
    return f"noted {what}"


@capability(side_effect="read")
async def look(what: str) -> str:
    """The same for what only looks: a dry run does it."""
    return await note(what)


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()
    gates.clear()


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    async with holdfast.open("memory:", config=ALLOW, capabilities=[note, look]) as found:
        yield found


@pytest.fixture
async def web(hf: Runtime) -> AsyncIterator[Site]:
    agents = {
        "clerk": Agent(ScriptedModel([call("note", what="ag"), say("Done.")]), code_mode=False)
    }
    async with site(hf, limits=UNLIMITED, agents=agents) as found:
        yield found


def body(code: str) -> dict[str, Any]:
    return {"code": code}


def url(session: str = "s") -> str:
    return f"/v1/sessions/{session}/run"


def key(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


# -- the same request again ---------------------------------------------------------------------------


async def test_the_same_key_runs_once(web: Site):
    client = await web.client("run")
    first = await client.post(url(), json=body("await note('a')"), headers=key("k"))
    again = await client.post(url(), json=body("await note('a')"), headers=key("k"))
    assert first.json()["result"] == "noted a"
    assert again.json() == first.json()
    assert calls == ["a"]
    other = await client.post(url(), json=body("await note('b')"), headers=key("k"))
    assert (other.status_code, other.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    elsewhere = await client.post(url("t"), json=body("await note('a')"), headers=key("k"))
    assert elsewhere.status_code == 409
    await client.post(url(), json=body("await note('a')"), headers=key("k2"))
    await client.post(url(), json=body("await note('a')"))
    assert calls == ["a", "a", "a"]


async def test_the_key_of_another_caller_is_another_key(web: Site):
    one, two = await web.client("run"), await web.client("run")
    for client in (one, two):
        await client.post(url(), json=body("await note('a')"), headers=key("k"))
    assert calls == ["a", "a"]


async def test_the_same_key_at_the_same_time_runs_once(web: Site):
    client = await web.client("run")
    gates["a"] = anyio.Event()
    answers: list[httpx.Response] = []

    async def post() -> None:
        answers.append(await client.post(url(), json=body("await note('a')"), headers=key("k")))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(post)
        await until(lambda: bool(calls))
        gates["a"].set()
    assert {one.json()["run_id"] for one in answers} == {answers[0].json()["run_id"]}
    assert [one.json()["result"] for one in answers] == ["noted a"] * 5
    assert calls == ["a"]


async def test_the_same_key_runs_once_across_a_restart(tmp_path: Path):
    path = f"sqlite:///{tmp_path}/journal.db"
    token = ""
    results: list[Any] = []
    for _ in range(2):
        async with (
            holdfast.open(path, config=ALLOW, capabilities=[note]) as hf,
            site(hf, limits=UNLIMITED) as web,
        ):
            token = token or (await web.tokens.create(["run"])).text
            client = await web.client()
            headers = {**key("k"), "Authorization": f"Bearer {token}"}
            results.append(
                (await client.post(url(), json=body("await note('a')"), headers=headers)).json()
            )
    assert results[0] == results[1]
    assert calls == ["a"]


async def test_a_key_whose_run_never_began_begins_it(hf: Runtime, web: Site):
    """The server died between the record of the key and the start of the run."""
    made = await web.tokens.create(["run"])
    asked = ["POST", url(), [], body("await note('a')")]
    known = key_of("k", f"token:{made.view.id}", asked)
    run_id = (await Keys(hf.journal).run(known, "s", actor="token:t")).run_id
    client = await web.client()
    headers = {**key("k"), "Authorization": f"Bearer {made.text}"}
    answer = await client.post(url(), json=body("await note('a')"), headers=headers)
    assert (answer.json()["run_id"], answer.json()["result"]) == (run_id, "noted a")
    assert calls == ["a"]


async def test_a_run_that_waits_is_the_same_run_for_the_same_key():
    async with (
        holdfast.open("memory:", config={}, capabilities=[note]) as hf,
        site(hf, limits=UNLIMITED) as web,
    ):
        client = await web.client("run", "approve")
        parked = (await client.post(url(), json=body("await note('a')"), headers=key("k"))).json()
        again = (await client.post(url(), json=body("await note('a')"), headers=key("k"))).json()
        assert again == parked
        path = f"/v1/approvals/{parked['approval_id']}/decision"
        said = {"decision": "approved"}
        first = await client.post(path, json=said, headers=key("d"))
        assert (await client.post(path, json=said, headers=key("d"))).json() == first.json()
        changed = await client.post(path, json={"decision": "denied"}, headers=key("d"))
        assert changed.json()["code"] == "IDEMPOTENCY_CONFLICT"
        done = await client.post(url(), json=body("await note('a')"), headers=key("k"))
        assert done.json()["result"] == "noted a"
        assert calls == ["a"]


async def test_an_agent_with_a_key_runs_once(web: Site):
    client = await web.client("run")
    asked = {"prompt": "Go."}
    first = await client.post("/v1/agents/clerk/runs", json=asked, headers=key("k"))
    again = await client.post("/v1/agents/clerk/runs", json=asked, headers=key("k"))
    assert first.json()["text"] == "Done."
    assert again.json() == first.json()
    assert calls == ["ag"]


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\tb", "é"])
def test_a_key_that_is_none_is_refused(bad: str):
    with pytest.raises(CallerError):
        key_of(bad, "a", {})


async def test_keys_are_forgotten_after_a_week():
    now = [1_700_000_000_000]
    keys = Keys(MemoryJournal(clock=lambda: now[0]), now=lambda: now[0])
    known = key_of("k", "a", {})
    first = await keys.run(known, "s", actor="token:t")
    assert (await keys.run(known, "s", actor="token:t")).run_id == first.run_id
    now[0] += 7 * 86_400_000
    assert (await keys.run(known, "s", actor="token:t")).run_id != first.run_id


# -- longer than anybody waits ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "params"),
    [
        ({"Prefer": "respond-async"}, {}),
        ({"Prefer": "wait=0"}, {}),
        ({}, {"wait_ms": 0}),
    ],
)
async def test_a_long_run_is_accepted_and_looked_at_later(
    web: Site, headers: dict[str, str], params: dict[str, int]
):
    client = await web.client("run", "read")
    gates["a"] = anyio.Event()
    answer = await client.post(url(), json=body("await note('a')"), headers=headers, params=params)
    told = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == told["url"]
    view = (await client.get(told["url"])).json()
    assert (view["status"], view["result"]) == ("running", None)
    gates["a"].set()
    done = (await client.get(told["url"], params={"wait_ms": 10_000})).json()
    assert (done["status"], done["result"]["result"]) == ("completed", "noted a")


async def test_what_was_refused_before_it_began_is_told_where_it_was_promised(web: Site):
    client = await web.client("run", "read")
    gates["a"] = anyio.Event()
    first = (await client.post(url(), json=body("await note('a')"), params={"wait_ms": 0})).json()
    await until(lambda: bool(calls))
    asked = {"code": "1", "wait_ms": 0}
    second = (await client.post(url(), json=asked, params={"wait_ms": 0})).json()
    answer = await client.get(second["url"], params={"wait_ms": 10_000})
    assert (answer.status_code, answer.json()["code"]) == (409, "SESSION_BUSY")
    gates["a"].set()
    assert (await client.get(first["url"], params={"wait_ms": 10_000})).json()[
        "status"
    ] == "completed"


async def test_what_was_over_before_it_began_is_told_where_it_was_promised(web: Site):
    """Refused as a result, or cancelled: there is no record of it, and yet its client was told to look there."""
    client = await web.client("run", "read")
    odd = {"code": "1", "inputs": {"no name": 1}}
    sent = {"params": {"wait_ms": 0}, "headers": key("k")}
    asked = (await client.post(url(), json=odd, **sent)).json()
    where = f"/v1/runs/{asked['run_id']}"
    told = (await client.get(where, params={"wait_ms": 10_000})).json()
    assert (told["status"], told["result"]["status"]) == ("failed", "validation_error")
    assert told["error"]["code"] == "INVALID_ARGUMENT"
    assert (await client.get(where)).json() == told
    again = await client.post(url(), json=odd, **sent)
    assert again.json() == told["result"]


async def test_a_run_goes_on_when_its_client_is_gone(hf: Runtime):
    gates["a"] = anyio.Event()
    async with listening(hf, limits=UNLIMITED) as server:
        token = (await server.tokens.create(["run", "read"])).text
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            with anyio.move_on_after(10):
                async with anyio.create_task_group() as group:
                    group.start_soon(lambda: client.post(url(), json=body("await note('a')")))
                    await until(lambda: bool(calls))
                    group.cancel_scope.cancel()
            runs = (await client.get("/v1/runs")).json()["items"]
            assert [one["status"] for one in runs] == ["running"]
            gates["a"].set()
            path = f"/v1/runs/{runs[0]['id']}"
            done = (await client.get(path, params={"wait_ms": 10_000})).json()
            assert done["status"] == "completed"


async def completed(hf: Runtime, run_id: str) -> bool:
    return (await hf.runs.show(run_id)).status == "completed"


# -- the end of the server ----------------------------------------------------------------------------


async def test_stopping_lets_effects_end_begins_none_and_leaves_runs_on_record(tmp_path: Path):
    path = f"sqlite:///{tmp_path}/journal.db"
    gates["one"], gates["two"] = anyio.Event(), anyio.Event()
    left: list[list[str]] = []
    told: list[httpx.Response] = []

    async def died(runs: list[str]) -> None:
        # As if the process ended here: nobody gets to write that the runs were cancelled.
        left.append(runs)
        await backup.backup(str(tmp_path / "after.db"))

    async with holdfast.open(path, config=ALLOW, capabilities=[note]) as hf:
        backup = hf.journal
        async with (
            anyio.create_task_group() as group,
            listening(hf, limits=UNLIMITED, left=died) as server,
        ):
            token = (await server.tokens.create(["run", "read"])).text
            headers = {"Authorization": f"Bearer {token}"}

            async def post() -> None:
                code = "await note('one')\nawait note('two')"
                async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
                    told.append(await client.post(url(), json=body(code), timeout=30))

            group.start_soon(post)
            await until(lambda: bool(calls))
            server.stop()
            gates["one"].set()
    assert calls == ["one"]
    assert told[0].status_code == 202
    assert left == [[told[0].json()["run_id"]]]
    gates["two"].set()
    async with holdfast.open(
        f"sqlite:///{tmp_path}/after.db", config=ALLOW, capabilities=[note]
    ) as hf:
        view = await hf.runs.show(left[0][0])
        assert (view.status, view.in_doubt) == ("running", ())
        async with listening(hf, limits=UNLIMITED) as server:
            assert server.resumed == (left[0][0],)
            await until(lambda: len(calls) == 2)
            await until(lambda: completed(hf, left[0][0]))
    assert calls == ["one", "two"]


async def test_runs_asked_for_over_rpc_are_left_on_record_and_their_callers_told(tmp_path: Path):
    path = f"sqlite:///{tmp_path}/journal.db"
    gates["post"], gates["socket"] = anyio.Event(), anyio.Event()
    left: list[str] = []
    told: dict[str, Any] = {}

    async def died(runs: list[str]) -> None:
        left.extend(runs)
        await backup.backup(str(tmp_path / "after.db"))

    def asked(name: str) -> dict[str, Any]:
        params = {"session_id": name, "code": f"await note('{name}')\nawait note('{name} again')"}
        return {"jsonrpc": "2.0", "id": name, "method": "session.run", "params": params}

    async with holdfast.open(path, config=ALLOW, capabilities=[note]) as hf:
        backup = hf.journal
        async with (
            anyio.create_task_group() as group,
            listening(hf, limits=UNLIMITED, left=died) as server,
        ):
            token = (await server.tokens.create(["run", "read"])).text
            headers = {"Authorization": f"Bearer {token}"}

            async def post() -> None:
                async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
                    answer = await client.post("/rpc", json=asked("post"), timeout=30)
                    told["post"] = answer.json()

            async def socket() -> None:
                where = f"ws{server.url.removeprefix('http')}/rpc"
                async with websockets.connect(where, additional_headers=headers) as line:
                    await line.send(json.dumps(asked("socket")))
                    told["socket"] = json.loads(await line.recv())
                    with pytest.raises(websockets.ConnectionClosed):
                        await line.recv()
                    told["code"] = line.close_code

            group.start_soon(post)
            group.start_soon(socket)
            await until(lambda: len(calls) == 2)
            server.stop()
            gates["post"].set()
            gates["socket"].set()
    assert told["code"] == 1012
    errors = [told[name]["error"] for name in ("post", "socket")]
    assert [one["code"] for one in errors] == [-32000, -32000]
    assert [one["data"]["code"] for one in errors] == ["SHUTTING_DOWN", "SHUTTING_DOWN"]
    assert sorted(one["data"]["run_id"] for one in errors) == sorted(left)
    async with (
        holdfast.open(f"sqlite:///{tmp_path}/after.db", config=ALLOW, capabilities=[note]) as hf,
        listening(hf, limits=UNLIMITED) as server,
    ):
        assert sorted(server.resumed) == sorted(left)
        for run_id in left:
            await until(lambda one=run_id: completed(hf, one))
    assert sorted(calls) == ["post", "post again", "socket", "socket again"]


async def test_a_dry_run_that_the_server_does_not_see_the_end_of_is_told_so(hf: Runtime):
    """It is on no record by which one could ask for it later; nor is what waits for a session."""
    gates["dry"], gates["socket"] = anyio.Event(), anyio.Event()
    told: dict[str, Any] = {}

    def asked(name: str) -> dict[str, Any]:
        return {"code": f"await look('{name}')\nawait look('{name} again')", "dry_run": True}

    async with (
        anyio.create_task_group() as group,
        listening(hf, limits=UNLIMITED) as server,
    ):
        token = (await server.tokens.create(["run", "read"])).text
        headers = {"Authorization": f"Bearer {token}"}

        async def post() -> None:
            async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
                answer = await client.post(url(), json=asked("dry"), timeout=30)
                told["post"] = (answer.status_code, answer.json()["code"])

        async def socket() -> None:
            where = f"ws{server.url.removeprefix('http')}/rpc"
            async with websockets.connect(where, additional_headers=headers) as line:
                params = {"session_id": "other", **asked("socket")}
                message = {"jsonrpc": "2.0", "id": 1, "method": "session.run", "params": params}
                await line.send(json.dumps(message))
                told["socket"] = json.loads(await line.recv())["error"]["data"]

        group.start_soon(post)
        group.start_soon(socket)
        await until(lambda: len(calls) == 2)
        server.stop()
        gates["dry"].set()
        gates["socket"].set()
    assert told["post"] == (503, "SHUTTING_DOWN")
    assert told["socket"]["code"] == "SHUTTING_DOWN"
    assert "run_id" not in told["socket"]
    assert sorted(calls) == ["dry", "socket"]


async def test_what_was_sent_a_moment_ago_can_be_cancelled_by_its_session(hf: Runtime):
    """Its session may not even be there yet."""
    endless = {"code": "while True: pass", "limits": {"cpu_ms": 60_000, "wall_ms": 60_000}}
    async with site(hf, limits=UNLIMITED) as place:
        client = await place.client("admin")
        for number in range(3):
            later = {"Prefer": "respond-async"}
            begun = await client.post(url(f"r{number}"), json=endless, headers=later)
            assert begun.status_code == 202
            stopped = await client.post(f"/v1/sessions/r{number}/cancel", json={})
            assert stopped.json() == {"session_id": f"r{number}", "cancelled": True}
            over = await client.get(f"/v1/runs/{begun.json()['run_id']}?wait_ms=60000")
            assert over.json()["status"] == "cancelled"
        both = [
            {"jsonrpc": "2.0", "id": 1, "method": "session.run", "params": {"session_id": "b", **endless}},
            {"jsonrpc": "2.0", "id": 2, "method": "session.cancel", "params": {"session_id": "b"}},
        ]  # fmt: skip
        run, cancelled = (await client.post("/rpc", json=both, timeout=90)).json()
        assert run["result"]["status"] == "cancelled"
        assert cancelled["result"]["cancelled"]
        nothing = await client.post("/v1/sessions/never/cancel", json={})
        assert nothing.status_code == 404


async def test_whoever_waits_is_answered_however_long_effects_take_to_end(
    hf: Runtime, monkeypatch: pytest.MonkeyPatch
):
    """And who comes meanwhile is told that the server stops."""
    monkeypatch.setattr("holdfast.server.serving.FAREWELL", 1)
    gates["long"] = anyio.Event()
    told: list[httpx.Response] = []
    async with (
        anyio.create_task_group() as group,
        listening(hf, limits=UNLIMITED) as server,
    ):
        token = (await server.tokens.create(["run", "read"])).text
        headers = {"Authorization": f"Bearer {token}"}

        async def post() -> None:
            async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
                told.append(await client.post(url(), json=body("await note('long')"), timeout=30))

        group.start_soon(post)
        await until(lambda: bool(calls))
        server.stop()
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as late:
            health = await late.get("/healthz")
            assert (health.status_code, health.json()["status"]) == (503, "stopping")
            refused = await late.post(url("late"), json=body("1"))
            assert (refused.status_code, refused.json()["code"]) == (503, "SHUTTING_DOWN")
        # By the time this has run out of its own, the farewell would be over, if it began with the stop.
        limits = {"cpu_ms": 10_000, "wall_ms": 2000}
        await hf.shell.run("while True: pass", session="busy", limits=limits)
        gates["long"].set()
    assert (told[0].status_code, told[0].json()["result"]) == (200, "noted long")


@pytest.mark.parametrize(
    "code",
    [
        "await note('a')\nawait note('b')",
        "import asyncio\nawait note('a')\nawait asyncio.gather(note('b'), note('c'))",
    ],
    ids=["alone", "together"],
)
async def test_no_time_passes_for_a_run_that_is_held_while_the_server_stops(hf: Runtime, code: str):
    """Its limit is its own: what others take to end does not use it up."""
    gates["a"], gates["other"] = anyio.Event(), anyio.Event()
    left: list[str] = []
    stood: list[str] = []

    async def died(runs: list[str]) -> None:
        left.extend(runs)
        stood.extend([(await hf.runs.show(one)).status for one in runs])

    async with listening(hf, limits=UNLIMITED, left=died) as server:
        token = (await server.tokens.create(["run"])).text
        headers = {"Authorization": f"Bearer {token}", "Prefer": "respond-async"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            await client.post(url("other"), json=body("await note('other')"))
            asked = {"code": code, "limits": {"wall_ms": 1000}}
            held = (await client.post(url("held"), json=asked)).json()
            await until(lambda: len(calls) == 2)
        server.stop()
        gates["a"].set()
        # Once this one has run out of its time, so would the other, if it had been counted.
        longer = {"cpu_ms": 10_000, "wall_ms": 1500}
        busy = await hf.shell.run("while True: pass", session="busy", limits=longer)
        assert busy.status == "timeout"
        gates["other"].set()
    assert (left, stood) == ([held["run_id"]], ["running"])


async def test_an_agent_goes_on_after_a_stop_as_it_is_served(tmp_path: Path):
    path = f"sqlite:///{tmp_path}/journal.db"
    gates["one"] = anyio.Event()
    left: list[str] = []
    script = [call("note", what="one"), call("note", what="two"), say("Done.")]

    def agents() -> dict[str, Agent[str]]:
        # What it brings is not on record: who goes on with its runs needs the agent itself.
        return {"clerk": Agent(ScriptedModel(script), code_mode=False, capabilities=[note])}

    async def died(runs: list[str]) -> None:
        left.extend(runs)
        await journal.backup(str(tmp_path / "after.db"))

    async with holdfast.open(path, config=ALLOW) as hf:
        journal = hf.journal
        async with listening(hf, limits=UNLIMITED, left=died, agents=agents()) as server:
            token = (await server.tokens.create(["run"])).text
            headers = {"Authorization": f"Bearer {token}", "Prefer": "respond-async"}
            async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
                asked = {"prompt": "Go."}
                told = (await client.post("/v1/agents/clerk/runs", json=asked)).json()
            await until(lambda: bool(calls))
            server.stop()
            gates["one"].set()
    assert left == [told["run_id"]]
    assert calls == ["one"]
    async with (
        holdfast.open(f"sqlite:///{tmp_path}/after.db", config=ALLOW) as hf,
        listening(hf, limits=UNLIMITED, agents=agents()) as server,
    ):
        assert server.resumed == (told["run_id"],)
        await until(lambda: completed(hf, told["run_id"]))
    assert calls == ["one", "two"]


async def test_a_server_that_stops_takes_nothing_on(web: Site):
    client = await web.client("run", "read")
    assert await web.app.state.work.close(0) == []
    answer = await client.post(url(), json=body("1"))
    assert (answer.status_code, answer.json()["code"]) == (503, "SHUTTING_DOWN")
    assert answer.headers["retry-after"]
    assert (await client.get("/v1/sessions")).status_code == 200


async def test_what_waits_for_a_person_is_not_taken_up_at_the_start():
    async with holdfast.open("memory:", config={}, capabilities=[note]) as hf:
        parked = await hf.shell.run("await note('a')", durable=True)
        async with listening(hf) as server:
            assert server.resumed == ()
        await hf.approvals.decide(str(parked.approval_id), "approved")
        async with listening(hf) as server:
            assert server.resumed == (parked.run_id,)
            await until(lambda: bool(calls))
        assert calls == ["a"]


async def test_requests_are_on_record_without_what_they_said(hf: Runtime, web: Site):
    client = await web.client("run")
    await client.post(url(), json=body("'a secret of mine'"), headers=key("my-key"))
    kept = [record async for record in hf.journal.read(TOKENS) if record.kind == "request_accepted"]
    told = json.dumps([one.payload for one in kept])
    assert len(kept) == 1
    assert "secret of mine" not in told
    assert "my-key" not in told


async def test_a_run_may_be_stopped_by_whoever_just_got_its_name(web: Site):
    client = await web.client("run")
    for number in range(10):
        gates[str(number)] = anyio.Event()
        asked = await client.post(
            url(f"s{number}"), json=body(f"await note('{number}')"), params={"wait_ms": 0}
        )
        assert asked.status_code == 202, asked.text
        answer = await client.post(f"/v1/runs/{asked.json()['run_id']}/cancel", json={})
        assert answer.status_code == 200, answer.text


async def test_a_run_that_waits_for_its_session_is_not_stopped_but_says_why(
    web: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.server.rest.runs.MOMENT", 0.05)
    gates["long"] = anyio.Event()
    client, later = await web.client("read", "run"), {"wait_ms": 0}
    first = await client.post(url(), json=body("await note('long')"), params=later)
    await until(lambda: calls == ["long"])
    second = await client.post(url(), json=body("await note('next')"), params=later)
    answer = await client.post(f"/v1/runs/{second.json()['run_id']}/cancel", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "SESSION_BUSY")
    gates["long"].set()
    for asked in (first, second):
        shown = await client.get(f"/v1/runs/{asked.json()['run_id']}", params={"wait_ms": 5000})
        assert shown.json()["status"] == "completed"
