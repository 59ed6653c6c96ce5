"""A secret appears nowhere but in the vault, encrypted, and in requests to its own host."""

import logging
from pathlib import Path

import anyio
import httpx
import pytest
from tests.leases.server import Guard
from tests.leases.support import confidential, everything_below, sign_in, vault_at

from holdfast.gate.redact import Redactor
from holdfast.journal.sqlite import SqliteJournal
from holdfast.leases import Ask, Broker


async def test_sentinels_are_nowhere(
    guard: Guard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    journal = SqliteJournal.open(tmp_path / "journal.db")
    redactor = Redactor()
    broker = Broker(vault_at(tmp_path), journal, redact=redactor)
    await sign_in(broker, guard)
    robot = Ask(url=f"{guard.url}/api", client=confidential(guard))
    await broker.logins.client_credentials("robot", robot)
    flow = await broker.logins.begin("other", Ask(url=f"{guard.url}/api"))
    found = await broker.use("api", host=guard.host)
    async with httpx.AsyncClient() as client:
        await client.get(f"{guard.url}/api", headers=found.headers)
    await broker.renew("api", 1)
    guard.revoke()
    await broker.renew("api", 2)
    told = [repr(await broker.status()), repr(broker), repr(await broker.sign_in("api"))]
    await broker.release("robot")
    await journal.close()

    secrets = {one for token in guard.tokens for one in (token.access, token.refresh) if one}
    secrets |= {"robot-secret-1", flow.verifier}
    secrets |= {one.secret for one in guard.clients.values() if one.secret}
    assert len(secrets) >= 8
    files = everything_below(tmp_path)
    assert any(name.endswith("journal.db") for name in files)
    for secret in secrets:
        assert redactor.text(f"x {secret} y") != f"x {secret} y"
        for name, content in files.items():
            assert secret.encode() not in content, name
        for text in told:
            assert secret not in text
    # What was logged by us; the libraries below are cleaned by the runtime's filter.
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("holdfast")]
    assert not any(secret in line for secret in secrets for line in ours)
    # In requests: each token came to the API, which is its own host, and nowhere else.
    assert {value for _, value in guard.calls} <= secrets


async def test_tasks_and_files_are_given_back(guard: Guard, tmp_path: Path) -> None:
    import os

    broker = Broker(vault_at(tmp_path), SqliteJournal.open(tmp_path / "journal.db"))
    await sign_in(broker, guard)
    before = len(os.listdir("/proc/self/fd"))
    for generation in range(1, 6):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(broker.renew, "api", generation)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    await broker._journal.close()
