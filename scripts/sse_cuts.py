"""A client of `/v1/events` that is cut again and again while events come: it must end with exactly those, in order.

    python scripts/sse_cuts.py [--events 10000] [--cuts 100] [--seed 1]

The server is the real one, on loopback, with a token. Every cut is at a random byte, mostly within a block; the client
forgets what is not whole, and comes back with the last id it had.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from time import perf_counter

import anyio
import anyio.lowlevel
import httpx

import holdfast
from holdfast.contracts import Draft
from holdfast.runtime import Runtime
from holdfast.server.limits import UNLIMITED
from holdfast.server.serving import Listen, Started, serve

BATCH = 10
KIND = "cuts.tick"


class Client:
    """What a client has, whatever became of its connections."""

    def __init__(self, url: str, token: str) -> None:
        self.found: list[int] = []
        self.last_id = "0"
        self.cuts = 0
        self._url = f"{url}/v1/events?kind={KIND}&payload=1"
        self._headers = {"Authorization": f"Bearer {token}"}

    async def stay(self, http: httpx.AsyncClient, most: int, total: int) -> None:
        """One connection, cut after so many bytes."""
        headers = {**self._headers, "Last-Event-ID": self.last_id}
        rest = b""
        async with http.stream("GET", self._url, headers=headers) as answer:
            answer.raise_for_status()
            async for chunk in answer.aiter_bytes():
                rest += chunk[:most]
                most -= len(chunk)
                *blocks, rest = rest.split(b"\n\n")
                for block in blocks:
                    self._block(block.decode())
                if most <= 0 or len(self.found) >= total:
                    break
        self.cuts += most <= 0

    def _block(self, block: str) -> None:
        for line in block.split("\n"):
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("data: "):
                number = line.partition('"n":')[2].partition("}")[0]
                self.found.append(int(number))


async def write(hf: Runtime, total: int, client: Client, cuts: int) -> None:
    """Write events, never much faster than the client is cut, so that cuts fall all over them."""
    for first in range(0, total, BATCH):
        drafts = [Draft(kind=KIND, payload={"n": first + n}) for n in range(BATCH)]
        await hf.journal.append("s", drafts, durable=False)
        while client.cuts < cuts and first - len(client.found) > total // 4:  # noqa: ASYNC110 - nobody sets an event
            await anyio.sleep(0.001)
        await anyio.lowlevel.checkpoint()


async def main(total: int, cuts: int, seed: int) -> int:
    """0 when the client has all of them, once, in order."""
    chance, began = random.Random(seed), perf_counter()
    outcome: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        async with (
            holdfast.open(f"sqlite:///{folder}/journal.db", {}) as hf,
            anyio.create_task_group() as tasks,
        ):

            async def ready(started: Started) -> None:
                token = (await started.tokens.create(["read"])).text
                client = Client(started.url, token)
                tasks.start_soon(write, hf, total, client, cuts)
                # So many bytes that all cuts fall before the end; an event has about 250.
                most = total * 250 // cuts
                async with httpx.AsyncClient(timeout=30) as http:
                    while len(client.found) < total:
                        cut = client.cuts < cuts
                        await client.stay(http, chance.randint(1, most) if cut else 1 << 60, total)
                exact = client.found == list(range(total))
                took = perf_counter() - began
                print(
                    f"{total} events, {client.cuts} cuts, {took:.1f} s: {'exact' if exact else 'WRONG'}"
                )
                outcome.append(0 if exact and client.cuts >= cuts else 1)
                started.stop()

            await serve(hf, Listen(port=0), ready=ready, limits=UNLIMITED, signals=False)
    return outcome[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    sys.exit(anyio.run(main, asked.events, asked.cuts, asked.seed))
