"""A session that outlives its process: run this twice."""

import anyio

import holdfast


async def main() -> None:
    """Add one sale to what earlier runs of this program have left."""
    async with holdfast.open("sqlite:///till.db") as hf:
        first = await hf.shell.run("sales", session="till")
        if first.error is not None:
            await hf.shell.run("sales = []", session="till")
        done = await hf.shell.run(
            "sales = sales + [item]\nresult = {'sold': len(sales), 'last': sales[-1]}",
            session="till",
            inputs={"item": "tea"},
            durable=True,
        )
        print(done.result)


anyio.run(main)
