"""Against a real authorization server: signing in, tokens that live three seconds, and everything that goes wrong."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import httpx
import pytest
from tests.leases.server import Guard, OAuthClient
from tests.leases.support import (
    broker_of,
    confidential,
    query_of,
    record,
    sign_in,
    until,
    vault_at,
    visit,
)

from holdfast.contracts.approval import Asks
from holdfast.errors import HoldfastError, NotFound, OperatorError, PersonError
from holdfast.gate.executor import Answer, NeedsAnswer
from holdfast.journal import MemoryJournal
from holdfast.leases import Ask, Broker, Client, Given, MemoryVault
from holdfast.leases.http_auth import Authorizer


async def call(broker: Broker, guard: Guard, client: httpx.AsyncClient) -> int:
    """What a capability does: on a machine that is busy, a token may expire on the way."""
    authorizer = Authorizer(broker)
    sent = await authorizer.header("api", guard.host)
    answer = await client.get(f"{guard.url}/api", headers=sent)
    if answer.status_code == 401:
        again = await authorizer.rejected("api", guard.host, sent)
        answer = await client.get(f"{guard.url}/api", headers=again)
    return answer.status_code


# -- tokens that live three seconds -------------------------------------------------------------------


async def test_one_refresh_for_each_expiry_and_no_failure(guard: Guard, tmp_path: Path) -> None:
    guard.lifetime = 3
    journal = MemoryJournal()
    broker = broker_of(vault_at(tmp_path), journal)
    await sign_in(broker, guard)
    statuses: list[int] = []

    async def works(client: httpx.AsyncClient) -> None:
        for _ in range(10):
            statuses.append(await call(broker, guard, client))
            await anyio.sleep(0.7)

    async with httpx.AsyncClient() as client, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(works, client)
    assert statuses == [200] * 200
    # Each token that was given was used by many, and refreshed once: no request of another came to nothing.
    assert guard.count() == len(guard.tokens) - 1 >= 2
    assert {value for _, value in guard.calls} == {one.access for one in guard.tokens}
    told = await record(journal)
    assert [one for one in told if one[2] == "refreshed"] == [
        ("Valid", generation, "refreshed") for generation in range(2, guard.count() + 2)
    ]


async def test_refresh_tokens_rotate(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    await sign_in(broker, guard)
    for generation in (1, 2, 3):
        assert await broker.renew("api", generation)
    used = [one["refresh_token"] for one in guard.asked if one["grant_type"] == "refresh_token"]
    assert used == [one.refresh for one in guard.tokens[:3]]
    assert {one["resource"] for one in guard.asked} == {f"{guard.url}/api"}


async def test_many_at_once_ask_once(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    await sign_in(broker, guard)
    guard.delay = 0.1
    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(broker.renew, "api", 1)
    assert guard.count() == 1
    assert (await broker.use("api", host=guard.host)).generation == 2


async def test_old_token_serves_while_the_server_has_trouble(guard: Guard) -> None:
    clock = Clock()
    broker = broker_of(MemoryVault(), now=clock)
    await sign_in(broker, guard)
    clock.ms += 3_570_000  # 30 seconds are left
    guard.failing = [503]
    assert (await broker.use("api", host=guard.host)).generation == 1
    assert guard.count() == 1
    # It is left alone for a moment, then asked again.
    assert (await broker.use("api", host=guard.host)).generation == 1
    assert guard.count() == 1
    clock.ms += 5_000
    assert (await broker.use("api", host=guard.host)).generation == 2


async def test_trouble_of_a_moment_is_waited_out_once_it_expired(guard: Guard) -> None:
    clock = Clock()
    broker = broker_of(MemoryVault(), now=clock)
    await sign_in(broker, guard)
    clock.ms += 3_700_000
    guard.failing = [503, 429]
    assert (await broker.use("api", host=guard.host)).generation == 2
    assert guard.count() == 3


async def test_trouble_that_stays_is_told_and_asks_nobody(guard: Guard) -> None:
    clock = Clock()
    broker = broker_of(MemoryVault(), now=clock)
    await sign_in(broker, guard)
    clock.ms += 3_700_000
    guard.failing = [503] * 3
    with pytest.raises(OperatorError) as caught:
        await broker.use("api", host=guard.host)
    assert (caught.value.code, guard.count()) == ("AUTH_FAILED", 3)
    view = await broker.view("api")
    assert view is not None
    assert view.status == "expired"
    clock.ms += 2_000
    assert (await broker.use("api", host=guard.host)).generation == 2


class Clock:
    """Goes on from now, and can be moved."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ms


