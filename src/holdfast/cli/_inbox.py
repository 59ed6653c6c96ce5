"""Approvals, plans and grants for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from rich.table import Table
from rich.text import Text

from holdfast.cli import _output
from holdfast.cli._forms import fields_of, fill
from holdfast.contracts import ApprovalView, Grant, Json
from holdfast.contracts.approval import Asks
from holdfast.errors import CallerError
from holdfast.gate.past import stored_json
from holdfast.journal import Journal

_WANTS = {Asks.INPUT: "an answer", Asks.SIGN_IN: "a sign-in"}
_LINE = 200

ANSWERS = {"y": "approved", "s": "approved_for_session", "n": "denied"}
"""What is typed at the question below → the decision; anything else is none."""
ASKED = "approve?  [y]es  [n]o  for the whole [s]ession  [l]ater: "

_RISKS = {"low": "green", "medium": "yellow", "high": "bold red", "critical": "bold white on red"}


async def plan_view(journal: Journal, row: dict[str, Any]) -> dict[str, Any]:
    """A plan with what it would do; `effects` is null when the body was erased."""
    try:
        effects: Json = await stored_json(journal, str(row["plan"]))
    except CallerError:
        effects = None
    return {**row, "effects": effects}


def approvals_table(items: Sequence[ApprovalView]) -> Table:
    """One line for each."""
    table = Table(box=None, pad_edge=False)
    table.add_column("approval", no_wrap=True, overflow="ignore")
    for name in ("what", "risk", "session", "asked", "until", ""):
        table.add_column(name, overflow="fold")
    for one in items:
        until = _output.clock(one.deadline) if one.deadline else ""
        decided = "" if one.status == "pending" else one.status.value
        what = f"{one.tool}({_arguments(one.arguments)}){_wants(one)}"
        asked = _output.clock(one.requested_at)
        risk = Text(one.risk, style=_RISKS.get(one.risk, ""))
        table.add_row(
            one.id, _output.visible(what), risk, one.session_id or "", asked, until, decided
        )
    return table


def show_approval(view: ApprovalView, *, here: bool = False) -> None:
    """What would happen, with which arguments, on whose behalf; `here`: and the answer is asked for at once."""
    facts = _facts()
    facts.add_row("approval", view.id)
    facts.add_row("status", view.status.value)
    facts.add_row("call", view.tool)
    for name, value in _named(view.arguments):
        facts.add_row(f"  {name}", _output.visible(value))
    facts.add_row("may touch", view.side_effect)
    facts.add_row("risk", Text(view.risk, style=_RISKS.get(view.risk, "")))
    if view.asks is Asks.CONSENT:
        facts.add_row("why", _output.visible(view.summary))
    else:
        _add_question(facts, view)
    facts.add_row("session", view.session_id or "")
    facts.add_row("run", view.run_id or "")
    facts.add_row("asked", _output.clock(view.requested_at))
    if view.deadline:
        facts.add_row("until", _output.clock(view.deadline))
    if view.decision is not None:
        if view.decided_at is not None:
            facts.add_row("decided", _output.clock(view.decided_at))
        facts.add_row("decided by", _output.visible(view.decision.actor or ""))
        facts.add_row("reason", _output.visible(view.decision.reason or ""))
    out = _output.console()
    out.print(facts)
    if view.status == "pending" and not here:
        out.print(f"holdfast approvals approve {view.id}{_needed(view)}   or deny", style="dim")


def filled(view: ApprovalView, decision: str | None) -> Json:
    """What is typed into the form of a question that is answered right here."""
    return fill(view.form) if decision == "approved" and view.form is not None else None


def _add_question(facts: Table, view: ApprovalView) -> None:
    """What somebody has to say or to do. The words are the other side's, and nobody has looked at them."""
    facts.add_row("wants", _WANTS[view.asks])
    facts.add_row("it says", _output.visible(f"“{view.summary}”"))
    if view.url is not None:
        facts.add_row("address", _output.visible(view.url))
    for field in fields_of(view.form):
        facts.add_row(_output.visible(f"  {field.name}"), _output.visible(field.about))
    if view.during:
        facts.add_row("meanwhile", "the call is under way, and waits")


def _needed(view: ApprovalView) -> str:
    needed = [field.name for field in fields_of(view.form) if field.needed]
    return "".join(f" --field {_output.visible(name)}=…" for name in needed)


def _wants(view: ApprovalView) -> str:
    """What a line of the list says more about a question."""
    if view.asks is Asks.CONSENT:
        return ""
    text = f" wants {_WANTS[view.asks]}: “{' '.join(view.summary.split())}”"
    text += f" {view.url}" if view.url is not None else ""
    return text if len(text) <= _LINE else f"{text[: _LINE - 1]}…"


def plans_table(items: Sequence[dict[str, Any]]) -> Table:
    """One line for each."""
    table = Table(box=None, pad_edge=False)
    table.add_column("plan", no_wrap=True, overflow="ignore")
    for name in ("session", "calls", ""):
        table.add_column(name, overflow="fold")
    for one in items:
        effects: list[dict[str, Any]] = one["effects"] or []
        names = ", ".join(str(effect["name"]) for effect in effects)
        table.add_row(one["id"], one["session_id"], str(len(effects)), _output.visible(names))
    return table


def show_plan(plan: dict[str, Any]) -> None:
    """What the code would do."""
    facts = _facts()
    facts.add_row("plan", plan["id"])
    facts.add_row("status", plan["status"])
    facts.add_row("session", plan["session_id"])
    out = _output.console()
    out.print(facts)
    out.print(effects_table(plan["effects"] or []))


def effects_table(effects: Sequence[dict[str, Any]]) -> Table:
    """The calls of a plan."""
    table = Table("", "call", "may touch", "policy", "rule", box=None, pad_edge=False)
    for one in effects:
        call = _output.visible(f"{one['name']}({_arguments(one['arguments'])})")
        table.add_row(str(one["ordinal"]), call, one["side_effect"], one["verdict"], one["rule"])
    return table


def grants_table(items: Sequence[Grant]) -> Table:
    """One line for each."""
    table = Table("grant", "tool", "up to", "scope", "given by", "until", box=None, pad_edge=False)
    for one in items:
        until = _output.clock(one.expires_at) if one.expires_at else ""
        actor = _output.visible(one.actor or "")
        table.add_row(one.id, one.tool, one.risk.value, one.scope.value, actor, until)
    return table


def _facts() -> Table:
    found = Table(box=None, show_header=False, pad_edge=False)
    found.add_column(style="dim")
    return found


def _named(arguments: Any) -> list[tuple[str, str]]:
    if not isinstance(arguments, dict):
        return []
    known = cast("dict[str, Any]", arguments)
    return [(name, json.dumps(value, ensure_ascii=False)) for name, value in known.items()]


def _arguments(arguments: Any) -> str:
    text = ", ".join(f"{name}={value}" for name, value in _named(arguments))
    return text if len(text) <= 80 else f"{text[:79]}…"
