"""An agent that acts by writing code: what it is told, what it is shown, and how it mends what went wrong."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.loop_support import consistent, opened, results, said, scripted, tools, written

from holdfast import Agent, capability
from holdfast.contracts.model import ModelRequest
from holdfast.testing import call, garble, say, together, write_code


@capability(side_effect="none")
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


@capability(side_effect="external_system")
async def send(to: str) -> str:
    """Send something to somebody."""
    return f"sent to {to}"


def numbered(n: int) -> list[Any]:
    """So many capabilities."""

    def make(i: int) -> Any:
        async def act(text: str) -> str:
            return text

        act.__name__ = f"{'mail' if i % 2 else 'file'}_act_{i}"
        act.__doc__ = f"Does thing number {i}."
        return capability(act, side_effect="none")

    return [make(i) for i in range(n)]


async def test_a_model_mends_its_code_by_what_it_is_shown() -> None:
    """The error names line, column and what to do; a model that reads it can go on."""

    def author(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if last.role == "user":
            return write_code("total = 0\nfor n in [1, 2, 3]:\n    total += lenght(n)\ntotal")
        if "lenght" in last.text:
            assert "line 3" in last.text
            assert "Hint:" in last.text
            return write_code("total = 0\nfor n in [1, 2, 3]:\n    total += n\ntotal")
        return say(last.text)

    async with opened() as (hf, _):
        run = await Agent(written(author)).run("Add them up.", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "result: 6")
        first, second = await results(hf, "s")
        assert (first.is_error, second.is_error) == (True, False)
        await consistent(hf, "s")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("x = (1,", "SYNTAX_ERROR"),
        ("1 / 0", "ZeroDivisionError"),
        ("import socket", "line 1"),
        ("look(", "SYNTAX_ERROR"),
        ("await look(5, 6, 7)", "look"),
        ("while True:\n    pass", "TIMEOUT"),
    ],
)
async def test_what_goes_wrong_in_code_is_a_result(code: str, shown: str) -> None:
    async with opened() as (hf, _):
        agent = Agent(
            scripted(write_code(code), say("I see.")),
            capabilities=[look],
            setup={"limits": {"cpu_ms": 200, "wall_ms": 2000}},
        )
        run = await agent.run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "I see.")
        (found,) = await results(hf, "s")
        assert found.is_error
        assert shown in found.text
        await consistent(hf, "s")


async def test_what_code_defined_stays_after_it_failed() -> None:
    lines = [write_code("rows = list(range(10))\n1 / 0"), write_code("sum(rows)"), say("45")]
    async with opened() as (hf, _):
        await Agent(scripted(*lines)).run("go", session="s", runtime=hf)
        assert (await results(hf, "s"))[1].text == "result: 45"


async def test_a_large_result_is_shown_in_part_and_stays_in_the_session() -> None:
    lines = [
        write_code("rows = [{'n': n} for n in range(5000)]\nrows"),
        write_code("rows[4999]['n']"),
        say("ok"),
    ]
    async with opened() as (hf, _):
        await Agent(scripted(*lines), view_bytes=1000).run("go", session="s", runtime=hf)
        whole, part = await results(hf, "s")
        assert len(whole.text) < 1300
        assert "bytes left out" in whole.text
        assert "still in the session" in whole.text
        assert whole.text.startswith('result: [{"n": 0}')
        assert part.text == "result: 4999"
        await consistent(hf, "s")


async def test_output_is_shown_in_part() -> None:
    async with opened() as (hf, _):
        code = "for n in range(3000):\n    print('line', n)"
        await Agent(scripted(write_code(code), "ok"), view_bytes=1000).run(
            "go", session="s", runtime=hf
        )
        (found,) = await results(hf, "s")
        assert len(found.text) < 1300
        await consistent(hf, "s")


async def test_a_large_result_of_a_tool_can_be_read_in_parts() -> None:
    @capability(side_effect="none")
    async def book() -> str:
        """A long text."""
        return "".join(f"{n:05}" for n in range(2000))

    def author(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if last.role == "user":
            return call("book")
        if last.name == "book":  # type: ignore[union-attr]
            handle = last.text.split('with id "')[1].split('"')[0]
            return call("read_result", id=handle, offset=5000, length=10)
        return say(last.text)

    async with opened() as (hf, _):
        run = await tools(written(author), book, view_bytes=1000).run("go", session="s", runtime=hf)
        assert run.output.startswith("0100001001\n")
        assert "10000 characters in all" in run.output
        await consistent(hf, "s")


async def test_functions_are_found_and_described() -> None:
    many = numbered(60)
    lines = [
        call("search_tools", query="thing number 31"),
        call("describe_tool", name="mail_act_31"),
        write_code("await mail_act_31('hello')"),
        say("ok"),
    ]
    model = scripted(*lines)
    async with opened() as (hf, _):
        await Agent(model, capabilities=many).run("go", session="s", runtime=hf)
        found, described, called = await results(hf, "s")
        assert "mail_act_31" in found.text
        assert "async def mail_act_31(text: str) -> str" in described.text
        assert "Does thing number 31." in described.text
        assert called.text == "result: hello"
        # So many do not fit into the prompt: it has groups of them.
        told = model.requests[0].instructions
        assert "There are 60 functions: file_* (30), mail_* (30)." in told
        await consistent(hf, "s")


async def test_few_functions_are_told_with_their_signatures() -> None:
    model = scripted("ok")
    async with opened() as (hf, _):
        await Agent(model, capabilities=[look]).run("go", session="s", runtime=hf)
        assert "async def look(at: str) -> str" in model.requests[0].instructions
        assert [one.name for one in model.requests[0].tools] == [
            "run_code",
            "search_tools",
            "describe_tool",
        ]


WHAT_IT_IS_TOLD = """
import anyio, json, holdfast
from tests.agent.test_code_mode import numbered, scripted, opened
from holdfast import Agent
async def main():
    model = scripted("a", "b")
    async with opened() as (hf, _):
        agent = Agent(model, capabilities=numbered(30), instructions="Be brief.")
        for _ in range(2):
            await agent.run("go", session="s", runtime=hf)
    one, two = model.requests
    assert one.instructions == two.instructions
    print(json.dumps([one.instructions, [[t.name, t.description, t.schema] for t in one.tools]]))
