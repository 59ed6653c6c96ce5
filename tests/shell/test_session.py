"""Sessions outlive their process: state, turns, crashes, limits."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.contracts import (
    Body,
    Draft,
    Language,
    Metrics,
    RunRequest,
    Severity,
    canonical_json,
    parse,
)
from holdfast.contracts.payload import RunCompleted, RunStarted, SessionCreated
from holdfast.errors import CallerError, Conflict, NotFound, OperatorError
from holdfast.journal import MemoryJournal
from holdfast.shell import contents as contents_module
from holdfast.shell import running as running_module
from holdfast.shell.requests import only_code
from holdfast.testing.faults import FaultyJournal, full


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def program(url: str, text: str) -> subprocess.Popen[str]:
    """A process that opens the journal and runs `text` with `hf` at hand."""
    body = "\n".join(f"        {line}" for line in text.splitlines())
    source = (
        "import anyio, os, signal, sys, holdfast\n"
        "async def main():\n"
        f"    async with holdfast.open({url!r}) as hf:\n{body}\n"
        "anyio.run(main)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=os.environ
    )


async def kinds(hf: holdfast.Runtime, stream: str) -> list[str]:
    return [record.kind async for record in hf.journal.read(stream)]


async def test_result_and_record(url: str) -> None:
    async with holdfast.open(url) as hf:
        done = await hf.shell.run("result = sum(range(10))", session="s")
        assert (done.status, done.result, done.error) == ("ok", 45, None)
        # A run that takes longer than a moment has its start on record before its end.
        told = [kind for kind in await kinds(hf, "s") if kind != "run_started"]
        assert told == ["session_created", "run_completed"]
        run = await hf.journal.row("runs", str(done.run_id))
        assert run is not None
        assert (run["status"], run["session_id"]) == ("completed", "s")
        records = [record async for record in hf.journal.read("s")]
        code = await hf.journal.content(records[1].content[0])
        assert code == b"result = sum(range(10))"


async def test_state_persists_between_processes(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("x = 20\ndef double(n): return 2 * n", session="s")
    async with holdfast.open(url) as hf:
        assert "session_state" in await kinds(hf, "s")
        assert (await hf.shell.run("double(x) + 2", session="s")).result == 42


async def test_sessions_do_not_see_each_other(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("x = 1", session="a")
        done = await hf.shell.run("x", session="b")
        assert (done.status, done.error and done.error.code) == ("runtime_error", "RUNTIME_ERROR")


def test_runs_of_a_killed_process_are_replayed(url: str) -> None:
    text = (
        "for i in range(5):\n"
        "    await hf.shell.run(f'xs = (xs if {i} else []) + [{i}]', session='s', durable=i == 4)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with program(url, text) as process:
        assert process.wait(60) == -signal.SIGKILL

    async def check() -> None:
        async with holdfast.open(url) as hf:
            assert "session_state" not in await kinds(hf, "s")
            assert (await hf.shell.run("xs", session="s")).result == [0, 1, 2, 3, 4]

    anyio.run(check)


def test_a_run_that_dies_with_its_process_is_interrupted_and_undone(url: str) -> None:
    text = (
        "await hf.shell.run('x = 1', session='s')\n"
        "await hf.shell.run('x = 2\\nwhile True: pass', session='s',\n"
        "                   limits={'cpu_ms': 60000, 'wall_ms': 60000})"
    )

    async def until_started(hf: holdfast.Runtime) -> None:
        first_is_over = False
        async for record in hf.journal.subscribe(after=0):
            if not isinstance(record, holdfast.Record):
                continue
            if first_is_over and record.kind == "run_started":
                return
            first_is_over = first_is_over or record.kind == "run_completed"

    async def check(process: subprocess.Popen[str]) -> None:
        async with holdfast.open(url) as hf:
            with anyio.fail_after(30):
                await until_started(hf)
            process.kill()
            process.wait(30)
            done = await hf.shell.run("x", session="s")
            assert done.result == 1
            runs = [row.value for row in await hf.journal.rows("runs")]
            died = [run for run in runs if run["status"] == "failed"]
            assert [run["error"]["code"] for run in died] == ["INTERRUPTED"]  # type: ignore[index]

    with program(url, text) as process:
        anyio.run(check, process)


async def test_timeout_undoes_the_run_and_leaves_the_session_usable(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("x = 1", session="s")
        done = await hf.shell.run("x = 2\nwhile True: pass", session="s", limits={"cpu_ms": 200})
        assert (done.status, done.error and done.error.code) == ("timeout", "TIMEOUT_CPU")
        assert (await hf.shell.run("x", session="s")).result == 1


async def test_an_exception_keeps_what_was_assigned_before_it(url: str) -> None:
    async with holdfast.open(url) as hf:
        done = await hf.shell.run("x = 5\n1/0", session="s")
        assert done.error is not None
        assert done.error.span is not None
        assert (done.error.span.line, done.error.span.column) == (2, 1)
        assert (await hf.shell.run("x", session="s")).result == 5
    async with holdfast.open(url) as hf:
        assert (await hf.shell.run("x", session="s")).result == 5


async def test_runs_of_one_session_take_turns_among_processes(url: str) -> None:
    async with holdfast.open(url) as one, holdfast.open(url) as two:
        for turn in range(6):
            hf = (one, two)[turn % 2]
            code = f"xs = (xs if {turn} else []) + [{turn}]\nxs"
            done = await hf.shell.run(code, session="s")
            assert done.result == list(range(turn + 1))


async def test_a_busy_session_refuses_or_waits(url: str) -> None:
    slow = "n = 0\nfor i in range(400000): n = n + 1\nn"
    async with holdfast.open(url) as one, holdfast.open(url) as two:
        await one.shell.run("0", session="s")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: one.shell.run(slow, session="s"))
            await anyio.lowlevel.checkpoint()
            with pytest.raises(Conflict) as refused:
                await one.shell.run("1", session="s", wait_ms=0)
            assert refused.value.code == "SESSION_BUSY"
            with pytest.raises(Conflict):
                await two.shell.run("1", session="s", wait_ms=0)
            assert (await one.shell.run("n", session="s")).result == 400000
        assert (await two.shell.run("n + 1", session="s")).result == 400001


async def test_many_tasks_in_one_session_never_overlap(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("n = 0", session="s")

        async def add() -> None:
            await hf.shell.run("n = n + 1", session="s")

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(add)
        assert (await hf.shell.run("n", session="s")).result == 20


async def test_cancelled_run_is_recorded_and_undone(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("x = 1", session="s")
        with anyio.move_on_after(0.3) as scope:
            await hf.shell.run(
                "x = 2\nwhile True: pass", session="s", limits={"cpu_ms": 60000, "wall_ms": 60000}
            )
        assert scope.cancelled_caught
        await hf.journal.flush()
        assert (await kinds(hf, "s"))[-1] == "run_cancelled"
        assert (await hf.shell.run("x", session="s")).result == 1


async def test_destroy_erases_bodies_and_keeps_the_proof(url: str) -> None:
    async with holdfast.open(url) as hf:
        done = await hf.shell.run("secret = 'hunter2'", session="s", return_snapshot=True)
        assert done.snapshot_id is not None
        await hf.shell.destroy("s")
        assert await hf.journal.holdings() == []
        report = await hf.journal.verify()
        assert report.ok
        assert report.erased >= 3
        assert [view.id for view in await hf.shell.list()] == []
        assert (await hf.shell.show("s")).status == "destroyed"
        with pytest.raises(NotFound):
            await hf.shell.destroy("s")
        again = await hf.shell.run("secret", session="s")
        assert again.status == "runtime_error"
        assert (await hf.shell.show("s")).status == "open"


async def test_state_is_saved_when_replaying_would_cost_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents_module, "DEBT_RUNS", 3)
    async with holdfast.open(url) as hf:
        for i in range(7):
            await hf.shell.run(f"x = {i}", session="s")
        await hf.journal.flush()
        found = await kinds(hf, "s")
        assert found.count("session_state") == 2
        states = [h for h in await hf.journal.holdings() if h.run_id is None]
        assert len(states) == 1, "a new state replaces the one before it"


@pytest.mark.parametrize("limits", [{"memory_mb": 128}, {"memory_mb": 16}, {"max_stack_depth": 50}])
async def test_limits_of_one_run_can_differ_from_the_session(
    url: str, limits: dict[str, int]
) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("x = 1", session="s")
        done = await hf.shell.run("x = x + 1\nx", session="s", limits=limits)
        assert done.result == 2
        assert (await hf.shell.run("x", session="s")).result == 2
        assert (await hf.shell.show("s")).limits.memory_mb == 64


async def test_limits_are_for_one_run_and_leave_the_others_alone(url: str) -> None:
    config = {"shell": {"limits": {"memory_mb": 32}}}
    async with holdfast.open(url, config=config) as hf:
        ask = "[current_policy()['limits'][k] for k in ('memory_mb', 'cpu_ms')]"
        done = await hf.shell.run(ask, session="s", limits={"cpu_ms": 100})
        assert done.result == [32, 100]
        assert (await hf.shell.run(ask, session="s")).result == [32, 2000]
        assert (await hf.shell.show("s")).limits.cpu_ms == 2000


async def test_what_was_run_can_be_read_at_once(url: str) -> None:
    async with holdfast.open(url) as hf:
        for n in range(5):
            done = await hf.shell.run(str(n), session="s")
            assert (await hf.shell.show("s")).runs == n + 1
            run = await hf.journal.row("runs", str(done.run_id))
            assert run is not None
            assert run["status"] == "completed"


async def test_a_long_run_leaves_a_trace_while_it_runs(url: str) -> None:
    async with holdfast.open(url) as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: hf.shell.run("while True: pass", session="s", timeout_ms=400))
            async for record in hf.journal.subscribe(after=0):
                if isinstance(record, holdfast.Record) and record.kind == "run_started":
                    active = await hf.journal.rows("runs", tag="active")
                    assert [row.value["status"] for row in active] == ["running"]
                    break
        assert (await kinds(hf, "s"))[-1] == "run_failed"


@pytest.mark.parametrize(("late", "fail_at"), [(60.0, 2), (0.0, 3)])
async def test_a_record_that_could_not_be_written_is_told(
    late: float, fail_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether start and end of a run are handed in together, or one after the other."""
    monkeypatch.setattr(running_module, "LATE", late)
    journal = FaultyJournal(MemoryJournal(), fail_at=fail_at, failure=full())
    async with holdfast.open(journal, config={}) as hf:
        await hf.shell.run("x = 1", session="s", durable=True)
        with pytest.raises(OperatorError) as refused:
            await hf.shell.run("x = 2", session="s")
        assert refused.value.code == "JOURNAL_FULL"
        assert (await hf.shell.run("x", session="s")).result == 1


