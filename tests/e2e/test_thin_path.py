"""One thing through all layers: code goes in at the command line, and it is on record when its result is seen."""

from pathlib import Path

import anyio
import apsw

from holdfast import runtime


def test_code_gives_its_result(holdfast):
    done = holdfast("run", "-e", "result = sum(range(10))", "--json")
    assert done.code == 0
    assert (done.json["status"], done.json["result"]) == ("ok", 45)


def test_two_processes_share_a_session(holdfast):
    holdfast("run", "--session-id", "s", "-e", "x = [1]\ndef grow(): x.append(len(x) + 1)")
    holdfast("run", "--session-id", "s", "-e", "grow()")
    assert holdfast("run", "--session-id", "s", "-e", "grow(); x").json["result"] == [1, 2, 3]
    assert holdfast("run", "--session-id", "t", "-e", "x").json["status"] == "runtime_error"


def test_an_exception_has_line_and_column(holdfast):
    done = holdfast("run", "-e", "a = 1\nb = 1/0")
    assert done.code == 1
    assert done.json["status"] == "runtime_error"
    assert done.json["error"]["code"] == "RUNTIME_ERROR"
    span = done.json["error"]["span"]
    assert (span["line"], span["column"]) == (2, 5)
    assert done.json["diagnostics"][0]["span"] == span


def test_an_endless_loop_ends_and_the_session_goes_on(holdfast):
    holdfast("run", "-e", "x = 41")
    done = holdfast("run", "-e", "x = 0\nwhile True: pass")
    assert done.code == 1
    assert done.json["status"] == "timeout"
    assert done.json["error"]["code"] == "TIMEOUT_CPU"
    assert holdfast("run", "-e", "x + 1").json["result"] == 42


def test_a_flipped_byte_is_named_and_an_erased_body_is_not(holdfast, tmp_path: Path):
    journal = tmp_path / "home" / "journal.db"
    code = "'erase me'"
    run = holdfast("run", "-e", code).json["run_id"]
    target = holdfast("journal", "show", "--run", run).json["items"][-1]
    digest = next(ref["digest"] for ref in target["content"] if ref["role"] == "result")

    async def erase() -> bool:
        async with runtime.open(f"sqlite:///{journal}", config={}) as hf:
            return await hf.journal.erase(digest, reason="asked")

    assert anyio.run(erase)
    done = holdfast("journal", "verify")
    assert (done.code, done.json["ok"], done.json["erased"]) == (0, True, 1)

    db = apsw.Connection(str(journal))
    with db.blob_open("main", "records", "body", target["seq"], True) as blob:
        byte = blob.read(1)[0]
        blob.seek(0)
        blob.write(bytes([byte ^ 1]))
    db.close()
    done = holdfast("journal", "verify")
    assert done.code == 1
    bad = done.json["bad"]
    assert (bad["seq"], bad["stream"], bad["pos"]) == (target["seq"], "default", target["pos"])
