"""A recorded run can be saved as a file, and replayed from it by whoever has nothing else."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.replay_support import World, agent_of, opened, whole_run

from holdfast import Agent
from holdfast.errors import CallerError
from holdfast.models._recorded import answers_of
from holdfast.models.catalog import model
from holdfast.testing import (
    ScriptedModel,
    replay,
    replay_async,
    save,
    save_async,
    say,
    write_code,
)

ELSEWHERE = """
import sys
from holdfast.testing import replay
found = replay(sys.argv[1]).check()
print(found.turns, found.calls, found.result.output)
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    async def work() -> Path:
        world = World(tmp_path / "world")
        async with opened(f"sqlite:///{tmp_path}/journal.db") as hf:
            run = await whole_run(hf, agent_of(world))
            return await save_async(run, tmp_path / "run.jsonl")

    return anyio.run(work)


def test_saved_run_replays_in_a_process_that_has_nothing_else(saved: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(saved)],
        cwd=tmp_path / "empty",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5 4 {'sent': ['ann'], 'refused': 1}\n"


def test_saved_run_knows_what_could_be_called(saved: Path):
    head = json.loads(saved.read_text().splitlines()[0])
    assert [one["name"] for one in head["capabilities"]] == ["look", "send"]
    rules = [{"id": "no-mail", "tool": "send", "then": "deny"}]
    found = replay(saved, policy=rules)
    assert found.difference is not None
    assert found.difference.now == "deny (no-mail)"


def test_run_is_saved_from_a_journal_by_its_name(saved: Path, tmp_path: Path):
    run_id = json.loads(saved.read_text().splitlines()[0])["run_id"]
    again = save(f"sqlite:///{tmp_path}/journal.db", tmp_path / "again.jsonl", run=run_id)
    assert "capabilities" not in json.loads(again.read_text().splitlines()[0])
    replay(again).check()


def test_recording_that_was_changed_by_hand_is_refused(saved: Path):
    lines = saved.read_text().splitlines()
    for number, old, new in [(0, "recording", "sth"), (2, "Send", "Sing"), (-1, "{", "[")]:
        found = lines.copy()
        place = number
        if number == 2:
            place = next(n for n, one in enumerate(lines) if "Send them." in one)
        found[place] = found[place].replace(old, new, 1)
        saved.write_text("\n".join(found))
        with pytest.raises(CallerError, match="is no recording of a run"):
            replay(saved)
    swapped = [lines[0], lines[2], lines[1], *lines[3:]]
    saved.write_text("\n".join(swapped))
    with pytest.raises(CallerError, match="line 2 was changed"):
        replay(saved)
    saved.write_text("\n".join([lines[0].replace('"recording": 1', '"recording": 9'), *lines[1:]]))
    with pytest.raises(CallerError, match="version 9"):
        replay(saved)


async def test_secrets_are_not_in_a_saved_run(tmp_path: Path):
    async with opened(secrets={"token": "hunter2-hunter2"}) as hf:

        def answer(request: Any) -> Any:
            asked = any(one.role == "tool" for one in request.messages)
            return say("It is there.") if asked else write_code("'hunter2' + '-hunter2'")

        run = await Agent(ScriptedModel(answer)).run("Go.", runtime=hf)
        saved = await save_async(run, tmp_path / "run.jsonl")
        assert "hunter2-hunter2" not in saved.read_text()


async def test_saved_run_drives_a_scripted_model(saved: Path, tmp_path: Path):
    async with opened() as hf:
        world = World(tmp_path / "other")
        run = await whole_run(hf, agent_of(world, model(f"scripted:{saved}")))
        assert run.output.sent == ["ann"]
        found = await replay_async(saved, model=f"scripted:{saved}")
        assert found.check().turns == 5


def test_failures_of_a_saved_run_take_as_long_as_they_did(saved: Path):
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    bodies = [one["body"] for one in lines if "body" in one]
    delays = [one["payload"]["delay_ms"] for one in bodies if one["kind"] == "model_retry"]
    assert delays
    assert [one["retry_after_ms"] for one in answers_of(lines) if "fail" in one] == delays
