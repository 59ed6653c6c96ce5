"""An agent's run for people: what the model says, the code it writes, what that calls, and what it costs."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from rich.console import RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from holdfast.cli import _output
from holdfast.contracts import agent_event as e

if TYPE_CHECKING:
    from holdfast.cli._screen import Screen
    from holdfast.contracts.message import Part
    from holdfast.contracts.model import ModelUsage
    from holdfast.contracts.view import Usage

RUN_CODE = "run_code"
_SHORT = 100
_LINES = 12
"""Lines of a program's output that are shown."""


class Teller:
    """Tells one run on a screen, as it goes or afterwards."""

    def __init__(self, screen: Screen, *, asked: bool = False) -> None:
        """With `asked`, also what was asked: who follows a run has just written it."""
        self._screen = screen
        self._asked = asked
        self._began = monotonic()
        self._turn = 0
        self._tokens = 0
        self._cost = 0
        self._heard: dict[int, str] = {}
        """The parts of the answer that is being given, by their number."""
        self._names: dict[int, str] = {}
        self._told: set[int] = set()

    def event(self, event: e.AgentEvent) -> None:
        """One thing that happened."""
        match event:
            case e.TextDelta() | e.ThinkingDelta() | e.ToolCallDelta():
                self._piece(event)
            case e.TurnStarted() | e.Answer() | e.AnswerFailed():
                self._model(event)
            case e.EffectStarted() | e.EffectEnded() | e.ToolResult():
                self._effect(event)
            case e.RunStarted() | e.Said() | e.RunParked() | e.RunResumed() | e.RunEnded():
                self._run(event)
            case _:
                self._rest(event)

    # -- while it is said -----------------------------------------------------------------------------

    def _piece(self, piece: e.TextDelta | e.ThinkingDelta | e.ToolCallDelta) -> None:
        at = piece.index
        self._heard[at] = self._heard.get(at, "") + piece.text
        match piece:
            case e.TextDelta():
                self._screen.text(piece.text)
                self._now("answering")
            case e.ThinkingDelta():
                self._now("thinking")
            case e.ToolCallDelta():
                if piece.name is not None:
                    self._names[at] = piece.name
                self._now(f"writing {'code' if self._names.get(at) == RUN_CODE else 'a call'}")
                if piece.text.rstrip().endswith("}"):
                    self._show_code(at)

    def _show_code(self, at: int) -> None:
        """Show a program as soon as all of it is there."""
        if self._names.get(at) != RUN_CODE or at in self._told:
            return
        try:
            found: Any = json.loads(self._heard[at])
        except ValueError:
            return
        code = cast("dict[str, Any]", found).get("code") if isinstance(found, dict) else None
        if isinstance(code, str):
            self._told.add(at)
            self._code(code)
            self._now("running code")

    # -- the model ------------------------------------------------------------------------------------

    def _model(self, event: e.TurnStarted | e.Answer | e.AnswerFailed) -> None:
        match event:
            case e.TurnStarted():
                self._turn = event.turn
                self._now(f"asking {event.model}")
            case e.Answer():
                self._count(event.usage)
                for at, part in enumerate(event.parts):
                    self._part(at, part)
                if event.text and not event.text.endswith("\n"):
                    self._screen.text("\n")
                self._forget()
                self._now("working")
            case e.AnswerFailed():
                if event.usage is not None:
                    self._count(event.usage)
                error = event.error
                why = f"{error.code}: {error.message}" if error else event.status.replace("_", " ")
                self._screen.block(_line("✗", f"no answer: {why}", "red"))
                self._forget()

    def _part(self, at: int, part: Part) -> None:
        """A part of an answer, unless it was told while it was given."""
        if part.kind == "text" and at not in self._heard:
            self._screen.text(part.text)
        elif part.kind == "tool_call" and part.name == RUN_CODE and at not in self._told:
            code = part.arguments.get("code")
            self._code(code if isinstance(code, str) else part.malformed or "")

    def _forget(self) -> None:
        self._heard, self._names, self._told = {}, {}, set()

    # -- what it does ---------------------------------------------------------------------------------

    def _effect(self, event: e.EffectStarted | e.EffectEnded | e.ToolResult) -> None:
        match event:
            case e.EffectStarted():
                told = f"{event.name}({_arguments(event.arguments)})"
                self._screen.block(_line("→", told, "cyan"))
                self._now(f"calling {event.name}")
            case e.EffectEnded():
                self._screen.block(_ended(event))
                self._now("working")
            case e.ToolResult():
                self._screen.block(_result(event))
                self._now("working")

    def _code(self, code: str) -> None:
        text = _output.visible(code.rstrip("\n"))
        # Without a background: it stays readable in a terminal of any colour.
        told = Syntax(text, "python", theme="ansi_dark", background_color="default", word_wrap=True)
        self._screen.block(Padding(told, (0, 0, 0, 2)))

    # -- the run --------------------------------------------------------------------------------------

    def _run(self, event: e.RunStarted | e.Said | e.RunParked | e.RunResumed | e.RunEnded) -> None:
        match event:
            case e.RunStarted() if self._asked:
                self._screen.block(_line("›", event.prompt, "bold"))
            case e.Said() if event.purpose is None:
                self._screen.block(_line("›", event.text, "bold"))
            case e.Said():
                self._screen.block(_line("·", f"holdfast says: {_short(event.text)}", "dim"))
            case e.RunParked():
                waits = event.result.status.replace("_", " ")
                self._screen.block(_line("·", f"parked: {waits}", "dim"))
            case e.RunResumed():
                self._screen.block(_line("·", f"resumed: {event.reason}", "dim"))
            case _:
                pass  # how it ended is told by whoever prints the result

    def _rest(self, event: e.AgentEvent) -> None:
        match event:
            case e.ModelRetried():
                wait = f"asking again in {event.delay_ms / 1000:.1f} s, attempt {event.attempt}"
                self.note(f"{event.reason.replace('_', ' ')}: {wait}")
            case e.ModelSwitched():
                self.note(f"{event.reason}: going on with {event.after}")
            case e.ApprovalRequested():
                self.note(f"{event.tool}({_arguments(event.arguments)}) waits for a person")
            case e.ApprovalDecided():
                by = f" by {event.actor}" if event.actor else ""
                self._screen.block(_line("·", f"{event.status.replace('_', ' ')}{by}", "dim"))
            case e.BudgetWarning():
                self.note(f"{event.used} of {event.limit} {event.unit} of {event.of} are used")
            case e.Compacted():
                short = f"{event.tokens_before} → {event.tokens_after} tokens"
                told = f"the conversation is told in short: {short}"
                self._screen.block(_line("·", told, "dim"))
            case e.OutputChecked() if not event.valid:
                self.note(f"the output does not fit: {'; '.join(event.errors)}")
            case _:
                pass  # a piece of the output, or pieces that were missed: the whole comes later

    # -- what is going on -----------------------------------------------------------------------------

    def _count(self, used: ModelUsage) -> None:
        self._tokens += used.tokens
        self._cost += used.cost_micros or 0

    def _now(self, doing: str) -> None:
        parts = [doing, f"turn {self._turn}" if self._turn else ""]
        parts += [tokens(self._tokens), money(self._cost), f"{monotonic() - self._began:.0f} s"]
        self._screen.status(" · ".join(part for part in parts if part))

    def note(self, text: str) -> None:
        """Tell something that is not part of the run."""
        self._screen.block(_line("!", text, "yellow"))


