"""`holdfast auth`, the real program, against a real authorization server."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from tests.leases.server import Guard, OAuthClient
from tests.leases.support import command, everything_below, login, sign_in, visit

import holdfast
from holdfast import capability
from holdfast.cli.main import main
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import Context
from holdfast.leases import Ask, Broker

Run = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The program; where that is possible in a thread of this process: it starts sooner."""

    async def go(*arguments: str, **env: str) -> tuple[int, Any]:
        if arguments[0] == "login":  # it minds signals, which a thread can't
            env = {**os.environ, **env}
            done = await anyio.run_process(command(*arguments, "--json"), check=False, env=env)
            return done.returncode, json.loads(done.stdout)
        code = await anyio.to_thread.run_sync(main, ["auth", *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return go


async def test_login_status_logout(guard: Guard, holdfast_home: Path, run: Run) -> None:
    view = await login("api", "--url", f"{guard.url}/api", "--scope", "read")
    assert (view["key"], view["status"], view["hosts"]) == ("api", "valid", [guard.host])
    assert view["scopes"] == ["read"]
    code, told = await run("status")
    assert (code, [one["status"] for one in told["items"]]) == (0, ["valid"])
    assert "access-" not in json.dumps(told)
    assert (await run("logout", "api"))[0] == 0
    _, told = await run("status")
    assert [one["status"] for one in told["items"]] == ["released"]
    code, told = await run("logout", "other")
    assert (code, told["error"]["code"]) == (2, "NOT_FOUND")
    for content in everything_below(holdfast_home).values():
        assert guard.tokens[0].access.encode() not in content


async def test_login_again_needs_the_key_only(guard: Guard) -> None:
    async with holdfast.open() as hf:
        await sign_in(hf.leases, guard)
    assert (await login("api"))["generation"] == 2
    assert len(guard.registered) == 1


async def test_token_and_client_from_the_environment(guard: Guard, run: Run) -> None:
    code, view = await run(
        "login", "key", "--host", "api.example.com", "--token-env", "T", T="tok-12345678"
    )
    assert (code, view["kind"], view["hosts"]) == (0, "static", ["api.example.com"])
    guard.clients["robot"] = OAuthClient("robot", "robot-secret-1", "client_secret_basic")
    code, view = await run(
        *("login", "robot", "--url", f"{guard.url}/api", "--client-credentials"),
        *("--client-id", "robot", "--client-secret-env", "S"),
        S="robot-secret-1",
    )
    assert (code, view["kind"], view["status"]) == (0, "client_credentials", "valid")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no address to sign in at"),
        (["--device"], "no address to sign in at"),
        (["--url", "nowhere"], "is no safe address"),
        (["--issuer", "http://auth.example"], "is no safe address"),
        (["--url", "https://a.example", "--client-credentials"], "none is named"),
        (["--url", "https://a.example", "--client-secret-env", "S"], "a secret, but no client"),
    ],
)
async def test_what_makes_no_sense_is_bad_usage(options: list[str], says: str, run: Run) -> None:
    code, told = await run("login", "key", *options, S="robot-secret-1")
    assert (code, told["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert says in told["error"]["message"]
    assert told["error"]["hint"]


async def test_what_is_no_key_is_bad_usage(run: Run) -> None:
    code, told = await run("login", "A b", "--url", "https://a.example")
    assert (code, told["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert "`_" not in told["error"]["hint"]


async def test_answer_from_another_machine(guard: Guard, run: Run) -> None:
    async with holdfast.open() as hf:
        flow = await hf.leases.logins.begin("api", Ask(url=f"{guard.url}/api"))
    code, view = await run("login", "api", "--answer", await visit(flow.url))
    assert (code, view["status"]) == (0, "valid")


async def test_revoked_becomes_an_item_of_the_inbox_and_the_call_goes_on(guard: Guard) -> None:
    """Revoke → inbox → sign in, in another process → the parked call completes."""
    found: list[Broker] = []

    @capability(side_effect="read")
    async def fetch(context: Context) -> str:
        """Fetch from the API."""
        leases = found[-1]
        credential = await leases.use("api", host=guard.host, answers=context.answers)
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{guard.url}/api", headers=credential.headers)
        if answer.status_code == 401 and not await leases.renew("api", credential.generation):
            await leases.require_reauth("api", credential.generation)
            await leases.use("api", host=guard.host, answers=context.answers)
        return f"{answer.status_code} with {credential.value}"

    async with holdfast.open(capabilities=[fetch]) as hf:
        found.append(hf.leases)
        await sign_in(hf.leases, guard)
        run_ = await hf.shell.run("result = await fetch()", session="s")
        assert str(run_.result).startswith("200 with [secret:lease.api."), run_.diagnostics
        guard.revoke()
        run_ = await hf.shell.run("result = await fetch()", session="s")
        assert run_.status == "waiting_for_approval"
        (item,) = await hf.approvals.list()
        assert item.asks is Asks.SIGN_IN
        assert item.url is not None
        assert item.url.startswith(f"{guard.url}/authorize?")
    assert (await login("api"))["answered"] == 1
    async with holdfast.open(capabilities=[fetch]) as hf:
        found.append(hf.leases)
        run_ = await hf.runs.resume(str(run_.run_id))
        assert str(run_.result).startswith("200 with [secret:")


@pytest.mark.parametrize("key", ["file", "command"])
async def test_vault_is_where_the_settings_say(tmp_path: Path, key: str) -> None:
    printed = "ab" * 32
    config = {
        "journal": {"url": f"sqlite:///{tmp_path}/j.db"},
        "vault": {"key": key, "key_file": f"{tmp_path}/k", "command": ["echo", printed]},
    }
    from holdfast.leases import Given

    async with holdfast.open(None, config) as hf:
        await hf.leases.acquire("a", Given(value="secret-value-1", hosts=("x",)))
    assert (tmp_path / "j.db.vault").exists()
    assert (tmp_path / "k").exists() == (key == "file")
    async with holdfast.open(None, config, secrets={}) as hf:
        # Known to the redactor from the start.
        run_ = await hf.shell.run("print('secret-' + 'value-1')", session="s")
        assert "secret-value-1" not in run_.stdout
