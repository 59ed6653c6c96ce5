"""`@capability`: what it makes of a function, and what it refuses."""

import contextvars
import dataclasses
import datetime
import enum
import functools
import threading
from typing import Annotated, Any, Literal, Optional

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypedDict

from holdfast.capabilities import Declared, capability
from holdfast.contracts import Json
from holdfast.errors import CallerError, HoldfastError, ModelError
from holdfast.gate.executor import Context, Executor, Finding


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Person(BaseModel):
    name: str
    born: datetime.date | None = None


class Row(TypedDict):
    id: int


def context(**fields: Any) -> Context:
    return Context(effect_id="e1", attempt=1, session_id="s", run_id="r", **fields)


async def called(what: Declared[..., Any], *args: Json, **kwargs: Json) -> Json:
    """A call as the gate makes it: bound, checked, executed, checked."""
    arguments = what.bind(args, kwargs)
    what.check(arguments)
    value = await what.execute(arguments, context())
    what.check_result(value)
    return value


# -- what it makes ------------------------------------------------------------------------------------


def test_a_function_becomes_a_contract():
    @capability(
        side_effect="external_system",
        approval="manual",
        idempotent=True,
        risk="critical",
        cost_micros=7,
        timeout_ms=1,
        max_request_bytes=2,
        max_response_bytes=3,
        concurrency=4,
        rate_per_min=5,
    )
    async def send_invoice(customer: str, cents: int = 5) -> bool:
        """Send an invoice.

        To a customer.

        Args:
            customer: Who gets it,
                by name.
            cents (int): How much.

        Returns:
            Whether it went out.
        """
        return bool(customer and cents)

    made = send_invoice.capability
    assert made.model_dump(mode="json") == {
        "name": "send_invoice",
        "description": "Send an invoice.\n\nTo a customer.",
        "input_schema": {
            "type": "object",
            "properties": {
                "customer": {"type": "string", "description": "Who gets it, by name."},
                "cents": {"type": "integer", "description": "How much.", "default": 5},
            },
            "required": ["customer"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "boolean"},
        "side_effect": "external_system",
        "approval_policy": "manual",
        "idempotent": True,
        "asynchronous": True,
        "risk": "critical",
        "cost_micros": 7,
        "limits": {
            "timeout_ms": 1,
            "max_request_bytes": 2,
            "max_response_bytes": 3,
            "concurrency": 4,
            "rate_per_min": 5,
        },
    }


def test_without_parentheses_and_with_them():
    @capability
    def one(a: int) -> int:
        return a + 1

    @capability()
    def two(a: int) -> int:
        return a + 2

    three = capability(lambda a: a, name="three", description="Third.")
    assert (one(1), two(1), three(1)) == (2, 3, 1)
    assert [x.capability.name for x in (one, two, three)] == ["one", "two", "three"]
    assert three.capability.description == "Third."
    assert vars(one)["__name__"] == "one"
    assert one.origin.endswith(":test_without_parentheses_and_with_them.<locals>.one")
    executor: Executor = one
    assert not executor.reconciles


class Shop:
    """Has methods."""

    async def price(self, item: str) -> int:
        """What an item costs."""
        return len(item)

    def __call__(self, item: str) -> str:
        return item.upper()


async def test_bound_methods_objects_and_partials():
    shop = Shop()
    assert await called(capability(shop.price), "abc") == 3
    assert capability(shop.price).capability.asynchronous
    assert await called(capability(shop, name="shout"), "abc") == "ABC"
    part = functools.partial(shop.price, item="ab")
    assert await called(capability(part)) == 2


@pytest.mark.parametrize(
    ("approval", "policy"),
    [
        ("none", "none"),
        ("manual", "manual"),
        ("auto: cents < 100", {"auto": {"rule": "cents < 100"}}),
        ({"auto": {"rule": "cents < 100"}}, {"auto": {"rule": "cents < 100"}}),
    ],
)
def test_approval(approval: Any, policy: Any):
    made = capability(lambda: None, name="f", approval=approval).capability
    assert made.model_dump(mode="json")["approval_policy"] == policy


@pytest.mark.parametrize(
    ("hint", "schema", "given_", "received", "wrong"),
    [
        (int, {"type": "integer"}, 3, 3, "3"),
        (float, {"type": "number"}, 3, 3.0, None),
        (str, {"type": "string"}, "a", "a", 1),
        (bool, {"type": "boolean"}, True, True, 1),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1], ["a"]),
        (dict[str, int], None, {"a": 1}, {"a": 1}, {"a": "b"}),
        (Optional[int], None, None, None, "x"),  # noqa: UP045
        (int | str, None, "x", "x", []),
        (Literal["a", "b"], None, "a", "a", "c"),
        (tuple[int, str], None, [1, "a"], (1, "a"), [1]),
        (set[int], None, [1, 2], {1, 2}, ["a"]),
        (Color, None, "red", Color.RED, "green"),
        (Point, None, {"x": 1}, Point(1), {"y": 1}),
        (Person, None, {"name": "A", "born": "2020-01-02"}, None, {"name": 5}),
        (Row, None, {"id": 1}, {"id": 1}, {}),
        (datetime.datetime, None, "2020-01-02T03:04:05", None, "soon"),
        (Annotated[int, Field(ge=3)], {"type": "integer", "minimum": 3}, 3, 3, 2),
        (Any, {}, {"x": [1]}, {"x": [1]}, None),
    ],
    ids=str,
)
async def test_hints(hint: Any, schema: Any, given_: Any, received: Any, wrong: Any):
    got: list[Any] = []

    def take(value):
        got.append(value)
        return value

    take.__annotations__ = {"value": hint, "return": hint}
    what = capability(take)
    if schema is not None:
        assert what.capability.input_schema["properties"] == {"value": schema}
        assert what.capability.output_schema == schema
    await called(what, given_)
    if received is not None:
        assert got == [received]
        assert type(got[0]) is type(received)
    if wrong is not None:
        with pytest.raises(CallerError) as refused:
            what.check({"value": wrong})
        assert refused.value.code == "INVALID_ARGUMENT"
        assert "`value" in refused.value.message