async def test_a_session_that_does_not_fit_tighter_limits_says_so(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("big = 'x' * 30_000_000", session="s")
        done = await hf.shell.run("1", session="s", limits={"memory_mb": 8})
        assert (done.status, done.error and done.error.code) == (
            "validation_error",
            "INVALID_ARGUMENT",
        )
        assert (await hf.shell.run("len(big)", session="s")).result == 30_000_000


async def test_what_the_caller_raises_comes_out_as_it_is(url: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with holdfast.open(url):
            raise ZeroDivisionError


async def test_timeout_ms_overrides_wall(url: str) -> None:
    async with holdfast.open(url) as hf:
        done = await hf.shell.run("while True: pass", session="s", timeout_ms=150)
        assert done.error is not None
        assert done.error.code == "TIMEOUT_WALL"


async def test_a_state_sealed_with_another_key_is_not_loaded(url: str, tmp_path: Path) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("x = 7", session="s")
    (tmp_path / "journal.db.key").write_bytes(bytes(32))
    async with holdfast.open(url) as hf:
        done = await hf.shell.run("x", session="s")
        assert done.result == 7, "the recorded code makes it again"
        warnings = [one.code for one in done.diagnostics if one.severity is Severity.WARNING]
        assert warnings == ["SNAPSHOT_CORRUPT"]


async def test_a_run_that_recursed_too_deep_is_replayed_as_what_it_was(url: str) -> None:
    async with holdfast.open(url) as hf:
        done = await hf.shell.run("x = 1\ndef f(n): return f(n + 1)\nf(0)", session="s")
        assert (done.status, done.error and done.error.code) == (
            "resource_exhausted",
            "STACK_OVERFLOW",
        )
        await hf.shell.run("y = 2", session="s", limits={"memory_mb": 128})
        assert (await hf.shell.run("x + y", session="s", limits={"memory_mb": 96})).result == 3


async def test_a_replay_that_differs_stops_and_changes_nothing(url: str) -> None:
    async with holdfast.open(url) as hf:
        limits = holdfast.SessionLimits()
        code = Body.of(b"1 + 1", role="code")
        recorded = holdfast.RunResult(result=3).model_dump(mode="json")
        result = Body.of(canonical_json(recorded), role="result")
        started = RunStarted(
            kind="code", language=Language.PYTHON, limits=limits, code=code.ref.digest
        )
        ended = RunCompleted(result=result.ref.digest, metrics=Metrics())
        created = SessionCreated(language=Language.PYTHON, limits=limits, engine="monty/1.4.0")
        await hf.journal.append(
            "s",
            [
                Draft.of(created),
                Draft.of(started, run_id="run_1", bodies=(code,)),
                Draft.of(ended, run_id="run_1", bodies=(result,)),
            ],
        )
        with pytest.raises(OperatorError) as refused:
            await hf.shell.run("1", session="s")
        assert refused.value.code == "REPLAY_MISMATCH"
        assert (await hf.journal.head("s")).pos == 3


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        ({"session": "no/slash"}, "INVALID_SESSION_ID"),
        ({"session": "x" * 65}, "INVALID_SESSION_ID"),
        ({"limits": {"cpu_ms": -1}}, "INVALID_ARGUMENT"),
        ({"limits": {"cpu": 1}}, "INVALID_ARGUMENT"),
        ({"timeout_ms": 0}, "INVALID_ARGUMENT"),
        ({"language": "cobol"}, "INVALID_ARGUMENT"),
        ({"language": "typescript"}, "INVALID_ARGUMENT"),
        ({"inputs": {"not a name": 1}}, "INVALID_ARGUMENT"),
        ({"inputs": {"x": {1, 2}}}, "INVALID_ARGUMENT"),
    ],
)
async def test_bad_requests_are_results_and_leave_no_trace(
    url: str, ask: dict[str, object], code: str
) -> None:
    async with holdfast.open(url) as hf:
        done = await hf.shell.run("1", **ask)  # type: ignore[arg-type]
        assert done.error is not None
        assert (done.status, done.error.code) == ("validation_error", code)
        assert done.diagnostics[0].code == code
        assert await hf.journal.last_seq() == 0


