"""Hostile code wants all there is: it ends within its limits, with the right code, and harms nobody."""

from itertools import count

import anyio
import pytest
from tests.security.sources import SOURCES
from tests.security.support import Attempt, World, code_of, corpus, forget_peak, memory_mb, until

from holdfast import RunResult, RunStatus, Runtime
from holdfast.errors import CODES

ATTEMPTS = [*corpus("exhaustion.txt"), *SOURCES]
LIMITS = {"cpu_ms": 200, "wall_ms": 600, "memory_mb": 8, "max_external_calls": 8}

AMPLE = {**LIMITS, "cpu_ms": 20_000, "wall_ms": 20_000}
TIME = frozenset({"TIMEOUT_CPU", "TIMEOUT_WALL"})

PEAK_MB = 250
"""What one attempt may cost this process for a moment, whatever the code builds in its 8 MiB."""

LATE_S = 40
"""A busy machine is late, but not that late."""

_ids = count()


def test_the_corpus_is_large_and_every_name_in_it_is_one():
    assert len(ATTEMPTS) >= 250
    assert len({one.name for one in ATTEMPTS}) == len(ATTEMPTS)
    assert all(one.ends and one.found for one in ATTEMPTS)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.name)
async def test_it_ends_within_its_limits(hf: Runtime, world: World, attempt: Attempt):
    id_ = f"exhaust-{next(_ids)}"
    forget_peak()
    before = memory_mb()
    with anyio.fail_after(LATE_S):
        result = await hf.shell.run(attempt.code, session=id_, limits=LIMITS)
        if code_of(result) in TIME - attempt.ends:  # the machine was too busy to get there
            result = await hf.shell.run(attempt.code, session=id_, limits=AMPLE)
    assert code_of(result) in attempt.ends, result.error or str(result.result)[:200]
    if result.error is not None:
        assert result.status is RunStatus(CODES[result.error.code].status or "runtime_error")
        assert result.diagnostics[0].code == result.error.code
    assert len(result.external_calls) <= LIMITS["max_external_calls"]
    assert len(result.stdout) <= 65536
    assert memory_mb("VmHWM") - before < PEAK_MB
    await serves(hf, id_, result)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.name)
async def test_validating_it_is_cheap(hf: Runtime, world: World, attempt: Attempt):
    id_, asked = f"checked-{next(_ids)}", len(world.said)
    forget_peak()
    before = memory_mb()
    with anyio.fail_after(LATE_S):
        result = await hf.shell.run(attempt.code, session=id_, validate_only=True)
    assert code_of(result) in attempt.found | {"TIMEOUT_CPU"}, result.error
    assert len(result.model_dump_json()) < 65536
    assert len(world.said) == asked
    assert memory_mb("VmHWM") - before < PEAK_MB


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.name)
async def test_it_can_be_cancelled(hf: Runtime, world: World, attempt: Attempt):
    id_, ended = f"cancel-{next(_ids)}", list[RunResult]()

    async def run() -> None:
        ended.append(await hf.shell.run(attempt.code, session=id_, limits=LIMITS))

    with anyio.fail_after(LATE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: bool(ended) or hf.shell.cancel(id_, mode="now"))
    # It may have ended by itself in the meantime.
    assert code_of(ended[0]) in {"CANCELLED", *attempt.ends, *TIME}
    await serves(hf, id_, ended[0])


async def serves(hf: Runtime, id_: str, result: RunResult) -> None:
    """The session still serves, if there is one, and so does the neighbour."""
    with anyio.fail_after(LATE_S):
        if code_of(result) != "INVALID_ARGUMENT":
            again = await hf.shell.run("tool('abc')", session=id_)
            assert again.result == 3, again.error
        assert (await hf.shell.run("tool('ab')", session="neighbour")).result == 2
