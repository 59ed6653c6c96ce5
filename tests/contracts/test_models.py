"""What holds for every contract."""

import pkgutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest
from pydantic import BaseModel, ValidationError

import holdfast.contracts
from holdfast.contracts import Body, ContentRef, Event, Record, check_id, new_id
from holdfast.contracts._base import Asked, Told
from holdfast.contracts._described import Described, texts_of
from holdfast.contracts.payload import PAYLOADS, TERMINAL
from holdfast.errors import CallerError


def every_model() -> list[type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for module in pkgutil.iter_modules(holdfast.contracts.__path__):
        for value in vars(import_module(f"holdfast.contracts.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Asked | Told):
                found[value.__qualname__] = value
    return [found[name] for name in sorted(found) if name not in ("Asked", "Told")]


MODELS = every_model()


def test_they_were_found():
    assert len(MODELS) > 30


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_is_described(model: type[BaseModel]):
    assert model.__doc__
    texts = texts_of(model)
    for name in model.model_fields:
        assert texts.get(name, "").endswith((".", ":", "…")), f"{model.__name__}.{name}"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_it_has_a_schema(model: type[BaseModel]):
    schema = model.model_json_schema(schema_generator=Described)
    assert schema["type"] == "object"
    assert all("description" in one for one in schema.get("properties", {}).values())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_it_is_frozen(model: type[BaseModel]):
    made = model.model_construct()
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, next(iter(model.model_fields)), None)


def test_every_name_is_exported():
    assert sorted(holdfast.contracts.__all__) == holdfast.contracts.__all__
    for name in holdfast.contracts.__all__:
        assert hasattr(holdfast.contracts, name)


def test_terminal_kinds_exist():
    assert set(PAYLOADS) > TERMINAL


def test_a_body_is_what_it_says():
    body = Body.of(b"data", role="code")
    assert Body.model_validate({"ref": body.ref.model_dump(), "data": b"data"}) == body
    for data in (b"date", b"data!"):
        with pytest.raises(ValidationError, match="do not match"):
            Body.model_validate({"ref": body.ref.model_dump(), "data": data})
    assert "data" not in repr(body)
    with pytest.raises(ValidationError):
        ContentRef(digest="AB" * 32, size=1)


def test_an_event_shows_a_record_without_its_payload():
    fields = {"stream": "s", "pos": 1, "time": 5, "prev": "0" * 64, "hash": "1" * 64}
    record = Record.model_validate(
        {**fields, "seq": 7, "kind": "run_completed", "payload": {"secret": 1}, "run_id": "r"}
    )
    event = Event.of(record)
    assert (event.family, event.terminal, event.known) == ("run", True, True)
    assert "secret" not in event.model_dump_json()
    own = Event.of(Record.model_validate({**fields, "seq": 8, "kind": "my_app.thing"}))
    assert (own.family, own.terminal, own.known) == ("my", False, True)
    alien = Event.of(Record.model_validate({**fields, "seq": 9, "kind": "quantum_leap"}))
    assert not alien.known


def test_new_ids_are_ids_and_sort_by_time():
    made = [new_id("run") for _ in range(1000)]
    assert len(set(made)) == 1000
    assert [name[:20] for name in made] == sorted(name[:20] for name in made)
    for name in made:
        assert check_id(name) == name
        assert name.startswith("run_")


@pytest.mark.parametrize(
    "bad", ["", "a\x00", "\x1f", "\x7f", "\x9f", "x" * 513, "é" * 257, "\udc80"]
)
def test_bad_ids_are_refused(bad: str):
    with pytest.raises(CallerError) as caught:
        check_id(bad)
    assert caught.value.code == "INVALID_ID"
    assert caught.value.message.isprintable()  # and never repeated raw


@pytest.fixture
def nervous() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("nervous")
def test_many_threads_may_be_the_first_to_use_a_model():
    class Inner(Told):
        """Nested."""

        n: int

    for _ in range(50):

        class Outer(Asked):
            """New each time, so that it is not built yet."""

            inner: Inner
            names: tuple[str, ...] = ()

        ready = threading.Barrier(8)

        def use(ready: threading.Barrier = ready, model: type[Asked] = Outer) -> object:
            ready.wait()
            return model.model_validate({"inner": {"n": 1}, "names": ["a"]})

        with ThreadPoolExecutor(8) as pool:
            found = [one.result() for one in [pool.submit(use) for _ in range(8)]]
        assert all(one == found[0] for one in found)