async def test_unannotated_parameters_take_anything():
    what = capability(lambda a, b=None: [a, b], name="pair")
    assert what.capability.output_schema == {}
    assert await called(what, {"x": 1}) == [{"x": 1}, None]


async def test_results_become_json():
    @capability
    def everything() -> Any:
        return {
            "at": datetime.date(2020, 1, 2),
            "who": Person(name="A"),
            "where": Point(1, 2),
            "color": Color.RED,
            "pair": (1, 2),
        }

    assert await called(everything) == {
        "at": "2020-01-02",
        "who": {"name": "A", "born": None},
        "where": {"x": 1, "y": 2},
        "color": "red",
        "pair": [1, 2],
    }


def test_types_defined_beside_a_local_function_are_found():
    class Local(BaseModel):
        n: int

    @capability
    def take(value: "Local") -> "Local":
        return value

    assert "Local" in take.capability.input_schema["$defs"]  # type: ignore[operator]


# -- the call -----------------------------------------------------------------------------------------


@capability
def book(room: str, nights: int = 1, *, guest: str, notes: list[str] | None = None) -> list[Any]:
    """Book a room."""
    return [room, nights, guest, notes]


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        (["a"], {"guest": "g"}, {"room": "a", "guest": "g"}),
        (["a", 2], {"guest": "g"}, {"room": "a", "nights": 2, "guest": "g"}),
        ([], {"guest": "g", "room": "a"}, {"guest": "g", "room": "a"}),
    ],
)
def test_positions_and_names_bind(args: list[Json], kwargs: dict[str, Json], bound: Json):
    assert book.bind(args, kwargs) == bound


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (["a", 1, "g"], {}, "takes 2 arguments by position, 3 were given"),
        (["a"], {"guest": "g", "room": "b"}, "got `room` twice"),
        (["a"], {"guest": "g", "rooms": "b"}, "has no parameter `rooms`"),
        (["a"], {}, "needs `guest`"),
        ([], {}, "needs `room`, `guest`"),
    ],
)
def test_calls_that_do_not_fit(args: list[Json], kwargs: dict[str, Json], said: str):
    with pytest.raises(CallerError) as refused:
        book.bind(args, kwargs)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert said in refused.value.message
    assert "book(room: str, nights: int = 1, *, guest: str" in str(refused.value.hint)


