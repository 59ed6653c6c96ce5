"""Hostile code wants out: it gets nothing of the host, changes nothing there, and validating it runs none of it."""

import re
from itertools import count

import pytest
from tests.security.support import VICTIM, Attempt, World, code_of, corpus, opened, processes

from holdfast import Runtime

ATTEMPTS = corpus("escapes.txt")
LIMITS = {"cpu_ms": 20_000, "wall_ms": 20_000}

_OURS = re.compile(
    r"\b(?:tool|atool|wire_money|pay_later|forbidden|read_text|write_text|list_dir|glob|stat)\b"
)
ALONE = [
    one for one in ATTEMPTS if not _OURS.search(one.code) and one.name != "capability: by name"
]
"""Those that need no capability."""

_ids = count()


def test_the_corpus_is_large_and_every_name_in_it_is_one():
    assert len(ATTEMPTS) >= 300
    assert len({one.name for one in ATTEMPTS}) == len(ATTEMPTS)
    assert all(one.ends and one.found for one in ATTEMPTS)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.name)
async def test_nothing_gets_out(hf: Runtime, world: World, attempt: Attempt):
    code, before, id_ = world.fill(attempt.code), world.state(), f"escape-{next(_ids)}"
    result = await hf.shell.run(code, session=id_, limits=LIMITS, setup=world.setup)
    assert code_of(result) in attempt.ends, result.error or result.result
    assert world.leaks(result, code) == []
    assert world.state() == before
    # What the code did to itself, it did to itself alone.
    after = await hf.shell.run("str([1]) + 'x'.upper()", session=VICTIM)
    assert after.result == "[1]X"


@pytest.mark.parametrize("attempt", ALONE, ids=lambda one: one.name)
async def test_nothing_gets_out_on_the_short_way(bare: Runtime, world: World, attempt: Attempt):
    code, before, id_ = world.fill(attempt.code), world.state(), f"escape-{next(_ids)}"
    result = await bare.shell.run(code, session=id_, limits=LIMITS)
    assert code_of(result) in attempt.ends, result.error or result.result
    assert world.leaks(result, code) == []
    assert world.state() == before


async def test_what_code_spoils_it_spoils_for_its_own_run_only(hf: Runtime):
    """It may do what it likes to the names we keep in its box: the next result is right."""
    spoils = [one for one in ATTEMPTS if one.name.startswith(("own names", "patching"))]
    for attempt in spoils:
        if "wire_money" not in attempt.code:
            await hf.shell.run(attempt.code, session="spoilt", limits=LIMITS)
            found = await hf.shell.run("result = 5", session="spoilt", limits=LIMITS)
            assert (found.result, found.error) == (5, None), attempt.name


async def test_a_process_serves_one_session(world: World):
    """What a session left in its process reaches no other."""
    used: set[int] = set()
    other = World(world.folder.with_name("other"))
    async with opened(other, bare=True) as runtime:
        for n in range(5):
            await runtime.shell.run("x = 1", session=f"s{n}")
            here = {pid for pid in processes() if pid not in used}
            assert here, "a session came to a process that another had used"
            used |= here
            await runtime.shell.destroy(f"s{n}")


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.name)
async def test_validating_runs_nothing(hf: Runtime, world: World, attempt: Attempt):
    code, before, id_ = world.fill(attempt.code), world.state(), f"checked-{next(_ids)}"
    asked = len(world.said)
    result = await hf.shell.run(code, session=id_, setup=world.setup, validate_only=True)
    assert code_of(result) in attempt.found, result.error
    assert (result.result, result.stdout, result.stderr, result.external_calls) == (
        None,
        "",
        "",
        (),
    )
    assert world.leaks(result, code) == []
    assert (world.state(), len(world.said)) == (before, asked)
    assert id_ not in [one.id for one in await hf.shell.list(limit=1000)]
