"""Attacks on `query_db` and `execute_db`: out of the database, past read-only, or on the host's time and memory."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import anyio
import apsw
import pytest
from tests.capabilities import support
from tests.capabilities.support import Box, Postgres

from holdfast.capabilities.builtin import sql
from holdfast.contracts.policy import Database
from holdfast.errors import HoldfastError, ModelError, OperatorError

postgres = support.postgres

ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    db = apsw.Connection(str(path))
    db.execute(
        "create table people(id integer primary key, name); create index i on people(name); insert into people values (1, 'Ann')"
    )
    db.close()
    return path


def opened(path: Path, *, writable: bool = True, timeout_ms: int = 10_000) -> Box:
    url = f"sqlite:///{path}"
    return Box(sql([Database(name="main", url=url, writable=writable)], timeout_ms=timeout_ms))


def content(path: Path) -> bytes | None:
    """What is in a file; None when there is none."""
    return path.read_bytes() if path.exists() else None


def running(module: str) -> bool:
    """Whether a thread is in that module now."""
    for frame in sys._current_frames().values():
        here: FrameType | None = frame
        while here is not None:
            if here.f_code.co_filename.endswith(module):
                return True
            here = here.f_back
    return False


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await anyio.sleep(0.02)
    pytest.fail("it goes on and on")


async def refused(box: Box, tool: str, text: str) -> str:
    with pytest.raises((HoldfastError, ValueError)) as caught:
        await box(tool, text)
    return getattr(caught.value, "code", "ValueError")


WRITES = [
    "insert into people values (2, 'x')",
    "update people set name = 'x'",
    "delete from people",
    "drop table people",
    "create table t(a)",
    "create index j on people(id)",
    "alter table people rename to p",
    "with x as (select 1) delete from people",
    "replace into people values (1, 'x')",
    "insert into people values (2, 'x') returning id",
    "explain delete from people",
    "reindex",
    "analyze",
]
OUT = [
    "attach '{out}' as o",
    "attach database 'file:{out}?mode=rwc' as o",
    "vacuum into '{out}'",
    "vacuum",
    "detach main",
    "select load_extension('{out}')",
    "select writefile('{out}', 'x')",
    "select readfile('/etc/passwd')",
    "select * from fsdir('/')",
    "select fts3_tokenizer('x', x'00')",
    "create virtual table v using fts5(a)",
    "create virtual table v using csv(filename='/etc/passwd')",
    "create temp table t(a)",
    "create temp view t as select 1",
    "pragma writable_schema = on",
    "pragma journal_mode = off",
    "pragma temp_store_directory = '/'",
    "pragma data_store_directory = '/'",
    "pragma query_only = off",
    "pragma trusted_schema = on",
    "pragma hard_heap_limit = 1",
    "pragma mmap_size = 1000000000",
    "select * from pragma_journal_mode('off')",
    "select * from pragma_query_only(0)",
    "delete from sqlite_schema",
    "update sqlite_schema set sql = 'x'",
    "begin",
    "commit",
    "rollback",
    "savepoint s",
]


@pytest.mark.parametrize("text", WRITES)
async def test_reading_never_writes(file: Path, text: str):
    before = content(file)
    for box in (opened(file), opened(file, writable=False)):
        assert await refused(box, "query_db", text) == "PERMISSION_DENIED"
    assert content(file) == before


@pytest.mark.parametrize("tool", ["query_db", "execute_db"])
@pytest.mark.parametrize("text", OUT)
async def test_no_way_out_of_the_file(file: Path, tmp_path: Path, tool: str, text: str):
    before = content(file)
    out = tmp_path / "out.db"
    await refused(opened(file), tool, text.format(out=out))
    assert content(out) is None
    assert content(file) == before


@pytest.mark.parametrize("tool", ["query_db", "execute_db"])
@pytest.mark.parametrize(
    "text",
    [
        "select 1; delete from people",
        "select 1;;delete from people",
        "select 1; -- x\n delete from people",
        "/* x */; select 1; delete from people; select 2",
        "insert into people values (5, 'x'); commit",
        "select 1; attach 'x' as y",
        "select 1; nonsense",
        "select 1\x00; delete from people",
    ],
)
async def test_one_statement_at_a_time(file: Path, tool: str, text: str):
    box = opened(file)
    await refused(box, tool, text)
    assert (await box("query_db", "select count(*) from people"))["rows"] == [[1]]


async def test_a_trap_in_the_schema_does_not_spring(file: Path, tmp_path: Path):
    db = apsw.Connection(str(file))
    db.execute(
        "create view trap as select load_extension('x') as a;"
        "create trigger t after insert on people begin select load_extension('x'); end"
    )
    db.close()
    box = opened(file)
    assert await refused(box, "query_db", "select * from trap") == "ValueError"
    assert await refused(box, "execute_db", "insert into people values (2, 'x')") == (
        "PERMISSION_DENIED"
    )
    assert (await box("query_db", "select count(*) from people"))["rows"] == [[1]]


@pytest.mark.parametrize("tool", ["query_db", "execute_db"])
async def test_a_query_without_end_is_stopped(file: Path, tool: str):
    assert await refused(opened(file, timeout_ms=200), tool, ENDLESS) == "TIMEOUT_TOOL"


async def test_cancelling_stops_the_query(file: Path):
    """The thread has to end by itself: it would hold its place for the whole minute otherwise."""
    box = opened(file, timeout_ms=60_000)
    with anyio.move_on_after(0.2) as scope:
        await box("query_db", ENDLESS)
    assert scope.cancelled_caught
    await until(lambda: not running("_sqlite_query.py"))


@pytest.mark.parametrize(
    "text",
    [
        "select hex(zeroblob(1000000000))",
        "select printf('%.*c', 500000000, 'x')",
        "select replace(hex(zeroblob(400000)), '0', '0123456789')",
        "select " + ", ".join(["1"] * 300),
        "select 1" + " + 1" * 1000,
        "select 1" + " union all select 1" * 200,
        "select '" + "x" * 70_000 + "'",
        "select 'a' like '" + "%a" * 2000 + "'",
    ],
)
async def test_giants_are_refused(file: Path, text: str):
    assert await refused(opened(file), "query_db", text) in ("TOOL_ERROR", "ValueError")


async def test_sorting_does_not_fill_the_disk(file: Path):
    text = (
        "with recursive c(x) as (select 1 union all select x + 1 from c)"
        " select x, hex(zeroblob(400000)) y from c order by y desc"
    )
    assert await refused(opened(file, timeout_ms=60_000), "query_db", text) == "TOOL_ERROR"


async def test_the_answer_is_bounded(file: Path):
    text = (
        "with recursive c(x) as (select 1 union all select x + 1 from c limit 1000)"
        " select hex(zeroblob(50000)) from c"
    )
    found = await opened(file)("query_db", text)
    assert found["truncated"]
    assert sum(len(row[0]) for row in found["rows"]) <= 512 * 1024


ATTACKER = """
drop table if exists public.people;
drop role if exists mallory;
create role mallory login password 'mallory-secret';
create table public.people (id int primary key, name text);
insert into public.people values (1, 'Ann');
grant select, insert, update, delete on public.people to mallory;
"""


@pytest.fixture
def server(postgres: Postgres) -> Box:
    postgres.sql(ATTACKER)
    return remote(postgres)


def remote(postgres: Postgres, timeout_ms: int = 10_000) -> Box:
    url = postgres.url("mallory", "mallory-secret")
    return Box(sql([Database(name="main", url=url, writable=True)], timeout_ms=timeout_ms))


@pytest.mark.parametrize(
    "text",
    [
        "insert into people values (2, 'x')",
        "delete from people",
        "with x as (delete from people returning id) select * from x",
        "select * into people2 from people",
        "select nextval('s')",
        "select * from people for update",
        "select 1; delete from people",
        "commit; delete from people",
        "set transaction read write",
        "set default_transaction_read_only = off",
        "select set_config('transaction_read_only', 'off', false)",
        "select set_config('default_transaction_read_only', 'off', false) from pg_read_file('/etc/passwd')",
        "select query_to_xml('delete from people', true, true, '')",
        "copy people to program 'touch /tmp/holdfast-was-here'",
        "copy people to '/tmp/holdfast-was-here'",
        "copy people to stdout",
        "copy people from program 'cat /etc/passwd'",
        "select pg_read_file('/etc/passwd')",
        "select pg_read_binary_file('/etc/passwd')",
        "select pg_ls_dir('/')",
        "select lo_import('/etc/passwd')",
        "do $$ begin delete from people; end $$",
        "call x()",
        "create table t(a int)",
        "create temp table t(a int)",
        "create extension dblink",
        "load 'x'",
        "lock table people in exclusive mode",
        "listen x",
        "notify x",
        "prepare p as delete from people",
        "explain analyze delete from people",
        "set role admin",
        "reset role",
        "1 cursor for select 1; delete from people",
        "",
    ],
)
async def test_postgres_reading_never_writes_or_leaves(server: Box, text: str):
    await refused(server, "query_db", text)
    assert (await server("query_db", "select * from people"))["rows"] == [[1, "Ann"]]
    assert content(Path("/tmp/holdfast-was-here")) is None


@pytest.mark.parametrize(
    "text",
    [
        "insert into people values (2, 'x'); commit",
        "select 1; delete from people",
        "copy people to program 'touch /tmp/holdfast-was-here'",
        "copy people from program 'cat /etc/passwd'",
        "copy people to stdout",
        "copy people from stdin",
        "select pg_read_file('/etc/passwd')",
        "set role admin",
        "set session authorization admin",
        "alter role mallory superuser",
        "grant pg_execute_server_program to mallory",
    ],
)
async def test_postgres_writing_never_leaves(server: Box, text: str):
    await refused(server, "execute_db", text)
    assert (await server("query_db", "select * from people"))["rows"] == [[1, "Ann"]]
    assert content(Path("/tmp/holdfast-was-here")) is None


@pytest.mark.parametrize(
    "power",
    ["superuser", "pg_execute_server_program", "pg_read_server_files", "pg_write_server_files"],
)
async def test_postgres_roles_that_reach_the_server_are_refused(
    postgres: Postgres, server: Box, power: str
):
    if power == "superuser":
        postgres.sql("alter role mallory superuser")
    else:
        # Also by way of another role, and when it has to be taken on first.
        postgres.sql(
            f"drop role if exists helper; create role helper; grant {power} to helper;"
            "grant helper to mallory; alter role mallory noinherit"
        )
    try:
        for tool in ("query_db", "execute_db"):
            assert await refused(server, tool, "select 1") == "PERMISSION_DENIED"
    finally:
        postgres.sql("alter role mallory nosuperuser; drop role if exists helper")


@pytest.mark.parametrize(
    "text",
    [
        "select pg_sleep(60)",
        "select count(*) from generate_series(1, 100000000000)",
        ENDLESS,
        "select set_config('statement_timeout', '0', false), pg_sleep(60)",
    ],
)
@pytest.mark.parametrize("tool", ["query_db", "execute_db"])
async def test_postgres_query_without_end_is_stopped(
    postgres: Postgres, server: Box, tool: str, text: str
):
    assert await refused(remote(postgres, timeout_ms=500), tool, text) == "TIMEOUT_TOOL"


async def test_postgres_statement_timeout_cannot_be_switched_off(postgres: Postgres, server: Box):
    """Rows come in batches, each a statement of its own; the first could lift the limit for the rest."""
    text = (
        "select case when n = 1 then set_config('statement_timeout', '0', false)"
        " when n = 150 then pg_sleep(60)::text end from generate_series(1, 300) n"
    )
    assert await refused(remote(postgres, timeout_ms=500), "query_db", text) == "TIMEOUT_TOOL"


async def test_postgres_cancelling_stops_the_server(postgres: Postgres, server: Box):
    box = remote(postgres, timeout_ms=60_000)
    with anyio.move_on_after(0.3):
        await box("query_db", "select pg_sleep(59)")
    await until(lambda: not running("_postgres_query.py"))
    active = (
        "select count(*) from pg_stat_activity"
        " where query like '%pg_sleep(59)%' and state = 'active' and pid <> pg_backend_pid()"
    )
    assert (await box("query_db", active))["rows"] == [[0]]


@pytest.mark.parametrize("tool", ["query_db", "execute_db"])
async def test_postgres_huge_rows_do_not_fill_memory(postgres: Postgres, server: Box, tool: str):
    server = remote(postgres, timeout_ms=60_000)
    text = "select repeat('x', 300000000)"
    before = peak_kb()
    assert await refused(server, tool, text) == "RESPONSE_TOO_LARGE"
    assert peak_kb() - before < 290_000
    text = "select repeat('x', 100000) from generate_series(1, 100000)"
    if tool == "query_db":
        assert (await server(tool, text))["truncated"]
    else:
        assert await refused(server, tool, text) == "RESPONSE_TOO_LARGE"


def peak_kb() -> int:
    """The most memory this process has had so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("no VmHWM")


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace("mallory-secret", "hunter2-wrong"),
        lambda url: url.replace("mallory-secret", "hunter2").replace("port=5432", "port=1"),
        lambda url: url.replace("mallory-secret", "hunter2") + "&hunter2=1",
        lambda url: url.replace("mallory-secret@", "hunter2@[bad"),
        lambda url: url.replace("mallory-secret", "hunter2%zz"),
    ],
)
async def test_a_password_is_never_told(postgres: Postgres, server: Box, change):
    url = change(postgres.url("mallory", "mallory-secret"))
    box = Box(sql([Database(name="main", url=url)]))
    with pytest.raises(OperatorError) as caught:
        await box("query_db", "select 1")
    why: BaseException | None = caught.value
    assert why.__suppress_context__
    assert "hunter2" not in f"{why} {why!r} {why.__cause__}"


async def test_nothing_of_a_url_is_in_the_capability(postgres: Postgres):
    url = postgres.url("mallory", "hunter2")
    for one in sql([Database(name="main", url=url, writable=True)]):
        assert "hunter2" not in one.capability.model_dump_json() + repr(one)


async def test_a_locked_file_does_not_hold_forever(file: Path):
    other = apsw.Connection(str(file))
    with contextlib.closing(other):
        other.execute("begin exclusive")
        for tool in ("query_db", "execute_db"):
            with pytest.raises(ModelError) as caught:
                await opened(file, timeout_ms=200)(tool, "select * from people")
            assert caught.value.code == "TIMEOUT_TOOL"
