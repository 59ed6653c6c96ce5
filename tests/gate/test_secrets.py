"""A secret of a capability appears nowhere: not in the journal, its content, a snapshot, a log, an answer."""

import base64
import json
import logging
import urllib.parse
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.hooks_support import hook
from tests.gate.support import ASKS_NOT, approve, parked

import holdfast
from holdfast import Context, Finding, RunResult, capability
from holdfast.capabilities.declare import Declared
from holdfast.contracts import ErrorObject
from holdfast.contracts.hook import HookPoint
from holdfast.contracts.hook_response import HookResponse
from holdfast.gate.hooks import HookInput

SECRET = "sk-live/4f9a+7c21=8d3e"
SECRETS = {"API_KEY": SECRET}
FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64url": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "url": urllib.parse.quote(SECRET, safe=""),
    "hex": SECRET.encode().hex(),
    "json": json.dumps(f'"{SECRET}"'),
}


class Client:
    """A capability's other side, configured with the secret."""

    def __init__(self) -> None:
        self.key = SECRET
        self.log = logging.getLogger("some.library")

    def tools(self) -> list[Declared[..., Any]]:
        def config() -> dict[str, Any]:
            """Tell too much."""
            return {"key": self.key, "nested": [{"auth": f"Bearer {self.key}"}], self.key: 1}

        def encoded(how: str) -> str:
            """The same, in other words."""
            return f"x={FORMS[how]};"

        def fails(how: str) -> str:
            """Fail, and say why."""
            if how == "builtin":
                raise ValueError(f"401 for {self.key}")
            raise _Refused(f"https://api/?key={FORMS['url']}")

        def logs() -> str:
            """Write a log."""
            self.log.error("calling with %s", self.key)
            try:
                raise RuntimeError(f"bad key {self.key}")
            except RuntimeError:
                self.log.exception("it failed", extra={"key": self.key})
            logging.getLogger("holdfast").warning("key=%s", self.key)
            return "logged"

        def named(context: Context) -> str:
            """Tell the other side's name for it."""
            context.external_id = f"op-{self.key}"
            return "done"

        def wrong() -> int:
            """Give what does not fit."""
            return self.key  # type: ignore[return-value]

        def send(text: str) -> str:
            """Say something."""
            return f"{text} with {self.key}"

        every: list[Any] = [config, encoded, fails, logs, named, wrong]
        reads = [capability(one, side_effect="read") for one in every]
        return [*reads, capability(send, side_effect="write")]


class _Refused(Exception):
    pass


@pytest.fixture
def log(tmp_path: Path) -> Generator[Path]:
    """A log file, as a host would have one."""
    handler = logging.FileHandler(tmp_path / "host.log")
    logging.getLogger().addHandler(handler)
    yield tmp_path / "host.log"
    logging.getLogger().removeHandler(handler)
    handler.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def search(folder: Path) -> list[str]:
    """The files below a folder that hold the secret in any form, and the form."""
    found: list[str] = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found += [f"{path.name}: {how}" for how in FORMS if FORMS[how].encode() in data]
    return found


def read(path: Path) -> str:
    return path.read_text()


def clean(text: str) -> bool:
    return not any(form in text for form in FORMS.values())


async def bodies(hf: holdfast.Runtime) -> list[bytes]:
    return [await hf.journal.content(one.digest) for one in await hf.journal.holdings()]


CODE = """
found = [config()]
for how in ["plain", "base64", "base64url", "url", "hex", "json"]:
    found.append(encoded(how))
for how in ["builtin", "own"]:
    try:
        fails(how)
    except Exception as why:
        found.append(str(why))
try:
    wrong()
except Exception as why:
    found.append(str(why))
logs()
named()
for one in found:
    print(one)
result = found
"""


