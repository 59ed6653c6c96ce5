"""A worker does not outlive the process it works for, jailed or not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import anyio, holdfast, sys

async def main():
    async with holdfast.open("memory:", {"shell": {"jail": sys.argv[1]}}) as hf:
        print("ready", flush=True)
        limits = {"cpu_ms": 600_000, "wall_ms": 600_000}
        await hf.shell.run("n = 0\\nwhile True:\\n    n += 1", limits=limits)

anyio.run(main)
"""


def _children(pid: int) -> set[int]:
    """Every process below one."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            child = int(stat.parent.name)
            found |= {child} | _children(child)
    return found


def _gone(pids: set[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("jail", ["auto", "off"])
def test_a_busy_worker_dies_with_its_host(jail: str) -> None:
    host = subprocess.Popen([sys.executable, "-c", PROGRAM, jail], stdout=subprocess.PIPE)
    try:
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
        workers: set[int] = set()
        patience = time.monotonic() + 60
        while not workers and time.monotonic() < patience:
            time.sleep(0.2)
            workers = _children(host.pid)
        assert workers
        time.sleep(0.5)  # it computes by now
        workers = _children(host.pid)
    finally:
        os.kill(host.pid, signal.SIGKILL)
        host.communicate()
    while not _gone(workers) and time.monotonic() < patience:
        time.sleep(0.1)
    assert _gone(workers)
