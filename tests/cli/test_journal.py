"""`holdfast journal`."""

import hashlib
import json
import signal
from pathlib import Path

import anyio
import apsw
import pytest

from holdfast.contracts import Body, Draft, Retention
from holdfast.journal.sqlite import SqliteJournal


def run_sql(journal: Path, sql: str, values: tuple[object, ...] = ()) -> list[tuple]:
    db = apsw.Connection(str(journal), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return db.execute(sql, values).fetchall()
    finally:
        db.close()


def records(journal: Path) -> int:
    return run_sql(journal, "select count(*) from records")[0][0]


# -- show ---------------------------------------------------------------------------------------------


def test_show_is_a_list_of_records(used):
    found = used("journal", "show").json
    assert [one["seq"] for one in found["items"]] == list(range(1, len(found["items"]) + 1))
    assert found["next"] is None
    first = found["items"][0]
    assert (first["kind"], first["stream"], first["pos"]) == ("session_created", "a", 1)


def test_show_goes_on_after_its_cursor(used):
    whole = [one["seq"] for one in used("journal", "show", "--session-id", "a").json["items"]]
    seen, after = [], 0
    while after is not None:
        arguments = ["--session-id", "a", "--limit", "4", "--after", str(after)]
        page = used("journal", "show", *arguments).json
        seen += [one["seq"] for one in page["items"]]
        after = page["next"]
    assert seen == whole


def test_show_filters(used):
    completed = used("journal", "show", "--kind", "run_completed").json["items"]
    assert [one["stream"] for one in completed] == ["a", "a", "b", "c"]
    run = completed[1]["run_id"]
    for name in (run, run[-12:], f"…{run[-12:]}"):
        found = used("journal", "show", "--run", name).json["items"]
        assert {one["run_id"] for one in found} == {run}
        assert completed[1] in found
    assert used("journal", "show", "--run", run, "--session-id", "b").json["items"] == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--session-id", "nobody"], "SESSION_NOT_FOUND"), (["--run", "run_0"], "NOT_FOUND")],
)
def test_show_of_what_is_not_there(used, arguments: list[str], code: str):
    done = used("journal", "show", *arguments)
    assert (done.code, done.json["error"]["code"]) == (2, code)


def test_show_for_people(used):
    lines = used(
        "journal", "show", "--session-id", "a", "--no-json", COLUMNS="110"
    ).out.splitlines()
    assert lines[0].split() == ["seq", "time", "stream", "kind", "run", "what"]
    assert "python · monty/" in lines[1]
    assert any("RUNTIME_ERROR: ZeroDivisionError" in line for line in lines)
    assert all(len(line) <= 110 for line in lines)


def test_records_of_a_newer_version_are_shown_as_such(spoilt):
    add_record(spoilt.journal, {"kind": "time_travelled", "v": 9, "payload": {"to": 1985}})
    last = spoilt("journal", "show").json["items"][-1]
    assert (last["kind"], last["payload"]) == ("time_travelled", {"to": 1985})
    shown = spoilt("journal", "show", "--no-json").out.splitlines()[-1]
    assert "time_travelled (newer)" in shown
    assert '"to": 1985' in shown
    assert spoilt("journal", "verify").json["ok"]
    assert spoilt("run", "-e", "1").code == 0


def add_record(journal: Path, fields: dict[str, object]) -> None:
    """Append what a newer holdfast might have written."""
    (seq,) = run_sql(journal, "select max(seq) from records")[0]
    at = "select id, pos, hash from streams where name = 'a'"
    stream, pos, prev = run_sql(journal, at)[0]
    body = {
        "actor": "holdfast",
        "privacy": "public",
        "prev": prev.hex(),
        "seq": seq + 1,
        "stream": "a",
        "pos": pos + 1,
        "time": 0,
        **fields,
    }
    data = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha3_256(data).digest()
    run_sql(
        journal, "insert into records values (?,?,?,?,?)", (seq + 1, stream, pos + 1, data, digest)
    )
    head = "update streams set pos=pos+1, seq=?, hash=? where name='a'"
    run_sql(journal, head, (seq + 1, digest))