async def test_appears_nowhere(
    url: str, tmp_path: Path, log: Path, caplog: Any, capsys: Any
) -> None:
    """All of it in one session: results, errors, logs, output, approvals, snapshots, and what is on disk after."""
    tools = Client().tools()
    shown: list[Any] = []
    async with holdfast.open(url, {}, capabilities=tools, secrets=SECRETS) as hf:
        run = await hf.shell.run(CODE, session="s", return_snapshot=True)
        assert run.status == "ok", run.error
        assert run.stdout.count("[secret:API_KEY]") >= 6
        shown.append(run.model_dump_json())
        waits = await parked(hf, "answer = send(str(found))\nprint(answer)\nfails('own')")
        shown.append([view.model_dump_json() for view in await hf.approvals.list()])
        assert not search(
            tmp_path
        )  # also while it is open: the write-ahead log is one of the files
        run = await approve(hf, waits)
        assert run.status == "runtime_error"
        shown.append(run.model_dump_json())
        shown.append(await hf.shell.snapshot("s"))
        shown.append(await bodies(hf))
        shown.append([record.model_dump_json() async for record in hf.journal.read_all()])
        assert not search(tmp_path)
    assert not search(tmp_path)
    assert clean(str(shown))
    logged = read(log)
    assert "it failed" in logged  # it was logged, without the secret
    assert "[secret:API_KEY]" in logged
    assert clean(caplog.text)
    told = capsys.readouterr()
    assert clean(told.out)
    assert clean(told.err)
    async with holdfast.open(url, {}, capabilities=tools, secrets=SECRETS) as hf:
        again = await hf.shell.run("print(found)\nprint(answer)", session="s")
        assert again.status == "ok"
        assert clean(again.model_dump_json())


def refused(run: RunResult, code: str = "PERMISSION_DENIED") -> bool:
    assert run.error is not None
    assert clean(run.model_dump_json())
    return run.error.code == code


async def test_argument_that_holds_it_is_refused(url: str, tmp_path: Path) -> None:
    """Code that somehow has it can't pass it on."""
    half, rest = SECRET[:9], SECRET[9:]
    async with holdfast.open(url, ASKS_NOT, capabilities=Client().tools(), secrets=SECRETS) as hf:
        text = f"send({half!r} + {rest!r})"
        assert refused(await hf.shell.run(text, session="s"))
        assert refused(await hf.shell.run(f"send(text={half!r} + {rest!r} + '!')", session="s"))
    assert not search(tmp_path)


async def test_what_code_puts_together_is_not_shown(url: str, tmp_path: Path) -> None:
    half, rest = SECRET[:9], SECRET[9:]
    async with holdfast.open(url, {}, capabilities=Client().tools(), secrets=SECRETS) as hf:
        run = await hf.shell.run(f"print({half!r} + {rest!r})\nresult = {half!r} + {rest!r}")
        assert clean(run.model_dump_json())
        run = await hf.shell.run(f"raise ValueError({half!r} + {rest!r})")
        assert run.status == "runtime_error"
        assert clean(run.model_dump_json())
        records = [record.model_dump_json() async for record in hf.journal.read_all()]
        assert clean(str(records))
        assert clean(str(await bodies(hf)))


async def test_what_code_put_together_before_it_waits_is_not_shown() -> None:
    half, rest = SECRET[:9], SECRET[9:]
    async with holdfast.open("memory:", {}, capabilities=Client().tools(), secrets=SECRETS) as hf:
        run = await parked(hf, f"print({half!r} + {rest!r})\nsend('x')\nprint('end')")
        assert clean(run.model_dump_json())
        run = await approve(hf, run)
        assert clean(run.model_dump_json())
        assert run.stdout.endswith("end\n")
        assert clean(str(await bodies(hf)))


@pytest.mark.parametrize("terms", [{}, {"dry_run": True}, {"validate_only": True}])
async def test_code_that_holds_it_is_refused(
    url: str, tmp_path: Path, terms: dict[str, Any]
) -> None:
    async with holdfast.open(url, {}, capabilities=Client().tools(), secrets=SECRETS) as hf:
        assert refused(
            await hf.shell.run(f"x = {SECRET!r}", session="s", **terms), "INVALID_ARGUMENT"
        )
        inputs: dict[str, Any] = {"key": [SECRET]}
        assert refused(
            await hf.shell.run("key", session="s", inputs=inputs, **terms), "INVALID_ARGUMENT"
        )
    assert not search(tmp_path)


