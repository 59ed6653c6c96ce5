"""`holdfast auth`: signing in, what is signed in, and signing out."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from holdfast.cli import _options, _output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from holdfast.contracts.lease import LeaseView
    from holdfast.gate.approvals import Approvals
    from holdfast.leases import Ask, Broker, Client, Flow
    from holdfast.leases.loopback import Loopback

app = typer.Typer(help="Credentials: login, status, logout.", rich_markup_mode=None)

Key = Annotated[
    str, typer.Argument(metavar="KEY", help="The credential's name.", show_default=False)
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="The server that it is for.")]
Issuer = Annotated[
    str | None,
    typer.Option("--issuer", metavar="URL", help="The authorization server, if no other will do."),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="Where it may be sent; default: the server's."),
]
Scopes = Annotated[
    list[str] | None, typer.Option("--scope", metavar="SCOPE", help="What to ask for; repeatable.")
]
ClientId = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="A client registered beforehand.")
]
SecretEnv = Annotated[
    str | None,
    typer.Option("--client-secret-env", metavar="VAR", help="The variable that has its secret."),
]
Device = Annotated[bool, typer.Option("--device", help="Sign in on another device, with a code.")]
Robot = Annotated[
    bool, typer.Option("--client-credentials", help="Sign in as the client itself: no person.")
]
TokenEnv = Annotated[
    str | None,
    typer.Option("--token-env", metavar="VAR", help="Keep the token that this variable has."),
]
Answer = Annotated[
    str | None,
    typer.Option("--answer", metavar="URL", help="The address that the browser was sent to."),
]


class _Said(NamedTuple):
    """What the options say."""

    key: str
    ask: Ask
    robot: bool
    token: str | None
    answer: str | None
    as_json: bool


@app.command()
def login(
    key: Key,
    url: Url = None,
    issuer: Issuer = None,
    host: Hosts = None,
    scope: Scopes = None,
    client_id: ClientId = None,
    client_secret_env: SecretEnv = None,
    device: Device = False,
    client_credentials: Robot = False,
    token_env: TokenEnv = None,
    answer: Answer = None,
    as_json: _output.JsonFlag = None,
) -> None:
    """Sign in: prints a link, and waits until somebody followed it.

    Calls that wait for it go on. Where the browser is on another machine, it ends at an address that does not load:
    give that to `--answer`. For a key that was signed in before, or that is asked for in the inbox, KEY is enough.
    """
    import anyio

    from holdfast.cli._stop import until_stopped
    from holdfast.leases import Ask
    from holdfast.leases._telling import check_key

    client = _client(client_id, client_secret_env, robot=client_credentials)
    check_key(key)
    if token_env is None:
        _check_addresses(url, issuer)
    ask = Ask(
        url=url,
        issuer=issuer,
        hosts=tuple(host or ()),
        scopes=tuple(scope or ()),
        client=client,
        device=device,
    )
    token = _from_environment(token_env) if token_env else None
    said = _Said(key, ask, client_credentials, token, answer, _output.as_json(as_json))

    async def work() -> tuple[LeaseView, int]:
        async with _opened() as (leases, approvals):
            view = await until_stopped(lambda: _signed_in(leases, said))
            return view, await _answered(approvals, view.key)

    view, count = anyio.run(work)
    if said.as_json:
        _output.print_json({**view.model_dump(mode="json"), "answered": count})
        return
    out = _output.console()
    until = f", until {_output.clock(view.expires_at)}" if view.expires_at else ""
    out.print(f"Signed in: {view.key} ({', '.join(view.hosts)}){until}.")
    if count:
        out.print(f"{count} that waited for it can go on: `holdfast runs list`.", style="dim")


@app.command()
def status(as_json: _output.JsonFlag = None) -> None:
    """List the credentials there are. Values are never shown."""
    import anyio

    async def work() -> list[LeaseView]:
        async with _opened() as (leases, _):
            return await leases.status()

    found = anyio.run(work)
    if _output.as_json(as_json):
        _output.print_json({"items": found, "next": None})
        return
    out = _output.console()
    if not found:
        out.print("No credentials: `holdfast auth login KEY --url SERVER` gets one.")
        return
    out.print(_table(found))


@app.command()
def logout(key: Key, as_json: _output.JsonFlag = None) -> None:
    """Forget a credential. What needs it asks for a new sign-in."""
    import anyio

    from holdfast.cli._work import user
    from holdfast.errors import NotFound

    async def work() -> None:
        async with _opened() as (leases, _):
            if await leases.view(key) is None:
                raise NotFound(
                    "NOT_FOUND",
                    f"There is no credential `{key}`.",
                    hint="`holdfast auth status` lists those there are.",
                )
            await leases.release(key, actor=user())

    anyio.run(work)
    if _output.as_json(as_json):
        _output.print_json({"key": key, "status": "released"})
    else:
        _output.console().print(f"Signed out: {key}.")


@asynccontextmanager
async def _opened() -> AsyncGenerator[tuple[Broker, Approvals]]:
    """The credentials, and what waits for them. No server is connected for that, and no code runs."""
    from holdfast.gate.approvals import Approvals
    from holdfast.runtime import Settings, wiring

    settings = Settings.load()
    redactor = wiring.make_redactor(settings, {})
    journal = wiring.open_journal(settings)
    try:
        with wiring.redacted_logs(redactor):
            leases = wiring.make_leases(settings, journal, redactor)
            yield leases, Approvals(journal, redact=redactor.text)
    finally:
        await journal.close()


# -- signing in ---------------------------------------------------------------------------------------


async def _signed_in(leases: Broker, said: _Said) -> LeaseView:
    from holdfast.cli._work import user
    from holdfast.leases import Given, host_of

    actor, logins = user(), leases.logins
    if said.answer is not None:
        return await logins.finish(said.answer, actor=actor)
    if said.token is not None:
        hosts = said.ask.hosts or ((host_of(said.ask.url),) if said.ask.url else ())
        given = Given(value=said.token, hosts=hosts, url=said.ask.url)
        return await leases.acquire(said.key, given, actor=actor)
    if said.robot:
        _addressed(said.ask)
        return await logins.client_credentials(said.key, said.ask, actor=actor)
    if said.ask.device:
        _addressed(said.ask)
        flow = await logins.begin(said.key, said.ask)
        _show(flow, said.as_json)
        return await logins.wait_for_device(flow, actor=actor)
    return await _in_browser(leases, said, actor)


async def _in_browser(leases: Broker, said: _Said, actor: str) -> LeaseView:
    """Wait where the browser comes back to; a sign-in that was begun elsewhere is finished here."""
    from urllib.parse import urlsplit

    from holdfast.errors import OperatorError
    from holdfast.leases.loopback import listening

    logins = leases.logins
    flow = (
        await logins.pending(said.key) if said.ask.url is None and said.ask.issuer is None else None
    )
    ask = said.ask
    if flow is not None and flow.kind == "device":
        _show(flow, said.as_json)
        return await logins.wait_for_device(flow, actor=actor)
    if flow is None:
        again = await leases.target(said.key) if ask.url is None and ask.issuer is None else None
        ask = again or ask
        _addressed(ask)
        flow = await logins.begin(said.key, ask)
    try:
        door = listening(urlsplit(flow.redirect_uri).port or 0)
        async with door as here:
            return await _waited(leases, here, flow, actor, said.as_json)
    except OperatorError as why:
        if why.code != "IO_ERROR":
            raise
    # Somebody else has that port by now: begin again at another.
    async with listening() as here:
        moved = ask.model_copy(
            update={"url": ask.url or flow.target, "redirect_uri": here.redirect_uri}
        )
        flow = await logins.begin(said.key, moved)
        return await _waited(leases, here, flow, actor, said.as_json)


async def _waited(
    leases: Broker, here: Loopback, flow: Flow, actor: str, as_json: bool
) -> LeaseView:
    found: list[LeaseView] = []

    async def finish(address: str) -> None:
        found.append(await leases.logins.finish(address, actor=actor))

    _show(flow, as_json)
    await here.wait(finish)
    return found[-1]


def _show(flow: Flow, as_json: bool) -> None:
    """The link, for a person: on stderr where stdout is for a program."""
    out = _output.console(stderr=as_json)
    out.print("Open this link to sign in:")
    out.print(_output.visible(flow.url))
    if flow.user_code:
        out.print(f"code: {_output.visible(flow.user_code)}")
    out.print("Waiting for you ...", style="dim")


async def _answered(approvals: Approvals, key: str) -> int:
    """Answer every question in the inbox that asks for this sign-in; how many."""
    from holdfast.cli._work import user
    from holdfast.contracts import Decision
    from holdfast.contracts.approval import Asks
    from holdfast.errors import CallerError
    from holdfast.leases.logins import asked_for

    count = 0
    for one in await approvals.list(limit=1_000):
        if one.asks is not Asks.SIGN_IN or not one.summary.startswith(asked_for(key)):
            continue
        try:
            await approvals.decide(one.id, Decision.APPROVED, actor=user(), via="cli")
        except CallerError:
            continue  # somebody answered it just now
        count += 1
    return count


def _client(client_id: str | None, secret_env: str | None, *, robot: bool) -> Client | None:
    """The client that was registered beforehand, if one is named."""
    from holdfast.leases import Client

    if client_id is not None:
        secret = _from_environment(secret_env) if secret_env else None
        return Client(client_id=client_id, client_secret=secret)
    if secret_env:
        _options.refuse("There is a secret, but no client.", "Give `--client-id`, too.")
    if robot:
        _options.refuse(
            "`--client-credentials` signs in as a client, and none is named.",
            "Give `--client-id`, and `--client-secret-env` for its secret.",
        )
    return None


def _check_addresses(*given: str | None) -> None:
    """Refuse an address that nobody may sign in at, before anything is opened for it."""
    from holdfast.errors import OperatorError
    from holdfast.leases._web import check_address

    for one in given:
        try:
            check_address(one or "https://none.invalid")
        except OperatorError as why:
            _options.refuse(why.message, why.hint)


def _addressed(ask: Ask) -> None:
    if ask.url is None and ask.issuer is None:
        _options.refuse("There is no address to sign in at.", "Give `--url` or `--issuer`.")


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        _options.refuse(
            f"The environment has no `{name}`.", "Secrets are not taken from the command line."
        )
    return value


def _table(found: Sequence[LeaseView]) -> object:
    from rich.table import Table

    table = Table("key", "status", "kind", "hosts", "scopes", "until", box=None, pad_edge=False)
    for one in found:
        until = _output.clock(one.expires_at) if one.expires_at else ""
        hosts, scopes = ", ".join(one.hosts), _output.visible(" ".join(one.scopes))
        table.add_row(one.key, one.status, one.kind, hosts, scopes, until)
    return table