anyio.run(main)
"""


async def test_what_it_is_told_is_the_same_bytes_in_every_process() -> None:
    found: set[bytes] = set()
    for seed in ("1", "2", "3"):
        done = await anyio.run_process(
            [sys.executable, "-c", WHAT_IT_IS_TOLD],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stderr=subprocess.PIPE,
        )
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (call("fly", to="moon"), "UNKNOWN_TOOL: There is no tool `fly`."),
        (call("look", at="sky"), "Call it inside a program"),
        (call("search_tools", nonsense=1), "Hint"),
        (call("describe_tool", name="fly"), "fly"),
        (call("run_code"), "takes one argument, `code`"),
        (call("run_code", code=5), "takes one argument, `code`"),
        (call("run_code", code="1", more=1), "takes one argument, `code`"),
        (garble("run_code", '{"code": "1'), "not a JSON object"),
    ],
)
async def test_a_call_that_can_not_be_made_is_a_result(line: Any, shown: str) -> None:
    async with opened() as (hf, _):
        model = scripted(line, say("I see."))
        run = await Agent(model, capabilities=[look]).run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "I see.")
        (found,) = await results(hf, "s")
        assert found.is_error
        assert shown in found.text
        await consistent(hf, "s")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (call("fly", to="moon"), "UNKNOWN_TOOL"),
        (call("look"), "at"),
        (call("look", at=5), "at"),
        (garble("look", "at=sky"), "not a JSON object"),
        (call("read_result", id="eff_nothing"), "no result"),
        (call("run_code", code="1"), "UNKNOWN_TOOL"),
    ],
)
async def test_the_same_for_an_agent_that_calls_tools(line: Any, shown: str) -> None:
    async with opened() as (hf, _):
        run = await tools(scripted(line, say("I see.")), look).run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "I see.")
        (found,) = await results(hf, "s")
        assert found.is_error
        assert shown in found.text
        await consistent(hf, "s")


@pytest.mark.parametrize("mode", ["code", "tools"])
async def test_a_denied_effect_is_a_result_with_the_reason(mode: str) -> None:
    line = write_code("await send('ann')") if mode == "code" else call("send", to="ann")
    model = scripted(line, say("Then not."))
    rule = {"rules": [{"id": "no-mail", "tool": "send", "then": "deny"}]}
    async with opened(config={"policy": rule}) as (hf, _):
        agent = Agent(model, capabilities=[send], code_mode=mode == "code")
        run = await agent.run("go", session="s", runtime=hf)
        assert (run.status, run.output) == ("completed", "Then not.")
        (found,) = await results(hf, "s")
        assert found.is_error
        assert "PERMISSION_DENIED" in found.text
        assert "no-mail" in found.text
        await consistent(hf, "s")


@pytest.mark.parametrize("mode", ["code", "tools"])
async def test_what_a_person_denies_is_a_result_with_their_words(mode: str) -> None:
    line = write_code("await send('ann')") if mode == "code" else call("send", to="ann")
    async with opened(config={}) as (hf, _):
        agent = Agent(
            scripted(line, say("Then not.")), capabilities=[send], code_mode=mode == "code"
        )
        run = await agent.run("go", session="s", runtime=hf)
        assert run.status == "waiting_for_approval"
        await hf.approvals.decide(run.approvals[0], "denied", actor="me", reason="Not on Sundays.")
        run = await run.resume()
        assert (run.status, run.output) == ("completed", "Then not.")
        (found,) = await results(hf, "s")
        assert found.is_error
        assert "Not on Sundays." in found.text
        await consistent(hf, "s")


async def test_programs_of_one_answer_run_one_after_the_other() -> None:
    lines = [together(*[write_code(f"x = {n}\nx") for n in range(4)]), write_code("x"), say("ok")]
    async with opened() as (hf, _):
        await Agent(scripted(*lines)).run("go", session="s", runtime=hf)
        assert [one.text for one in await results(hf, "s")] == [
            *[f"result: {n}" for n in range(4)],
            "result: 3",
        ]
        await consistent(hf, "s")


async def test_results_of_tools_come_in_the_order_of_the_calls() -> None:
    @capability(side_effect="none")
    async def wait(ms: int) -> int:
        """Wait."""
        await anyio.sleep(ms / 1000)
        return ms

    async with opened() as (hf, _):
        model = scripted(together(*[call("wait", ms=n) for n in (30, 20, 10, 0)]), say("ok"))
        await tools(model, wait).run("go", session="s", runtime=hf)
        assert [one.text for one in await results(hf, "s")] == ["30", "20", "10", "0"]
        await consistent(hf, "s")


async def test_what_was_run_is_on_record_as_a_run_of_its_own() -> None:
    async with opened() as (hf, _):
        run = await Agent(scripted(write_code("await look('x')"), "ok"), capabilities=[look]).run(
            "go", session="s", runtime=hf
        )
        rows = {row.key: row.value for row in await hf.journal.rows("runs")}
        (child,) = [one for one in rows.values() if one["kind"] == "code"]
        assert child["parent"] == run.id
        assert run.usage.external_calls == 1
        assert (await said(hf, "s", "run_completed"))[-1]["result"]