async def test_dry_run_does_not_show_it() -> None:
    async with holdfast.open("memory:", {}, capabilities=Client().tools(), secrets=SECRETS) as hf:
        run = await hf.shell.run("send(str(config()))\nprint(config())", dry_run=True)
        assert run.status == "ok"
        assert clean(run.model_dump_json())
        assert clean(str(await bodies(hf)))


async def test_reconciler_does_not_show_it(url: str, tmp_path: Path) -> None:
    async def hang(how: str) -> str:
        await anyio.sleep_forever()
        return ""

    def found(arguments: dict[str, Any], context: Context) -> Any:
        if arguments["how"] == "completed":
            return f"done with {SECRET}"
        error = ErrorObject(code="TOOL_ERROR", message=f"not with {SECRET}", hint=SECRET)
        return Finding("failed", error=error)

    tool = capability(hang, side_effect="write", timeout_ms=20, reconcile=found)
    async with holdfast.open(url, ASKS_NOT, capabilities=[tool], secrets=SECRETS) as hf:
        run = await hf.shell.run("result = await hang('completed')", session="s")
        assert run.result == "done with [secret:API_KEY]"
        run = await hf.shell.run("await hang('failed')", session="s")
        assert run.status == "runtime_error"
        assert clean(run.model_dump_json())
    assert not search(tmp_path)


async def test_hooks_do_not_put_it_on_record(url: str, tmp_path: Path) -> None:
    """A hook that hands it out is a mistake of the host's: its answer is refused, and nothing of it recorded."""

    async def modifies(question: HookInput) -> HookResponse:
        return question.modify({"text": f"auth {SECRET}"}, f"added {SECRET}")

    async def rewrites(question: HookInput) -> HookResponse:
        return question.rewrite(f"got {SECRET}", "")

    async def fails(question: HookInput) -> None:
        raise RuntimeError(f"no route to {SECRET}")

    terms: dict[str, Any] = {"failure": "deny", "privacy": "content_capture_allowed"}
    before, after = HookPoint.BEFORE_TOOL_CALL, HookPoint.AFTER_TOOL_CALL
    each = [
        hook(before, id="modifies", rights=["modify_tool_request"], **terms)(modifies),
        hook(after, id="rewrites", rights=["rewrite_tool_result"], **terms)(rewrites),
        hook(before, id="fails", rights=["deny"], **terms)(fails),
    ]
    for one in each:
        async with holdfast.open(
            url, ASKS_NOT, capabilities=Client().tools(), secrets=SECRETS, hooks=[one]
        ) as hf:
            run = await hf.shell.run("send('x')", session=one.spec.hook_id)
            assert run.status == "permission_denied"
            assert clean(run.model_dump_json())
    assert not search(tmp_path)


async def test_answer_of_a_person_does_not_put_it_on_record(url: str, tmp_path: Path) -> None:
    async with holdfast.open(url, {}, capabilities=Client().tools(), secrets=SECRETS) as hf:
        run = await parked(hf, "send('x')")
        await hf.approvals.decide(str(run.approval_id), "denied", reason=f"Not with {SECRET}.")
        run = await hf.runs.resume(str(run.run_id))
        assert clean(run.model_dump_json())
    assert not search(tmp_path)


async def test_secret_from_the_environment(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_KEY", SECRET)
    config = {"secrets": {"env": ["SERVICE_KEY"]}}
    async with holdfast.open(url, config, capabilities=Client().tools()) as hf:
        run = await hf.shell.run("result = config()", session="s")
        assert clean(run.model_dump_json())
        assert "[secret:SERVICE_KEY]" in run.model_dump_json()
    assert not search(tmp_path)
