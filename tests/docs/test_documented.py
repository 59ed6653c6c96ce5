"""Certain things must be documented."""

import re
from pathlib import Path

import pytest

from holdfast.errors import CODES

ROOT = Path(__file__).parents[2]
TARGETS = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
KINDS = "added|changed|deprecated|removed|fixed|security"


@pytest.mark.parametrize("target", TARGETS)
def test_make_target_is_in_the_readme(target: str):
    assert re.search(rf"\bmake {target}\b", (ROOT / "README.md").read_text())


@pytest.mark.parametrize("code", CODES)
def test_error_code_is_in_the_reference(code: str):
    assert re.search(rf"\b{code}\b", (ROOT / "docs/reference/errors.md").read_text())


def test_changes_are_one_sentence_with_an_area():
    for path in sorted((ROOT / "changes").iterdir()):
        if path.name != "README.md":
            assert re.fullmatch(rf"[\w-]+\.({KINDS})\.md", path.name)
            assert re.fullmatch(r"[\w ,]+: [^\n]+(\n[^\n]+)*\.\n", path.read_text()), path
