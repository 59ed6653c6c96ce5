"""Kill the server with many runs in flight, start it again: every run ends or is parked as in doubt, and nothing happens twice.

    python scripts/serve_crash.py [--runs 50] [--rounds 3]

Each run makes two effects, with a file as the outside world: a line for each time one really happened. Half of the
runs call what may be repeated (its line carries the effect's name, so that a repetition is seen and forgiven), half
what may not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.server import program

TOOLS = """
import os, time
from holdfast import capability

def _happened(line):
    handle = os.open(os.environ["WORLD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (line + "\\n").encode())
    os.close(handle)

@capability(side_effect="write")
def once(name: str) -> str:
    "Must not happen twice."
    _happened(f"once {name}")
    time.sleep(float(os.environ.get("SLOW", "0.05")))
    return name

@capability(side_effect="write", idempotent=True)
def often(name: str) -> str:
    "May be repeated."
    _happened(f"often {name}")
    time.sleep(float(os.environ.get("SLOW", "0.05")))
    return name
"""
SETTINGS = '[policy]\ndefault = "allow"\n[shell.limits]\nwall_ms = 60000\n'


def surroundings(folder: Path) -> dict[str, str]:
    """A home, and a world, of its own."""
    return {"HOLDFAST_HOME": str(folder / "home"), "WORLD": str(folder / "world")}


def server(
    folder: Path,
) -> AbstractContextManager[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`holdfast serve` in a process of its own, and what it said when it was there."""
    options = ("--capabilities", "tools.py", "--no-console")
    return program.server(folder, *options, env=surroundings(folder))


def make_token(folder: Path) -> str:
    """A token for everything."""
    told = subprocess.run(
        [program.HOLDFAST, "token", "create", "--scope", "admin", "--json"],
        cwd=folder,
        env={**os.environ, **surroundings(folder)},
        check=True,
        capture_output=True,
    )
    return json.loads(told.stdout)["token"]


def ask(client: httpx.Client, number: int) -> str:
    """Start a run, or meet it again: the key is the same."""
    kind = "once" if number % 2 else "often"
    code = f"a = {kind}('{number}-a')\nb = {kind}('{number}-b')\n[a, b]"
    answer = client.post(
        f"/v1/sessions/s{number}/run",
        json={"code": code},
        headers={"Idempotency-Key": f"run-{number}"},
        params={"wait_ms": 0},
    )
    answer.raise_for_status()
    return answer.json()["run_id"]


def crash(folder: Path, runs: int) -> dict[str, Any]:
    """Start `runs` runs, kill the server in the middle, start it again, and see what became of them."""
    (folder / "tools.py").write_text(TOOLS)
    (folder / "holdfast.toml").write_text(SETTINGS)
    token = make_token(folder)
    headers = {"Authorization": f"Bearer {token}"}
    world = folder / "world"
    with server(folder) as (running, said):
        with (
            httpx.Client(base_url=said["listening"], headers=headers, timeout=60) as client,
            ThreadPoolExecutor(16) as pool,
        ):
            first = list(pool.map(lambda number: ask(client, number), range(runs)))
            while not world.exists() or len(world.read_text().splitlines()) < runs // 2:
                time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
        running.wait(60)
    at_death = len(world.read_text().splitlines())
    with (
        server(folder) as (_, said),
        httpx.Client(base_url=said["listening"], headers=headers, timeout=60) as client,
    ):
        resumed = len(said["resumed"])
        again = [ask(client, number) for number in range(runs)]
        assert again == first, "the same key is the same run"
        status = until_at_rest(client, first)
        report = client.get("/v1/journal", params={"limit": 1}).status_code
    assert report == 200
    lines = Counter(world.read_text().split("\n")[:-1])
    twice = [line for line, count in lines.items() if count > 1 and line.startswith("once")]
    assert not twice, f"happened twice: {twice}"
    missing = [
        number
        for number, run_id in enumerate(first)
        if status[run_id] == "completed"
        for letter in "ab"
        if not lines[f"{'once' if number % 2 else 'often'} {number}-{letter}"]
    ]
    assert not missing, f"completed without it: {missing}"
    return {
        "runs": runs,
        "effects_at_death": at_death,
        "resumed_at_start": resumed,
        "status": dict(Counter(status.values())),
        "repeated_harmlessly": sum(count - 1 for count in lines.values()),
        "happened_twice": len(twice),
    }


def until_at_rest(client: httpx.Client, runs: list[str]) -> dict[str, str]:
    """Where each run stands once none is under way."""
    status: dict[str, str] = {}
    for run_id in runs:
        while True:
            view = client.get(f"/v1/runs/{run_id}", params={"wait_ms": 1000}).json()
            status[run_id] = view["status"]
            if view["status"] == "needs_attention":
                assert view["in_doubt"], "in doubt, and it says about what"
            if view["status"] != "running":
                break
            time.sleep(0.05)
    assert set(status.values()) <= {"completed", "needs_attention"}, status
    return status


def main() -> None:
    """Several rounds; a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(crash(Path(folder), given.runs)))


if __name__ == "__main__":
    main()