# -- tail ---------------------------------------------------------------------------------------------


def test_tail_follows_other_processes(spoilt):
    there = spoilt("journal", "show", "--session-id", "c").json["items"]
    tail = spoilt.start("journal", "tail", "--after", "0", "--session-id", "c")
    try:
        assert tail.stdout is not None
        assert [json.loads(tail.stdout.readline()) for _ in there] == there
        spoilt("run", "--session-id", "b", "-e", "1")
        spoilt("run", "--session-id", "c", "-e", "1")
        followed = json.loads(tail.stdout.readline())
        assert followed["seq"] > there[-1]["seq"]
        assert (followed["stream"], followed["kind"][:4]) == ("c", "run_")
        tail.send_signal(signal.SIGINT)
        _, err = tail.communicate(timeout=30)
        assert (tail.returncode, err) == (130, b"")
    finally:
        tail.kill()
        tail.communicate()


# -- verify -------------------------------------------------------------------------------------------


def test_verify_tells_what_holds(used):
    done = used("journal", "verify")
    assert done.code == 0
    assert done.json["ok"]
    assert done.json["records"] == records(used.journal)
    assert done.json["streams"] == 3
    assert len(done.json["root"]) == 64
    assert (done.json["bad"], done.json["bad_content"]) == (None, None)
    assert done.json["root"] in used("journal", "verify", "--no-json").out


