"""The demo proves what it says, and leaves nothing behind."""

from pathlib import Path

import pytest

from holdfast.cli import _story
from holdfast.cli._stage import Stage
from holdfast.cli.demo import demo


def test_the_demo_holds_and_leaves_nothing(holdfast, tmp_path: Path):
    done = holdfast("demo")
    steps = done.json["steps"]
    wrong = [check for step in steps for check in step["checks"] if not check["ok"]]
    assert wrong == []
    assert done.code == 0
    assert done.json["ok"]
    assert [step["title"] for step in steps] == [title for title, _ in _story.SCENES]
    assert all(step["checks"] for step in steps)
    told = [check["what"] for step in steps for check in step["checks"]]
    assert any("nothing at all was done twice" in what for what in told)
    assert any("named as in doubt" in what for what in told)
    assert list(tmp_path.iterdir()) == []


def test_the_story_is_told_to_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(_story, "SCENES", _story.SCENES[:1])
    assert demo(as_json=False) == 0
    told = capsys.readouterr().out
    assert "1. Code runs in a box" in told
    assert "   $ holdfast run -e 'result = sum(range(10))'" in told
    assert "✓ the code ran and gave 45" in told
    assert "Proven just now" in told


def lie(stage: Stage) -> None:
    stage.check("one is two", False)


def mess(stage: Stage) -> None:
    stage.say({}["nothing"])


def truth(stage: Stage) -> None:
    stage.check("one is one", True)


def test_what_does_not_hold_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    scenes = (("A lie", lie), ("A mess", mess), ("The truth", truth))
    monkeypatch.setattr(_story, "SCENES", scenes)
    assert demo(as_json=False) == 1
    told = capsys.readouterr().out
    assert "✗ NOT SO: one is two" in told
    assert "NOT PROVEN: A lie, A mess." in told
    assert "Proven just now" not in told
