"""`holdfast token`: who may ask the server for what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _options, _output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.contracts.token import TokenView
    from holdfast.server.tokens import Made, Tokens

app = typer.Typer(help="Tokens of the server: create, list, rotate, revoke, link.")

SCOPES = ("read", "run", "approve", "admin")
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

TokenId = Annotated[str, typer.Argument(metavar="ID", help="tok_…, as `list` shows it.")]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", metavar="P", help="It sees only sessions that begin with this."),
]
Scopes = Annotated[
    list[str],
    typer.Option("--scope", metavar="S", help="read, run, approve or admin; repeatable."),
]


@app.command()
def create(
    scopes: Scopes,
    prefix: Prefix = None,
    name: Annotated[str | None, typer.Option("--name", help="What people call it.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="In how long: 12h, 30d.")
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Make a token. It is shown this once: only its digest is kept."""
    _check(scopes)
    until = None if expires is None else _duration(expires)

    async def work(tokens: Tokens, who: str) -> Made:
        return await tokens.create(scopes, prefix=prefix, name=name, expires_in_ms=until, actor=who)

    _tell_made(_with_tokens(work), as_json)
    return 0


@app.command("list")
def list_(
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that count no more.")
    ] = False,
    as_json: _output.JsonFlag = None,
) -> int:
    """List tokens: what they are good for, and when they were used last."""

    async def work(tokens: Tokens, _: str) -> list[TokenView]:
        return await tokens.list(status=None if everything else "active", limit=100_000)

    found = [one for one in _with_tokens(work) if everything or one.status == "active"]
    if _output.as_json(as_json):
        items = [one.model_dump(mode="json") for one in found]
        _output.print_json({"items": items, "next": None})
        return 0
    out = _output.console()
    if not found:
        out.print("There are no tokens. `holdfast token create --scope read` makes one.")
    for one in found:
        used = "never used" if one.last_used_at is None else f"used {_clock(one.last_used_at)}"
        until = "" if one.expires_at is None else f", until {_clock(one.expires_at)}"
        seen = "" if one.prefix is None else f", sessions {one.prefix}…"
        called = "" if one.name is None else f" {_output.visible(one.name)}"
        out.print(f"{one.id}{called}", style="bold")
        out.print(f"  {one.status}: {', '.join(one.scopes)}{seen}, {used}{until}")
    return 0


@app.command()
def revoke(token_id: TokenId, as_json: _output.JsonFlag = None) -> int:
    """From now on a token counts no more, in every process with this journal."""

    async def work(tokens: Tokens, who: str) -> TokenView:
        return await tokens.revoke(token_id, actor=who)

    found = _with_tokens(work)
    if _output.as_json(as_json):
        _output.print_json(found)
    else:
        _output.console().print(f"{found.id} counts no more.")
    return 0


@app.command()
def rotate(token_id: TokenId, as_json: _output.JsonFlag = None) -> int:
    """Make another token with the same rights in place of one, which counts no more."""

    async def work(tokens: Tokens, who: str) -> Made:
        return await tokens.rotate(token_id, actor=who)

    _tell_made(_with_tokens(work), as_json)
    return 0


@app.command()
def link(
    url: Annotated[
        str, typer.Option("--at", metavar="URL", help="Where the server is.")
    ] = "http://127.0.0.1:7433",
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="S",
            help="read, run, approve or admin; repeatable. If none is given: admin; with a prefix, the others.",
        ),
    ] = None,
    prefix: Prefix = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Who it is for: what they decide is theirs.")
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Make another link for a browser: good once, for five minutes."""
    scopes = scopes or (["admin"] if prefix is None else ["read", "run", "approve"])
    _check(scopes)

    async def work(tokens: Tokens, who: str) -> str:
        return await tokens.link(scopes, prefix=prefix, name=name, actor=who)

    made = f"{url.rstrip('/')}/enter?code={_with_tokens(work)}"
    if _output.as_json(as_json):
        _output.print_json({"link": made})
    else:
        _output.console().print(made)
    return 0


# Any: what the work gives.
def _with_tokens(work: Callable[[Tokens, str], Awaitable[Any]]) -> Any:
    """What `work` gives. Only the journal is opened: no engine is needed for this."""
    import anyio

    from holdfast.cli._work import user
    from holdfast.runtime import Settings
    from holdfast.runtime.wiring import open_journal
    from holdfast.server.tokens import Tokens

    async def main() -> Any:
        journal = open_journal(Settings.load())
        try:
            return await work(Tokens(journal), user())
        finally:
            await journal.close()

    return anyio.run(main)


def _tell_made(made: Made, as_json: bool | None) -> None:
    if _output.as_json(as_json):
        _output.print_json({**made.view.model_dump(mode="json"), "token": made.text})
        return
    out = _output.console()
    out.print(made.text, style="bold")
    out.print(f"{made.view.id}: {', '.join(made.view.scopes)}. It is not shown again.")


def _check(scopes: list[str]) -> None:
    for one in scopes:
        if one not in SCOPES:
            _options.refuse(f"`{one[:80]}` is no scope.", f"Use {', '.join(SCOPES)}.")


def _duration(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if found is None or found[1] == "0":
        _options.refuse(f"`--expires {text[:80]}` is no time.", "Such as 90m, 12h or 30d.")
    return int(found[1]) * _UNITS[found[2]]


def _clock(unix_ms: int) -> str:
    return _output.clock(unix_ms)[:16]