# -- revoked, released, restarted ---------------------------------------------------------------------


async def test_revoked_asks_a_person_and_goes_on_after_it(guard: Guard, tmp_path: Path) -> None:
    broker = broker_of(vault_at(tmp_path))
    await sign_in(broker, guard)
    guard.revoke()
    assert not await broker.renew("api", 1)
    with pytest.raises(NeedsAnswer) as caught:
        await broker.use("api", host=guard.host)
    asked = caught.value.question
    assert (asked.asks, asked.key) == (Asks.SIGN_IN, "sign_in:api")
    # Everybody who needs it gets the same link.
    with pytest.raises(NeedsAnswer) as again:
        await broker.use("api", host=guard.host)
    assert again.value.question == asked
    # Another process takes the person there.
    assert asked.url is not None
    other = broker_of(vault_at(tmp_path))
    await other.logins.finish(await visit(asked.url))
    found = await broker.use("api", host=guard.host)
    assert found.generation == 2
    assert found.value == guard.tokens[-1].access


async def test_who_did_not_sign_in_is_not_asked_again(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    await sign_in(broker, guard)
    await broker.require_reauth("api", 1)
    with pytest.raises(PersonError) as caught:
        await broker.use("api", host=guard.host, answers={"sign_in:api": Answer("accept")})
    assert caught.value.code == "SIGN_IN_REQUIRED"


async def test_restart_in_the_middle(guard: Guard, tmp_path: Path) -> None:
    guard.lifetime = 3
    first = broker_of(vault_at(tmp_path))
    await sign_in(first, guard)
    value = (await first.use("api", host=guard.host)).value
    second = broker_of(vault_at(tmp_path))
    assert await second.restore() == 1
    assert (await second.use("api", host=guard.host)).value == value
    # The expiry is a point in time: it passes while nobody runs.
    later = broker_of(vault_at(tmp_path), now=lambda: time.time_ns() // 1_000_000 + 4_000)
    view = await later.view("api")
    assert view is not None
    assert view.status == "expired"


async def test_who_died_while_refreshing_is_followed(guard: Guard, tmp_path: Path) -> None:
    journal = MemoryJournal()
    broker = broker_of(vault_at(tmp_path), journal)
    await sign_in(broker, guard)
    vault = vault_at(tmp_path)

    def dies(stored: dict | None) -> dict | None:
        assert stored is not None
        stored["lease"][0] = "Refreshing"
        return stored

    await vault.change("lease:api", dies)
    assert (await broker.use("api", host=guard.host)).generation == 2
    assert [one[2] for one in await record(journal)][-3:] == [
        "refresh_abandoned",
        "refreshing",
        "refreshed",
    ]


async def test_release_while_it_is_renewed_drops_what_comes(guard: Guard, tmp_path: Path) -> None:
    broker = broker_of(vault_at(tmp_path))
    await sign_in(broker, guard)
    guard.held = threading.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broker.renew, "api", 1)
        await until(lambda: guard.count() > 0)
        await broker.release("api")
        guard.held.set()
    assert len(guard.tokens) == 2
    view = await broker.view("api")
    assert view is not None
    assert (view.status, view.generation, view.hosts) == ("released", 1, ())
    assert await broker.current("api") is None


async def test_sign_in_while_it_is_renewed_wins(guard: Guard, tmp_path: Path) -> None:
    broker = broker_of(vault_at(tmp_path))
    await sign_in(broker, guard)
    guard.held = threading.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broker.renew, "api", 1)
        await until(lambda: guard.count() > 0)
        await broker.acquire("api", Given(value="brought-by-hand", hosts=(guard.host,)))
        guard.held.set()
    found = await broker.use("api", host=guard.host)
    assert (found.generation, found.value) == (2, "brought-by-hand")


