"""Requests that bring their credential: what a 401 and a 403 of a server lead to, with and without a person."""

from pathlib import Path

import anyio
import httpx2
import pytest
from tests.leases.server import Guard
from tests.leases.support import broker_of, confidential, query_of, until, vault_at, visit

from holdfast.contracts.approval import Asks
from holdfast.errors import OperatorError
from holdfast.gate.executor import NeedsAnswer
from holdfast.leases import Ask, Broker, MemoryVault
from holdfast.leases.http_auth import Came, LeaseAuth
from holdfast.leases.oauth import now_ms


async def person(url: str) -> Came:
    """Somebody at the keyboard."""
    back = query_of(await visit(url))
    return Came(back["code"], back["state"], back.get("iss"))


def auth_of(broker: Broker, guard: Guard, **more: object) -> LeaseAuth:
    ask = Ask(url=f"{guard.url}/api")
    return LeaseAuth(broker, "api", ask, **{"authorize": person, **more})


async def get(auth: httpx2.Auth, guard: Guard) -> httpx2.Response:
    async with httpx2.AsyncClient(auth=auth) as client:
        return await client.get(f"{guard.url}/api")


async def test_signs_in_at_the_first_refusal_and_then_no_more(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    auth = auth_of(broker, guard)
    assert [(await get(auth, guard)).status_code for _ in range(3)] == [200] * 3
    assert [status for status, _ in guard.calls] == [401, 200, 200, 200]
    assert guard.count("authorization_code") == 1
    view = await broker.view("api")
    assert view is not None
    assert view.hosts == (guard.host,)


async def test_many_at_once_sign_in_once(guard: Guard) -> None:
    auth = auth_of(broker_of(MemoryVault()), guard)
    statuses: list[int] = []

    async def asks() -> None:
        statuses.append((await get(auth, guard)).status_code)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(asks)
    assert statuses == [200] * 10
    assert guard.count("authorization_code") == 1


async def test_refused_token_is_refreshed_before_anybody_is_asked(guard: Guard) -> None:
    auth = auth_of(broker_of(MemoryVault()), guard)
    await get(auth, guard)
    guard.tokens[0].until = 0  # the server's clock is another
    assert (await get(auth, guard)).status_code == 200
    assert (guard.count(), guard.count("authorization_code")) == (1, 1)
    guard.revoke()
    assert (await get(auth, guard)).status_code == 200
    assert (guard.count(), guard.count("authorization_code")) == (2, 2)


async def test_trouble_of_the_authorization_server_asks_nobody(guard: Guard) -> None:
    clock = [now_ms()]
    broker = broker_of(MemoryVault(), now=lambda: clock[0])
    auth = auth_of(broker, guard)
    await get(auth, guard)
    guard.tokens[0].until = 0  # the server wants another one before its time
    guard.failing = [503]
    for _ in range(2):  # the second is told at once: it is left alone for a while
        with pytest.raises(OperatorError, match="http_503"):
            await get(auth, guard)
    view = await broker.view("api")
    assert view is not None
    assert view.status == "expiring"
    assert guard.count() == 1
    clock[0] += 60_000
    assert (await get(auth, guard)).status_code == 200
    assert (guard.count(), guard.count("authorization_code")) == (2, 1)


async def test_renewal_that_breaks_off_asks_nobody(guard: Guard, tmp_path: Path) -> None:
    vault = vault_at(tmp_path)
    broker = broker_of(vault)
    auth = auth_of(broker, guard)
    await get(auth, guard)
    guard.tokens[0].until = 0
    answers: list[int] = []

    async def asks() -> None:
        answers.append((await get(auth_of(broker, guard), guard)).status_code)

    async with (
        anyio.create_task_group() as tasks,
        vault.lock("lease:api"),
        anyio.create_task_group() as first,
    ):
        first.start_soon(get, auth, guard)
        await until(lambda: len(guard.calls) == 3)
        tasks.start_soon(asks)
        await until(lambda: len(guard.calls) == 4)
        await anyio.wait_all_tasks_blocked()
        first.cancel_scope.cancel()
    assert answers == [200]
    assert guard.count("authorization_code") == 1


async def test_headless_asks_by_a_question_and_goes_on_after_it(
    guard: Guard, tmp_path: Path
) -> None:
    broker = broker_of(vault_at(tmp_path))
    auth = auth_of(broker, guard, authorize=None)
    with pytest.raises(NeedsAnswer) as caught:
        await get(auth, guard)
    asked = caught.value.question
    assert asked == auth.question
    assert (asked.asks, asked.key) == (Asks.SIGN_IN, "sign_in:api")
    with pytest.raises(NeedsAnswer) as again:
        await get(auth, guard)
    assert again.value.question.url == asked.url
    assert asked.url is not None
    await broker_of(vault_at(tmp_path)).logins.finish(await visit(asked.url))
    assert (await get(auth, guard)).status_code == 200
    assert auth.question is None


async def test_scopes_step_up_and_keep_what_there_was(guard: Guard) -> None:
    guard.resource = {"scopes_supported": ["read"]}
    broker = broker_of(MemoryVault())
    auth = auth_of(broker, guard)
    assert (await get(auth, guard)).json()["scope"] == "read"
    guard.scopes = ("write",)
    assert (await get(auth, guard)).json()["scope"] == "read write"
    assert guard.count("authorization_code") == 2


async def test_scopes_that_never_suffice_are_given_up(guard: Guard) -> None:
    auth = auth_of(broker_of(MemoryVault()), guard)
    guard.scopes = ("read",)
    await get(auth, guard)
    for one in guard.tokens:
        one.scope = ""  # whatever is granted, it is not enough
    before = guard.count("authorization_code")
    assert (await get(auth, guard)).status_code == 403
    assert guard.count("authorization_code") == before


async def test_client_credentials_need_nobody(guard: Guard) -> None:
    ask = Ask(url=f"{guard.url}/api", client=confidential(guard))
    auth = LeaseAuth(broker_of(MemoryVault()), "api", ask, grant="client_credentials")
    assert (await get(auth, guard)).status_code == 200
    guard.revoke()
    assert (await get(auth, guard)).status_code == 200
    assert guard.count("client_credentials") == 2


async def test_server_without_metadata(guard: Guard) -> None:
    """The paths of an old version of the protocol."""
    guard.resource = {"authorization_servers": []}
    guard.metadata = {"token_endpoint": None}
    assert (await get(auth_of(broker_of(MemoryVault()), guard), guard)).status_code == 200


async def test_document_as_client(guard: Guard) -> None:
    document = "https://client.example/holdfast.json"
    guard.metadata = {"client_id_metadata_document_supported": True}
    broker = broker_of(MemoryVault())
    flow = await broker.logins.begin("api", Ask(url=f"{guard.url}/api", document=document))
    assert query_of(flow.url)["client_id"] == document
    assert guard.registered == []


async def test_offline_access_is_asked_for_where_it_is_known(guard: Guard) -> None:
    guard.scopes = ("read",)
    guard.metadata = {"scopes_supported": ["read", "offline_access"]}
    auth = auth_of(broker_of(MemoryVault()), guard)
    assert (await get(auth, guard)).json()["scope"] == "read offline_access"


async def test_other_hosts_get_nothing(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    auth = auth_of(broker, guard)
    await get(auth, guard)
    elsewhere = guard.url.replace("127.0.0.1", "localhost")
    async with httpx2.AsyncClient(auth=auth) as client:
        answer = await client.get(f"{elsewhere}/api")
    assert answer.status_code == 401
    assert guard.calls[-1] == (401, "")


async def test_answer_with_another_state_is_refused(guard: Guard) -> None:
    async def stranger(url: str) -> tuple[str, str | None]:
        return query_of(await visit(url))["code"], "another"

    auth = auth_of(broker_of(MemoryVault()), guard, authorize=stranger)
    with pytest.raises(OperatorError) as caught:
        await get(auth, guard)
    assert "state" in caught.value.message
    assert guard.asked == []


@pytest.mark.parametrize("url", ["http://api.example.com/mcp", "ftp://127.0.0.1/", ""])
def test_server_must_be_safe(url: str) -> None:
    with pytest.raises(OperatorError):
        LeaseAuth(broker_of(MemoryVault()), "api", Ask(url=url))
