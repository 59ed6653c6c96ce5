"""Load the server for minutes and watch its memory: it has to stay flat.

    python scripts/serve_soak.py [--minutes 10] [--connections 16] [--watchers 4]

Every connection makes trivial runs, one after the other, in sessions that they share; every so often one makes a
session of its own, calls a capability there, and destroys it. Watchers follow the events meanwhile. What is looked at is
the memory of the server's process and of its workers, after a minute to warm up: the most of the second half against
the most of the first. Workers go up and down, since an engine keeps all code it ever got until its state is compacted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import linear_regression

import httpx
from serve_crash import SETTINGS, TOOLS, make_token, server

SESSIONS = 32
OWN_EVERY = 50
"""Of so many runs, one is in a session of its own."""
WARM, EVERY = 60.0, 5.0
"""Seconds: before the first look, and between two."""
KIB = 1024


def resident(pid: int) -> int:
    """Bytes that a process has made; 0 when it is gone.

    Not those it has of files: whether such a page is its own depends on who else runs the same program just now.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    made = ("Private_Dirty:", "Swap:")
    return sum(int(line.split()[1]) * KIB for line in lines if line.startswith(made))


def workers(pid: int) -> list[int]:
    """Every process below one."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *workers(child)]
    return found


class Load:
    """What the clients do until they are told to stop."""

    def __init__(self, base: str, token: str) -> None:
        self.done = 0
        self.events = 0
        self.failed: list[str] = []
        self.over = threading.Event()
        self._base = base
        self._headers = {"Authorization": f"Bearer {token}"}

    def run(self, number: int) -> None:
        """Make runs."""
        with httpx.Client(base_url=self._base, headers=self._headers, timeout=60) as client:
            made = 0
            while not self.over.is_set():
                made += 1
                own = made % OWN_EVERY == 0
                session = f"own-{number}-{made}" if own else f"s{(number + made) % SESSIONS}"
                code = "often('x')\n2" if own else "1 + 1"
                answer = client.post(f"/v1/sessions/{session}/run", json={"code": code})
                if answer.status_code == 429:
                    time.sleep(float(answer.headers.get("retry-after", "1")))
                    continue
                if answer.status_code != 200 or answer.json()["result"] != 2:
                    self.failed.append(answer.text[:300])
                if own:
                    client.delete(f"/v1/sessions/{session}")
                self.done += 1

    def watch(self, _: int) -> None:
        """Follow the events."""
        timeout = httpx.Timeout(60, read=5)
        with httpx.Client(base_url=self._base, headers=self._headers, timeout=timeout) as client:
            while not self.over.is_set():
                try:
                    with client.stream("GET", "/v1/events") as answer:
                        for line in answer.iter_lines():
                            self.events += line.startswith("id:")
                            if self.over.is_set():
                                return
                except httpx.ReadTimeout:
                    continue


def soak(folder: Path, minutes: float, connections: int, watchers: int) -> bool:
    """Load, look, tell; whether the memory stayed flat."""
    (folder / "tools.py").write_text(TOOLS)
    (folder / "holdfast.toml").write_text(SETTINGS)
    token = make_token(folder)
    with server(folder) as (running, said):
        load = Load(said["listening"], token)
        threads = [threading.Thread(target=load.run, args=(n,)) for n in range(connections)]
        threads += [threading.Thread(target=load.watch, args=(n,)) for n in range(watchers)]
        for thread in threads:
            thread.start()
        points = look(running.pid, load, minutes)
        load.over.set()
        for thread in threads:
            thread.join()
    return tell(points, load)


def look(pid: int, load: Load, minutes: float) -> list[tuple[float, int, int]]:
    """(minutes, bytes of the server, bytes of its workers), again and again."""
    began = time.monotonic()
    points: list[tuple[float, int, int]] = []
    while (at := time.monotonic() - began) < minutes * 60:
        time.sleep(EVERY)
        if at > min(WARM, minutes * 20):
            points.append((at / 60, resident(pid), sum(map(resident, workers(pid)))))
            own, theirs = (f"{size / KIB / KIB:.1f} MiB" for size in points[-1][1:])
            print(f"{at / 60:5.1f} min  {load.done} runs  server {own}  workers {theirs}")
            sys.stdout.flush()
    return points


def tell(points: list[tuple[float, int, int]], load: Load) -> bool:
    """Sum up."""
    times = [at for at, _, _ in points]
    flat = not load.failed
    print(f"{load.done} runs, {load.events} events, {len(load.failed)} failed")
    for failure in load.failed[:3]:
        print(f"  {failure}")
    for name, sizes in (("server", [p[1] for p in points]), ("workers", [p[2] for p in points])):
        half = max(1, len(sizes) // 2)
        first, last = max(sizes[:half]), max(sizes[half:] or sizes)
        slope = linear_regression(times[half:], sizes[half:]).slope if len(sizes) > 3 else 0
        print(
            f"{name}: at most {first / KIB / KIB:.1f} MiB in the first half, {last / KIB / KIB:.1f} MiB in the"
            f" second, there {slope / KIB:+.0f} KiB a minute"
        )
        flat = flat and last < first * 1.1
    return flat


def main() -> None:
    """Read what is wanted, and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--watchers", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flat = soak(Path(folder), args.minutes, args.connections, args.watchers)
    print("flat" if flat else "NOT flat")
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
