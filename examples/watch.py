"""Watch a journal live while code runs, and prove afterwards that nothing was changed."""

import anyio

import holdfast


async def watch(hf: holdfast.Runtime, until: str) -> None:
    """Print every record until the first of kind `until`."""
    async for record in hf.journal.subscribe(after=0):
        if isinstance(record, holdfast.Record):
            print(f"{record.seq:>3}  {record.stream:<8} {record.kind}")
            if record.kind == until:
                return


async def main() -> None:
    """Two runs, one of which fails, and the end of their session."""
    async with holdfast.open("memory:") as hf:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, hf, "session_destroyed")
            await hf.shell.run("x = 6 * 7", session="demo")
            await hf.shell.run("x / 0", session="demo")
            await hf.shell.destroy("demo")
        report = await hf.journal.verify()
        print(f"{report.records} records hold: {report.ok}")


anyio.run(main)
