"""JSON-RPC 2.0 over lines: one message per line, requests answered as they are done, events in between.

A connection reads lines and starts each request as a task of its own, so a long run does not keep the next request
waiting. What changes one session is done in the order in which it came: a client may send `create`, `run` and
`destroy` without waiting in between. Notifications are carried out and not answered. A batch is answered at once when all of it is done. What was
asked is finished also when the client is gone: the journal has it. Subscriptions end with the connection.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple, NoReturn, cast
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from holdfast.contracts import parse
from holdfast.errors import CallerError, HoldfastError, InternalError
from holdfast.server.callers import Scope

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
FAILED = -32000
"""Any refusal or failure of holdfast; `data` is its `ErrorObject`."""

MAX_OPEN = 256
"""Requests of one connection that may be under way: more are refused, and those of a batch wait."""

MAX_BATCH = 1000
"""Messages in a batch."""

Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[bytes | None]]
Job = Callable[[], Coroutine[Any, Any, None]]


class Method(NamedTuple):
    """What can be asked."""

    params: type[BaseModel]
    call: Callable[[Any, Call], Awaitable[Any]]
    """`Any`: its parameters, of the type above."""
    order: Callable[[Any], Sequence[str]] | None = None
    """Names what it changes: requests of a client that change the same are carried out one after the other."""
    scope: Scope = "admin"
    """What a caller needs for it."""


@dataclass(slots=True)
class Call:
    """One request, as its method sees it."""

    notify: Callable[[str, dict[str, Any]], Awaitable[None]]
    """Send the client an event."""
    subscriptions: dict[str, anyio.CancelScope]
    """What is sent to this client until it is cancelled, or the connection ends."""
    afterwards: list[Job] = field(default_factory=list[Job])
    """Started once the request is answered, so that no event comes before the answer."""


class _Refusal(Exception):
    """An answer that is an error of the protocol."""

    def __init__(self, code: int, error: HoldfastError) -> None:
        super().__init__(error.message)
        self.code = code
        self.error = error


class Connection:
    """One client."""

    def __init__(self, methods: Mapping[str, Method], send: Send) -> None:
        self._methods = methods
        self._write = send
        self._writing = anyio.Lock()
        self._open = 0
        self._fewer = anyio.Event()
        self._subscriptions: dict[str, anyio.CancelScope] = {}
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._hearing = anyio.CancelScope()

    @property
    def left(self) -> bool:
        """Whether nothing more is heard, because we leave."""
        return self._hearing.cancel_called

    def leave(self) -> None:
        """Hear nothing more: `serve` returns once what was asked before is answered."""
        self._hearing.cancel()

    async def serve(self, receive: Receive) -> None:
        """Answer everything that comes, until the client has no more to say and all of it is answered."""
        async with anyio.create_task_group() as streams:
            async with anyio.create_task_group() as requests:
                with self._hearing:
                    while (line := await receive()) is not None:
                        if line.strip():
                            requests.start_soon(self._line, line, streams)
            streams.cancel_scope.cancel()

    async def answer(self, data: bytes) -> bytes | None:
        """What one message or batch, which is all there is, is answered with; `None` for notifications.

        For a way in that has no way back: what would be sent later is not.
        """
        answer, _ = await self._answered(data)
        return None if answer is None else encoded(answer)

    async def refuse(self, error: HoldfastError) -> None:
        """Tell the client about something that is no answer to a message of its own."""
        await self._send(_failure(None, INVALID_REQUEST, error))

    async def _line(self, line: bytes, streams: TaskGroup) -> None:
        answer, afterwards = await self._answered(line)
        if answer is not None:
            await self._send(answer)
        for each in afterwards:
            streams.start_soon(each)

    # `Any`: JSON.
    async def _answered(self, data: bytes) -> tuple[Any, list[Job]]:
        """The answer to a message or a batch, and what is to be started once it is given."""
        afterwards: list[Job] = []
        try:
            message = _loaded(data)
        except _Refusal as why:
            return _failure(None, why.code, why.error), afterwards
        if isinstance(message, list):
            return await self._batch(cast("list[Any]", message), afterwards), afterwards
        return await self._single(message, afterwards), afterwards

    async def _batch(
        self, messages: list[Any], afterwards: list[Job]
    ) -> list[Any] | dict[str, Any] | None:
        if not messages or len(messages) > MAX_BATCH:
            error = _invalid(f"A batch has from 1 to {MAX_BATCH} messages.")
            return _failure(None, INVALID_REQUEST, error)
        answers: list[Any] = [None] * len(messages)

        async def one(at: int) -> None:
            try:
                answers[at] = await self._message(messages[at], afterwards)
            finally:
                self._end()

        async with anyio.create_task_group() as together:
            for at in range(len(messages)):
                # None is refused for want of room: its client could not wait for others, all are answered at once.
                while self._open >= MAX_OPEN:
                    await self._fewer.wait()
                self._open += 1
                together.start_soon(one, at)
        return [answer for answer in answers if answer is not None] or None

    async def _single(self, message: Any, afterwards: list[Job]) -> dict[str, Any] | None:
        if self._open >= MAX_OPEN:
            error = CallerError(
                "RATE_LIMITED",
                f"{MAX_OPEN} requests are under way.",
                hint="Wait for some of them to be answered.",
            )
            return None if _is_notification(message) else _failure(_id_of(message), FAILED, error)
        self._open += 1
        try:
            return await self._message(message, afterwards)
        finally:
            self._end()

    def _end(self) -> None:
        self._open -= 1
        if self._open == MAX_OPEN - 1:
            self._fewer.set()
            self._fewer = anyio.Event()

    async def _message(self, message: Any, afterwards: list[Job]) -> dict[str, Any] | None:
        """The answer to one message; `None` for a notification."""
        id_ = _id_of(message)
        try:
            asked = _checked(message)
            call = Call(self._notify, self._subscriptions, afterwards)
            answer = {"jsonrpc": "2.0", "id": id_, "result": await self._called(asked, call)}
        except _Refusal as why:
            answer = _failure(id_, why.code, why.error)
        except HoldfastError as why:
            answer = _failure(id_, FAILED, why)
        except Exception as why:  # noqa: BLE001 - one request must not end the others
            answer = _failure(id_, FAILED, InternalError(f"{type(why).__name__}: {why}"))
        return None if _is_notification(message) else answer

    async def _called(self, asked: dict[str, Any], call: Call) -> Any:
        method = self._methods.get(asked["method"])
        if method is None:
            error = CallerError(
                "METHOD_NOT_FOUND",
                f"There is no method `{asked['method'][:80]}`.",
                hint=f"There are: {', '.join(self._methods)}.",
            )
            raise _Refusal(METHOD_NOT_FOUND, error)
        given = asked.get("params", {})
        if isinstance(given, list):
            given = _by_name(cast("list[Any]", given), method.params)
        try:
            params = parse(method.params, given)
        except CallerError as why:
            raise _Refusal(INVALID_PARAMS, why) from None
        async with AsyncExitStack() as turns:
            # Nothing is awaited on the way from the line to here, so the turns are those of the lines.
            for name in sorted(set(method.order(params))) if method.order else ():
                await turns.enter_async_context(self._turn(name))
            return await method.call(params, call)

    def _turn(self, name: str) -> anyio.Lock:
        found = self._turns.get(name)
        if found is None:
            # Not even for a moment is anybody else let in: what comes next finds this one begun.
            found = self._turns[name] = anyio.Lock(fast_acquire=True)
        return found

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def _send(self, message: Any) -> None:
        data = encoded(message)
        async with self._writing:
            try:
                await self._write(data + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the client is gone; what it asked for is done all the same, and on record


def encoded(value: Any) -> bytes:
    """`value`, and the models in it, as JSON on one line."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        # A lone surrogate has no UTF-8 form, but it has an escape.
        return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    return value.model_dump(mode="python") if isinstance(value, BaseModel) else str(value)


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as why:
        error = _invalid(f"The line is not JSON: {why}.")
        raise _Refusal(PARSE_ERROR, error) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _checked(message: Any) -> dict[str, Any]:
    """A message that is one."""
    if not isinstance(message, dict):
        raise _Refusal(INVALID_REQUEST, _invalid("A message is a JSON object."))
    asked = cast("dict[str, Any]", message)
    if asked.get("jsonrpc") != "2.0":
        raise _Refusal(INVALID_REQUEST, _invalid('A message says `"jsonrpc": "2.0"`.'))
    if not isinstance(asked.get("method"), str):
        raise _Refusal(INVALID_REQUEST, _invalid("`method` is a string."))
    if not _is_id(asked.get("id")):
        raise _Refusal(INVALID_REQUEST, _invalid("`id` is a string, a number or null."))
    if not isinstance(asked.get("params", {}), dict | list):
        raise _Refusal(INVALID_PARAMS, _invalid("`params` is an object or an array."))
    return asked


def _is_notification(message: Any) -> bool:
    """Whether nobody waits for an answer: a proper request without an id."""
    if not isinstance(message, dict):
        return False
    asked = cast("dict[str, Any]", message)
    return (
        "id" not in asked and asked.get("jsonrpc") == "2.0" and isinstance(asked.get("method"), str)
    )


def _is_id(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)  # `1e999` is JSON, and what Python makes of it is not
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _id_of(message: Any) -> Any:
    id_ = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
    return id_ if _is_id(id_) else None


def _by_name(given: list[Any], model: type[BaseModel]) -> dict[str, Any]:
    names = list(model.model_fields)
    if len(given) > len(names):
        error = _invalid(f"There are {len(given)} parameters; at most {len(names)} are taken.")
        raise _Refusal(INVALID_PARAMS, error)
    return dict(zip(names, given, strict=False))


def _invalid(message: str) -> CallerError:
    return CallerError("INVALID_ARGUMENT", message, hint="See JSON-RPC 2.0.")


def _failure(id_: Any, code: int, error: HoldfastError) -> dict[str, Any]:
    told = {"code": code, "message": error.message, "data": error.to_json()}
    return {"jsonrpc": "2.0", "id": id_, "error": told}
