"""What the tests of leases share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx
from tests.leases.server import Guard, OAuthClient

from holdfast.contracts.lease import LEASES
from holdfast.gate.redact import Redactor
from holdfast.journal import Journal, MemoryJournal
from holdfast.leases import Ask, Broker, Client, FileKey, FileVault, Vault
from holdfast.leases.oauth import now_ms


def vault_at(folder: Path) -> FileVault:
    return FileVault(folder / "vault", FileKey(folder / "vault.key"))


def broker_of(
    vault: Vault, journal: Journal | None = None, now: Callable[[], int] | None = None
) -> Broker:
    return Broker(vault, journal or MemoryJournal(), redact=Redactor(), now=now or now_ms)


async def visit(url: str) -> str:
    """Be the person: follow the link, and say where the browser is sent."""
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(url)
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


async def sign_in(broker: Broker, guard: Guard, key: str = "api", **ask: object) -> None:
    """The whole way: link, person, code, token."""
    found = Ask.model_validate({"url": f"{guard.url}/api", **ask})
    flow = await broker.logins.begin(key, found)
    await broker.logins.finish(await visit(flow.url))


def command(*arguments: str) -> list[str]:
    """The program."""
    return [sys.executable, "-m", "holdfast", "auth", *arguments]


async def login(*arguments: str) -> Any:
    """Sign in with it as a person would: read the link, follow it, and be sent back."""
    async with await anyio.open_process(
        command("login", *arguments, "--json"), stderr=subprocess.PIPE
    ) as program:
        assert program.stderr is not None
        assert program.stdout is not None
        shown = ""
        async for data in program.stderr:
            shown += data.decode()
            if "Waiting" in shown:
                break
        link = next(line for line in shown.splitlines() if line.startswith("http"))
        back = await visit(link)
        async with httpx.AsyncClient() as browser:
            assert "signed in" in (await browser.get(back)).text
        printed = b"".join([data async for data in program.stdout])
        assert await program.wait() == 0
    return json.loads(printed)


async def record(journal: Journal) -> list[tuple[str, int, str]]:
    """Phase, generation and reason of everything on record."""
    return [
        (str(one.payload["phase"]), int(str(one.payload["generation"])), str(one.payload["reason"]))
        async for one in journal.read(LEASES)
    ]


def confidential(guard: Guard, method: str = "client_secret_basic") -> Client:
    """A client that was registered beforehand."""
    guard.clients["robot"] = OAuthClient("robot", "robot-secret-1", method)
    return Client(client_id="robot", client_secret="robot-secret-1", method=method)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - of another thread
        await anyio.sleep(0.005)


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def everything_below(folder: Path) -> dict[str, bytes]:
    """Every file, by name."""
    return {
        os.path.join(where, name): Path(where, name).read_bytes()
        for where, _, names in os.walk(folder)
        for name in names
    }
