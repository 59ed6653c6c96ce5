"""The memory of a process that serves: one heap for all threads, unless the operator has chosen; few looks for cycles."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

# All threads hold memory at once: none can take over the heap of one that is over. A heap beside the first begins at a
# multiple of 64 MiB.
THREADS = """
import sys, threading
from holdfast.server.heap import share_one_heap

shares = "share" in sys.argv and share_one_heap()
everybody = threading.Barrier(9)

def hold():
    kept = [bytearray(2000) for _ in range(2000)]
    everybody.wait()
    everybody.wait()

threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads:
    thread.start()
everybody.wait()
with open("/proc/self/maps") as maps:
    print(shares, sum(int(line.split("-")[0], 16) % (64 << 20) == 0 for line in maps))
everybody.wait()
for thread in threads:
    thread.join()
"""

# What the collector is told to do, once the program is over.
COLLECTOR = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count(), file=sys.stderr))
from holdfast.cli.main import main
main()
"""

glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc has a heap for each thread"
)


def heaps(*arguments: str, **environment: str) -> tuple[bool, int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *arguments],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    shares, count = done.stdout.split()
    return shares == "True", int(count)


@glibc
def test_threads_share_one_heap():
    assert heaps()[1] > 1
    assert heaps("share") == (True, 0)


@glibc
def test_what_the_operator_has_chosen_stands():
    shares, count = heaps("share", MALLOC_ARENA_MAX="4")
    assert not shares
    assert 1 <= count <= 4


def collector(home: Path, *arguments: str) -> tuple[int, int]:
    """The first threshold of a command's collector, and the objects it does not look at, when it has ended."""
    command = [sys.executable, "-c", COLLECTOR, *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "HOLDFAST_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    threshold, frozen = done.stderr.split()[-2:]
    return int(threshold), int(frozen)


def test_a_process_that_serves_looks_for_cycles_less_often(tmp_path: Path):
    usual, frozen = collector(tmp_path, "session", "list")
    assert frozen == 0
    seldom, frozen = collector(tmp_path, "daemon", "--listen", "stdio")
    assert seldom > usual
    assert frozen > 10_000
