"""`query_db` and `execute_db`: what they give, on real files and a real server."""

from pathlib import Path

import apsw
import pytest
from tests.capabilities.support import Box, Postgres

from holdfast.capabilities.builtin import sql
from holdfast.contracts import SideEffect
from holdfast.contracts.policy import Database
from holdfast.errors import CallerError, ModelError, OperatorError

ROLE = """
drop table if exists public.people;
drop role if exists clerk;
create role clerk login password 'clerk-secret';
create table public.people (id int primary key, name text, paid numeric(10, 2), born date, photo bytea, more jsonb);
insert into public.people values (1, 'Ann', 10.50, '1990-01-31', '\\x00ff', '{"a": [1, null]}'), (2, 'Bob', null, null, null, null);
grant select, insert, update, delete on public.people to clerk;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    db = apsw.Connection(str(path))
    db.execute(
        "create table people(id integer primary key, name text, photo blob);"
        "insert into people values (1, 'Ann', x'00ff'), (2, 'Bob', null)"
    )
    db.close()
    return path


@pytest.fixture
def shop(file: Path) -> Box:
    return Box(sql([Database(name="main", url=f"sqlite:///{file}", writable=True)]))


@pytest.fixture
def server(postgres: Postgres) -> Box:
    postgres.sql(ROLE)
    url = postgres.url("clerk", "clerk-secret")
    return Box(sql([Database(name="main", url=url, writable=True)]))


async def test_a_query_gives_columns_and_rows(shop: Box):
    assert await shop("query_db", "select id, name, photo from people order by id") == {
        "columns": ["id", "name", "photo"],
        "rows": [[1, "Ann", "AP8="], [2, "Bob", None]],
        "truncated": False,
        "changed": 0,
    }


@pytest.mark.parametrize(
    ("where", "params"), [("id = ?", [2]), ("id = :who", {"who": 2}), ("name = ?", ["Bob"])]
)
async def test_parameters_are_bound(
    shop: Box, where: str, params: list[object] | dict[str, object]
):
    found = await shop("query_db", f"select name from people where {where}", params)
    assert found["rows"] == [["Bob"]]


async def test_a_parameter_is_never_sql(shop: Box):
    evil = "x' or 1=1; drop table people; --"
    assert (await shop("query_db", "select * from people where name = ?", [evil]))["rows"] == []


@pytest.mark.parametrize(
    ("text", "params"),
    [("select ?", []), ("select ?", [1, 2]), ("select :a", {"b": 1}), ("select ?", [[1]])],
)
async def test_parameters_that_do_not_fit_are_told(shop: Box, text: str, params: object):
    with pytest.raises(ValueError, match=r"parameters|lists"):
        await shop("query_db", text, params)


async def test_max_rows_is_enforced(shop: Box):
    found = await shop("query_db", "select * from people", max_rows=1)
    assert (len(found["rows"]), found["truncated"]) == (1, True)


async def test_a_change_is_kept_and_counted(shop: Box):
    done = await shop("execute_db", "update people set name = name || '!'")
    assert (done["columns"], done["rows"], done["changed"]) == ([], [], 2)
    assert (await shop("query_db", "select name from people"))["rows"] == [["Ann!"], ["Bob!"]]


async def test_returning_gives_rows_and_does_all_of_it(shop: Box):
    text = "insert into people(name) values ('C'), ('D'), ('E') returning name"
    done = await shop("execute_db", text, max_rows=1)
    assert (done["rows"], done["truncated"], done["changed"]) == ([["C"]], True, 3)
    assert (await shop("query_db", "select count(*) from people"))["rows"] == [[5]]


async def test_a_failed_change_changes_nothing(shop: Box):
    with pytest.raises(ValueError, match="UNIQUE"):
        await shop("execute_db", "insert into people(id, name) values (9, 'x'), (1, 'y')")
    assert (await shop("query_db", "select count(*) from people"))["rows"] == [[2]]


@pytest.mark.parametrize("text", ["", "  ", "-- only a comment", "/* */ ;"])
async def test_no_statement_is_told(shop: Box, text: str):
    with pytest.raises(ValueError, match="no SQL statement"):
        await shop("query_db", text)


async def test_comments_around_a_statement_do_no_harm(shop: Box):
    assert (await shop("query_db", "/* a */ select 1 ; -- b\n"))["rows"] == [[1]]


async def test_an_error_says_what_sqlite_says(shop: Box):
    with pytest.raises(ValueError, match="no such column: nope"):
        await shop("query_db", "select nope from people")


async def test_the_tables_can_be_looked_at(shop: Box):
    found = await shop("query_db", "select name from pragma_table_info('people')")
    assert found["rows"] == [["id"], ["name"], ["photo"]]
    assert (await shop("query_db", "pragma table_info(people)"))["rows"][0][1] == "id"


def test_side_effects_tell_reading_from_writing(file: Path):
    both = Box(
        sql(
            [
                Database(name="a", url=f"sqlite:///{file}"),
                Database(name="b", url=f"sqlite:///{file}", writable=True),
            ]
        )
    )
    effects = {name: one.capability.side_effect for name, one in both.declared.items()}
    assert effects == {"query_db": SideEffect.READ, "execute_db": SideEffect.DATABASE}
    assert not both.declared["execute_db"].capability.idempotent
    assert list(Box(sql([Database(name="a", url="sqlite:///x")])).declared) == ["query_db"]
    assert sql([]) == []


async def test_writable_is_enforced(file: Path):
    both = Box(
        sql(
            [
                Database(name="a", url=f"sqlite:///{file}"),
                Database(name="b", url=f"sqlite:///{file}", writable=True),
            ]
        )
    )
    with pytest.raises(ModelError) as caught:
        await both("execute_db", "delete from people", database="a")
    assert caught.value.code == "PERMISSION_DENIED"
    assert (await both("query_db", "select count(*) from people", database="a"))["rows"] == [[2]]


async def test_the_only_database_need_not_be_named(file: Path):
    one = Box(sql([Database(name="shop", url=f"sqlite:///{file}")]))
    assert (await one("query_db", "select count(*) from people"))["rows"] == [[2]]
    with pytest.raises(ModelError, match="Granted: shop"):
        await one("query_db", "select 1", database="other")


@pytest.mark.parametrize("url", ["mysql://x", "file:x", "/etc/passwd", "sqlite://x", ""])
def test_other_urls_are_refused(url: str):
    with pytest.raises(CallerError, match="`main`"):
        sql([Database(name="main", url=url)])


def test_a_name_is_given_once():
    twice = Database(name="a", url="sqlite:///x")
    with pytest.raises(CallerError, match="`a`"):
        sql([twice, twice])


async def test_a_missing_file_is_told_without_its_path(tmp_path: Path):
    gone = Box(sql([Database(name="main", url=f"sqlite:///{tmp_path}/gone.db", writable=True)]))
    for tool in gone.declared:
        with pytest.raises(OperatorError) as caught:
            await gone(tool, "select 1")
        assert str(tmp_path) not in str(caught.value)
    assert not (tmp_path / "gone.db").exists()


async def test_the_environment_names_the_database(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP", str(file))
    for url in ("sqlite:///$SHOP", "sqlite:///${SHOP}"):
        shop = Box(sql([Database(name="main", url=url)]))
        assert (await shop("query_db", "select 1"))["rows"] == [[1]]
    monkeypatch.delenv("SHOP")
    with pytest.raises(OperatorError, match=r"`\$SHOP` is not set"):
        await shop("query_db", "select 1")


async def test_postgres_gives_json(server: Box):
    found = await server("query_db", "select * from people where id = $1", [1])
    assert found == {
        "columns": ["id", "name", "paid", "born", "photo", "more"],
        "rows": [[1, "Ann", "10.50", "1990-01-31", "AP8=", {"a": [1, None]}]],
        "truncated": False,
        "changed": 0,
    }
    assert (await server("query_db", "select sum(8::bigint)"))["rows"] == [[8]]


async def test_postgres_takes_lists_as_arrays(server: Box):
    found = await server("query_db", "select name from people where id = any($1)", [[2, 3]])
    assert found["rows"] == [["Bob"]]
    with pytest.raises(ValueError, match=r"\$1"):
        await server("query_db", "select 1", {"a": 1})


async def test_postgres_percent_signs_are_only_text(server: Box):
    found = await server(
        "query_db", "select name from people where name like 'A%' and id = $1", [1]
    )
    assert found["rows"] == [["Ann"]]


async def test_postgres_max_rows_is_enforced(server: Box):
    found = await server("query_db", "select generate_series(1, 100000)", max_rows=250)
    assert (len(found["rows"]), found["truncated"]) == (250, True)


async def test_postgres_changes_are_kept_and_counted(server: Box):
    done = await server("execute_db", "update people set name = $1 where id < 9", ["X"])
    assert (done["changed"], done["rows"]) == (2, [])
    done = await server("execute_db", "insert into people(id) values (3) returning id")
    assert (done["changed"], done["rows"], done["columns"]) == (1, [[3]], ["id"])
    assert (await server("query_db", "select count(*) from people"))["rows"] == [[3]]


async def test_postgres_failed_change_changes_nothing(server: Box):
    with pytest.raises(ValueError, match="duplicate key"):
        await server("execute_db", "insert into people(id) values (8), (1)")
    assert (await server("query_db", "select count(*) from people"))["rows"] == [[2]]


async def test_postgres_errors_say_what_the_server_says(server: Box):
    with pytest.raises(ValueError, match='column "nope" does not exist'):
        await server("query_db", "select nope from people")


async def test_postgres_password_comes_from_the_environment(
    postgres: Postgres, server: Box, monkeypatch: pytest.MonkeyPatch
):
    postgres.sql("alter role clerk password 'a/b@c:d?e%41'")
    monkeypatch.setenv("CLERK", "a/b@c:d?e%41")
    url = postgres.url("clerk", "$CLERK")
    again = Box(sql([Database(name="main", url=url)]))
    assert (await again("query_db", "select 1"))["rows"] == [[1]]
    monkeypatch.setenv("URL", postgres.url("clerk", "a%2Fb%40c%3Ad%3Fe%2541"))
    again = Box(sql([Database(name="main", url="$URL")]))
    assert (await again("query_db", "select 1"))["rows"] == [[1]]
