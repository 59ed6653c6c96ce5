"""`GET /v1/events`: every record once and in order, however often a client is cut; to nobody who may not see it."""

import random
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from tests.agent.watching import Paced
from tests.agent.watching import until as true
from tests.server.serving import make_app, served
from tests.server.shop import pay
from tests.server.sse import Heard, client, until, watching

import holdfast
from holdfast import Agent
from holdfast.contracts import Draft, Record
from holdfast.contracts.content import Privacy
from holdfast.models.script import say, write_code
from holdfast.runtime import Runtime
from holdfast.server import events
from holdfast.server.events import FAREWELL, Hub, hub_of
from holdfast.server.tail import PAGE


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Runtime]:
    url = f"sqlite:///{tmp_path}/journal.db"
    async with holdfast.open(url, config={}, capabilities=[pay]) as found:
        yield found


@pytest.fixture
async def server(hf: Runtime) -> AsyncIterator["Site"]:
    app = make_app(hf, events.routes())
    async with served(app) as port, client() as http:
        yield Site(f"http://127.0.0.1:{port}/v1/events", hub_of(app), http)


class Site:
    def __init__(self, url: str, hub: Hub, http: httpx.AsyncClient) -> None:
        self.url = url
        self.hub = hub
        self.http = http

    def watch(self, heard: Heard, query: str = "", caller: str = "local") -> Any:
        return watching(self.http, f"{self.url}?{query}", heard, caller)

    async def hear(self, query: str, count: int, caller: str = "local") -> Heard:
        """What one connection brings, until it has brought so much."""
        heard = Heard()
        async with self.watch(heard, query, caller) as parts:
            await until(parts, lambda heard: len(heard.data) >= count)
        return heard

    async def refused(self, query: str, caller: str = "local", **headers: str) -> tuple[int, str]:
        found = await self.http.get(f"{self.url}?{query}", headers={"X-Caller": caller, **headers})
        return found.status_code, found.json()["code"]


async def ticks(hf: Runtime, count: int, stream: str = "s", size: int = 0, **of: Any) -> None:
    drafts = [
        Draft(kind="test.tick", payload={"n": n, "x": "x" * size}, **of) for n in range(count)
    ]
    await hf.journal.append(stream, drafts, durable=False)


# -- what is sent -------------------------------------------------------------------------------------


async def test_an_event_is_the_record_without_what_it_says(hf: Runtime, server: Site):
    await hf.shell.run("1 + 1", session="s")
    records = [one async for one in hf.journal.read_all()]
    heard = await server.hear("after=0", len(records))
    assert heard.kinds == [one.kind for one in records]
    assert heard.seqs == [one.seq for one in records]
    assert heard.last_id == str(records[-1].seq)
    assert heard.retry == "1000"
    assert "payload" not in heard.data[0]
    # On a slow machine the session's state is saved behind it.
    (ended,) = [one for one in heard.data if one["kind"] == "run_completed"]
    assert (ended["family"], ended["terminal"]) == ("run", True)


async def test_what_records_say_is_sent_when_it_is_asked_for_and_may_be_shown(
    hf: Runtime, server: Site
):
    for privacy in Privacy:
        await ticks(hf, 1, privacy=privacy)
    heard = await server.hear("after=0&payload=1", len(Privacy))
    assert [one["privacy"] for one in heard.data if "payload" in one] == [
        "public",
        "internal",
        "content_refs_only",
    ]


async def test_who_says_no_start_gets_what_comes_from_then_on_even_when_cut_at_once(
    hf: Runtime, server: Site
):
    await ticks(hf, 3)
    heard = Heard()
    async with server.watch(heard) as parts:
        await until(parts, lambda heard: heard.last_id is not None)
    await ticks(hf, 2)
    async with server.watch(heard) as parts:
        await until(parts, lambda heard: heard.data)
    assert heard.seqs[0] == 4


async def test_the_header_goes_before_the_query(hf: Runtime, server: Site):
    await ticks(hf, 4)
    heard = Heard("3")
    async with server.watch(heard, "after=1") as parts:
        await until(parts, lambda heard: heard.data)
    assert heard.seqs == [4]


