"""`holdfast repl`: a code session at the keyboard, or block by block from a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import _options, _output
from holdfast.cli._setup import Flags, import_from_here, with_setup

if TYPE_CHECKING:
    from typing import Any


@with_setup
def repl(
    session_id: _options.SessionId = "default",
    limits: _options.Limit = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> int:
    """Talk to a session: code goes in, results come out, questions are asked in between.

    On a terminal: history, completion of names and capabilities, `:help`. Ctrl-C stops a run, Ctrl-D leaves. A call
    that needs a person asks here. From a pipe: one block after the other, one RunResult per line as JSON; it
    ends at a run that waits. Exits as the last run would.
    """
    given: dict[str, Any] = flags.fields()
    limited = _options.limits_of(limits)
    from holdfast.cli._repl import Repl

    import_from_here()
    return Repl(session_id, given, limited, as_json=_output.as_json(as_json)).talk()
