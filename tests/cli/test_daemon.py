"""`holdfast daemon`: JSON-RPC over a unix socket and over standard input and output, with real processes."""

import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TOOLS = str(Path(__file__).parent / "world.py")


class Client:
    """One connection. Answers and events are kept apart."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")
        self.events: list[dict[str, Any]] = []
        self.answers: dict[Any, dict[str, Any]] = {}
        self.count = 0

    def send(self, method: str, **params: Any) -> int:
        self.count += 1
        asked = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        self.socket.sendall(json.dumps(asked).encode() + b"\n")
        return self.count

    def take(self) -> None:
        message = json.loads(self.file.readline())
        if "method" in message:
            self.events.append(message["params"]["event"])
        else:
            self.answers[message["id"]] = message

    def answer(self, id_: int) -> dict[str, Any]:
        while id_ not in self.answers:
            self.take()
        return self.answers[id_]

    def ask(self, method: str, **params: Any) -> Any:
        return self.answer(self.send(method, **params))["result"]

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "daemon.sock"


@pytest.fixture
def daemon(holdfast, world, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that listens."""
    process = holdfast.start("daemon", "--listen", f"unix://{place}", "--capabilities", TOOLS)
    try:
        said = json.loads(process.stdout.readline())
        assert said == {"listening": f"unix://{place}", "pid": process.pid}
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def client(daemon, place: Path) -> Iterator[Client]:
    found = Client(place)
    yield found
    found.close()


def test_the_walk(client, holdfast):
    assert client.ask("session.create", session_id="s")["status"] == "open"
    done = client.ask("session.run", session_id="s", code="x = 40\nx + n", inputs={"n": 2})
    assert (done["status"], done["result"]) == ("ok", 42)
    saved = client.ask("session.snapshot", session_id="s")
    assert saved["bytes"] > 0
    assert client.ask("session.destroy", session_id="s")["status"] == "destroyed"
    assert client.ask("session.restore", session_id="t", snapshot=saved["snapshot"])["id"] == "t"
    assert client.ask("session.run", session_id="t", code="x")["result"] == 40
    assert [one["id"] for one in client.ask("session.list")["items"]] == ["t"]
    # It is the same journal that the command line has.
    assert holdfast("session", "show", "s").json["status"] == "destroyed"


def test_the_socket_is_its_owners(daemon, place: Path):
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_a_long_run_does_not_keep_others_waiting(client):
    limits = {"cpu_ms": 60_000, "wall_ms": 60_000}
    long = client.send("session.run", session_id="s", code="while True: pass", limits=limits)
    assert client.ask("session.run", session_id="other", code="1")["result"] == 1
    while not client.ask("session.cancel", session_id="s")["cancelled"]:
        pass
    assert client.answer(long)["result"]["status"] == "cancelled"


def test_a_decision_lets_the_run_go_on_in_the_daemon(client, world):
    parked = client.ask("session.run", session_id="s", code="pay('ada', 1)")
    assert parked["status"] == "waiting_for_approval"
    [one] = client.ask("approvals.list")["items"]
    assert one["id"] == parked["approval_id"]
    decided = client.ask("approvals.decide", id=one["id"], decision="approved", actor="eve")
    assert decided["status"] == "approved"
    assert (decided["decision"]["actor"], decided["decision"]["via"]) == ("eve", "rpc:unix")
    done = client.ask("run.resume", run_id=parked["run_id"])
    assert (done["status"], done["result"]) == ("ok", "paid ada 1")
    assert client.ask("run.get", run_id=parked["run_id"])["status"] == "completed"
    assert world.done == ["pay ada 1"]


def test_events_come_without_loss_and_after_the_answer(client, place: Path):
    client.ask("session.run", session_id="s", code="1")
    subscribed = client.ask("journal.subscribe", after=0)
    assert subscribed["after"] == 0
    other = Client(place)
    for at in range(5):
        other.ask("session.run", session_id=f"n{at}", code="count('x')")
    other.close()
    last = client.ask("journal.read", limit=10_000)["items"][-1]["seq"]
    while not client.events or client.events[-1]["seq"] < last:
        client.take()
    assert [event["seq"] for event in client.events] == list(range(1, last + 1))
    client.ask("journal.unsubscribe", subscription=subscribed["subscription"])
    assert client.ask("journal.verify")["ok"]


def test_what_a_gone_client_asked_for_is_done(daemon, place: Path, world):
    gone = Client(place)
    world.stall.touch()
    gone.ask("session.create", session_id="s")
    gone.send("session.run", session_id="s", code="count('a')")
    gone.close()
    world.wait_for("count a")
    assert world.done == ["count a"]