async def test_validation_runs_nothing_and_is_audited(url: str) -> None:
    async with holdfast.open(url) as hf:
        assert (await hf.shell.run("x = 1", session="s", validate_only=True)).status == "ok"
        bad = await hf.shell.run("x = = 1", session="s", validate_only=True)
        assert (bad.status, bad.error and bad.error.code) == ("validation_error", "SYNTAX_ERROR")
        records = [record async for record in hf.journal.read_all()]
        assert [record.kind for record in records] == ["code_validated"] * 2
        assert (await hf.shell.run("x", session="s")).status == "runtime_error"


@pytest.mark.parametrize("wrong", ["x =", "x = await nobody("])
async def test_code_that_does_not_parse_defines_nothing(url: str, wrong: str) -> None:
    async def unknown(hf: holdfast.Runtime) -> str | None:
        checked = await hf.shell.run("foo(1)", session="s", validate_only=True)
        return checked.error and checked.error.code

    async with holdfast.open(url) as hf:
        await hf.shell.run("known = 1", session="s")
        assert await unknown(hf) == "UNKNOWN_TOOL"
        assert (await hf.shell.run(wrong, session="s")).status == "validation_error"
        assert await unknown(hf) == "UNKNOWN_TOOL"  # of a session that is at hand
    async with holdfast.open(url) as hf:
        assert await unknown(hf) == "UNKNOWN_TOOL"  # from what is on record
        assert (await hf.shell.run("known", session="s")).result == 1
        assert await unknown(hf) == "UNKNOWN_TOOL"  # of one that was made again


