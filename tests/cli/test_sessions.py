"""`holdfast session`."""

META = {"id", "created_at", "last_used_at", "language", "limits", "snapshot_version"}


def test_a_session_is_its_meta_and_three_more(used):
    found = used("session", "list").json
    assert [one["id"] for one in found["items"]] == ["a", "b", "c"]
    assert found["next"] is None
    first = found["items"][0]
    assert set(first) == META | {"status", "runs", "last_seq"}
    assert (first["status"], first["runs"]) == ("open", 3)
    assert used("session", "show", "a").json == first
    assert first["last_seq"] in [one["seq"] for one in used("journal", "show").json["items"]]


def test_a_list_goes_on_after_its_cursor(used):
    first = used("session", "list", "--limit", "2").json
    assert ([one["id"] for one in first["items"]], first["next"]) == (["a", "b"], "b")
    second = used("session", "list", "--limit", "2", "--after", first["next"]).json
    assert ([one["id"] for one in second["items"]], second["next"]) == (["c"], None)


def test_looking_makes_nothing(holdfast):
    assert holdfast("session", "list").json == {"items": [], "next": None}
    for command in ("show", "destroy"):
        done = holdfast("session", command, "nobody")
        assert done.code == 2
        assert done.json["error"]["code"] == "SESSION_NOT_FOUND"
    assert not holdfast.home.exists()


def test_a_bad_id_is_refused(used):
    done = used("session", "show", "a/b")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_SESSION_ID")


def test_destroyed_means_gone_but_on_record(spoilt):
    done = spoilt("session", "destroy", "a")
    assert (done.code, done.json["status"]) == (0, "destroyed")
    assert [one["id"] for one in spoilt("session", "list").json["items"]] == ["b", "c"]
    assert spoilt("session", "show", "a").json["status"] == "destroyed"
    assert spoilt("session", "destroy", "a").json["error"]["code"] == "SESSION_NOT_FOUND"
    assert spoilt("journal", "verify").json["ok"]
    # The name can be used again, and knows nothing of before.
    assert spoilt("run", "--session-id", "a", "-e", "x").json["status"] == "runtime_error"


def test_people_see_a_table_and_the_recent_runs(used):
    listed = used("session", "list", "--no-json").out.splitlines()
    assert listed[0].split()[:3] == ["session", "language", "runs"]
    assert listed[1].split()[:3] == ["a", "python", "3"]
    shown = used("session", "show", "a", "--no-json").out
    assert "cpu_ms 2000" in shown
    runs = [line.split() for line in shown.splitlines() if line.startswith("run_")]
    assert [line[3] for line in runs] == ["failed", "completed", "completed"]
    assert runs[0][-1] == "RUNTIME_ERROR"


def test_more_is_announced(used, holdfast):
    assert "more: --after a" in used("session", "list", "--limit", "1", "--no-json").out
    assert "No sessions yet" in holdfast("session", "list", "--no-json").out
