"""`holdfast ask`: one question to an agent, told while it works, and what came of it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.cli import _options, _output
from holdfast.cli._agent_flags import AgentFlags, schema_of, with_agent
from holdfast.cli._options import WAIT_MS, refuse
from holdfast.cli._setup import Flags, with_setup

MAX_PROMPT = 16 << 20
"""Where reading a prompt from standard input stops."""


@with_setup
@with_agent
def ask(
    prompt: Annotated[
        str,
        typer.Argument(
            metavar="PROMPT", help="What to do; - is standard input.", show_default=False
        ),
    ],
    session_id: Annotated[
        str | None,
        typer.Option(
            "--session-id", metavar="S", help="The conversation to go on with.  [a new one]"
        ),
    ] = None,
    output_schema: Annotated[
        str | None,
        typer.Option("--output-schema", metavar="FILE", help="JSON Schema the answer must fit."),
    ] = None,
    steer: Annotated[
        bool,
        typer.Option(
            "--steer", help="Only say it: the session's run hears it at its next step, and goes on."
        ),
    ] = False,
    queue: Annotated[
        bool,
        typer.Option("--queue", help="Only say it: the session's next run begins with it."),
    ] = False,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
    agent: AgentFlags,
) -> int:
    """Ask an agent to do something, and see it work.

    It writes code that calls capabilities; whatever it wants from the outside goes through the gate. A call that
    needs a person parks the run. Ctrl-C stops it after the step it is at, Ctrl-C again at once.
    Exit codes: 0 ok, 1 the run failed, 2 bad usage, 3 waiting for approval, 4 needs attention.
    """
    from holdfast.cli._asking import Asking
    from holdfast.contracts import new_id

    if steer or queue:
        return _say(_prompt(prompt), session_id, both=steer and queue, steer=steer, as_json=as_json)
    asking = Asking(
        prompt=_prompt(prompt),
        session_id=session_id or new_id("ses"),
        setup=flags.fields(),
        agent=agent.fields(),
        output=schema_of(output_schema),
        wait_ms=wait,
    )
    return asking.tell(as_json=_output.as_json(as_json))


def _say(
    text: str, session_id: str | None, *, both: bool, steer: bool, as_json: bool | None
) -> int:
    """Leave words for a run, which may stand in the session, and start none."""
    from holdfast.cli._work import on_runtime

    if both:
        refuse("`--steer` is for the run that there is, `--queue` for the next one: give one.")
    if session_id is None:
        refuse(
            "`--steer` and `--queue` are said to a session that is there.", "Give `--session-id S`."
        )
    lane = "steer" if steer else "queue"
    name = on_runtime(lambda hf: hf.agents.say(session_id, text, lane=lane))
    if _output.as_json(as_json):
        _output.print_json({"id": name, "session_id": session_id, "lane": lane})
    else:
        when = "at its run's next step, or with its next run" if steer else "with its next run"
        _output.console(stderr=True).print(f"said: session {session_id} hears it {when}")
    return 0


def _prompt(given: str) -> str:
    if given != "-":
        return given
    data = sys.stdin.buffer.read(MAX_PROMPT + 1)
    if len(data) > MAX_PROMPT:
        refuse(f"The prompt is over {MAX_PROMPT} bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        refuse(f"The prompt is not UTF-8 text: its byte {why.start + 1} can't be read.")
