"""`holdfast doctor`: what is there, what is jailed, what is wrong, and how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import _output

if TYPE_CHECKING:
    from holdfast.cli._checks import Check

_STYLES = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}


def doctor(as_json: _output.JsonFlag = None) -> int:
    """Look for what is missing or wrong, and say how to mend it.

    Changes nothing. Exits with 1 when a check fails; a warning alone is no failure.
    """
    import anyio

    from holdfast.cli._checks import examine

    checks = anyio.run(examine)
    failed = any(check.state == "fail" for check in checks)
    if _output.as_json(as_json):
        _output.print_json({"ok": not failed, "checks": [check._asdict() for check in checks]})
    else:
        _show(checks)
    return int(failed)


def _show(checks: list[Check]) -> None:
    out = _output.console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        out.print(f"{check.state:<5}", style=_STYLES[check.state], end="")
        out.print(f"{check.name:<{width}}  {_output.visible(check.what)}")
        if check.fix is not None:
            out.print(f"{'':<{width + 7}}→ {_output.visible(check.fix)}", style="cyan")
    wrong = [check.name for check in checks if check.state == "fail"]
    if wrong:
        out.print(f"\nNot all is well: {', '.join(wrong)}.", style="bold red")