async def test_filters_by_session_run_and_kind(hf: Runtime, server: Site):
    first = await hf.shell.run("1", session="a")
    await hf.shell.run("2", session="b")
    last = await hf.shell.run("3", session="a")
    records = [one async for one in hf.journal.read_all()]

    async def heard(query: str, wanted: Callable[[Record], bool]) -> bool:
        seqs = [one.seq for one in records if wanted(one)]
        return (await server.hear(f"after=0&{query}", len(seqs))).seqs == seqs != []

    assert await heard("session=a", lambda one: one.stream == "a")
    assert await heard(f"run={last.run_id}", lambda one: one.run_id == last.run_id)
    assert await heard(f"session=a&run={first.run_id}", lambda one: one.run_id == first.run_id)
    assert await heard("kind=session_created", lambda one: one.kind == "session_created")
    assert await heard("kind=run", lambda one: one.kind.startswith("run_"))
    wanted = ("run_completed", "session_created")
    assert await heard("kind=run_completed,session", lambda one: one.kind in wanted)
    assert await heard("kind=run_completed,%20session,", lambda one: one.kind in wanted)


async def test_an_answer_to_an_approval_is_part_of_the_session_that_asked(
    hf: Runtime, server: Site
):
    parked = await hf.shell.run("pay('amy')", session="ten-a")
    await hf.approvals.decide(str(parked.approval_id), "denied", actor="me")
    wanted = ["approval_requested", "approval_responded"]
    query = "after=0&kind=approval_requested,approval_responded"
    assert (await server.hear(f"{query}&session=ten-a", 2)).kinds == wanted
    assert (await server.hear(query, 2, "tenant")).kinds == wanted


async def test_head_is_answered_without_a_stream(server: Site):
    found = await server.http.head(server.url)
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/event-stream")
    assert server.hub.clients == 0


# -- who may ------------------------------------------------------------------------------------------


async def test_a_tenant_sees_its_own_and_nothing_else(hf: Runtime, server: Site):
    await hf.shell.run("1", session="other")
    await hf.shell.run("2", session="ten-a")
    await ticks(hf, 1, "holdfast:private")
    await hf.shell.run("3", session="ten-b")
    records = [one async for one in hf.journal.read_all()]
    own = [one.seq for one in records if one.stream in ("ten-a", "ten-b")]
    assert (await server.hear("after=0", len(own), "tenant")).seqs == own
    assert await server.refused("session=other", "tenant") == (404, "NOT_FOUND")


async def test_live_pieces_of_another_tenant_are_not_to_be_had(hf: Runtime, server: Site):
    run = await hf.shell.run("1", session="other")
    assert await server.refused(f"run={run.run_id}&live=1", "tenant") == (404, "NOT_FOUND")


@pytest.mark.parametrize("caller", ["runner", "approver"])
async def test_watching_needs_the_scope_read(server: Site, caller: str):
    assert await server.refused("", caller) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("after=x", {}),
        ("after=-1", {}),
        ("odd=1", {}),
        ("after=5", {}),
        ("live=1", {}),
        ("", {"Last-Event-ID": "yesterday"}),
    ],
)
async def test_what_makes_no_sense_is_refused(server: Site, query: str, headers: dict[str, str]):
    assert await server.refused(query, **headers) == (400, "INVALID_ARGUMENT")


async def test_max_clients_is_enforced(hf: Runtime, server: Site):
    server.hub.max_clients = 1
    async with server.watch(Heard()) as parts:
        await anext(parts)
        assert await server.refused("") == (429, "TOO_MANY_REQUESTS")
    await gone(server.hub)
    await ticks(hf, 1)
    assert (await server.hear("after=0", 1)).seqs == [1]


# -- cut, slow, many ----------------------------------------------------------------------------------


