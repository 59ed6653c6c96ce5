"""A real `holdfast serve` in a process of its own, for people with browsers; and hands that set the scene."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from holdfast.runtime import Settings
from holdfast.runtime.wiring import open_journal
from holdfast.server.tokens import LINK_MS, Tokens

HERE = Path(__file__).parent
HOLDFAST = Path(sys.executable).with_name("holdfast")
PATIENCE = 30.0
"""Seconds that anything may take."""
SETTINGS = """
[shell.limits]
wall_ms = 60000
max_external_calls = 2000

[[policy.rules]]
id = "carrier"
tool = "ship"
then = "allow"

[[policy.rules]]
id = "larger-payments"
tool = "pay"
where = "args.cents > 100000"
then = "ask"
risk = "high"
reason = "More than 1 000.00 needs two eyes more."
timeout_ms = 3600000
"""
T = TypeVar("T")


@dataclass
class Stage:
    """What tests see of the server."""

    url: str
    folder: Path
    """Its working directory: `let_go` writes there."""
    link: str
    """The one-time link that it printed."""
    http: httpx.Client
    """A program with all rights."""
    tokens: Tokens
    portal: BlockingPortal
    """Where the tokens' journal lives: the loop of this thread is the browser's."""
    sessions: int = 0
    """How many were made up."""

    # -- who --------------------------------------------------------------------------------------

    def enter(self, scopes: Iterable[str] = ("admin",), prefix: str | None = None) -> str:
        """A new one-time link for a browser."""

        async def make() -> str:
            made = await self.tokens.create(
                scopes, prefix=prefix, kind="link", expires_in_ms=LINK_MS
            )
            return made.text

        return f"{self.url}/enter?code={self.portal.call(make)}"

    def program(self, scopes: Iterable[str], prefix: str | None = None) -> httpx.Client:
        """Another program, with a token of its own. Close it."""

        async def make() -> str:
            return (await self.tokens.create(scopes, prefix=prefix)).text

        headers = {"Authorization": f"Bearer {self.portal.call(make)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE)

    # -- what ---------------------------------------------------------------------------------------

    def run(self, session: str, code: str, **query: Any) -> dict[str, Any]:
        """Run code; what its caller gets."""
        answer = self.http.post(f"/v1/sessions/{session}/run", json={"code": code}, params=query)
        answer.raise_for_status()
        return answer.json()

    def start(self, session: str, code: str) -> str:
        """Start a run and go away, once it is on record; its id."""
        run_id = self.run(session, code, wait_ms=0)["run_id"]
        until(lambda: self.view(run_id), lambda found: found["started_at"] > 0)
        return run_id

    def fresh(self, name: str) -> str:
        """The name of a session that nobody has used: one that waits takes no other run."""
        self.sessions += 1
        return f"{name}-{self.sessions}"

    def asks(self, name: str, code: str) -> dict[str, Any]:
        """Run code in a fresh session that comes to a question; the approval."""
        done = self.run(self.fresh(name), code)
        assert done["status"] == "waiting_for_approval", done
        return self.get(f"/v1/approvals/{done['approval_id']}")

    def doubts(self, name: str, article: str) -> tuple[str, str]:
        """Leave a shipment in doubt: its run, and the effect."""
        done = self.run(self.fresh(name), f"await ship({article!r})")
        view = self.get(f"/v1/runs/{done['run_id']}")
        assert view["status"] == "needs_attention", view
        return view["id"], view["in_doubt"][0]

    def agent(self, name: str, prompt: str, session: str) -> dict[str, Any]:
        """Run an agent; what its caller gets."""
        asked = {"prompt": prompt, "session_id": session}
        answer = self.http.post(f"/v1/agents/{name}/runs", json=asked)
        answer.raise_for_status()
        return answer.json()

    def decide(self, approval: str, decision: str, **more: str) -> None:
        """Answer, as a program."""
        said = {"decision": decision, **more}
        answer = self.http.post(f"/v1/approvals/{approval}/decision", json=said)
        answer.raise_for_status()

    def cancel(self, run_id: str, reason: str = "no longer needed") -> None:
        """Stop a run."""
        asked = {"reason": reason}
        answer = self.http.post(f"/v1/runs/{run_id}/cancel", json=asked)
        answer.raise_for_status()
        self.stands(run_id, "cancelled")

    def let_go(self, name: str) -> None:
        """End what waits for this."""
        (self.folder / f"go-{name}").touch()

    # -- looking --------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Any:
        """What the server says."""
        answer = self.http.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    def view(self, run_id: str) -> dict[str, Any]:
        """A run as it stands."""
        return self.get(f"/v1/runs/{run_id}")

    def stands(self, run_id: str, status: str) -> dict[str, Any]:
        """A run, once it has this status."""
        return until(lambda: self.view(run_id), lambda found: found["status"] == status)

    def records(self, kind: str, **query: Any) -> list[dict[str, Any]]:
        """All records of a kind."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            part = self.get("/v1/journal", kind=kind, after=after, limit=1000, **query)
            found += part["items"]
            after = part["next"]
        return found


def until(look: Callable[[], T], good: Callable[[T], bool]) -> T:
    """What `look` sees once it is good."""
    deadline = time.monotonic() + PATIENCE
    while not good(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
    return seen


@contextmanager
def staged(
    folder: Path, *more: str, options: Sequence[str] = (), settings: str = SETTINGS
) -> Generator[Stage]:
    """The server, with the tools of `shop.py`; `more` are files beside it that it needs, too."""
    for name in ("shop.py", *more):
        shutil.copy(HERE / name, folder / name)
    (folder / "holdfast.toml").write_text(settings)
    home = str(folder / "home")
    ours = ["--port", "0", "--grace", "0.2", "--capabilities", "shop.py"]
    for name in ("helper", "scout"):
        ours += ["--agents", f"shop.py:{name}"]
    environment = {**os.environ, "HOLDFAST_HOME": home}
    with (
        (folder / "stderr").open("wb") as complaints,
        subprocess.Popen(
            [HOLDFAST, "serve", *ours, *options],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        ) as running,
        start_blocking_portal() as portal,
    ):
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line, (folder / "stderr").read_text()
            said = json.loads(line)
            journal = portal.call(_journal, home)
            tokens = Tokens(journal)
            try:
                with _client(said["listening"], tokens, portal) as http:
                    yield Stage(said["listening"], folder, said["link"], http, tokens, portal)
            finally:
                portal.call(journal.close)
            assert running.poll() is None, (folder / "stderr").read_text()
        finally:
            running.terminate()
            try:
                running.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                running.kill()
    told = (folder / "stderr").read_text()
    assert "Traceback" not in told, told


async def _journal(home: str) -> Any:
    return open_journal(Settings.load({"home": home}).model_copy(update={"home": Path(home)}))


def _client(url: str, tokens: Tokens, portal: BlockingPortal) -> httpx.Client:
    async def make() -> str:
        return (await tokens.create(["admin"])).text

    headers = {"Authorization": f"Bearer {portal.call(make)}"}
    return httpx.Client(base_url=url, headers=headers, timeout=PATIENCE)