@pytest.mark.parametrize(("column", "seq"), [("body", 1), ("body", 3), ("body", -1), ("hash", 4)])
def test_a_flipped_byte_is_named(spoilt, column: str, seq: int):
    seq = seq if seq > 0 else records(spoilt.journal)
    db = apsw.Connection(str(spoilt.journal))
    with db.blob_open("main", "records", column, seq, True) as blob:
        blob.seek(blob.length() // 3)
        byte = blob.read(1)[0]
        blob.seek(blob.length() // 3)
        blob.write(bytes([byte ^ 4]))
    db.close()
    done = spoilt("journal", "verify")
    assert done.code == 1
    assert not done.json["ok"]
    assert done.json["bad"]["seq"] == seq
    assert done.json["records"] == seq - 1
    assert f"record {seq} (stream " in spoilt("journal", "verify", "--no-json").out


@pytest.mark.parametrize(
    ("sql", "seq"),
    [
        ("delete from records where seq = 3", 4),
        ("update records set pos = pos + 100 where seq = 3", 3),
        ("update records set stream = 99 where seq = 3", 3),
        ("update records set body = (select body from records where seq = 2) where seq = 3", 3),
        ("delete from records where seq = (select max(seq) from records)", None),
        ("update streams set pos = pos + 1 where name = 'b'", None),
    ],
)
def test_what_was_removed_or_moved_is_found(spoilt, sql: str, seq: int | None):
    run_sql(spoilt.journal, sql)
    done = spoilt("journal", "verify")
    assert done.code == 1
    assert done.json["bad"] is not None
    if seq is not None:
        assert done.json["bad"]["seq"] == seq


def test_a_changed_body_is_named(spoilt):
    run_sql(spoilt.journal, "update content set body = x'00' where codec = 0")
    done = spoilt("journal", "verify")
    assert done.code == 1
    assert len(done.json["bad_content"]) == 64
    assert done.json["bad_content"] in spoilt("journal", "verify", "--no-json").out


def test_no_journal_is_not_a_good_journal(holdfast):
    for command in (["verify"], ["export"], ["backup", "x"], ["show"]):
        done = holdfast("journal", *command)
        assert (done.code, done.json["error"]["code"]) == (2, "NOT_FOUND")
    assert not holdfast.home.exists()


# -- files that are not as they should be --------------------------------------------------------------


def test_a_file_cut_off_is_explained(spoilt):
    whole = spoilt.journal.read_bytes()
    spoilt.journal.write_bytes(whole[: len(whole) // 3])
    assert spoilt("run", "-e", "1").json["error"]["code"] == "JOURNAL_DAMAGED"
    for command in ("verify", "export", "show"):
        done = spoilt("journal", command)
        assert (done.code, done.json["error"]["code"]) == (1, "JOURNAL_DAMAGED")
        assert "backup" in done.json["error"]["hint"]
        if command == "verify":
            assert "journal verify" not in done.json["error"]["hint"]


async def append_notes(journal: Path, count: int) -> None:
    opened = SqliteJournal.open(journal)
    await opened.append("notes", [Draft(kind="test.note", payload={"n": n}) for n in range(count)])
    await opened.close()


def zero_a_page(journal: Path) -> None:
    """Lose one of the pages that hold records, neither the first nor the last."""
    leaves = "select pageno from dbstat where name = 'records' and pagetype = 'leaf' order by path"
    pages = run_sql(journal, leaves)
    size = run_sql(journal, "pragma page_size")[0][0]
    with journal.open("r+b") as file:
        file.seek((pages[len(pages) // 2][0] - 1) * size)
        file.write(bytes(size))


def test_a_page_that_can_not_be_read_is_named_by_its_first_record(spoilt):
    """What lies before and behind it is still exported."""
    anyio.run(append_notes, spoilt.journal, 300)
    last = records(spoilt.journal)
    zero_a_page(spoilt.journal)
    done = spoilt("journal", "verify")
    bad = done.json["bad"]
    assert done.code == 1
    assert "can't be read" in bad["why"]
    assert 1 < bad["seq"] < last
    exported = spoilt("journal", "export")
    seqs = [json.loads(line)["body"]["seq"] for line in exported.out.splitlines()]
    assert (exported.code, seqs[0], seqs[-1]) == (1, 1, last)
    assert bad["seq"] not in seqs
    assert f"Record {bad['seq']} is damaged" in exported.err


@pytest.mark.parametrize("data", [b"", b"not a database" * 1000], ids=["empty", "garbage"])
def test_what_is_no_journal_is_refused(holdfast, data: bytes):
    holdfast.home.mkdir()
    holdfast.journal.write_bytes(data)
    done = holdfast("journal", "verify")
    assert (done.code, done.json["error"]["code"]) == (1, "JOURNAL_DAMAGED")
    assert holdfast.journal.read_bytes() == data


def test_a_newer_file_can_be_looked_at(spoilt):
    run_sql(spoilt.journal, "pragma user_version=99")
    before = spoilt.journal.read_bytes()
    assert spoilt("run", "-e", "1").json["error"]["code"] == "JOURNAL_TOO_NEW"
    assert spoilt("journal", "verify").json["ok"]
    assert len(spoilt("journal", "show").json["items"]) == records(spoilt.journal)
    assert spoilt("journal", "export").out.count("\n") == records(spoilt.journal)
    assert len(spoilt("session", "list").json["items"]) == 3
    assert spoilt.journal.read_bytes() == before


def test_a_file_on_a_read_only_disk_can_be_looked_at(used):
    read_only = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev")
    done = used("journal", "verify", wrap=read_only)
    assert done.json == used("journal", "verify").json
    assert len(used("session", "list", wrap=read_only).json["items"]) == 3
    assert used("journal", "export", wrap=read_only).out == used("journal", "export").out


def test_looking_leaves_no_files(used):
    for command in (["journal", "verify"], ["session", "list"], ["doctor"]):
        used(*command)
        assert sorted(path.name for path in used.home.iterdir()) == ["journal.db", "journal.db.key"]


# -- export and backup --------------------------------------------------------------------------------


def test_an_export_proves_itself_without_holdfast(used):
    """Canonical JSON of `body`, hashed, is `hash`; `prev` is the hash before it in the stream."""
    lines = used("journal", "export").out.splitlines()
    heads: dict[str, str] = {}
    for line in lines:
        found = json.loads(line)
        body = found["body"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha3_256(text.encode()).hexdigest() == found["hash"]
        assert body["prev"] == heads.get(body["stream"], "0" * 64)
        heads[body["stream"]] = found["hash"]
    stored = run_sql(used.journal, "select seq, pos, hash from records order by seq")
    found = [json.loads(line) for line in lines]
    assert [(one["body"]["seq"], one["body"]["pos"], one["hash"]) for one in found] == [
        (seq, pos, digest.hex()) for seq, pos, digest in stored
    ]


def test_an_export_is_verified_offline(used, holdfast, tmp_path: Path):
    file = tmp_path / "export.jsonl"
    done = used("journal", "export", "--out", str(file))
    assert done.json == {"out": str(file), "records": records(used.journal), "damaged": None}
    assert file.stat().st_mode & 0o777 == 0o600
    proof = holdfast("journal", "verify", "--file", str(file))  # in a home without a journal
    here = used("journal", "verify").json
    assert proof.code == 0
    assert (proof.json["root"], proof.json["records"]) == (here["root"], here["records"])
    assert holdfast("journal", "verify", "--file", "-", stdin=file.read_bytes()).json == proof.json


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b'"actor":"h', b'"actor":"H'), *lines[3:]], 3),
        (lambda lines: [*lines[:2], *lines[3:]], 4),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 2),
        (lambda lines: [*lines[:2], b"nonsense\n", *lines[3:]], 3),
        (lambda lines: [*lines[:2], b'{"hash": 1}\n', *lines[3:]], 3),
        (lambda lines: [*lines[:2], lines[2][:50]], 3),
    ],
    ids=["changed", "removed", "reordered", "nonsense", "no body", "cut off"],
)
def test_a_changed_export_is_found(used, change, seq: int):
    lines = used("journal", "export").out.encode().splitlines(keepends=True)
    done = used("journal", "verify", "--file", "-", stdin=b"".join(change(lines)))
    assert (done.code, done.json["bad"]["seq"]) == (1, seq)


def test_an_export_of_a_damaged_journal_shows_the_damage(spoilt):
    run_sql(spoilt.journal, "update records set body = x'7b7d00' where seq = 3")
    run_sql(
        spoilt.journal,
        "update records set body = cast(body || x'00' as blob) where seq = 5",
    )
    done = spoilt("journal", "export")
    assert done.code == 1
    assert "Record 3 is damaged" in done.err
    assert len(done.out.splitlines()) == records(spoilt.journal)
    proof = spoilt("journal", "verify", "--file", "-", stdin=done.out.encode())
    assert proof.json["bad"] == spoilt("journal", "verify").json["bad"]


def test_nothing_is_overwritten(used, tmp_path: Path):
    file = tmp_path / "precious"
    file.write_text("mine")
    for command in (["export", "--out", str(file)], ["backup", str(file)]):
        done = used("journal", *command)
        assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    done = used("journal", "export", "--out", str(tmp_path / "no" / "folder"))
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert file.read_text() == "mine"


def test_a_backup_is_a_journal_of_its_own(used, tmp_path: Path):
    file = tmp_path / "backup.db"
    done = used("journal", "backup", str(file))
    assert done.json["records"] == records(used.journal)
    url = f"sqlite:///{file}"
    assert used("--url", url, "journal", "verify").json == used("journal", "verify").json
    # With its key, so that saved states can be opened.
    result = used("--url", url, "run", "--session-id", "a", "-e", "x + 41").json
    assert (result["result"], result["diagnostics"]) == (42, [])


# -- sweep --------------------------------------------------------------------------------------------


def test_a_sweep_erases_what_nothing_wants_kept(used):
    assert used("journal", "sweep").json == {"erased": []}
    body = Body.of(b"for a moment", retention=Retention.EPHEMERAL)

    async def hold() -> None:
        journal = SqliteJournal.open(used.journal)
        await journal.append("a", [Draft(kind="test.note", bodies=(body,))])
        await journal.close()

    anyio.run(hold)
    assert used("journal", "sweep").json == {"erased": [body.ref.digest]}
    assert used("journal", "sweep", "--no-json").out == "0 bodies erased.\n"
    report = used("journal", "verify").json
    assert (report["ok"], report["erased"]) == (True, 1)


def test_a_sweep_needs_a_journal(holdfast):
    assert holdfast("journal", "sweep").json["error"]["code"] == "NOT_FOUND"