def test_a_live_socket_is_refused_a_dead_one_removed(holdfast, daemon, place: Path):
    second = holdfast("daemon", "--listen", f"unix://{place}")
    assert (second.code, second.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    daemon.kill()
    daemon.wait()
    assert place.exists()
    third = holdfast.start("daemon", "--listen", f"unix://{place}")
    assert json.loads(third.stdout.readline())["pid"] == third.pid
    third.terminate()
    assert third.wait(30) == 0
    third.communicate()


def test_what_is_no_socket_is_left_alone(holdfast, place: Path):
    place.write_text("mine")
    done = holdfast("daemon", "--listen", f"unix://{place}")
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert place.read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(holdfast, daemon, client, place: Path, number):
    parked = client.ask("session.run", session_id="p", code="pay('ada', 1)")
    limits = {"cpu_ms": 60_000, "wall_ms": 60_000}
    client.send("session.run", session_id="s", code="while True: pass", limits=limits)
    client.ask("session.list")
    daemon.send_signal(number)
    assert daemon.wait(30) == 0
    assert not place.exists()
    # What stood still stands, and can be answered.
    [one] = holdfast("approvals", "list").json["items"]
    assert one["id"] == parked["approval_id"]
    assert holdfast("run", "--session-id", "s", "-e", "1", "--wait", "0").json["result"] == 1


def test_stopped_while_an_effect_is_under_way_it_ends_and_its_run_can_go_on(
    holdfast, daemon, client, place: Path, world
):
    """As with the server: what is under way ends, nothing else begins, and whoever waits is told which run it is."""
    code = "a = ship('one')\nb = count('two')\n[a, b]"
    fields = {"setup": {"capabilities": [TOOLS]}, "limits": {"wall_ms": 100_000}}
    parked = client.ask("session.run", session_id="s", code=code, **fields)
    client.ask("approvals.decide", id=parked["approval_id"], decision="approved", resume=False)
    world.stall.touch()
    sent = client.send("run.resume", run_id=parked["run_id"])
    world.wait_for("ship one")
    other = Client(place)
    daemon.send_signal(signal.SIGTERM)
    while "error" not in other.answer(other.send("session.run", session_id="o", code="1")):
        pass  # it has not heard yet
    world.stall.unlink()
    why = client.answer(sent)["error"]["data"]
    assert (why["code"], why["run_id"]) == ("SHUTTING_DOWN", parked["run_id"])
    other.close()
    assert daemon.wait(60) == 0
    assert not place.exists()
    assert world.done == ["ship one"]
    done = holdfast("runs", "resume", why["run_id"], "--wait", "0")
    assert (done.code, done.json["result"]) == (0, ["shipped one", 2])
    assert world.done == ["ship one", "count two"]


def test_killed_while_a_run_waits_another_process_goes_on(holdfast, daemon, client, world):
    code = "for i in range(2):\n    count(f'{i}')\n    pay('ada', i)\ni"
    parked = client.ask("session.run", session_id="s", code=code, setup={"capabilities": [TOOLS]})
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    done = holdfast("approvals", "approve", parked["approval_id"], "--for-session")
    assert (done.code, done.json["run"]["result"]) == (0, 1)
    assert world.done == ["count 0", "pay ada 0", "count 1", "pay ada 1"]


@pytest.mark.parametrize("listen", ["tcp://x", "unix://", "", "/path"])
def test_places_there_are_none(holdfast, in_process, listen: str):
    done = in_process("daemon", "--listen", listen)
    assert (done.code, done.json["error"]["code"]) == (2, "INVALID_ARGUMENT")
    assert not holdfast.home.exists()


# -- standard input and output ------------------------------------------------------------------------


def test_the_walk_over_stdio_without_waiting(holdfast):
    walk = [
        ("session.create", {"session_id": "s"}),
        ("session.run", {"session_id": "s", "code": "x = 42; x"}),
        ("session.snapshot", {"session_id": "s"}),
        ("session.destroy", {"session_id": "s"}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": at, "method": method, "params": params})
        for at, (method, params) in enumerate(walk)
    ]
    # The last line has no end: it is a message all the same.
    done = holdfast("daemon", "--listen", "stdio", stdin="\n".join(lines).encode())
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [one["id"] for one in answers] == [0, 1, 2, 3]
    assert answers[1]["result"]["result"] == 42
    assert answers[3]["result"]["status"] == "destroyed"
    assert done.code == 0


def test_what_capabilities_print_does_not_come_between(holdfast, tmp_path: Path):
    (tmp_path / "loud.py").write_text(
        "import os\nfrom holdfast import capability\n"
        "@capability(side_effect='read')\ndef shout() -> int:\n"
        "    'Print.'\n    print('LOUD')\n    os.system('echo LOUDER')\n    return 1\n"
    )
    asked = {"jsonrpc": "2.0", "id": 1, "method": "session.run", "params": {"code": "shout()"}}
    done = holdfast(
        "daemon", "--listen", "stdio", "--capabilities", "loud", stdin=json.dumps(asked).encode()
    )
    assert json.loads(done.out)["result"]["result"] == 1
    assert "LOUDER" in done.err


def test_stdio_from_a_file(holdfast, tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"jsonrpc":"2.0","id":1,"method":"session.list"}\n')
    target = tmp_path / "out.jsonl"
    with source.open("rb") as stdin, target.open("wb") as stdout:
        command = holdfast.command("daemon", "--listen", "stdio")
        environment = holdfast.environment()
        subprocess.run(command, stdin=stdin, stdout=stdout, env=environment, check=True, timeout=60)
    assert json.loads(target.read_text())["result"] == {"items": [], "next": None}


def test_a_signal_ends_a_daemon_on_stdio(holdfast):
    process = holdfast.start("daemon", "--listen", "stdio", talk=True)
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"session.list"}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.terminate()
    assert process.wait(30) == 0
    process.communicate()


def test_a_run_that_was_sent_just_now_can_be_cancelled(client):
    limits = {"cpu_ms": 60_000, "wall_ms": 60_000}
    for number in range(5):
        where = f"s{number}"
        sent = client.send("session.run", session_id=where, code="while True: pass", limits=limits)
        assert client.ask("session.cancel", session_id=where)["cancelled"]
        assert client.answer(sent)["result"]["status"] == "cancelled"
        assert client.ask("session.run", session_id=where, code="1")["result"] == 1
