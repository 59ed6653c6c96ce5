"""What is written fast is what pydantic would have written."""

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast.contracts import Setup
from holdfast.contracts._base import dumped
from holdfast.contracts.payload import PAYLOADS, SessionOpened
from holdfast.testing._drafts import STORY


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