async def test_who_is_cut_at_random_ends_with_all_records_in_order(hf: Runtime, server: Site):
    total, cuts = 2000, 30
    chance = random.Random(7)
    heard, cut_at = Heard(), sorted(chance.sample(range(1, total), cuts))

    async def write() -> None:
        for _ in range(total // 20):
            await ticks(hf, 20)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for at in [*cut_at, total]:
            heard = await _stay(server, heard, at)
    assert heard.seqs == list(range(1, total + 1))


async def _stay(server: Site, before: Heard, upto: int) -> Heard:
    """Listen until so much was heard, and forget the half of a block that came with it."""
    heard = Heard(before.last_id)
    heard.data = before.data
    async with server.watch(heard, "after=0") as parts:
        await until(parts, lambda heard: len(heard.data) >= upto)
    return heard


async def test_a_client_that_reads_nothing_is_cut_and_comes_back_to_all_of_it(
    hf: Runtime, server: Site
):
    server.hub.patience = 0.3
    port = httpx.URL(server.url).port
    assert port is not None
    heard = Heard()
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    with raw:
        await anyio.to_thread.run_sync(_connect, raw, port)
        for _ in range(12):
            await ticks(hf, 20, size=60_000)
        await true(lambda: server.hub.cut)
        await gone(server.hub)
    server.hub.patience = 30
    async with server.watch(heard, "after=0&payload=1") as parts:
        await until(parts, lambda heard: len(heard.data) >= 240)
    assert heard.seqs == list(range(1, 241))


def _connect(raw: socket.socket, port: int) -> None:
    raw.setblocking(True)
    raw.connect(("127.0.0.1", port))
    raw.sendall(b"GET /v1/events?after=0&payload=1 HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_two_hundred_clients_get_everything(hf: Runtime, server: Site):
    total, clients = 60, 200
    ready, done = 0, 0

    async def one() -> None:
        nonlocal ready, done
        heard = Heard()
        async with server.watch(heard, "after=0") as parts:
            ready += 1
            await until(parts, lambda heard: len(heard.data) >= total)
        assert heard.seqs == list(range(1, total + 1))
        done += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(clients):
            tasks.start_soon(one)
        await true(lambda: ready == clients)
        assert server.hub.clients == clients
        for _ in range(total // 10):
            await ticks(hf, 10)
    assert done == clients
    await gone(server.hub)


async def test_those_far_behind_and_those_at_the_end_get_the_same(hf: Runtime, server: Site):
    """Across the borders of pages, from every kind of start."""
    last = 3 * PAGE + 5
    await ticks(hf, last)
    starts = [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, last - 1]
    found: dict[int, list[int]] = {}

    async def one(start: int) -> None:
        heard = await server.hear(f"after={start}", last - start)
        found[start] = heard.seqs

    async with anyio.create_task_group() as tasks:
        for start in starts:
            tasks.start_soon(one, start)
    assert found == {start: list(range(start + 1, last + 1)) for start in starts}


# -- silence and the end ------------------------------------------------------------------------------


async def test_silence_is_broken_and_tells_how_far_a_filter_has_come(hf: Runtime, server: Site):
    server.hub.beat = 0.05
    await ticks(hf, 3)
    heard = Heard()
    async with server.watch(heard, "after=0&kind=nothing") as parts:
        await until(parts, lambda heard: heard.last_id == "3" and "beat" in heard.comments)
    assert heard.data == []


async def test_clients_are_sent_away_when_the_server_stops(hf: Runtime, server: Site):
    heard = Heard()
    async with server.watch(heard, "after=0") as parts:
        await anext(parts)
        server.hub.close()
        async for _ in parts:
            pass
    assert FAREWELL.decode().strip(": \n") in heard.comments


async def test_a_journal_that_is_closed_is_told(hf: Runtime, server: Site):
    heard = Heard()
    async with server.watch(heard, "after=0") as parts:
        await anext(parts)
        await hf.journal.close()
        async for _ in parts:
            pass
    assert heard.errors[0]["code"] == "JOURNAL_CLOSED"


# -- live ---------------------------------------------------------------------------------------------


async def test_pieces_of_an_answer_come_without_an_id(hf: Runtime, server: Site):
    # Whether an answer is asked for in pieces is decided when it is asked for: the second one is.
    model = Paced([write_code("1"), say("Once upon a time there was a clerk.")], pause_at={1: 0})
    agent = Agent(model, name="clerk")
    heard = Heard()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(agent.run, "Tell.", session="s", runtime=hf))
        await true(lambda: model.paused.is_set())
        [run] = await hf.runs.list(status="active")
        feed = hf.agents.listen(run.id).feed
        async with server.watch(heard, f"after=0&run={run.id}&live=1") as parts:
            await until(parts, lambda heard: heard.data)
            await true(lambda: len(feed.listeners) == 2)
            model.on.set()
            await until(parts, lambda heard: "run_completed" in heard.kinds and heard.pieces)
    text = "".join(one["text"] for one in heard.pieces if one["kind"] == "text_delta")
    assert text == "Once upon a time there was a clerk."
    assert heard.seqs == sorted(set(heard.seqs))


async def gone(hub: Hub) -> None:
    await true(lambda: not hub.clients)
