"""A gigabyte is read, searched and counted without ever being in memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

GIGABYTE = 1 << 30
MOST_GROWTH = 50 << 20

# In a process of its own: the high-water mark of memory only ever rises.
PROGRAM = """
import json, resource, sys
import anyio
from pathlib import Path
from tests.resources.support import box_of, mounted

def high_water():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

async def main():
    box = box_of(mounted(Path(sys.argv[1])))
    uri = "file:///workspace/big.log"
    await box("read_resource", uri)  # what has to be imported is
    await box("grep_resource", uri, "first", max_matches=1)
    before = high_water()
    found = {"parts": []}
    for start in (0, 1 << 29, (1 << 30) - 12):
        part = await box("read_resource", uri, start=start, length=262144)
        found["parts"].append([part["text"].strip("\\0")[:12], part["byte_len"], part["next"]])
    matches, start = [], 0
    while start is not None:
        page = await box("grep_resource", uri, "^(first|middle|last) line$", start=start, max_matches=1000)
        matches += [[one["line"], one["at"], one["text"]] for one in page["matches"]]
        start = page["next"]
    found["matches"] = matches
    line = await box("read_resource", uri, start=1, length=1, unit="lines")
    found["line"] = [len(line["text"]), line["next"]]
    line = await box("read_resource", uri, start=2, length=5, unit="lines")
    found["second"] = [line["text"][:11], line["next"], line["truncated"]]
    found["growth"] = high_water() - before
    print(json.dumps(found))

anyio.run(main)
"""


def test_a_gigabyte_is_read_by_ranges_and_searched_with_little_memory(tmp_path: Path):
    big = tmp_path / "big.log"
    with big.open("wb") as out:
        # Text at the beginning, in the middle and at the end; holes, which read as NULs, in between.
        out.write(b"first line\n" * 2000)
        out.seek(GIGABYTE // 2)
        out.write(b"\nmiddle line\n")
        out.seek(GIGABYTE - 11)
        out.write(b"\nlast line\n")
    assert big.stat().st_size == GIGABYTE
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["growth"] < MOST_GROWTH
    assert found["parts"] == [
        ["first line\nf", GIGABYTE, 262144],
        ["\nmiddle line", GIGABYTE, GIGABYTE // 2 + 262144],
        ["\nlast line\n", GIGABYTE, None],
    ]
    first, tail = found["matches"][:2000], found["matches"][2000:]
    assert [one[0] for one in first] == list(range(2000))
    assert tail == [
        [2001, GIGABYTE // 2 + 1, "middle line"],
        [2003, GIGABYTE - 10, "last line"],
    ]
    assert found["line"] == [11, 2]
    assert found["second"] == ["first line\n", 7, False]
    print(f"peak memory growth: {found['growth'] / (1 << 20):.1f} MB")
