"""`holdfast doctor`."""

import shutil
import sys
from pathlib import Path

import apsw
import pytest

from holdfast.journal.sqlite_reader import FORMAT


def findings(done) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in done.json["checks"]}


@pytest.fixture
def no_bwrap(tmp_path: Path) -> str:
    """A PATH without bubblewrap."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env", "ldd"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return str(folder)


def test_all_is_well(used):
    done = used("doctor")
    found = findings(done)
    assert done.code == 0
    assert done.json["ok"]
    assert {check["state"] for check in found.values()} == {"ok"}
    assert set(found) >= {
        *("python", "sqlite", "settings", "jail", "engine", "home"),
        *("journal", "records", "writing", "key", "disk"),
    }
    assert sys.executable in found["python"]["what"]
    assert "bubblewrap" in found["jail"]["what"]
    assert "monty/" in found["engine"]["what"]
    assert f"format {FORMAT}" in found["journal"]["what"]
    assert found["capabilities"]["what"] == "none unless a session is opened with some"
    assert "psycopg" in found["postgres"]["what"]
    assert "records in 3 streams" in found["journal"]["what"]


def test_it_makes_nothing(holdfast):
    done = holdfast("doctor")
    assert done.code == 0
    assert "not there yet" in findings(done)["journal"]["what"]
    assert not holdfast.home.exists()


def test_a_missing_jail_is_loud(used, no_bwrap: str):
    done = used("doctor", PATH=no_bwrap)
    jail = findings(done)["jail"]
    assert (done.code, jail["state"]) == (1, "fail")
    assert "NO JAIL" in jail["what"]
    assert "apt-get install bubblewrap" in jail["fix"]
    shown = used("doctor", "--no-json", PATH=no_bwrap)
    assert shown.code == 1
    assert "fail jail" in shown.out
    assert "→ Install bubblewrap" in shown.out
    assert "Not all is well: jail." in shown.out


def test_a_jail_that_was_demanded_or_switched_off(used, no_bwrap: str):
    demanded = used("doctor", PATH=no_bwrap, HOLDFAST_JAIL="required")
    assert (demanded.code, findings(demanded)["jail"]["state"]) == (1, "fail")
    off = used("doctor", HOLDFAST_JAIL="off")
    assert (off.code, findings(off)["jail"]["state"]) == (0, "warn")


def test_files_that_others_can_read_are_a_warning(spoilt):
    spoilt.home.chmod(0o755)
    for path in spoilt.home.iterdir():
        path.chmod(0o644)
    done = spoilt("doctor")
    found = findings(done)
    assert done.code == 0
    for name in ("home", "journal", "key"):
        assert found[name]["state"] == "warn"
        assert found[name]["fix"].startswith("chmod ")


def test_a_damaged_record_is_explained(spoilt):
    db = apsw.Connection(str(spoilt.journal))
    db.execute("update records set body = zeroblob(10) where seq = 5")
    db.close()
    done = spoilt("doctor")
    assert (done.code, findings(done)["records"]["state"]) == (1, "fail")
    assert "Record 5" in findings(done)["records"]["what"]


def test_a_file_cut_off_is_explained(spoilt):
    whole = spoilt.journal.read_bytes()
    spoilt.journal.write_bytes(whole[: len(whole) // 2])
    done = spoilt("doctor")
    assert done.code == 1
    assert "JOURNAL_DAMAGED" in findings(done)["journal"]["what"]
    assert "backup" in findings(done)["journal"]["fix"]


def test_a_file_that_is_no_journal_is_explained(spoilt):
    spoilt.journal.write_bytes(b"garbage" * 1000)
    done = spoilt("doctor")
    assert (done.code, findings(done)["journal"]["state"]) == (1, "fail")
    assert "JOURNAL_DAMAGED" in findings(done)["journal"]["what"]


def test_a_newer_format_is_explained(spoilt):
    db = apsw.Connection(str(spoilt.journal))
    db.execute("pragma user_version=99")
    db.close()
    done = spoilt("doctor")
    assert (done.code, findings(done)["journal"]["state"]) == (1, "fail")
    assert "format 99" in findings(done)["journal"]["what"]
    assert "Upgrade" in findings(done)["journal"]["fix"]


def test_a_locked_journal_is_explained(spoilt):
    db = apsw.Connection(str(spoilt.journal))
    db.execute("begin immediate")
    done = spoilt("doctor")
    db.close()
    assert (done.code, findings(done)["writing"]["state"]) == (1, "fail")
    assert "JOURNAL_BUSY" in findings(done)["writing"]["what"]


def test_a_missing_or_broken_key_is_explained(spoilt):
    key = spoilt.home / "journal.db.key"
    key.write_bytes(b"short")
    done = spoilt("doctor")
    assert (done.code, findings(done)["key"]["state"]) == (1, "fail")
    key.unlink()
    done = spoilt("doctor")
    assert (done.code, findings(done)["key"]["state"]) == (0, "warn")
    assert not key.exists()


def test_a_home_that_can_not_be_written_is_explained(used, tmp_path: Path):
    temporary = str(tmp_path)
    wrap = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", temporary, temporary)
    done = used("doctor", wrap=wrap, TMPDIR=temporary)
    found = findings(done)
    assert done.code == 1
    assert found["home"]["state"] == found["writing"]["state"] == "fail"
    assert found["journal"]["state"] == found["records"]["state"] == "ok"


def test_a_home_that_is_no_folder_is_explained(holdfast):
    holdfast.home.write_text("")
    done = holdfast("doctor")
    assert (done.code, findings(done)["home"]["state"]) == (1, "fail")


def test_bad_settings_are_explained(holdfast, tmp_path: Path):
    (tmp_path / "holdfast.toml").write_text("[shell]\njail = 'maybe'\n")
    done = holdfast("doctor")
    assert (done.code, findings(done)["settings"]["state"]) == (1, "fail")
    (tmp_path / "holdfast.toml").write_text("[shell]\njail = 'auto'\n")
    assert "holdfast.toml" in findings(holdfast("doctor"))["settings"]["what"]


def test_capabilities_that_can_not_be_loaded_are_named(holdfast, tmp_path):
    (tmp_path / "holdfast.toml").write_text('[session]\ncapabilities = ["nowhere_xyz"]\n')
    done = holdfast("doctor")
    found = findings(done)
    assert done.code == 1
    assert found["capabilities"]["state"] == "fail"
    assert "nowhere_xyz" in found["capabilities"]["what"]
