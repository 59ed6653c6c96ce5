"""Hostile code wants all there is: it ends within its limits, with the right code, and harms nobody."""

from itertools import count
from typing import Any

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


def _deep(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


PEAK_MB = 250
"""What one attempt may cost this process for a moment, whatever the code builds in its 8 MiB."""

LATE_S = 40
"""A busy machine is late, but not that late."""

INPUTS: list[dict[str, Any]] = [
    {"long_text": "x" * (20 << 20)},
    {"wide_list": [0] * 200_000},
    {"many_rows": [{"a": n} for n in range(20_000)]},
    {f"input_{n}": n for n in range(20_000)},
    {"n" * 100_000: 1},
    {"long_number": 10**4000},
    {"longer_number": 10**5000},
    {"deep": _deep(90)},
    {"deeper": _deep(300)},
]

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


ALONE = [one for one in ATTEMPTS if not one.name.startswith(("calls", "source", "sharing: as"))][
    ::4
]
"""Some that need no capability."""


@pytest.mark.parametrize("attempt", ALONE, ids=lambda one: one.name)
async def test_it_ends_within_its_limits_on_the_short_way(bare: Runtime, attempt: Attempt):
    id_ = f"exhaust-{next(_ids)}"
    with anyio.fail_after(LATE_S):
        result = await bare.shell.run(attempt.code, session=id_, limits=LIMITS)
        if code_of(result) in TIME - attempt.ends:
            result = await bare.shell.run(attempt.code, session=id_, limits=AMPLE)
        assert code_of(result) in attempt.ends, result.error or str(result.result)[:200]
        assert (await bare.shell.run("1 + 1", session=id_)).result == 2


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


@pytest.mark.parametrize("attempt", ATTEMPTS[::4], ids=lambda one: one.name)
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


@pytest.mark.parametrize("inputs", INPUTS, ids=lambda one: next(iter(one))[:20])
async def test_inputs_are_bounded_by_the_box(hf: Runtime, inputs: dict[str, Any]):
    id_ = f"inputs-{next(_ids)}"
    forget_peak()
    before = memory_mb()
    with anyio.fail_after(LATE_S):
        result = await hf.shell.run("1 + 1", session=id_, inputs=inputs, limits=AMPLE)
    assert code_of(result) in ("MEMORY_EXCEEDED", "INVALID_ARGUMENT", "ok")
    assert memory_mb("VmHWM") - before < PEAK_MB
    await serves(hf, id_, result)


async def test_the_longest_error_of_a_capability_is_told(hf: Runtime):
    """It is told, if not in full; the run that saw it ends, and is on record."""
    for code in ("complain(200000)", "try:\n  complain(200000)\nexcept ValueError: pass"):
        result = await hf.shell.run(code, session="complaints")
        assert code_of(result) in ("TOOL_ERROR", "ok")
    assert (await hf.shell.run("1 + 1", session="complaints")).result == 2


async def test_a_state_too_large_to_be_kept_is_made_again(hf: Runtime):
    roomy = {"memory_mb": 256, "cpu_ms": 20_000, "wall_ms": 20_000}
    result = await hf.shell.run(
        "x = 'y' * (70 << 20)", session="roomy", limits=roomy, return_snapshot=True
    )
    assert (code_of(result), result.snapshot_id) == ("ok", None)
    assert (await hf.shell.run("len(x)", session="roomy", limits=roomy)).result == 70 << 20
    result = await hf.shell.run("x = [x]\nwire_money(5)", session="roomy", limits=roomy)
    assert code_of(result) == "WAITING_FOR_APPROVAL"
    await hf.shell.destroy("roomy")


async def serves(hf: Runtime, id_: str, result: RunResult) -> None:
    """The session still serves, if there is one, and so does the neighbour."""
    with anyio.fail_after(LATE_S):
        if code_of(result) != "INVALID_ARGUMENT":
            again = await hf.shell.run("tool('abc')", session=id_)
            assert again.result == 3, again.error
        assert (await hf.shell.run("tool('ab')", session="neighbour")).result == 2
