"""Leases: what the machine allows and nothing else, on record, for their own hosts, and told to the redactor first."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.leases.support import broker_of, record, vault_at

from holdfast.contracts.lease import LEASES
from holdfast.errors import CallerError, OperatorError
from holdfast.gate.executor import NeedsAnswer
from holdfast.gate.redact import Redactor
from holdfast.journal import MemoryJournal
from holdfast.leases import (
    Broker,
    Client,
    CommandRenewal,
    Given,
    MemoryVault,
    OAuthRenewal,
    Server,
    TokenRefused,
    host_of,
)
from holdfast.leases.credential import Entry
from holdfast.machines.lease import LEASE, Phase, usable

HOST = "api.example.com"


def static(value: str = "secret-value-1", **more: Any) -> Given:
    return Given.model_validate({"value": value, "hosts": (HOST,), **more})


# -- for its own hosts --------------------------------------------------------------------------------


async def test_is_given_for_its_own_hosts_only() -> None:
    broker = broker_of(MemoryVault())
    await broker.acquire("a", static(header="X-Api-Key", scheme=""))
    assert (await broker.use("a", host="API.example.com:443")).headers == {
        "X-Api-Key": "secret-value-1"
    }
    for host in ("example.com", "api.example.com:80", "api.example.com.evil", "evil", ""):
        with pytest.raises(CallerError) as caught:
            await broker.use("a", host=host)
        assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://API.example.com/x", "api.example.com"),
        ("https://api.example.com:443", "api.example.com"),
        ("http://api.example.com", "api.example.com:80"),
        ("http://127.0.0.1:8000/x", "127.0.0.1:8000"),
        ("https://[::1]:8000/x", "[::1]:8000"),
        ("https://user:pass@api.example.com@evil.example/", "evil.example"),
    ],
)
def test_host_of(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize("url", ["", "ftp://a", "api.example.com", "https://", "https://a:b"])
def test_host_of_nothing(url: str) -> None:
    with pytest.raises(CallerError):
        host_of(url)


@pytest.mark.parametrize("key", ["", "A b", "a:b:c:d", "../x", "a" * 65])
async def test_keys_are_checked(key: str) -> None:
    with pytest.raises(CallerError):
        await broker_of(MemoryVault()).acquire(key, static())


async def test_what_can_not_be_used_is_not_taken() -> None:
    broker = broker_of(MemoryVault())
    for given in (static(hosts=()), static(expires_at=1), static("short")):
        with pytest.raises(CallerError):
            await broker.acquire("a", given)
    assert await broker.status() == []


async def test_printing_shows_nothing() -> None:
    broker = broker_of(MemoryVault())
    renewal = OAuthRenewal(
        grant="refresh_token",
        server=Server(token_endpoint="https://x"),
        client=Client(client_id="c", client_secret="secret-value-2", private_key="secret-value-3"),
        refresh_token="secret-value-4",
        assertion="secret-value-5",
    )
    given = static(renewal=renewal)
    await broker.acquire("a", given)
    found = await broker.use("a", host=HOST)
    for one in (given, found, Entry(given=given), await broker.view("a"), renewal):
        assert "secret-value" not in repr(one)
        assert "secret-value" not in str(one)


# -- on record ----------------------------------------------------------------------------------------


async def test_each_step_is_on_record_and_no_value() -> None:
    journal = MemoryJournal()
    clock = [1_000_000]
    broker = broker_of(MemoryVault(), journal, lambda: clock[0])
    await broker.acquire("a", static(expires_at=1_400_000), actor="ann")
    clock[0] = 1_340_001
    view = await broker.view("a")
    assert view is not None
    assert view.status == "expiring"
    assert (await broker.use("a", host=HOST)).value == "secret-value-1"
    clock[0] = 1_400_000
    with pytest.raises(NeedsAnswer):
        await broker.use("a", host=HOST)
    await broker.release("a", actor="ann")
    await broker.release("a")
    assert await record(journal) == [
        ("Valid", 1, "signed_in"),
        ("Expiring", 1, "time"),
        ("Expired", 1, "time"),
        ("ReauthRequired", 1, "expired"),
        ("Released", 1, "logged_out"),
    ]
    told = [one async for one in journal.read(LEASES)]
    assert told[0].actor == "ann"
    assert "secret-value-1" not in str(told)


async def test_late_refusal_of_an_old_one_is_ignored() -> None:
    broker = broker_of(MemoryVault())
    await broker.acquire("a", static())
    await broker.acquire("a", static("secret-value-2"))
    await broker.require_reauth("a", 1)
    assert (await broker.use("a", host=HOST)).generation == 2
    await broker.require_reauth("a", 2)
    with pytest.raises(NeedsAnswer) as caught:
        await broker.use("a", host=HOST)
    assert caught.value.question.url is None
    assert "holdfast auth login a" in caught.value.question.message


async def test_unknown_key_asks_for_a_sign_in() -> None:
    with pytest.raises(NeedsAnswer):
        await broker_of(MemoryVault()).use("a", host=HOST)


# -- the redactor -------------------------------------------------------------------------------------


async def test_values_are_told_before_they_can_be_used(tmp_path: Path) -> None:
    redactor = Redactor()
    broker = Broker(vault_at(tmp_path), MemoryJournal(), redact=redactor)
    await broker.acquire("realm:bob@example.com", static())
    assert redactor.text("secret-value-1") == f"[secret:{redactor.names[0]}]"
    # After a restart, too, and for a value that another process brought.
    other = Redactor()
    again = Broker(vault_at(tmp_path), MemoryJournal(), redact=other)
    await again.restore()
    assert "secret-value-1" not in other.text("secret-value-1")
    await broker.acquire("realm:bob@example.com", static("secret-value-2"))
    await again.use("realm:bob@example.com", host=HOST)
    assert "secret-value-2" not in other.text("secret-value-2")


async def test_old_values_are_forgotten_in_the_end_and_lasting_ones_are_not() -> None:
    redactor = Redactor()
    broker = Broker(MemoryVault(), MemoryJournal(), redact=redactor)
    client = Client(client_id="c", client_secret="lasting-secret")
    how = OAuthRenewal(
        grant="client_credentials", server=Server(token_endpoint="https://x"), client=client
    )
    for number in range(50):
        await broker.acquire("a", static(f"secret-value-{number:02}", renewal=how))
        assert "lasting" not in redactor.text("lasting-secret")
    assert len(redactor.names) < 20
    assert "secret-value-49" not in redactor.text("secret-value-49 secret-value-48")


# -- commands -----------------------------------------------------------------------------------------


async def test_value_from_a_command(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-the-command-2\n")
    clock = [1_000_000]
    how = CommandRenewal(command=("cat", str(file)), lifetime_ms=100_000)
    broker = broker_of(MemoryVault(), None, lambda: clock[0])
    await broker.acquire("a", static(kind="command", renewal=how, expires_at=1_100_000))
    clock[0] = 1_100_000
    found = await broker.use("a", host=HOST)
    assert (found.value, found.expires_at) == ("from-the-command-2", 1_200_000)
    clock[0] = 1_250_000
    file.write_text("")
    with pytest.raises(OperatorError):
        await broker.use("a", host=HOST)


async def test_nobody_waits_longer_for_a_command_than_they_want_to() -> None:
    clock = [1_000_000]
    broker = broker_of(MemoryVault(), None, lambda: clock[0])
    how = CommandRenewal(command=("sleep", "600"))
    await broker.acquire("a", static(kind="command", renewal=how, expires_at=1_100_000))
    clock[0] = 1_100_000
    with anyio.fail_after(25), anyio.move_on_after(0.1) as scope:
        await broker.use("a", host=HOST)
    assert scope.cancelled_caught
    view = await broker.view("a")
    assert view is not None
    assert view.status == "expired"  # and the next one tries again


# -- any order of events ------------------------------------------------------------------------------


class _Story(RuleBasedStateMachine):
    """Whatever happens in whatever order, over two brokers on one vault: the machine's promises hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.vault = MemoryVault()
        self.journal = MemoryJournal()
        self.next: list[str] = []
        self.brokers = [
            Broker(self.vault, self.journal, now=lambda: self.now, renew=self._renew)
            for _ in range(2)
        ]
        self.seen = 0
        self.renewed = 0

    async def _renew(self, given: Given) -> Given:
        what = self.next.pop() if self.next else "fine"
        if what == "released":
            await self.brokers[1].release("a")
        if what == "signed_in":
            await self.brokers[1].acquire("a", static("brought-by-hand"))
        if what in ("transient", "permanent"):
            raise TokenRefused("https://x", what, permanent=what == "permanent")
        self.renewed += 1
        expires_at = self.now if what == "stale" else self.now + 1_000_000
        return given.model_copy(
            update={"value": f"renewed-{self.renewed}", "expires_at": expires_at}
        )

    def run(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        async def go() -> Any:
            return await work(*args, **kwargs)

        return anyio.run(go)

    @initialize()
    def begin(self) -> None:
        self.acquire(0, True, 1_000_000)

    @rule(
        who=st.integers(0, 1),
        renewable=st.booleans(),
        lasts=st.sampled_from([None, 1, 10_000, 1_000_000]),
    )
    def acquire(self, who: int, renewable: bool, lasts: int | None) -> None:
        how = CommandRenewal(command=("never",)) if renewable else None
        expires_at = None if lasts is None else self.now + lasts
        given = static(f"given-{self.now}", renewal=how, expires_at=expires_at)
        self.run(self.brokers[who].acquire, "a", given)

    @rule(
        who=st.integers(0, 1),
        what=st.lists(
            st.sampled_from(["fine", "transient", "permanent", "stale", "released", "signed_in"]),
            max_size=3,
        ),
    )
    def use(self, who: int, what: list[str]) -> None:
        self.next = what
        try:
            found = self.run(self.brokers[who].use, "a", host=HOST)
        except NeedsAnswer:
            entry = self.entry()
            assert entry.lease.phase in (Phase.REAUTH_REQUIRED, Phase.RELEASED)
        except TokenRefused:
            assert not usable(self.entry().lease, self.now)
        else:
            entry = self.entry()
            assert entry.given is not None
            assert found.generation <= entry.lease.generation
            assert found.expires_at is None or found.expires_at > self.now

    @rule(who=st.integers(0, 1), behind=st.integers(0, 1))
    def refused(self, who: int, behind: int) -> None:
        self.run(self.brokers[who].require_reauth, "a", self.seen - behind)

    @rule(who=st.integers(0, 1))
    def renew(self, who: int) -> None:
        self.next = []
        self.run(self.brokers[who].renew, "a", self.seen)

    @rule(who=st.integers(0, 1))
    def release(self, who: int) -> None:
        self.run(self.brokers[who].release, "a")

    @rule(ms=st.sampled_from([1, 3_000, 9_000, 60_000, 940_001, 1_000_000]))
    def later(self, ms: int) -> None:
        self.now += ms

    @precondition(lambda self: self.entry().lease.phase in (Phase.VALID, Phase.EXPIRING))
    @rule()
    def dies_while_refreshing(self) -> None:
        def change(stored: dict[str, Any] | None) -> dict[str, Any]:
            entry = Entry.load(stored)
            return entry.at(entry.lease._replace(phase=Phase.REFRESHING)).dump()

        if self.entry().renewable and self.entry().lease.attempt == 0:
            self.run(self.vault.change, "lease:a", change)

    def entry(self) -> Entry:
        return Entry.load(self.run(self.vault.get, "lease:a"))

    @invariant()
    def promises_hold(self) -> None:
        entry = self.entry()
        LEASE.check(entry.lease)
        assert entry.lease.generation >= self.seen
        self.seen = entry.lease.generation
        assert (entry.given is None) == (entry.lease.phase is Phase.RELEASED)

    def teardown(self) -> None:
        told = self.run(record, self.journal)
        generations = [generation for _, generation, _ in told]
        assert generations == sorted(generations)
        published = [one for one in told if one[2] in ("signed_in", "refreshed")]
        # Each credential has its own number, and none is left out.
        assert [one[1] for one in published] == list(range(1, len(published) + 1))


TestStory = _Story.TestCase
TestStory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
