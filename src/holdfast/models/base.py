"""The seam between holdfast and every model there is: one method to ask, and the same in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest


@runtime_checkable
class Model(Protocol):
    """Something that answers. Must pass `holdfast.testing.ModelConformance`.

    It raises `holdfast.errors.ModelFailure` and nothing else; it never retries by itself, because every attempt is
    an effect of its own, with its own record; cancelling it ends the request.
    """

    @property
    def id(self) -> str:
        """`provider:name`, as agents name it and records have it."""
        ...

    @property
    def profile(self) -> ModelProfile:
        """What is known about it without asking."""
        ...

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and wait for the whole answer."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """Ask, and get the answer in pieces; the last item is the whole answer.

        A stream that is cut raises `ModelFailure("MODEL_STREAM_CUT")` whose `partial` is what came until then.
        Whoever stops early must `aclose` it.
        """
        ...