@given(st.permutations(["room", "nights", "guest", "notes"]), st.integers(0, 2))
def test_however_it_is_called_it_binds_the_same(order: list[str], by_position: int):
    whole: dict[str, Json] = {"room": "a", "nights": 2, "guest": "g", "notes": ["n"]}
    args = [whole[name] for name in ("room", "nights")[:by_position]]
    kwargs = {name: whole[name] for name in order if name not in ("room", "nights")[:by_position]}
    assert book.bind(args, kwargs) == whole


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"room": 1, "guest": "g"}, "`room`: expected string, got 1"),
        ({"guest": "g"}, "`room`: is required and was not given"),
        ({"room": "a", "guest": "g", "x": 1}, "there is no `x`"),
        ({"room": "a", "guest": "g", "notes": ["a", 2]}, "`notes[1]`: expected string, got 2"),
        ({"room": "a", "guest": "g", "notes": 5}, "`notes`: expected array or null, got 5"),
        ({"room": "a", "guest": "g", "nights": 1.5}, "`nights`: expected integer, got 1.5"),
    ],
)
def test_wrong_arguments_are_named_by_path(arguments: dict[str, Json], said: str):
    with pytest.raises(CallerError) as refused:
        book.check(arguments)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert said in refused.value.message


def test_what_was_given_is_shown_only_in_part():
    secret = "s" * 200
    with pytest.raises(CallerError) as refused:
        book.check({"room": "a", "guest": "g", "nights": secret})
    assert "s" * 70 in refused.value.message
    assert secret not in refused.value.message


def test_a_validator_of_the_type_is_part_of_the_check():
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    @capability
    def halve(n: Annotated[int, AfterValidator(even)]) -> int:
        return n // 2

    halve.check({"n": 2})
    with pytest.raises(CallerError, match="`n`: Value error, must be even"):
        halve.check({"n": 3})


def test_a_result_that_breaks_its_promise():
    with pytest.raises(ModelError) as refused:
        book.check_result("nothing")
    assert refused.value.code == "TOOL_ERROR"
    assert '`result`: expected array, got "nothing"' in refused.value.message


@pytest.mark.parametrize("value", [object(), {1: object()}, "\ud800"])
async def test_a_result_that_is_not_json(value: object):
    with pytest.raises(ModelError) as refused:
        await capability(lambda: value, name="f").execute({}, context())
    assert refused.value.code == "TOOL_ERROR"


async def test_a_number_that_is_none_is_no_result():
    async def nothing() -> float:
        return float("nan")

    with pytest.raises(ModelError, match="what is not JSON"):
        await capability(nothing).execute({}, context())


async def test_context_is_given_and_not_shown():
    @capability
    def charge(cents: int, ctx: Context) -> str:
        ctx.cost_micros, ctx.external_id = cents * 10_000, "ch_1"
        return ctx.idempotency_key

    assert list(charge.capability.input_schema["properties"]) == ["cents"]  # type: ignore[call-overload]
    given_ = context()
    assert await charge.execute({"cents": 5}, given_) == "e1"
    assert (given_.cost_micros, given_.external_id) == (50_000, "ch_1")


async def test_positional_only_parameters_are_given_by_position():
    @capability
    def sub(a: int, b: int = 1, /) -> int:
        return a - b

    assert await called(sub, 5, 2) == 3
    assert await called(sub, a=5) == 4


async def test_errors_of_the_function_reach_the_gate_as_they_are():
    class Odd(Exception):
        pass

    @capability
    def fail() -> None:
        raise Odd("no")

    with pytest.raises(Odd, match="no"):
        await fail.execute({}, context())


