"""`Repairs`: how often a model is asked again, and when that has no point."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from holdfast.agent.output import MAX_REPAIRS, Again, Good, Repairs, Stopped, output_of, read


class Point(BaseModel):
    x: int
    y: int


OUTPUT = output_of(Point)


def judged(texts: list[str], **options: Any) -> tuple[Repairs, Any]:
    """The policy and the verdict after these answers, as a run that resumes finds them."""
    repairs, verdict = Repairs(OUTPUT, **options), None
    for text in texts:
        repairs, verdict = repairs.judge(read(text, OUTPUT))
    return repairs, verdict


def test_a_good_answer_is_taken():
    _, verdict = judged(['{"x": 1, "y": 2}'])
    assert isinstance(verdict, Good)
    assert verdict.reading.value == Point(x=1, y=2)


def test_a_mended_answer_is_taken_without_asking():
    _, verdict = judged(["{'x': 1, 'y': 2,}"])
    assert isinstance(verdict, Good)
    assert verdict.reading.repairs == ("quotes", "trailing_comma")


def test_the_message_has_the_sentence_the_faults_and_the_schema():
    _, verdict = judged(['{"x": "a"}'])
    assert isinstance(verdict, Again)
    assert verdict.message == (
        'The previous output was invalid: Schema validation failed: `/y` is required and missing (and 1 more).'
        " Please provide valid JSON matching the schema. Output ONLY the JSON, no additional text.\n\n"
        "What is wrong:\n"
        "- `/y` is required and missing.\n"
        '- `/x` must be an integer, but is "a".\n\n'
        f"The schema:\n{OUTPUT.schema_text}"
    )  # fmt: skip


def test_a_model_may_be_asked_again_twice():
    assert MAX_REPAIRS == 2
    _, first = judged(["no"])
    _, second = judged(["no", "{}"])
    repairs, third = judged(["no", "{}", '{"x": 1}'])
    assert isinstance(first, Again)
    assert first.attempt == 1
    assert isinstance(second, Again)
    assert second.attempt == 2
    assert isinstance(third, Stopped)
    assert (third.reason, third.attempts, third.last_output) == ("exhausted", 3, '{"x": 1}')
    assert third.error == "Schema validation failed: `/y` is required and missing"
    assert repairs.attempts == 3


@pytest.mark.parametrize("allowed", [0, 1, 5])
def test_allowed_is_enforced(allowed: int):
    texts = [str(one) if one % 2 else "{}" for one in range(allowed + 1)]
    _, verdict = judged(texts, allowed=allowed)
    assert isinstance(verdict, Stopped)
    assert (verdict.reason, verdict.attempts) == ("exhausted", allowed + 1)
    if allowed:
        assert isinstance(judged(texts[:-1], allowed=allowed)[1], Again)


def test_the_same_error_twice_stops():
    _, verdict = judged(['{"x": 1, "y": "a"}', '{"x": 2, "y": "b"}'])
    assert isinstance(verdict, Stopped)
    assert (verdict.reason, verdict.attempts) == ("same_error", 2)


def test_the_same_broken_json_twice_stops_wherever_it_is():
    _, verdict = judged(['{"x": NaN}', '{"y": 1, "x": NaN}'])
    assert isinstance(verdict, Stopped)
    assert verdict.reason == "same_error"


def test_another_error_at_the_same_place_is_progress():
    assert isinstance(judged(['{"x": 1 2}', '{"x": 1'])[1], Again)


def test_what_no_answer_can_mend_stops_at_once():
    class Broken(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def breaks(cls, value: int) -> int:
            raise KeyError(value)

    output = output_of(Broken)
    repairs, verdict = Repairs(output).judge(read('{"x": 1}', output))
    assert isinstance(verdict, Stopped)
    assert (verdict.reason, verdict.attempts) == ("not_repairable", 1)
    assert verdict.best.json == {"x": 1}
    assert repairs.attempts == 1


def test_too_long_an_answer_may_be_given_again_shorter():
    _, verdict = judged([f'{{"x": 1, "y": 2}}{" " * 40_000}x'])
    assert isinstance(verdict, Again)
    assert "at most 32768 bytes" in verdict.message
    assert len(verdict.message) < 1000


def test_the_best_answer_is_kept():
    _, verdict = judged(['{"x": 1}', '{"x": "a"}', "no"])
    assert isinstance(verdict, Stopped)
    assert verdict.last_output == "no"
    assert verdict.best.json == {"x": 1}


def test_a_part_of_an_answer_is_better_than_none():
    _, verdict = judged(["no", '{"x": 1, "y', "never"], allowed=2)
    assert isinstance(verdict, Stopped)
    assert verdict.best.json == {"x": 1}


ANSWERS = st.sampled_from(
    [
        "",
        "no",
        "{}",
        "[]",
        '{"x": 1}',
        '{"x": 1, "y": 2}',
        '{"x": "a", "y": 2}',
        "{'x': 1}",
        '{"x": 1',
        '{"x": NaN}',
    ]
)


@given(st.lists(ANSWERS, min_size=1, max_size=8), st.integers(0, 4))
def test_asking_ends_and_judging_again_gives_the_same(texts: list[str], allowed: int):
    repairs, asked = Repairs(OUTPUT, allowed=allowed), 0
    for count, text in enumerate(texts, start=1):
        repairs, verdict = repairs.judge(read(text, OUTPUT))
        assert (repairs, verdict) == judged(texts[:count], allowed=allowed)
        if not isinstance(verdict, Again):
            break
        asked += 1
        assert verdict.attempt == asked
        assert verdict.message.startswith("The previous output was invalid: ")
    assert asked <= allowed
