"""Keys of callers: the same request with the same key has the same answer, however often it is sent.

For runs that holds across restarts: the key, and the run it stands for, are on record before the run begins. Other
requests are remembered here, and not for ever: made again after that, they are refused by what they changed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anyio
from starlette.responses import Response

from holdfast.contracts import Draft, digest_json, new_id
from holdfast.contracts.token import KEY_KEPT_MS, TOKENS, RequestAccepted
from holdfast.errors import CallerError, Conflict
from holdfast.journal import Journal

MAX_KEY = 255
KEPT = 1000
"""Answers that are remembered."""
MAX_KEPT_BYTES = 256 << 10
"""Longer answers are not: what makes them changes nothing."""


class Key(NamedTuple):
    """What a request is known by."""

    name: str
    """The digest of who asks, and their key."""
    body: str
    """The digest of what is asked."""


class Accepted(NamedTuple):
    """The run that a key stands for."""

    run_id: str
    again: bool
    """Whether it was asked for before."""


def key_of(said: str | None, caller: str, asked: Any) -> Key | None:
    """The key of a request; `None` without one. Raises `INVALID_ARGUMENT`."""
    if said is None:
        return None
    if not 0 < len(said) <= MAX_KEY or not said.isascii() or not said.isprintable():
        raise CallerError(
            "INVALID_ARGUMENT",
            f"An `Idempotency-Key` has from 1 to {MAX_KEY} visible ASCII characters.",
            hint="A random UUID is a good one.",
        )
    return Key(digest_json([caller, said]), digest_json(asked))


class Keys:
    """What the keys of callers stand for."""

    def __init__(self, journal: Journal, *, now: Callable[[], int] | None = None) -> None:
        self._journal = journal
        self._now = now or _now
        self._answers: OrderedDict[str, tuple[str, Response | None]] = OrderedDict()
        """What was asked, and the answer; `None`: it is made again, which is the same."""
        self._under_way: dict[str, tuple[str, anyio.Event]] = {}

    async def run(self, key: Key | None, session_id: str, *, actor: str) -> Accepted:
        """The run that a request starts: the same for the same key of `actor`. Raises `IDEMPOTENCY_CONFLICT`."""
        if key is None:
            return Accepted(new_id("run"), again=False)
        for asked, _ in filter(None, (self._answers.get(key.name), self._under_way.get(key.name))):
            _check(key, asked)
        known = await self._known(key)
        if known is not None:
            return known
        run_id = new_id("run")
        said = RequestAccepted(key=key.name, body=key.body, run=run_id, session=session_id)
        try:
            await self._journal.append(TOKENS, [Draft.of(said, actor=actor)])
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            known = await self._known(key)  # somebody was faster by a moment
            if known is None:
                raise
            return known
        return Accepted(run_id, again=False)

    async def _known(self, key: Key) -> Accepted | None:
        row = await self._journal.row("requests", key.name)
        if row is None or self._now() - int(str(row["at"])) >= KEY_KEPT_MS:
            return None
        if row["body"] != key.body:
            raise conflict()
        return Accepted(str(row["run"]), again=True)

    async def once(self, key: Key | None, make: Callable[[], Awaitable[Response]]) -> Response:
        """The answer to a request: made, or the one that was given before."""
        if key is None:
            return await make()
        await self._known(key)  # a run that has the key asked for something else
        while True:
            asked, answer = self._answers.get(key.name, (key.body, None))
            _check(key, asked)
            if answer is not None:
                return answer
            under_way = self._under_way.get(key.name)
            if under_way is None:
                break
            _check(key, under_way[0])
            await under_way[1].wait()
        over = anyio.Event()
        self._under_way[key.name] = (key.body, over)
        try:
            answer = await make()
            self._keep(key, answer)
            return answer
        finally:
            del self._under_way[key.name]
            over.set()

    def _keep(self, key: Key, answer: Response) -> None:
        if answer.status_code >= 300:
            return  # nothing was done
        over = answer.status_code != 202 and len(answer.body) <= MAX_KEPT_BYTES
        self._answers[key.name] = (key.body, answer if over else None)
        if len(self._answers) > KEPT:
            self._answers.popitem(last=False)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _check(key: Key, body: str) -> None:
    if body != key.body:
        raise conflict()


def conflict() -> Conflict:
    """The refusal of a key that came with something else before."""
    return Conflict(
        "IDEMPOTENCY_CONFLICT",
        "This `Idempotency-Key` stands for another request.",
        hint="Use a new key for a new request, and the same request for the same key.",
    )
