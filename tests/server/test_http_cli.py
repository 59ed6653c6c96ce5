"""`holdfast serve` and `holdfast token`: real processes, and what is left when one is stopped or killed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.program import server

from holdfast.cli.main import main
from holdfast.server.serving import Listen

SCRIPT = Path(__file__).parents[2] / "scripts" / "serve_crash.py"
Command = Callable[..., tuple[int, Any]]
TOOLS = """
import time
from pathlib import Path
from holdfast import Agent, capability
from holdfast.testing import ScriptedModel, say

@capability(side_effect="write")
def slow(name: str) -> str:
    "Takes a while."
    Path("began").write_text(name)
    while not Path("go").exists():
        time.sleep(0.01)
    return name

model = ScriptedModel([say("Done.")])
helper = Agent(model, name="helper")
"""
SETTINGS = """
[policy]
default = "allow"
[shell.limits]
wall_ms = 60000
[agents.writer]
model = "scripted:tools.py:model"
instructions = "Write."
"""


@pytest.fixture
def holdfast(capfd: pytest.CaptureFixture[str]) -> Command:
    """A command of this process, and what it prints."""

    def run(*words: str) -> tuple[int, Any]:
        code = main(words)
        told = capfd.readouterr().out
        return code, json.loads(told) if told else None

    return run


def client(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


def test_tokens_are_made_listed_rotated_and_revoked(holdfast: Command):
    code, made = holdfast("token", "create", "--scope", "read", "--scope", "run", "--prefix", "a-")
    assert code == 0
    assert made["token"].startswith("hf_")
    assert made["scopes"] == ["read", "run"]
    code, listed = holdfast("token", "list")
    assert [one["id"] for one in listed["items"]] == [made["id"]]
    assert "token" not in listed["items"][0]
    assert "secret" not in listed["items"][0]
    code, other = holdfast("token", "rotate", made["id"])
    assert (code, other["replaces"], other["prefix"]) == (0, made["id"], "a-")
    code, gone = holdfast("token", "revoke", other["id"])
    assert (code, gone["status"]) == (0, "revoked")
    assert holdfast("token", "list")[1]["items"] == []
    assert len(holdfast("token", "list", "--all")[1]["items"]) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("create", "--scope", "all"),
        ("create", "--scope", "read", "--expires", "soon"),
        ("create", "--scope", "admin", "--prefix", "a-"),
        ("revoke", "tok_none"),
    ],
)
def test_what_makes_no_token_is_refused(words: tuple[str, ...], holdfast: Command):
    code, told = holdfast("token", *words)
    assert code == 2
    assert told["error"]["code"] in ("INVALID_ARGUMENT", "NOT_FOUND")


def test_it_does_not_listen_to_strangers(holdfast: Command):
    code, told = holdfast("serve", "--host", "0.0.0.0", "--port", "0")
    assert (code, told["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert "--tls-cert" in told["error"]["hint"]


def test_serve_runs_code_and_agents_lets_a_browser_in_and_is_stopped(
    tmp_path: Path, holdfast: Command
):
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "holdfast.toml").write_text(SETTINGS)
    options = ("--agents", "tools.py:helper", "--capabilities", "tools.py")
    with server(tmp_path, *options) as (running, said):
        token = holdfast("token", "create", "--scope", "admin")[1]["token"]
        with client(said["listening"], token) as http:
            done = http.post("/v1/sessions/s/run", json={"code": "6 * 7"}).json()
            assert done["result"] == 42
            names = [one["name"] for one in http.get("/v1/agents").json()["items"]]
            assert names == ["helper", "writer"]
            assert [one["name"] for one in http.get("/v1/tools").json()["items"]] == ["slow"]
            text = http.post("/v1/agents/helper/runs", json={"prompt": "Go."}).json()["text"]
            assert text == "Done."
        with httpx.Client() as browser:
            assert browser.get(said["link"]).status_code == 200
            assert browser.get(f"{said['listening']}/v1/sessions").status_code == 200
            assert browser.get(said["link"]).status_code == 401
            again = holdfast("token", "link", "--at", said["listening"])[1]["link"]
            assert browser.get(again).status_code == 200
        running.terminate()
        assert running.wait(30) == 0


@pytest.mark.parametrize(
    "url",
    [
        "holdfast.example.com",
        "ftp://holdfast.example.com",
        "https://",
        "https://a.example/path",
        "https://a.example/?q=1",
        "https://a.example/#f",
        "https://ann@a.example",
        "https://a.example:x",
        "https://a.example:99999",
        "https://[::1",
        "https://a example",
    ],
)
def test_a_public_url_that_is_none_is_refused(url: str, holdfast: Command):
    code, told = holdfast("serve", "--public-url", url, "--port", "0")
    assert (code, told["error"]["code"]) == (2, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://Holdfast.Example.com/", "holdfast.example.com"),
        ("http://a.example:8080", "a.example"),
        ("https://[::1]:8443", "::1"),
    ],
)
def test_the_name_in_a_public_url_is_one_of_the_server(url: str, name: str):
    listen = Listen(public_url=url)
    listen.check()
    assert listen.all_names() == (name,)


def test_behind_a_proxy_the_link_is_the_one_that_people_can_use(tmp_path: Path):
    with server(tmp_path, "--public-url", "https://hf.example/", "--behind-proxy") as (_, said):
        assert said["link"].startswith("https://hf.example/enter?code=hf_")
        assert said["listening"].startswith("http://127.0.0.1:")
        code = said["link"].partition("?")[2]
        headers = {"Host": "hf.example", "X-Forwarded-Proto": "https"}
        with httpx.Client(base_url=said["listening"], headers=headers) as proxy:
            entered = proxy.get(f"/enter?{code}")
            assert entered.status_code == 200
            assert entered.headers["set-cookie"].startswith("__Host-holdfast=")
            other = proxy.get("/healthz", headers={"Host": "other.example"})
            assert other.status_code == 403


def test_without_a_link_none_is_made_and_a_later_one_lets_in(tmp_path: Path, holdfast: Command):
    with server(tmp_path, "--no-link") as (_, said):
        assert said["link"] is None
        assert holdfast("token", "list", "--all")[1]["items"] == []
        words = ("--scope", "read", "--prefix", "acme-", "--name", "Ada")
        made = holdfast("token", "link", "--at", said["listening"], *words)[1]["link"]
        [link] = holdfast("token", "list")[1]["items"]
        assert (link["prefix"], link["name"]) == ("acme-", "Ada")
        with httpx.Client(base_url=said["listening"]) as browser:
            assert browser.get(made).status_code == 200
            assert browser.get("/v1/sessions").status_code == 200
            headers = {"Origin": said["listening"]}
            assert browser.post("/v1/sessions", json={}, headers=headers).status_code == 403


def test_a_link_for_a_tenant_has_all_that_a_tenant_can_have(holdfast: Command):
    holdfast("token", "link", "--prefix", "acme-")
    [link] = holdfast("token", "list")[1]["items"]
    assert (link["prefix"], link["scopes"]) == ("acme-", ["read", "run", "approve"])


def test_a_server_that_is_stopped_leaves_its_runs_to_the_next(tmp_path: Path, holdfast: Command):
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "holdfast.toml").write_text(SETTINGS)
    with server(tmp_path, "--capabilities", "tools.py") as (running, said):
        token = holdfast("token", "create", "--scope", "admin")[1]["token"]
        with client(said["listening"], token) as http:
            asked = {"code": "x = slow('a')\nwhile not x: pass\nslow('b')"}
            told = http.post("/v1/sessions/s/run", json=asked, params={"wait_ms": 0}).json()
            while not (tmp_path / "began").exists():
                http.get("/v1/sessions")
            running.terminate()
            os.close(os.open(tmp_path / "go", os.O_CREAT))  # the effect that is under way ends
            assert running.wait(30) == 0
    with server(tmp_path) as (_, said), client(said["listening"], token) as http:
        assert said["resumed"] in ([told["run_id"]], [])
        while True:
            view = http.get(told["url"], params={"wait_ms": 5000}).json()
            if view["status"] != "running":
                break
        assert (view["status"], view["result"]["result"]) == ("completed", "b")


def test_killed_with_runs_in_flight_nothing_happens_twice():
    """`scripts/serve_crash.py` does it with 50."""
    command = [sys.executable, SCRIPT, "--runs", "8"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert told["happened_twice"] == 0
    assert sum(told["status"].values()) == 8
