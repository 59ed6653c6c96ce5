"""What is written fast is what pydantic would have written."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_serializer

from holdfast.contracts import Setup
from holdfast.contracts._base import Told, listed, made, optional, sure, unless
from holdfast.contracts._dump import dumped, is_exact
from holdfast.contracts.payload import PAYLOADS, SessionOpened
from holdfast.testing._drafts import STORY


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(Told):
    colour: Colour
    note: str | None = optional()


class Own(Told):
    size: int

    @field_serializer("size")
    def _in_words(self, size: int) -> str:
        return f"{size} bytes"


class Outer(Told):
    name: Annotated[str, Field(min_length=0)]
    number: int | float | None
    kind: Literal["a", "b"] = "a"
    colour: Colour | None = optional()
    inner: Inner | None = None
    inners: tuple[Inner, ...] = listed()
    names: tuple[str, ...] = ()
    colours: list[Colour] = Field(default_factory=list)
    flag: bool = unless(False)
    own: Own | None = optional()
    free: dict[str, Any] | None = None


inners = st.builds(Inner, colour=st.sampled_from(Colour), note=st.none() | st.text(max_size=5))
outers = st.builds(
    Outer,
    name=st.text(max_size=5),
    number=st.none() | st.integers() | st.floats(allow_nan=False),
    kind=st.sampled_from(("a", "b")),
    colour=st.none() | st.sampled_from(Colour),
    inner=st.none() | inners,
    inners=st.lists(inners, max_size=3).map(tuple),
    names=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    colours=st.lists(st.sampled_from(Colour), max_size=3),
    flag=st.booleans(),
    own=st.none() | st.builds(Own, size=st.integers()),
    free=st.none() | st.dictionaries(st.text(max_size=3), st.integers() | st.none(), max_size=3),
)


@given(outers)
def test_it_is_what_pydantic_writes(model: BaseModel):
    assert dumped(model) == model.model_dump(mode="json")


@given(outers)
def test_what_was_made_without_checks_is_written_the_same(model: Outer):
    assert dumped(made(Outer, dict(model.__dict__))) == model.model_dump(mode="json")


def test_a_copy_of_what_was_made_does_not_change_what_others_have_set():
    one = sure(Inner, colour=Colour.RED)
    copy = one.model_copy(update={"note": "x"})
    assert copy.note == "x"
    assert copy.model_fields_set == one.model_fields_set == {"colour", "note"}
    copy.model_fields_set.clear()
    assert sure(Inner, colour=Colour.BLUE).model_fields_set == {"colour", "note"}


def test_a_model_that_lacks_a_field_is_not_written_in_part():
    with pytest.raises(KeyError):
        dumped(made(Inner, {"colour": Colour.RED}))


@given(st.data())
def test_every_payload_is_dumped_as_pydantic_does(data: st.DataObject):
    models = sorted({draft.kind for draft in STORY} & PAYLOADS.keys())
    draft = data.draw(st.sampled_from([one for one in STORY if one.kind in models]))
    model = PAYLOADS[draft.kind].model_validate(draft.payload)
    assert dumped(model) == model.model_dump(mode="json")


@given(st.data())
def test_made_up_payloads_too(data: st.DataObject):
    model: type[BaseModel] = data.draw(st.sampled_from(list(PAYLOADS.values())))
    try:
        said = data.draw(st.from_type(model))
    except Exception:  # noqa: BLE001 - what hypothesis can't make up, or a model refuses, proves nothing
        return
    assert dumped(said) == said.model_dump(mode="json")


def test_a_model_that_writes_itself_is_left_to_do_so():
    rule = {"id": "r", "then": "deny", "limits": {"timeout_ms": 5}}
    said = SessionOpened(setup=Setup.model_validate({"rules": [rule]}))
    assert dumped(said) == said.model_dump(mode="json")
    assert dumped(said)["setup"]["rules"][0]["limits"] == {"timeout_ms": 5}


@pytest.mark.parametrize(
    ("annotation", "exact"),
    [
        (str, True),
        (Annotated[int | None, Field(ge=0)], True),
        (tuple[Colour, ...], True),
        (dict[str, list[int]], True),
        (Inner, True),
        (float, False),
        (int | float, False),
        (dict[str, Any], False),
        (tuple[Outer, ...], False),  # it has a number that is not whole
        (Own, False),  # it is written in a way of its own
        (bytes, False),
    ],
)
def test_what_can_hold_a_number_that_is_not_whole_is_known(annotation: Any, exact: bool):
    assert is_exact(annotation) is exact