def money(micros: int) -> str:
    """Millionths of a dollar, for people; nothing for nothing."""
    if not micros:
        return ""
    dollars = micros / 1_000_000
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.4f}"


def tokens(count: int) -> str:
    """A number of tokens, for people; nothing for none."""
    if not count:
        return ""
    return f"{count} tokens" if count < 10_000 else f"{count / 1000:.1f}k tokens"


def used(usage: Usage) -> str:
    """What a run used, in a few words."""
    parts = [tokens(usage.input_tokens + usage.output_tokens), money(usage.cost_micros)]
    if usage.external_calls:
        parts.append(f"{usage.external_calls} call{'' if usage.external_calls == 1 else 's'}")
    return " · ".join(part for part in parts if part)


def _ended(event: e.EffectEnded) -> Text:
    if event.error is not None:
        return _line("✗", f"{event.name}: {event.error.code}: {event.error.message}", "red")
    if event.status != "completed":
        return _line("✗", f"{event.name}: {event.status.replace('_', ' ')}", "red")
    took = "" if event.duration_ms is None else f"  ({event.duration_ms} ms)"
    return _line("✓", f"{_short(json.dumps(event.value, ensure_ascii=False))}{took}", "green")


def _result(event: e.ToolResult) -> RenderableType:
    """What the model is shown of a call."""
    text = event.text.removeprefix("result: ")
    if event.is_error:
        return _line("✗", _short(text), "red")
    if text == "null":
        return _line("=", "done", "dim")
    if "\n" not in text:
        return _line("=", _short(text), "green")
    return Padding(_clipped(text), (0, 0, 0, 4))


def _line(sign: str, text: str, style: str) -> Text:
    found = Text()
    found.append(f"  {sign} ", style=style)
    found.append(_output.visible(text), style="dim" if style == "dim" else "")
    return found


def _arguments(arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return "" if arguments is None else _short(json.dumps(arguments, ensure_ascii=False))
    known = cast("dict[str, Any]", arguments)
    named = (f"{name}={json.dumps(one, ensure_ascii=False)}" for name, one in known.items())
    return _short(", ".join(named))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


def _clipped(text: str) -> Text:
    lines = _output.visible(text.rstrip("\n")).splitlines()
    more = len(lines) - _LINES
    if more > 0:
        lines = [*lines[:_LINES], f"… {more} more lines"]
    return Text("\n".join(lines), style="dim")
