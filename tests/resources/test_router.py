"""Which URI goes where, and what the limits do."""

from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.resources.support import Counted, Memory, grep, holding, read

from holdfast.contracts import SideEffect
from holdfast.contracts.resource import ListRequest, ResourceRequest
from holdfast.errors import CallerError, HoldfastError, ModelError
from holdfast.resources import Resources, Router
from holdfast.resources.router import MAX_BYTES, scheme_of


@pytest.mark.parametrize("uri", ["FILE:///a", "File:/a", "file:a", "file:"])
def test_schemes_are_compared_in_lower_case(uri: str):
    assert scheme_of(uri) == "file"


@pytest.mark.parametrize(
    "uri",
    [
        *("", "notes.txt", "/etc/passwd", "://x", ":x", "1a:x", "-a:x", "a b:x", "ä:x", "a_b:x"),
        *("a\n:x", "\u212aelvin:x", "a" * 65 + ":x", "a%66:x"),
    ],
)
def test_a_bad_scheme_or_none_is_an_error(uri: str):
    with pytest.raises(CallerError) as caught:
        scheme_of(uri)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.hint


@given(st.text(max_size=40))
def test_a_scheme_is_found_or_refused_whatever_the_text(uri: str):
    try:
        found = scheme_of(uri)
    except CallerError:
        return
    assert found == uri.partition(":")[0].lower()
    assert found[0].isascii()
    assert found[0].isalpha()


def test_a_second_resolver_for_a_scheme_is_an_error():
    router = Router()
    first = Memory()
    router.register("mem", first)
    with pytest.raises(CallerError, match="already"):
        router.register("MEM", Memory())
    assert [one.resolver for one in router.routes] == [first]


def test_an_unknown_scheme_is_denied_with_what_there_is():
    router = Router()
    router.register("mem", Memory())
    router.register("b", Memory())
    with pytest.raises(ModelError) as caught:
        router.route("ftp://x")
    assert caught.value.code == "PERMISSION_DENIED"
    assert caught.value.hint == "There is: `b:`, `mem:`."


@pytest.mark.parametrize("max_bytes", [0, -1, MAX_BYTES + 1])
def test_a_route_has_a_sound_limit(max_bytes: int):
    with pytest.raises(CallerError):
        Router().register("mem", Memory(), max_bytes=max_bytes)


@pytest.mark.parametrize(("asked", "route", "came"), [(100, 50, 50), (50, 100, 50), (7, 7, 7)])
async def test_max_bytes_is_enforced(asked: int, route: int, came: int):
    resources = Resources()
    resources.router.register("mem", Memory(x=b"a" * 1000), max_bytes=route)
    view = await resources.read(ResourceRequest(uri="mem:x", max_bytes=asked))
    assert view.text == "a" * came
    assert (view.returned_bytes, view.byte_len, view.truncated, view.next) == (
        came,
        1000,
        True,
        came,
    )


async def test_what_was_opened_is_closed_also_when_reading_fails():
    resources, memory = holding(b"{}\n")
    await read(resources)
    with pytest.raises(HoldfastError):
        await read(resources, format="pdf")
    with pytest.raises(HoldfastError):
        await grep(resources, "(")
    assert memory.closed == 3


async def test_one_side_effect_is_not_read_by_the_function_of_another():
    resources = Resources()
    resources.router.register("mem", Memory(x=b"a"), side_effect=SideEffect.NETWORK)
    request = ResourceRequest(uri="mem:x")
    with pytest.raises(ModelError) as caught:
        await resources.read(request, among=SideEffect.READ)
    assert caught.value.code == "PERMISSION_DENIED"
    assert (await resources.read(request, among=SideEffect.NETWORK)).text == "a"


async def test_what_can_not_be_listed_says_so():
    resources, _ = holding(b"")
    with pytest.raises(ModelError, match="can't be listed"):
        await resources.list(ListRequest(prefix="mem:"))
    assert (await resources.list(ListRequest())).items == ()


@pytest.mark.parametrize("tool", [read, lambda resources: grep(resources, "x")])
async def test_a_call_that_is_given_up_stops_reading_and_closes(tool: Any):
    """However long a source takes, its thread does not outlive whoever asked."""
    resources, memory = holding(b"a" * 1000)
    waits = anyio.Event()

    class Slow(Counted):
        async def read(self, start: int, length: int) -> bytes:
            waits.set()
            await anyio.sleep_forever()
            return b""

    async def opened(request: ResourceRequest) -> Slow:
        return Slow(memory, b"")

    memory.open = opened
    async with anyio.create_task_group() as group:
        group.start_soon(tool, resources)
        await waits.wait()
        group.cancel_scope.cancel()
    assert memory.closed == 1


async def test_many_at_once_do_not_wait_for_each_other_for_ever():
    resources, memory = holding(b"a\n" * 1000)
    found: list[int | None] = []

    class Threaded(Counted):
        async def read(self, start: int, length: int) -> bytes:
            # As a file is read: in a thread, while whoever parses it holds another.
            return await anyio.to_thread.run_sync(lambda: self.held.data[start : start + length])

    async def opened(request: ResourceRequest) -> Threaded:
        return Threaded(memory, memory.things["x"])

    async def one() -> None:
        found.append((await read(resources, unit="lines", start=999)).count)

    memory.open = opened
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(one)
    assert found == [1] * 100