async def test_cancelled_caller_does_not_lose_the_new_token(guard: Guard, tmp_path: Path) -> None:
    broker = broker_of(vault_at(tmp_path))
    await sign_in(broker, guard)
    guard.delay = 0.2
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broker.renew, "api", 1)
        await until(lambda: guard.count() > 0)
        tasks.cancel_scope.cancel()
    assert (await broker.use("api", host=guard.host)).value == guard.tokens[-1].access
    assert guard.count() == 1


PROCESS = """
import sys, anyio
from pathlib import Path
from tests.leases.support import broker_of, vault_at

async def main():
    broker = broker_of(vault_at(Path(sys.argv[1])))
    found = await broker.current("api")
    print("ready", flush=True)
    sys.stdin.readline()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(broker.renew, "api", found.generation)
    print((await broker.use("api", host=sys.argv[2])).value)

anyio.run(main)
"""


async def test_processes_refresh_once(guard: Guard, tmp_path: Path) -> None:
    await sign_in(broker_of(vault_at(tmp_path)), guard)
    guard.delay = 0.3
    workers = [_started(tmp_path, guard.host) for _ in range(3)]
    for one in workers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate()[0].strip() for one in workers]
    assert said == [guard.tokens[-1].access] * 3
    assert guard.count() == 1


def _started(folder: Path, host: str) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(folder), host],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


# -- signing in ---------------------------------------------------------------------------------------


async def test_link_has_pkce_state_and_resource(guard: Guard) -> None:
    guard.resource = {"scopes_supported": ["read"]}
    broker = broker_of(MemoryVault())
    flow = await broker.logins.begin("api", Ask(url=f"{guard.url}/api"))
    asked = query_of(flow.url)
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == f"{guard.url}/api"
    assert asked["scope"] == "read"
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    assert flow.verifier not in flow.url
    assert len(flow.state) >= 32
    assert flow.verifier not in repr(flow)
    assert guard.registered[0]["redirect_uris"] == [asked["redirect_uri"]]


