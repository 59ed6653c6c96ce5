"""The OpenAPI document: complete, true to the routes, and kept to by every answer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import holdfast
from holdfast.errors import CODES, HoldfastError
from holdfast.server.app import PARTS, make_app
from holdfast.server.errors import status_of
from holdfast.server.openapi import document
from holdfast.server.rest import ENDPOINTS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "5"))
"""Requests for each operation; whoever hunts for failures asks for more."""


PROGRAM = """
import anyio, json, sys
import holdfast
from holdfast import Agent, capability
from holdfast.server.limits import UNLIMITED
from holdfast.server.serving import Listen, serve
from holdfast.testing import ScriptedModel, say

@capability(side_effect="write")
def pay(to: str) -> str:
    "Pay somebody."
    return f"paid {to}"

async def main():
    async with holdfast.open("memory:", config={"shell": {"jail": "off"}}, capabilities=[pay]) as hf:
        async def ready(started):
            token = await started.tokens.create(["admin"])
            tenant = await started.tokens.create(["read", "run", "approve"], prefix="a")
            print(json.dumps([started.url, token.text, tenant.text]), flush=True)

        agents = {"helper": Agent(ScriptedModel([say("Done.")] * 1000))}
        await serve(hf, Listen(port=0), ready=ready, agents=agents, limits=UNLIMITED)

anyio.run(main)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[str, str, str]]:
    """The address of a server in a process of its own, a token for all of it, and a tenant's."""
    # Not a thread: Python 3.11 can't parse code in two at once, and schemathesis does.
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        url, token, tenant = json.loads(program.stdout.readline())
        yield url, token, tenant
        program.terminate()
        assert program.wait(30) == 0


@pytest.mark.parametrize("who", ["admin", "tenant"])
def test_every_answer_is_as_the_document_says(site: tuple[str, str, str], who: str):
    """What schemathesis makes of the document, against a real server: no 5xx, and every answer fits."""
    url, token = site[0], site[1 if who == "admin" else 2]
    api = schemathesis.openapi.from_url(f"{url}/openapi.json")
    checked: list[str] = []
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        for found in api.include(path_regex="^/(?!v1/events)").get_all_operations():
            operation: Any = found.ok()  # pyright: ignore[reportAttributeAccessIssue] - an `Err` raises
            checked.append(operation.label)
            _hold_to_it(operation, url, client)
    assert len(checked) == len(ENDPOINTS) + 3  # /rpc, /healthz and /metrics; events never end


def _hold_to_it(operation: Any, url: str, client: httpx.Client) -> None:
    headers = dict(client.headers)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(base_url=url, headers=headers, checks=CHECKS)

    check()


# -- the document itself ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def doc() -> dict[str, Any]:
    return json.loads(json.dumps(document(ENDPOINTS, parts=PARTS)))


async def test_every_route_is_documented_and_every_documented_route_is_there(doc: dict[str, Any]):
    routes: set[tuple[str, str]] = set()
    async with (
        holdfast.open("memory:", config={}) as hf,
        anyio.create_task_group() as background,
    ):
        app = make_app(hf, background=background, console=False)
        for route in app.routes:
            for method in getattr(route, "methods", None) or ():
                if method != "HEAD":
                    routes.add((method, getattr(route, "path", "")))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            doc = (await client.get("/openapi.json")).json()
        background.cancel_scope.cancel()
    told = {(method.upper(), path) for path, one in doc["paths"].items() for method in one}
    assert told == routes - {("GET", "/openapi.json"), ("GET", "/enter")}


def test_every_operation_says_what_it_does_and_what_may_go_wrong(doc: dict[str, Any]):
    names: list[str] = []
    for path, operations in doc["paths"].items():
        for method, one in operations.items():
            names.append(one["operationId"])
            assert one["summary"], path
            assert {"401", "403", "429", "500"} <= set(one["responses"]), path
            for status, answer in one["responses"].items():
                assert answer["description"]
                if int(status) >= 400:
                    content = answer["content"]["application/json"]
                    assert content["schema"] == {"$ref": "#/components/schemas/ErrorObject"}
                    assert content["example"]["code"] in CODES
            if method == "post" and path.startswith("/v1"):
                headers = [p["name"] for p in one["parameters"] if p["in"] == "header"]
                assert "Idempotency-Key" in headers, path
    assert len(set(names)) == len(names)


def test_every_example_fits_its_schema(doc: dict[str, Any]):
    count = 0
    for operations in doc["paths"].values():
        for one in operations.values():
            for part in (one.get("requestBody", {}), *one["responses"].values()):
                for content in part.get("content", {}).values():
                    if "example" in content:
                        count += 1
                        whole = {**content["schema"], "components": doc["components"]}
                        jsonschema_rs.validator_for(whole).validate(content["example"])
    assert count > 100


def test_every_operation_has_an_example_of_its_answer(doc: dict[str, Any]):
    for path, operations in doc["paths"].items():
        for method, one in operations.items():
            for status, answer in one["responses"].items():
                if status != "204":
                    for content in answer["content"].values():
                        assert "example" in content, (method, path, status)
            for content in one.get("requestBody", {}).get("content", {}).values():
                empty = jsonschema_rs.is_valid(
                    {**content["schema"], "components": doc["components"]}, {}
                )
                assert empty or "example" in content, (method, path)


def test_what_is_told_apart_is_named(doc: dict[str, Any]):
    status = parameter(doc, "/v1/runs", "status")
    assert {"active", "ended", "running", "needs_attention"} <= set(status["schema"]["enum"])
    assert parameter(doc, "/v1/events", "Last-Event-ID")["in"] == "header"
    for path, method in (("/v1/runs", "get"), ("/v1/journal", "get"), ("/v1/sessions", "post")):
        assert "404" in doc["paths"][path][method]["responses"], path
    body = doc["paths"]["/rpc"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    check = jsonschema_rs.validator_for({**body, "components": doc["components"]})
    request = {"jsonrpc": "2.0", "id": 1, "method": "session.list"}
    for good in (request, [request, request]):
        assert check.is_valid(good)
    for bad in ({"id": 1}, [], {**request, "params": 5}, {**request, "id": True}):
        assert not check.is_valid(bad), bad


def parameter(doc: dict[str, Any], path: str, name: str) -> dict[str, Any]:
    [found] = [one for one in doc["paths"][path]["get"]["parameters"] if one["name"] == name]
    return found


def test_every_reference_leads_somewhere(doc: dict[str, Any]):
    text = json.dumps(doc)
    for part in text.split('"$ref": "')[1:]:
        name = part.partition('"')[0]
        assert name.startswith("#/components/schemas/")
        assert name.rpartition("/")[2] in doc["components"]["schemas"]


def test_every_field_has_a_description(doc: dict[str, Any]):
    for name, one in doc["components"]["schemas"].items():
        for field, said in one.get("properties", {}).items():
            assert said.get("description") or "$ref" in said, (name, field)


def test_every_code_has_a_status_that_operations_document():
    known = {200, 400, 401, 403, 404, 405, 408, 409, 410, 413, 429, 500, 503}
    for name in CODES:
        assert status_of(HoldfastError(name, "x")) in known, name