async def test_discovery_functions_answer_and_count(url: str) -> None:
    async with holdfast.open(url) as hf:
        done = await hf.shell.run(
            "[list_tools(), search_tools('mail'), current_policy()['limits']['cpu_ms']]"
        )
        assert done.result == [[], [], 2000]
        assert [call.name for call in done.external_calls] == [
            "list_tools",
            "search_tools",
            "current_policy",
        ]
        done = await hf.shell.run("describe_tool('x')")
        assert done.status == "runtime_error"
        assert "no capability 'x'" in str(done.error and done.error.message)


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(-9, 9), st.sampled_from(["ok", "raise", "reopen"])
        ),
        max_size=6,
    )
)
def test_a_session_is_what_its_runs_made_it(steps: list[tuple[str, int, str]]) -> None:
    """Against a dict: assignments, failures after an assignment, and process changes, in any order."""
    model: dict[str, int] = {}

    async def check(folder: str) -> None:
        url = f"sqlite:///{folder}/journal.db"
        rest = list(steps)
        while True:
            async with holdfast.open(url) as hf:
                while rest:
                    name, value, what = rest.pop(0)
                    model[name] = value
                    bad = "\n1/0" if what == "raise" else ""
                    await hf.shell.run(f"{name} = {value}{bad}", session="s")
                    if what == "reopen":
                        break
                code = "[" + ",".join(f"({name!r}, {name})" for name in sorted(model)) + "]"
                done = await hf.shell.run(code, session="s")
                assert done.result == [[name, model[name]] for name in sorted(model)]
            if not rest:
                return

    with anyio.from_thread.start_blocking_portal() as portal:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            portal.call(check, folder)


def kill_workers() -> None:
    for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


async def test_a_worker_that_died_idle_costs_nobody_an_error(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("x = 41", session="s", durable=True)
        kill_workers()
        await anyio.sleep(0.3)
        done = await hf.shell.run("x + 1", session="s")
        assert (done.error, done.result) == (None, 42)


@pytest.mark.parametrize("code", ["x = 1", "", "x = '\u00e9'", "x = '\udc80'"])
@pytest.mark.parametrize("session", ["s", "no/slash", 7])
@pytest.mark.parametrize("language", [Language.PYTHON, "python", "cobol"])
def test_a_request_of_nothing_but_code_is_what_parsing_gives(
    session: Any, language: Any, code: str
) -> None:
    fields = {"session_id": session, "language": language, "code": code}

    def of(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except CallerError as refusal:
            return refusal.code, refusal.message

    made = of(lambda: only_code(session, language, code))
    assert made is None or made == of(lambda: parse(RunRequest, fields))
    plain = session == "s" and language is Language.PYTHON and code.isascii()
    assert isinstance(made, RunRequest) == plain
