"""What the tests of streams, cancelling and steering share: a model that waits to be let on, and ways to look."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio

import holdfast
from holdfast.agent.history import history_of
from holdfast.contracts.agent_event import DELTAS, AgentEvent
from holdfast.contracts.message import check_messages
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest
from holdfast.models.script import Step
from holdfast.models.scripted import Scripted

ALLOWED: dict[str, Any] = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
"""A configuration in which nobody is asked."""


class Paced:
    """Says what a script says, and stops in the middle of each answer until it is let on."""

    def __init__(self, script: list[Step], *, pause_at: dict[int, int]) -> None:
        """`pause_at` maps the number of a question, from 1, to the pieces of its answer that come before the pause."""
        self.id = "scripted:paced"
        self.profile = ModelProfile(structured=True)
        self.asked = 0
        self.paused = anyio.Event()
        self.on = anyio.Event()
        self._inner = Scripted(script)
        self._pause_at = pause_at

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """The next answer, whole."""
        self.asked += 1
        if self.asked in self._pause_at:
            await self._pause()
        return await self._inner.request(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelAnswer, None]:
        """The next answer in pieces."""
        self.asked += 1
        left = self._pause_at.get(self.asked)
        async for piece in self._inner.stream(request):
            if left == 0:
                await self._pause()
            if left is not None:
                left -= 1
            yield piece

    async def _pause(self) -> None:
        self.paused.set()
        await self.on.wait()
        self.paused, self.on = anyio.Event(), anyio.Event()


async def collected(events: AsyncIterator[AgentEvent]) -> list[AgentEvent]:
    """All of them."""
    return [one async for one in events]


def kept(events: list[AgentEvent]) -> list[AgentEvent]:
    """Those that are on record."""
    return [one for one in events if not isinstance(one, DELTAS)]


def kinds(events: list[AgentEvent]) -> list[str]:
    """What they are."""
    return [one.kind for one in events]


async def record_kinds(hf: holdfast.Runtime, stream: str) -> list[str]:
    """What is on record."""
    return [one.kind async for one in hf.journal.read(stream)]


async def conversation(hf: holdfast.Runtime, session: str) -> list[tuple[str, str]]:
    """Who said what, from the journal; the conversation is one that every provider takes, and the one at hand."""
    folded = (await history_of(hf.journal, session)).transcript
    assert check_messages(folded.messages) is None
    warm = await hf.agents.messages(session)
    assert (warm.messages, warm.digest) == (folded.messages, folded.digest)
    return [(one.role, one.text) for one in folded.messages]


def process(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Python in a process of its own, that can import the tests."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


async def finished(child: subprocess.Popen[str]) -> str:
    """What a process printed, once it is over."""
    out, err = await anyio.to_thread.run_sync(child.communicate)
    assert child.returncode == 0, err
    return out.strip()


async def line_of(child: subprocess.Popen[str]) -> str:
    """The next line a process prints."""
    assert child.stdout is not None
    found = await anyio.to_thread.run_sync(child.stdout.readline)
    assert found, child.communicate()[1]
    return found.strip()


def tell(child: subprocess.Popen[str], line: str = "") -> None:
    """Write a line to a process, which waits for it."""
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


async def until(true: Callable[[], Any]) -> None:
    """Wait for something that will be true."""
    with anyio.fail_after(30):
        while True:
            found = true()
            if hasattr(found, "__await__"):
                found = await found
            if found:
                return
            await anyio.sleep(0.005)
