"""Tokens: what is kept of them, when they count, and who may do what with them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import Draft
from holdfast.contracts.token import TOKENS, RequestAccepted, TokenRevoked, TokenUsed, TokenView
from holdfast.errors import CallerError
from holdfast.journal import MemoryJournal
from holdfast.server.limits import Buckets, Rate
from holdfast.server.refusals import BURST, Refusals
from holdfast.server.tokens import BROWSER_MS, LINK_MS, USED_EVERY, Tokens


class Clock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(clock: Clock) -> MemoryJournal:
    return MemoryJournal(clock=clock)


@pytest.fixture
def tokens(journal: MemoryJournal, clock: Clock) -> Tokens:
    return Tokens(journal, now=clock)


async def refused(tokens: Tokens, text: str) -> bool:
    try:
        await tokens.check(text)
    except CallerError as why:
        return why.code == "UNAUTHENTICATED"
    return False


async def kinds(journal: MemoryJournal) -> list[str]:
    return [record.kind async for record in journal.read(TOKENS)]


async def test_a_token_counts_and_says_what_it_is_good_for(tokens: Tokens):
    made = await tokens.create(["read", "run", "read"], prefix="acme-", name="ci")
    found = await tokens.check(made.text)
    assert (found.id, found.scopes, found.prefix) == (made.view.id, ("read", "run"), "acme-")
    assert found.name == "ci"


async def test_no_secret_is_kept_anywhere(tokens: Tokens, journal: MemoryJournal):
    made = await tokens.create(["admin"])
    secret = made.text.split("_", 2)[2]
    await tokens.check(made.text)
    kept = json.dumps([record.model_dump(mode="json") async for record in journal.read_all()])
    kept += json.dumps(await journal.row("tokens", made.view.id))
    assert secret not in kept
    assert made.text not in repr(await tokens.show(made.view.id))


async def test_what_is_no_token_is_refused_alike(tokens: Tokens):
    made = await tokens.create(["admin"])
    number = made.text.split("_")[1]
    for text in ("", "hf_", "hf__", f"hf_{number}_", f"hf_{number}_x", made.text + "x", "hf_é_ü"):
        assert await refused(tokens, text), text
    for other in ("tok" + made.text[2:], made.text.upper(), f"hf_{number[:-1]}0_secret"):
        assert await refused(tokens, other), other


@given(st.text(max_size=300))
async def test_no_text_is_a_token_by_chance(text: str):
    tokens = Tokens(MemoryJournal())
    await tokens.create(["admin"])
    assert await refused(tokens, text)


async def test_a_revoked_token_counts_no_more(tokens: Tokens):
    made = await tokens.create(["admin"])
    assert (await tokens.revoke(made.view.id)).status == "revoked"
    assert await refused(tokens, made.text)
    with pytest.raises(CallerError, match="revoked before"):
        await tokens.revoke(made.view.id)


async def test_expires_at_is_enforced(tokens: Tokens, clock: Clock):
    made = await tokens.create(["read"], expires_in_ms=1000)
    clock.ms += 999
    assert not await refused(tokens, made.text)
    clock.ms += 1
    assert await refused(tokens, made.text)
    assert (await tokens.show(made.view.id)).status == "expired"


async def test_rotating_hands_the_rights_on(tokens: Tokens):
    old = await tokens.create(["read", "approve"], prefix="a-", name="bot", expires_in_ms=50_000)
    new = await tokens.rotate(old.view.id)
    assert await refused(tokens, old.text)
    found = await tokens.check(new.text)
    same = ("scopes", "prefix", "name", "expires_at", "kind")
    assert [getattr(found, one) for one in same] == [getattr(old.view, one) for one in same]
    assert found.replaces == old.view.id
    assert [one.status for one in await tokens.list()] == ["revoked", "active"]
    with pytest.raises(CallerError):
        await tokens.rotate(old.view.id)


async def test_the_last_use_is_written_once_a_minute(
    tokens: Tokens, clock: Clock, journal: MemoryJournal
):
    made = await tokens.create(["read"])
    for _ in range(5):
        await tokens.check(made.text)
    assert (await kinds(journal)).count("token_used") == 1
    clock.ms += USED_EVERY
    await tokens.check(made.text)
    assert (await kinds(journal)).count("token_used") == 2
    assert (await tokens.show(made.view.id)).last_used_at == clock.ms
    # Another process does not write it again either.
    await Tokens(journal, now=clock).check(made.text)
    assert (await kinds(journal)).count("token_used") == 2


async def test_a_link_is_good_once(tokens: Tokens):
    link = await tokens.link()
    assert await refused(tokens, link)  # for nothing but to come in
    made = await tokens.enter(link)
    assert made.view.kind == "browser"
    assert (await tokens.check(made.text)).scopes == ("admin",)
    with pytest.raises(CallerError) as why:
        await tokens.enter(link)
    assert why.value.code == "UNAUTHENTICATED"


async def test_a_link_hands_its_prefix_and_name_on(tokens: Tokens):
    made = await tokens.enter(await tokens.link(["approve"], prefix="acme-", name="Ada"))
    assert (made.view.scopes, made.view.prefix, made.view.name) == (("approve",), "acme-", "Ada")
    assert (await tokens.enter(await tokens.link())).view.name == "browser"


async def test_a_link_is_good_for_five_minutes(tokens: Tokens, clock: Clock):
    link = await tokens.link()
    clock.ms += LINK_MS
    with pytest.raises(CallerError):
        await tokens.enter(link)


async def test_a_browser_is_signed_in_for_a_week(tokens: Tokens, clock: Clock):
    made = await tokens.enter(await tokens.link())
    clock.ms += BROWSER_MS - 1
    assert not await refused(tokens, made.text)
    clock.ms += 1
    assert await refused(tokens, made.text)


async def test_a_program_cant_come_in_by_its_token_as_a_browser(tokens: Tokens):
    made = await tokens.create(["admin"])
    with pytest.raises(CallerError):
        await tokens.enter(made.text)


@pytest.mark.parametrize(
    "bad",
    [{"scopes": []}, {"scopes": ["all"]}, {"scopes": ["read"], "prefix": "a b"}],
)
async def test_a_token_that_means_nothing_is_refused(tokens: Tokens, bad: dict[str, Any]):
    with pytest.raises(CallerError) as why:
        await tokens.create(bad.pop("scopes"), **bad)
    assert why.value.code == "INVALID_ARGUMENT"


async def test_tokens_survive_a_rebuild(tokens: Tokens, journal: MemoryJournal):
    made = await tokens.create(["read"])
    gone = await tokens.create(["read"])
    await tokens.revoke(gone.view.id)
    before = [one.model_dump() for one in await tokens.list()]
    await journal.rebuild()
    assert [one.model_dump() for one in await tokens.list()] == before
    assert isinstance(await tokens.check(made.text), TokenView)


async def test_the_journal_itself_refuses_what_can_not_be(tokens: Tokens, journal: MemoryJournal):
    made = await tokens.create(["read"])
    first = await anext(journal.read(TOKENS))
    asked = RequestAccepted(key="0" * 64, body="1" * 64, run="run_1", session="s")
    await journal.append(TOKENS, [Draft.of(asked)])
    twice = [
        Draft(kind=first.kind, payload=first.payload),
        Draft.of(TokenRevoked(id="tok_none")),
        Draft.of(TokenUsed(id="tok_none")),
        Draft.of(asked),
    ]
    for draft in twice:
        with pytest.raises(CallerError) as why:
            await journal.append(TOKENS, [draft])
        assert why.value.code == "ILLEGAL_RECORD"
    assert (await tokens.check(made.text)).id == made.view.id


async def test_refusals_are_counted_where_there_are_too_many(journal: MemoryJournal):
    now = [0.0]
    refusals = Refusals(journal, now=lambda: now[0])
    for number in range(1000):
        await refusals.note("NOT_FOUND", actor="a", via="v", method="GET", path=f"/{number}")
    assert len(await kinds(journal)) == BURST
    now[0] += 3600
    await refusals.note("NOT_FOUND", actor="a", via="v", method="GET", path="/x" * 999)
    last = [record async for record in journal.read(TOKENS)][-1].payload
    assert last["count"] == 1000 - BURST + 1
    assert len(str(last["path"])) <= 200


@given(
    rate=st.floats(0.5, 50),
    burst=st.integers(1, 50),
    waits=st.lists(st.floats(0, 3), max_size=80),
)
def test_nobody_gets_more_than_the_burst_and_the_rate(rate: float, burst: int, waits: list[float]):
    now = [1000.0]
    buckets = Buckets(Rate(rate, burst), now=lambda: now[0])
    taken = 0
    for number, wait in enumerate(waits):
        now[0] += wait
        told = buckets.take("a")
        taken += told == 0
        assert taken <= burst + (now[0] - 1000) * rate + 1e-6
        assert buckets.take(f"b{number}") == 0  # others are not touched
    wait = max(buckets.take("a") for _ in range(burst + 1))
    assert wait > 0
    now[0] += wait + 1e-6  # who waits as long as they are told gets one
    assert buckets.take("a") == 0
