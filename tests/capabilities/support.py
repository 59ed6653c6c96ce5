"""What tests of the built-in capabilities share: calling one as the gate does, and a PostgreSQL of their own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.capabilities.declare import Declared
from holdfast.gate.executor import Context

CONTEXT = Context(effect_id="e-1", attempt=1, session_id="s", run_id="r-1")


class Box:
    """Capabilities by name, called the way the gate calls them."""

    def __init__(self, declared: Sequence[Declared[..., Any]]) -> None:
        self.declared = {one.capability.name: one for one in declared}

    # `Any`: each gives something else.
    async def __call__(self, tool: str, /, *args: Any, **kwargs: Any) -> Any:
        one = self.declared[tool]
        arguments = one.bind(args, kwargs)
        one.check(arguments)
        value = await one.execute(arguments, CONTEXT)
        one.check_result(value)
        return value


@dataclass(frozen=True)
class Postgres:
    """A server on a socket in a folder of its own, with passwords and no network."""

    socket: Path
    port: int
    password: str

    def url(self, user: str = "admin", password: str | None = None) -> str:
        secret = self.password if password is None else password
        return f"postgresql://{user}:{secret}@/postgres?host={self.socket}&port={self.port}"

    def sql(self, text: str) -> None:
        """Run statements as superuser."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as db:
            db.execute(text.encode())


def _programs() -> Path:
    found = [shutil.which("pg_ctl"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))]
    for one in filter(None, found):
        folder = Path(one).resolve().parent
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.fail("PostgreSQL is not installed: `make test` installs it (Debian: `postgresql`).")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real server, thrown away afterwards."""
    programs = _programs()
    # Not pytest's folder: the server runs as another user when the tests run as root, which it refuses.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir="/tmp"))
    user = "postgres" if os.geteuid() == 0 else None
    password = "s3cret-w0rd"

    def call(*command: object) -> None:
        done = subprocess.run(
            [str(part) for part in command], user=user, cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            log = folder / "log"
            more = log.read_text() if log.exists() else ""
            pytest.fail(f"{command[0]} failed: {done.stdout}{done.stderr}{more}")

    try:
        if user:
            shutil.chown(folder, user)
        secret = folder / "secret"
        secret.write_text(password)
        secret.chmod(0o644)
        call(
            *(programs / "initdb", "-D", folder / "data", "-U", "admin", "--no-sync"),
            *("-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8", "--locale=C"),
        )
        start = f"-k {folder} -p 5432 -c listen_addresses= -c fsync=off -c shared_buffers=16MB"
        control = (programs / "pg_ctl", "-w", "-D", folder / "data")
        # Its output goes to a file, or it would hold our pipe open.
        call(*control, "-l", folder / "log", "-o", start, "start")
        try:
            yield Postgres(folder, 5432, password)
        finally:
            call(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
