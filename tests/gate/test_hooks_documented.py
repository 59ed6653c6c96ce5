"""The guide names every point with its answers, every answer, and every way to fail."""

import re
from pathlib import Path

import pytest

from holdfast.contracts.hook import (
    ALLOWED,
    SECURITY_CRITICAL,
    HookDecision,
    HookFailure,
    HookOverflow,
    HookPhase,
    HookPoint,
    HookPrivacy,
)
from holdfast.contracts.hook_response import ResponseClass

GUIDE = (Path(__file__).parents[2] / "docs/guides/hooks.md").read_text()
WORDS = [*HookFailure, *HookOverflow, *HookPhase, *HookPrivacy, *HookDecision]


@pytest.mark.parametrize("point", HookPoint)
def test_point_is_documented_with_its_answers(point: HookPoint):
    row = re.search(rf"^\| `{point.value}`(.*?)\|(.*)\|$", GUIDE, re.MULTILINE)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[2])) == ALLOWED[point] - {ResponseClass.OBSERVE}
    assert ("critical" in row[1]) == (point in SECURITY_CRITICAL)


@pytest.mark.parametrize("word", WORDS)
def test_word_is_documented(word: str):
    assert f"`{word}`" in GUIDE