# -- threads and cancellation -------------------------------------------------------------------------


async def test_plain_functions_do_not_block_the_loop_and_overlap():
    both = threading.Barrier(2, timeout=10)

    @capability
    def meet() -> int:
        return both.wait()

    got: list[Json] = []

    async def one() -> None:
        got.append(await meet.execute({}, context()))

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        group.start_soon(one)
    assert sorted(map(str, got)) == ["0", "1"]


async def test_context_variables_reach_the_thread():
    who = contextvars.ContextVar("who", default="nobody")
    who.set("me")
    assert await called(capability(lambda: who.get(), name="whoami")) == "me"


async def test_whoever_gives_up_on_a_plain_function_goes_on_without_it():
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    @capability
    def hang() -> None:
        begun.set()
        go.wait(10)
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(hang.execute, {}, context())
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
    assert not ended.is_set()
    go.set()
    assert await anyio.to_thread.run_sync(ended.wait, 10)


async def test_cancelling_stops_an_async_function():
    begun, stopped = anyio.Event(), anyio.Event()

    @capability
    async def hang() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with anyio.create_task_group() as group:
        group.start_soon(hang.execute, {}, context())
        await begun.wait()
        group.cancel_scope.cancel()
    assert stopped.is_set()


# -- reconcilers --------------------------------------------------------------------------------------


async def test_reconcile():
    seen: list[Any] = []

    def whole(arguments: dict[str, Any], ctx: Context) -> Any:
        seen.append((arguments, ctx.effect_id))
        return Person(name="A")

    async def short(ctx: Context) -> Finding:
        return Finding("not_started")

    def declared(reconcile: Any) -> Declared[..., Any]:
        return capability(lambda n: n, name="f", reconcile=reconcile)

    found = await declared(whole).reconcile({"n": 1}, context())
    assert found == Finding("completed", {"name": "A", "born": None})
    assert seen == [({"n": 1}, "e1")]
    assert await declared(short).reconcile({}, context()) == Finding("not_started")
    assert await declared(lambda ctx: None).reconcile({}, context()) == Finding("unknown")
    assert declared(short).reconciles
    assert not declared(None).reconciles
    assert await declared(None).reconcile({}, context()) == Finding("unknown")
    with pytest.raises(CallerError, match="takes 3 parameters"):
        declared(lambda a, b, c: None)


# -- what it refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["list_tools", "result", "open", "print", "class", "__x", "a-b", "", "größe", "1a"]
)
def test_names_that_code_can_not_call(name: str):
    def function() -> None: ...

    function.__name__ = name
    with pytest.raises(CallerError) as refused:
        capability(function)
    assert refused.value.code == "INVALID_TOOL_NAME"


def star(*args: int) -> None: ...


def stars(**kwargs: int) -> None: ...


def method(self, a: int) -> None: ...


def field_default(a: int = Field(default=1)) -> None: ...


def unresolved(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def inexpressible(a: threading.Thread) -> None: ...


def context_default(ctx: Context = context()) -> None: ...  # noqa: B008


def generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (star, "takes `*args`"),
        (stars, "takes `**kwargs`"),
        (method, "still wants its `self`"),
        (field_default, "`Field` as the default of `a`"),
        (unresolved, "can't be resolved"),
        (inexpressible, "no JSON Schema of its parameters"),
        (context_default, "has a default for its context"),
        (generator, "is a generator"),
        (Shop, "is no function"),
        (book, "is a capability already"),
    ],
)
def test_what_can_not_be_declared(function: Any, said: str):
    with pytest.raises(CallerError) as refused:
        capability(function)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert said in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"side_effect": "magic"},
        {"approval": "maybe"},
        {"risk": "none"},
        {"timeout_ms": 0},
        {"concurrency": 0},
        {"cost_micros": -1},
    ],
)
def test_bad_options(options: Any):
    with pytest.raises(HoldfastError) as refused:
        capability(lambda: None, name="f", **options)
    assert refused.value.code == "INVALID_ARGUMENT"
