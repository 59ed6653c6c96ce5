"""`holdfast chat`: a conversation with an agent at the keyboard, or line by line from a pipe."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import _output
from holdfast.cli._agent_flags import AgentFlags, with_agent
from holdfast.cli._setup import Flags, import_from_here, with_setup


@with_setup
@with_agent
def chat(
    session_id: Annotated[
        str | None,
        typer.Option(
            "--session-id", metavar="S", help="The conversation to go on with.  [a new one]"
        ),
    ] = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
    agent: AgentFlags,
) -> int:
    """Talk with an agent, and watch what it does.

    On a terminal: its words and its code as they come, every call it makes, what it costs; history, `/help`. A call
    that needs a person asks here. What you type while it works reaches it at its next step. Ctrl-C stops it after the
    step it is at, Ctrl-C again at once; Ctrl-D leaves. From a pipe: one line after the other, one AgentResult per
    line as JSON; it ends at a run that waits. Exits as the last run would.
    """
    setup, fields = flags.fields(), agent.fields()
    from holdfast.cli._chat import Chat
    from holdfast.contracts import new_id

    import_from_here()
    talk = Chat(session_id or new_id("ses"), setup, fields, as_json=_output.as_json(as_json))
    return talk.talk()
