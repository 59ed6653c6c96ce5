"""Every provider there is, over the models of `pydantic-ai`; its agent loop is not used.

What a question becomes is in `_to_provider.py`, an answer in `_from_provider.py`, and what goes wrong in
`_failures.py`. Here: one attempt, its time, and the connection.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest
from holdfast.models import price
from holdfast.models.access import Access

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model as Inner
    from pydantic_ai.models import StreamedResponse

    from holdfast.models._from_provider import Calls


_Value = TypeVar("_Value")

_CLOSING_S = 5
"""How long a stream that is given up may take to close."""


class _Connection:
    """What belongs to one event loop: the client with its connections, made by whoever comes first."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.inner: Inner[Any] | None = None


class ProviderModel:
    """A model of a provider. `aclose` ends its connections; it can be asked again afterwards."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: anyio.lowlevel.RunVar[_Connection] = anyio.lowlevel.RunVar(access.id)

    @property
    def id(self) -> str:
        """`provider:name`, as it was asked for."""
        return self._access.id

    @property
    def profile(self) -> ModelProfile:
        """What is known about it by its name; imports the provider's client library."""
        return self._profile

    @cached_property
    def _profile(self) -> ModelProfile:
        facts = self._access.provider.facts(self._access.name) or {}
        return ModelProfile(
            context_tokens=price.context_tokens(self._access.listing),
            tools=bool(facts.get("supports_tools", True)),
            structured=bool(facts.get("supports_json_schema_output", False)),
            pictures=self._access.sees,
        )

    def secrets(self) -> Mapping[str, str]:
        """The API key, by the name of the variable it comes from: for whoever redacts records."""
        return self._access.secrets()

    def estimate(self, input_tokens: int, output_tokens: int) -> int | None:
        """What a call costs at most if it uses so many tokens, in millionths of a US dollar."""
        return price.estimate_micros(self._access.listing, input_tokens, output_tokens)

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Ask once, and wait for the whole answer."""
        inner = await self._inner()
        from holdfast.models import _failures

        try:
            response = await _within(_until(request), inner.request(*_question(request, inner)))
        except _Late:
            raise _failures.timed_out(self.id, request.settings.timeout_ms) from None
        except Exception as why:
            raise _failures.failure(why, self.id) from why
        return self._whole(response, _calls(request))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelAnswer, None]:
        """Ask once, and get the answer in pieces, then whole."""
        inner = await self._inner()
        from holdfast.models import _failures, _from_provider

        calls = _calls(request)
        deltas = _from_provider.Deltas(calls)
        until = _until(request)
        streamed: StreamedResponse | None = None
        try:
            async with _opened(inner, request, until) as streamed:
                events = aiter(streamed)
                while (event := await _within(until, anext(events, None))) is not None:
                    for delta in deltas.of(event):
                        yield delta
        except _Late:
            partial = self._partial(streamed, calls)
            raise _failures.timed_out(self.id, request.settings.timeout_ms, partial) from None
        except Exception as why:
            raise _failures.failure(why, self.id, self._partial(streamed, calls)) from why
        yield self._whole(streamed.get(), calls)

    async def aclose(self) -> None:
        """End the connections of this event loop."""
        connection = self._connection.get(None)
        if connection is not None and connection.inner is not None:
            inner, connection.inner = connection.inner, None
            async with inner:
                # Leaving it closes the client.
                pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _inner(self) -> Inner[Any]:
        connection = self._connection.get(None)
        if connection is None:
            connection = _Connection()
            self._connection.set(connection)
        if connection.inner is None:
            key = self._access.key()
            async with connection.lock:
                if connection.inner is None:
                    # The client library takes a second to import.
                    connection.inner = await anyio.to_thread.run_sync(
                        self._make, key, abandon_on_cancel=True
                    )
        return connection.inner

    def _make(self, key: str) -> Inner[Any]:
        access = self._access
        return access.provider.make(access.name, access.url, key)

    def _whole(self, response: ModelResponse, calls: Calls) -> ModelAnswer:
        from holdfast.models import _failures, _from_provider

        found = _from_provider.answer(response, calls, self._access.listing)
        details = response.provider_details or {}
        if response.finish_reason == "content_filter":
            raise _failures.filtered(self.id, details.get("refusal"), found)
        # A reason that nobody knows is one, too.
        ended = response.finish_reason or details.get("finish_reason")
        if not ended and self._access.provider.says_the_end:
            raise _failures.broke_off(self.id, _broken(found))
        return found

    def _partial(self, streamed: StreamedResponse | None, calls: Calls) -> ModelAnswer | None:
        """What came before the stream broke off. Its calls may be incomplete: they are not to be made."""
        if streamed is None:
            return None
        from holdfast.models import _from_provider

        found = _from_provider.answer(streamed.get(), calls, self._access.listing)
        return _broken(found)


def _broken(answer: ModelAnswer) -> ModelAnswer | None:
    return answer.model_copy(update={"finish": "error"}) if answer.parts else None


class _Late(Exception):
    """The call took longer than it may."""


def _until(request: ModelRequest) -> float:
    timeout_ms = request.settings.timeout_ms
    return inf if timeout_ms is None else anyio.current_time() + timeout_ms / 1_000


async def _within(until: float, waited: Awaitable[_Value]) -> _Value:
    """What is waited for; raises `_Late` at the deadline.

    Each wait has its own scope, and none is held while the caller of a stream has its turn.
    """
    with anyio.CancelScope(deadline=until):
        return await waited
    raise _Late


def _calls(request: ModelRequest) -> Calls:
    from holdfast.models import _from_provider, _to_provider

    return _from_provider.Calls(_to_provider.call_ids(request.messages))


def _question(request: ModelRequest, inner: Inner[Any]) -> tuple[Any, Any, Any]:
    from holdfast.models import _to_provider

    # What a provider does not know, it does not get: no reason to warn. Set each time, because tests undo it.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"pydantic_ai\.")
    return (
        _to_provider.messages(request, inner.system),
        _to_provider.settings(request.settings, inner.unsupported_settings),
        _to_provider.parameters(request, inner.profile),
    )


@asynccontextmanager
async def _opened(
    inner: Inner[Any], request: ModelRequest, until: float
) -> AsyncGenerator[StreamedResponse, None]:
    opening = inner.request_stream(*_question(request, inner))
    streamed = await _within(until, opening.__aenter__())
    failed: BaseException | None = None
    try:
        yield streamed
    except BaseException as why:
        failed = why
        raise
    finally:
        # A cancelled stream still has to end its request, or the provider goes on at our expense.
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await opening.__aexit__(type(failed) if failed else None, failed, None)
