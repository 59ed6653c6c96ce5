"""What callers give that is nothing of the kind: refused where it comes in, in words that say what to give instead."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.agent.loop_support import opened, scripted

import holdfast
from holdfast import Agent, Runtime
from holdfast.errors import CallerError
from holdfast.testing import say


def plain(x: int) -> int:
    """A function that nobody has made a capability of."""
    return x


@pytest.mark.parametrize("given", [plain, len, 5, None])
async def test_what_is_no_capability_says_how_to_make_one(given: Any) -> None:
    with pytest.raises(CallerError) as why:
        Agent(scripted("x"), capabilities=[given])
    assert (why.value.code, "@capability" in str(why.value.hint)) == ("INVALID_ARGUMENT", True)
    with pytest.raises(CallerError) as why:
        async with holdfast.open("memory:", {}, capabilities=[given]):
            pass
    assert (why.value.code, "@capability" in str(why.value.hint)) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize("given", [plain, 5, None])
async def test_what_is_no_hook_says_how_to_make_one(given: Any) -> None:
    with pytest.raises(CallerError) as why:
        Agent(scripted("x"), hooks=[given])
    assert (why.value.code, "@hook" in str(why.value.hint)) == ("HOOK_INVALID", True)
    with pytest.raises(CallerError) as why:
        async with holdfast.open("memory:", {}, hooks=[given]):
            pass
    assert (why.value.code, "@hook" in str(why.value.hint)) == ("HOOK_INVALID", True)


@pytest.mark.parametrize("given", [None, 5, object()])
def test_what_is_no_model(given: Any) -> None:
    for attempt in (lambda: Agent(given), lambda: Agent(scripted("x"), fallbacks=[given])):
        with pytest.raises(CallerError) as why:
            attempt()
        assert (why.value.code, bool(why.value.hint)) == ("INVALID_ARGUMENT", True)


Attempt = Callable[[Runtime, str], Awaitable[Any]]

WRONG: dict[str, tuple[str, Attempt]] = {
    "a prompt": ("INVALID_ARGUMENT", lambda hf, _: _agent().run(5, runtime=hf)),  # type: ignore[arg-type]
    "a session": (
        "INVALID_SESSION_ID",
        lambda hf, _: _agent().run("go", session=5, runtime=hf),  # type: ignore[arg-type]
    ),
    "no session's name": (
        "INVALID_SESSION_ID",
        lambda hf, _: _agent().run("go", session="", runtime=hf),
    ),
    "words": ("INVALID_ARGUMENT", lambda hf, _: hf.agents.say("s", 5)),  # type: ignore[arg-type]
    "a lane": ("INVALID_ARGUMENT", lambda hf, _: hf.agents.say("s", "go", lane="foo")),  # type: ignore[arg-type]
    "a surface": ("INVALID_ARGUMENT", lambda hf, _: hf.surfaces.add("l", 5)),  # type: ignore[arg-type]
    "a surface's name": (
        "INVALID_ARGUMENT",
        lambda hf, _: hf.surfaces.add("A b", {"command": "true"}),
    ),
    "how to cancel": (
        "INVALID_ARGUMENT",
        lambda hf, run: hf.runs.cancel(run, mode="bogus"),  # type: ignore[arg-type]
    ),
    "an account's name": ("INVALID_ARGUMENT", lambda hf, _: hf.agents.open_account("", {})),
    "a credential's key": ("INVALID_ARGUMENT", lambda hf, _: hf.leases.view("A b")),
}


def _agent() -> Agent[str]:
    return Agent(scripted(say("Done.")))


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_nothing_of_the_kind(what: str) -> None:
    code, attempt = WRONG[what]
    async with opened() as (hf, _):
        run = await _agent().run("go", session="s", runtime=hf)
        with pytest.raises(CallerError) as why:
            await attempt(hf, run.id)
        assert (why.value.code, bool(why.value.hint)) == (code, True)
        # Nobody outside knows the names of what is private.
        assert re.search("`_[A-Z]", str(why.value)) is None
