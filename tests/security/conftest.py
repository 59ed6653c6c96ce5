"""What attacks get: a world outside, and a runtime in it. Whoever leaves it checks that all is as it was."""

import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from tests.security.support import (
    IN_ANOTHER_SESSION,
    IN_THE_ENVIRONMENT,
    VICTIM,
    World,
    memory_mb,
    no_process_left,
    opened,
    processes,
)

from holdfast import Runtime

GROWTH_MB = 500
"""Memory that this process may keep after all attacks of a module: what the allocator does not give back."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """What is outside of the box."""
    os.environ["HOLDFAST_CANARY"] = IN_THE_ENVIRONMENT
    made = World(tmp_path_factory.mktemp("outside") / "world")
    yield made
    made.release.set()
    del os.environ["HOLDFAST_CANARY"]


@pytest.fixture(scope="module")
async def hf(world: World) -> AsyncGenerator[Runtime]:
    """A runtime with the capabilities of that world. It still serves afterwards, and leaves no process behind."""
    before, memory = processes(), memory_mb()
    async with opened(world) as runtime:
        yield runtime
        assert (await runtime.shell.run("mine", session=VICTIM)).result == IN_ANOTHER_SESSION
        assert (await runtime.shell.run("tool('x')", session="afterwards")).result == 1
        assert (await runtime.shell.run("1 + 1", validate_only=True)).status.value == "ok"
        assert memory_mb() - memory < GROWTH_MB
        world.release.set()
    await no_process_left(before)
    assert not world.moved


@pytest.fixture(scope="module")
async def bare(world: World, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Runtime]:
    """A runtime without any capability: such code runs on a shorter way."""
    other = Path(tmp_path_factory.mktemp("bare")) / "world"
    async with opened(World(other), bare=True) as runtime:
        yield runtime
