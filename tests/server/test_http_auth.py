"""Who may come in, what they may ask for, and what other sites can't make a browser do."""

import ipaddress
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.server.http_client import BASE, Site, ids, listening, site
from tests.server.shop import paid, pay

import holdfast
from holdfast.contracts import Draft, digest
from holdfast.contracts.token import TOKENS, TokenCreated
from holdfast.errors import CallerError
from holdfast.gate.approvals import ANSWERS
from holdfast.runtime import Runtime
from holdfast.server.limits import UNLIMITED, Limits, Rate
from holdfast.server.rest import ENDPOINTS
from holdfast.server.serving import Listen

FULL = ("read", "run", "approve")


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    paid.clear()
    async with holdfast.open("memory:", config={}, capabilities=[pay]) as found:
        yield found


@pytest.fixture
async def web(hf: Runtime) -> AsyncIterator[Site]:
    async with site(hf) as found:
        yield found


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def run(client: httpx.AsyncClient, session: str, text: str, **more: Any) -> Any:
    answer = await client.post(f"/v1/sessions/{session}/run", json={"code": text, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refusals(hf: Runtime) -> list[dict[str, Any]]:
    records = [record async for record in hf.journal.read(TOKENS)]
    return [{**one.payload, "actor": one.actor} for one in records if one.kind == "access_refused"]


def paths() -> list[tuple[str, str, str]]:
    ids_ = {"session_id": "s", "run_id": "run_x", "approval_id": "apr_x", "effect_id": "eff_x"}
    return [(e.method, e.path.format(**ids_, name="pay"), e.scope) for e in ENDPOINTS]


# -- tokens and scopes --------------------------------------------------------------------------------


async def test_without_a_token_nothing_is_told(web: Site):
    nobody = await web.client()
    for method, path, _ in paths():
        answer = await nobody.request(method, path)
        assert code(answer) == (401, "UNAUTHENTICATED"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert code(await nobody.get("/v1/nope")) == (401, "UNAUTHENTICATED")
    assert (await nobody.get("/openapi.json")).status_code == 200


async def test_each_operation_needs_its_scope_and_no_other(web: Site, hf: Runtime):
    for scope in FULL:
        client = await web.client(scope)
        for method, path, needed in paths():
            if needed == scope or needed == "admin":
                continue
            answer = await client.request(method, path, json={})
            assert code(answer) == (403, "FORBIDDEN"), (scope, method, path)
    told = await refusals(hf)
    assert {one["code"] for one in told} == {"FORBIDDEN"}
    assert all(one["actor"].startswith("token:tok_") for one in told)


async def test_a_wrong_token_is_refused_and_on_record(web: Site, hf: Runtime):
    client = await web.client()
    good = (await web.tokens.create(["admin"])).text
    for text in ("", "x", f"Bearer {good}x", f"Basic {good}", "Bearer hf_a_b"):
        answer = await client.get("/v1/sessions", headers={"Authorization": text})
        assert code(answer) == (401, "UNAUTHENTICATED"), text
    told = await refusals(hf)
    assert {(one["actor"], one["via"]) for one in told} == {("anybody", "address:127.0.0.1")}
    assert good not in str(told)


async def test_a_revoked_token_is_refused_from_the_next_request_on(web: Site):
    made = await web.tokens.create(["read"])
    client = await web.client()
    headers = {"Authorization": f"Bearer {made.text}"}
    assert (await client.get("/v1/sessions", headers=headers)).status_code == 200
    await web.tokens.revoke(made.view.id)
    assert code(await client.get("/v1/sessions", headers=headers)) == (401, "UNAUTHENTICATED")


async def test_only_admin_widens_what_a_session_may_do(web: Site):
    client, admin = await web.client(*FULL), await web.client("admin")
    mount = {"mounts": [{"path": "/etc", "host": "/etc"}]}
    wide: list[dict[str, Any]] = [
        {"setup": mount},
        {"limits": {"memory_mb": 4096}},
        {"timeout_ms": 86_400_000},
    ]
    for more in wide:
        answer = await client.post("/v1/sessions/s/run", json={"code": "1", **more})
        assert code(answer) == (403, "FORBIDDEN"), more
        await run(admin, "s", "1", **more)
    for path in ("/v1/sessions/s/restore", "/v1/sessions", "/v1/runs/run_x/resume"):
        said = {"setup": mount, **({"snapshot": ""} if "restore" in path else {})}
        answer = await client.post(path, json=said)
        assert answer.status_code in (403, 404), path
    await run(client, "t", "1", limits={"memory_mb": 32}, timeout_ms=1000)


async def test_over_rpc_only_admin_widens_what_a_session_may_do(web: Site, hf: Runtime):
    client, admin = await web.client(*FULL), await web.client("admin")
    tenant = await web.client(*FULL, prefix="a-")
    wide: list[dict[str, Any]] = [
        {"setup": {"mounts": [{"path": "/etc", "host": "/etc"}]}},
        {"limits": {"memory_mb": 4096}},
        {"timeout_ms": 86_400_000},
    ]
    for more in wide:
        asked = {"session_id": "a-s", "code": "1", **more}
        message = {"jsonrpc": "2.0", "id": 1, "method": "session.run", "params": asked}
        for one in (client, tenant):
            answer = (await one.post("/rpc", json=message)).json()
            assert answer["error"]["data"]["code"] == "FORBIDDEN", more
        assert (await admin.post("/rpc", json=message)).json()["result"]["status"] == "ok"
    assert [one["path"] for one in await refusals(hf)] == ["/rpc"] * 6


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("session.run", {"code": "1"}),
        ("session.reset", {}),
        ("run.resume", {"run_id": "run_x"}),
        ("run.cancel", {"run_id": "run_x"}),
    ],
)
async def test_wait_ms_is_enforced_over_rpc(web: Site, method: str, more: dict[str, str]):
    params = {"wait_ms": 600_001, **more}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await (await web.client("admin")).post("/rpc", json=message)
    assert answer.json()["error"]["code"] == -32602, answer.text
    assert "wait_ms" in answer.text


async def test_only_admin_speaks_for_others(web: Site):
    client, admin = await web.client(*FULL), await web.client("admin")
    parked = await run(client, "s", "pay('bob')")
    path = f"/v1/approvals/{parked['approval_id']}/decision"
    said = {"decision": "denied", "actor": "ada"}
    assert code(await client.post(path, json=said)) == (403, "FORBIDDEN")
    decision = (await admin.post(path, json=said)).json()["decision"]
    assert decision["actor"] == "ada"
    assert decision["via"].startswith("http:token:tok_")


# -- tenants ------------------------------------------------------------------------------------------


async def test_a_tenant_sees_only_its_own(web: Site, hf: Runtime):
    ours, theirs = await web.client(*FULL, prefix="a-"), await web.client(*FULL, prefix="b-")
    parked = await run(ours, "a-1", "pay('bob')")
    await run(theirs, "b-1", "1")
    run_id, approval = parked["run_id"], parked["approval_id"]
    for path in ("sessions", "runs", "approvals", "journal"):
        found = (await theirs.get(f"/v1/{path}")).json()["items"]
        kept = [one.get("session_id") or one.get("stream") or one["id"] for one in found]
        assert all(one.startswith("b-") for one in kept), path
    effect = (await ours.get(f"/v1/runs/{run_id}")).json()["effects"][0]["id"]
    tries: list[tuple[str, str, Any]] = [
        ("GET", "/v1/sessions/a-1", None),
        ("DELETE", "/v1/sessions/a-1", None),
        ("POST", "/v1/sessions/a-1/run", {"code": "1"}),
        ("POST", "/v1/sessions/a-1/snapshot", {}),
        ("POST", "/v1/sessions/a-1/reset", {}),
        ("POST", "/v1/sessions/a-1/cancel", {}),
        ("POST", "/v1/sessions/a-1/fork", {"new_session_id": "b-2"}),
        ("POST", "/v1/sessions/b-1/fork", {"new_session_id": "a-2"}),
        ("POST", "/v1/sessions/a-1/restore", {"snapshot": ""}),
        ("POST", "/v1/sessions", {"session_id": "a-3"}),
        ("GET", f"/v1/runs/{run_id}", None),
        ("POST", f"/v1/runs/{run_id}/resume", {}),
        ("POST", f"/v1/runs/{run_id}/cancel", {}),
        ("GET", "/v1/runs?session_id=a-1", None),
        ("GET", f"/v1/approvals/{approval}", None),
        ("POST", f"/v1/approvals/{approval}/decision", {"decision": "approved"}),
        ("POST", f"/v1/effects/{effect}/resolve", {"answer": "retry"}),
        ("GET", "/v1/journal?session_id=a-1", None),
        ("GET", "/v1/tools?session_id=a-1", None),
    ]
    for method, path, body in tries:
        answer = await theirs.request(method, path, json=body)
        assert code(answer) == (404, "NOT_FOUND"), (method, path, answer.text)
    assert paid == []
    assert (await ours.get(f"/v1/runs/{run_id}")).json()["status"] == "waiting_for_approval"
    told = await refusals(hf)
    assert {one["path"] for one in told} >= {"/v1/sessions/a-1", f"/v1/runs/{run_id}"}
    assert all(one["actor"].startswith("token:tok_") for one in told)
    answers = [one.payload async for one in hf.journal.read(ANSWERS)]
    assert [one["reason_code"] for one in answers] == ["approval.not_yours"]
    decision: Any = answers[0]["decision"]
    assert decision["via"].startswith("http:token:tok_")


async def test_a_tenant_is_no_operator_whatever_its_token_says(web: Site, hf: Runtime):
    """Such tokens are not made any more; those of before count for what a tenant may."""
    with pytest.raises(CallerError, match="whole host") as caught:
        await web.tokens.create(["read", "admin"], prefix="a-")
    assert (caught.value.code, bool(caught.value.hint)) == ("INVALID_ARGUMENT", True)
    secret = "s" * 43
    old = TokenCreated(
        id="tok_old", secret=digest(secret.encode()), scopes=("admin",), prefix="a-", by="operator"
    )
    await hf.journal.append(TOKENS, [Draft.of(old)])
    tenant = await web.client()
    tenant.headers["Authorization"] = f"Bearer hf_old_{secret}"
    setup = {"mounts": [{"path": "/h", "host": "/"}]}
    surface = {"name": "x", "spec": {"kind": "stdio", "command": "true"}}
    parked = await run(tenant, "a-s", "pay('bob')")
    decision = f"/v1/approvals/{parked['approval_id']}/decision"
    for path, said in {
        "/v1/sessions/a-s/run": {"code": "1", "setup": setup},
        "/v1/sessions/a-t/run": {"code": "1", "timeout_ms": 86_400_000},
        "/v1/surfaces": surface,
        decision: {"decision": "approved", "actor": "ada"},
    }.items():
        assert code(await tenant.post(path, json=said)) == (403, "FORBIDDEN"), path
    message = {"jsonrpc": "2.0", "id": 1, "method": "session.create"}
    asked = {**message, "params": {"session_id": "a-u", "setup": setup}}
    answer = (await tenant.post("/rpc", json=asked)).json()
    assert answer["error"]["data"]["code"] == "FORBIDDEN"
    assert (await tenant.post(decision, json={"decision": "denied"})).status_code == 200


async def test_lists_of_a_tenant_are_as_long_as_it_asks_for(web: Site):
    admin, ours = await web.client("admin"), await web.client(*FULL, prefix="m-")
    for name in ("a-1", "m-1", "b-1", "m-2", "z-1", "m-3"):
        await admin.post("/v1/sessions", json={"session_id": name})
    first = (await ours.get("/v1/sessions", params={"limit": 2})).json()
    assert ids(first["items"]) == ["m-1", "m-2"]
    rest = (await ours.get("/v1/sessions", params={"after": first["next"]})).json()
    assert (ids(rest["items"]), rest["next"]) == (["m-3"], None)


async def test_a_session_of_a_tenant_gets_its_prefix(web: Site):
    ours = await web.client("run", prefix="acme-")
    assert (await ours.post("/v1/sessions")).json()["id"].startswith("acme-ses_")


# -- browsers -----------------------------------------------------------------------------------------


async def signed_in(web: Site) -> httpx.AsyncClient:
    browser = await web.client()
    link = await web.tokens.link(["admin"])
    answer = await browser.get("/enter", params={"code": link})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    said = answer.headers["set-cookie"]
    assert "HttpOnly" in said
    assert "SameSite=Strict" in said
    again = await browser.get("/enter", params={"code": link})
    assert code(again) == (401, "UNAUTHENTICATED")
    return browser


async def test_a_browser_comes_in_by_a_link_once(web: Site):
    browser = await signed_in(web)
    assert (await browser.get("/v1/sessions")).status_code == 200
    parked = await run_from(browser, BASE, "pay('bob')")
    path = f"/v1/approvals/{parked['approval_id']}/decision"
    answer = await browser.post(path, json={"decision": "denied"}, headers={"Origin": BASE})
    decision = answer.json()["decision"]
    assert decision["actor"].startswith("browser:tok_")
    assert decision["via"].startswith("console:tok_")


async def run_from(browser: httpx.AsyncClient, origin: str, text: str) -> Any:
    headers = {"Origin": origin}
    answer = await browser.post("/v1/sessions/s/run", json={"code": text}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_other_sites_cant_use_a_signed_in_browser(web: Site):
    browser = await signed_in(web)
    evil: list[dict[str, str]] = [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Origin": "https://127.0.0.1:7433"},
        {"Origin": "http://[", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://127.0.0.1:7433.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]
    for headers in evil:
        answer = await browser.post("/v1/sessions", headers=headers)
        assert code(answer) == (403, "FORBIDDEN"), headers
    good = await browser.post("/v1/sessions", headers={"Sec-Fetch-Site": "same-origin"})
    assert good.status_code == 200


async def test_a_page_that_a_proxy_shows_over_tls_is_ours(hf: Runtime):
    """It need not say so: we know the name, and nobody else has it."""
    async with site(hf, names=["holdfast.example"]) as web:
        browser = await signed_in(web)
        for origin, fine in {
            "https://holdfast.example": True,
            "http://holdfast.example": True,
            "https://other.example": False,
            "ftp://holdfast.example": False,
        }.items():
            headers = {"Host": "holdfast.example", "Origin": origin}
            answer = await browser.post("/v1/sessions", headers=headers)
            assert (answer.status_code == 200) is fine, origin


async def test_looking_at_a_link_does_not_use_it_up(web: Site):
    browser = await web.client()
    path = f"/enter?code={await web.tokens.link()}"
    looked = await browser.head(path)
    assert (looked.status_code, looked.headers.get("set-cookie")) == (200, None)
    assert "set-cookie" in (await browser.get(path)).headers


async def test_what_is_in_a_cookie_is_good_for_nothing_else(web: Site):
    browser = await signed_in(web)
    cookie = next(iter(browser.cookies.values()))
    program = await web.client()
    answer = await program.get("/v1/sessions", headers={"Authorization": f"Bearer {cookie}"})
    assert code(answer) == (401, "UNAUTHENTICATED")
    made = await web.tokens.create(["admin"])
    program.cookies.set("holdfast", made.text)
    assert code(await program.get("/v1/sessions")) == (401, "UNAUTHENTICATED")


async def test_a_name_that_is_not_ours_is_refused(web: Site):
    client = await web.client("admin")
    for host in ("evil.example", "evil.example:7433", "localhost.evil.example", "", "127.0.0.1.x"):
        answer = await client.get("/v1/sessions", headers={"Host": host})
        assert code(answer) == (403, "FORBIDDEN"), host
    for host in ("localhost", "localhost:7433", "127.0.0.1", "[::1]:7433", "192.168.0.7"):
        answer = await client.get("/v1/sessions", headers={"Host": host})
        assert answer.status_code == 200, host


async def test_names_of_the_server_are_its_own(hf: Runtime):
    async with site(hf, names=["hf.example.com"]) as web:
        client = await web.client("admin")
        answer = await client.get("/v1/sessions", headers={"Host": "HF.example.com:443"})
        assert answer.status_code == 200


async def test_answers_carry_what_keeps_browsers_safe(web: Site):
    client = await web.client("read")
    for answer in (await client.get("/v1/sessions"), await client.get("/v1/nope")):
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    told = await client.options("/v1/sessions", headers=asked)
    assert "access-control-allow-origin" not in told.headers
    assert told.status_code == 405


async def test_with_tls_the_cookie_is_for_tls_alone(hf: Runtime):
    async with site(hf, tls=True) as web:
        browser = await web.client()
        answer = await browser.get("/enter", params={"code": await web.tokens.link()})
        said = answer.headers["set-cookie"]
        assert said.startswith("__Host-holdfast=")
        assert said.endswith("; Secure")
        assert answer.headers["strict-transport-security"]


# -- limits -------------------------------------------------------------------------------------------


async def test_too_many_requests_of_a_token_are_refused(hf: Runtime):
    async with site(hf, limits=Limits(token=Rate(0.1, 3), address=None)) as web:
        client, other = await web.client("read"), await web.client("read")
        codes = [(await client.get("/v1/sessions")).status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        answer = await client.get("/v1/sessions")
        assert 1 <= int(answer.headers["retry-after"]) <= 10
        assert (await other.get("/v1/sessions")).status_code == 200


async def test_too_many_requests_from_an_address_are_refused(hf: Runtime):
    async with site(hf, limits=Limits(address=Rate(0.1, 3))) as web:
        client = await web.client("read")
        codes = [(await client.get("/v1/sessions")).status_code for _ in range(4)]
        assert codes == [200, 200, 200, 429]
        elsewhere = await web.client("read", address="10.0.0.7")
        assert (await elsewhere.get("/v1/sessions")).status_code == 200


async def test_who_guesses_tokens_is_slowed_down_and_nobody_else(hf: Runtime):
    async with site(hf, limits=Limits(failures=Rate(0.1, 3))) as web:
        client, good = await web.client(), await web.client("read")
        guess = {"Authorization": "Bearer hf_1_2"}
        codes = [(await client.get("/v1/runs", headers=guess)).status_code for _ in range(5)]
        assert codes == [401, 401, 401, 429, 429]
        assert (await good.get("/v1/runs")).status_code == 200


async def test_max_body_is_enforced(hf: Runtime):
    async with site(hf, limits=Limits(max_body=1000, max_snapshot=3000)) as web:
        client = await web.client("run")
        big = {"code": "#" * 2000}

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b" " * 100

        answer = await client.post("/v1/sessions/s/run", json=big)
        assert code(answer) == (413, "REQUEST_TOO_LARGE")
        answer = await client.post("/v1/sessions/s/run", content=parts())
        assert code(answer) == (413, "REQUEST_TOO_LARGE")
        answer = await client.post("/v1/sessions/s/restore", json={"snapshot": "x" * 2000})
        assert answer.status_code == 400
        answer = await client.post("/v1/sessions/s/restore", json={"snapshot": "x" * 4000})
        assert answer.status_code == 413


async def test_of_strangers_next_to_nothing_is_read(hf: Runtime):
    read: list[int] = []

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            read.append(4096)
            yield b" " * 4096

    async with site(hf) as web:
        stranger = await web.client()
        for path in ("/static/restore", "/enter", "/healthz"):
            answer = await stranger.post(path, content=parts())
            assert code(answer) == (413, "REQUEST_TOO_LARGE"), path
        assert sum(read) <= 3 * 2 * 4096
        assert (await stranger.post("/healthz", content=b"{}")).status_code == 405
    async with site(hf, limits=Limits(max_body=1000, max_snapshot=3000)) as web:
        reader, runner = await web.client("read"), await web.client("run")
        for one, path in ((runner, "/v1/x/restore"), (reader, "/v1/sessions/s/restore")):
            answer = await one.post(path, json={"snapshot": "x" * 2000})
            assert answer.status_code == 413, path


async def test_body_seconds_is_enforced(hf: Runtime):
    async with site(hf, limits=Limits(body_seconds=0.05)) as web:
        client = await web.client("run")

        async def slow() -> AsyncIterator[bytes]:
            yield b"{"
            await anyio.sleep_forever()

        answer = await client.post("/v1/sessions/s/run", content=slow())
        assert code(answer) == (408, "REQUEST_TIMEOUT")


async def test_unlimited_is_without_limits(hf: Runtime):
    async with site(hf, limits=UNLIMITED) as web:
        client = await web.client("read")
        codes = {(await client.get("/v1/nope")).status_code for _ in range(900)}
        assert codes == {404}


async def test_with_a_certificate_it_speaks_tls(hf: Runtime, tmp_path: Path):
    certificate, key = make_certificate(tmp_path)
    listen = Listen(port=0, tls_cert=certificate, tls_key=key)
    async with listening(hf, listen=listen) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=certificate)
        async with httpx.AsyncClient(base_url=server.url, verify=trusted) as client:
            answer = await client.get("/openapi.json")
            assert answer.status_code == 200
            assert "strict-transport-security" in answer.headers
            entered = await client.get("/enter", params={"code": await server.tokens.link()})
            assert "Secure" in entered.headers["set-cookie"]
            assert (await client.get("/v1/sessions")).status_code == 200


def make_certificate(folder: Path) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast test")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(paths[0]), str(paths[1])


# -- where it listens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.3.2.1"])
def test_this_machine_needs_no_tls(host: str):
    listen = Listen(host)
    listen.check()
    assert not listen.tls
    assert listen.all_names() == ()  # what everybody calls this machine goes without saying


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com", ""])
def test_other_machines_are_let_in_only_with_tls_or_a_word(host: str):
    with pytest.raises(CallerError) as why:
        Listen(host).check()
    assert "--tls-cert" in str(why.value.hint)
    Listen(host, insecure=True).check()
    Listen(host, tls_cert="c", tls_key="k").check()
    with pytest.raises(CallerError):
        Listen(host, tls_cert="c").check()
