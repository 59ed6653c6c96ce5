"""`holdfast tools`: what a session may call."""

from pathlib import Path


def test_a_list_has_stubs(holdfast, tools):
    found = holdfast("tools", "list", *tools)
    assert found.code == 0
    assert found.json["next"] is None
    items = {one["name"]: one for one in found.json["items"]}
    assert list(items) == ["count", "look", "pay", "ship"]
    assert items["pay"]["side_effect"] == "write"
    assert items["pay"]["stub"].startswith("def pay(to: str, cents: int) -> str:")
    assert items["look"]["stub"].startswith("async def look(what: str) -> str:")
    assert not holdfast.home.exists()


def test_search_finds_by_words(holdfast, tools):
    found = holdfast("tools", "search", "send out", *tools).json["items"]
    assert found[0]["name"] == "ship"
    assert len(holdfast("tools", "search", "", "--limit", "2", *tools).json["items"]) == 2


def test_describe_tells_all(holdfast, tools):
    found = holdfast("tools", "describe", "pay", *tools).json
    assert found["input_schema"]["required"] == ["to", "cents"]
    assert (found["risk"], found["idempotent"]) == ("medium", False)
    assert len(found["digest"]) == 64
    shown = holdfast("tools", "describe", "pay", *tools, "--no-json").out
    assert "def pay(to: str, cents: int) -> str:" in shown
    missing = holdfast("tools", "describe", "nothing", *tools)
    assert (missing.code, missing.json["error"]["code"]) == (2, "NOT_FOUND")


def test_a_session_knows_what_it_was_opened_with(holdfast, tools, tmp_path: Path):
    holdfast("session", "create", "s", *tools)
    items = holdfast("tools", "list", "--session-id", "s").json["items"]
    assert [one["name"] for one in items] == ["count", "look", "pay", "ship"]
    more = holdfast("tools", "list", "--session-id", "s", "--mount", f"/w={tmp_path}").json["items"]
    assert {"pay", "read_text"} <= {one["name"] for one in more}
    assert "write_text" not in {one["name"] for one in more}
    nobody = holdfast("tools", "list", "--session-id", "n")
    assert (nobody.code, nobody.json["error"]["code"]) == (2, "SESSION_NOT_FOUND")


def test_without_any_people_are_told_how_to_get_some(holdfast):
    assert holdfast("tools", "list").json == {"items": [], "next": None}
    assert "--capabilities" in holdfast("tools", "list", "--no-json").out
