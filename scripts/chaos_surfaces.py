"""Agents make many calls over real MCP servers, while those are killed, hung, changed, added, removed and reloaded.

    python scripts/chaos_surfaces.py --calls 500 --seed 1 --lives 5

A life (`tests/surfaces/_chaos_life.py`) has two agents, one that writes code and one that calls tools itself, and four
servers: two over stdio, one at an address, one that comes and goes with `holdfast.toml`. At the end of each:

* no call took longer than its deadline and two seconds, and each has an end on record;
* whatever arrived at a server is an effect on record, with these arguments, meant for the tool as that server then had
  it; what must not be done twice was done once at most;
* the surface machine's invariants held after each of its steps;
* every run ended once, every conversation is one that a provider takes, the journal verifies;
* no process and no task is left.
"""

import argparse
import json
import sys
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.surfaces._chaos_life import live


def main() -> None:
    """Live as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=500, help="calls of a life")
    parser.add_argument("--seed", type=int, default=1, help="of the first life")
    parser.add_argument("--lives", type=int, default=1)
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.lives):
        print(json.dumps(anyio.run(live, options.calls, seed)), flush=True)
    print(f"{options.lives} lives of {options.calls} calls: nothing hung, went astray or was left")


if __name__ == "__main__":
    main()