async def test_sign_in_is_finished_once_and_only_with_its_state(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    flow = await broker.logins.begin("api", Ask(url=f"{guard.url}/api"))
    back = await visit(flow.url)
    with pytest.raises(NotFound):
        await broker.logins.finish(back.replace(flow.state, "x" * 43))
    await broker.logins.finish(back)
    with pytest.raises(NotFound):
        await broker.logins.finish(back)
    assert guard.count("authorization_code") == 1


async def test_sign_in_takes_too_long(guard: Guard) -> None:
    clock = Clock()
    broker = broker_of(MemoryVault(), now=clock)
    flow = await broker.logins.begin("api", Ask(url=f"{guard.url}/api"))
    back = await visit(flow.url)
    clock.ms += 86_400_001
    with pytest.raises(NotFound):
        await broker.logins.finish(back)


@pytest.mark.parametrize(
    ("advertised", "iss", "fine"),
    [(True, "own", True), (True, None, False), (False, "http://evil", False), (False, None, True)],
)
async def test_answer_must_come_from_who_was_asked(
    guard: Guard, advertised: bool, iss: str | None, fine: bool
) -> None:
    guard.metadata = {"authorization_response_iss_parameter_supported": advertised}
    guard.iss = guard.url if iss == "own" else iss
    broker = broker_of(MemoryVault())
    if fine:
        await sign_in(broker, guard)
        return
    with pytest.raises(OperatorError) as caught:
        await sign_in(broker, guard)
    assert caught.value.code == "AUTH_FAILED"
    assert guard.asked == []


async def test_refusal_by_the_person_is_told(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    flow = await broker.logins.begin("api", Ask(url=f"{guard.url}/api"))
    with pytest.raises(PersonError):
        await broker.logins.finish(f"{flow.redirect_uri}?error=access_denied&state={flow.state}")


async def test_device(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    ask = Ask(url=f"{guard.url}/api", client=Client(client_id="tv"), device=True)
    guard.clients["tv"] = OAuthClient("tv")
    flow = await broker.logins.begin("api", ask)
    assert flow.url == f"{guard.url}/activate"
    assert flow.user_code == "ABCD-EFGH"
    assert await broker.logins.poll(flow) is None
    guard.approved["ABCD-EFGH"] = ("ann", True)
    view = await broker.logins.poll(flow)
    assert view is not None
    assert view.status == "valid"
    assert await broker.renew("api", 1)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_client_credentials(guard: Guard, method: str) -> None:
    broker = broker_of(MemoryVault())
    ask = Ask(url=f"{guard.url}/api", client=confidential(guard, method), scopes=("read",))
    view = await broker.logins.client_credentials("robot", ask)
    assert (view.kind, view.scopes) == ("client_credentials", ("read",))
    assert await broker.renew("robot", 1)
    assert guard.count("client_credentials") == 2


async def test_client_with_a_private_key(guard: Guard) -> None:
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256")
    guard.clients["robot"] = OAuthClient(
        "robot", method="private_key_jwt", public_key=key.as_dict(private=False)
    )
    client = Client(client_id="robot", private_key=key.as_pem(private=True).decode())
    broker = broker_of(MemoryVault())
    view = await broker.logins.client_credentials(
        "robot", Ask(url=f"{guard.url}/api", client=client)
    )
    assert view.status == "valid"


async def test_wrong_secret_is_refused_for_good(guard: Guard) -> None:
    broker = broker_of(MemoryVault())
    client = confidential(guard).model_copy(update={"client_secret": "wrong-secret-1"})
    with pytest.raises(OperatorError) as caught:
        await broker.logins.client_credentials("robot", Ask(url=f"{guard.url}/api", client=client))
    assert "invalid_client" in caught.value.message
    assert "wrong-secret-1" not in str(caught.value)


# -- what servers say about themselves ----------------------------------------------------------------


async def test_metadata_of_another_server_are_refused(guard: Guard) -> None:
    guard.metadata = {"issuer": "https://evil.example"}
    with pytest.raises(OperatorError) as caught:
        await sign_in(broker_of(MemoryVault()), guard)
    assert caught.value.code == "AUTH_FAILED"


@pytest.mark.parametrize(
    "endpoint", ["http://evil.example/token", "ftp://127.0.0.1/token", "https:///token"]
)
async def test_unsafe_endpoints_are_refused(guard: Guard, endpoint: str) -> None:
    guard.metadata = {"token_endpoint": endpoint}
    with pytest.raises(OperatorError):
        await sign_in(broker_of(MemoryVault()), guard)


async def test_resource_that_is_another_is_refused(guard: Guard) -> None:
    guard.resource = {"resource": "https://other.example/api"}
    with pytest.raises(OperatorError) as caught:
        await sign_in(broker_of(MemoryVault()), guard)
    assert "other.example" in caught.value.message


async def test_server_without_safe_pkce_is_refused(guard: Guard) -> None:
    guard.metadata = {"code_challenge_methods_supported": ["plain"]}
    with pytest.raises(OperatorError):
        await sign_in(broker_of(MemoryVault()), guard)


async def test_client_of_another_server_is_not_shown(guard: Guard) -> None:
    client = confidential(guard).model_copy(update={"issuer": "https://other.example"})
    with pytest.raises(HoldfastError):
        await sign_in(broker_of(MemoryVault()), guard, client=client)
    assert guard.asked == []


async def test_registration_is_kept_for_the_next_sign_in(guard: Guard, tmp_path: Path) -> None:
    await sign_in(broker_of(vault_at(tmp_path)), guard)
    await sign_in(broker_of(vault_at(tmp_path)), guard)
    assert len(guard.registered) == 1
