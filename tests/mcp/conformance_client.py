"""What the official conformance suite runs as the client: holdfast's, with somebody who says yes to everything.

The address of the suite's server is the last argument, the scenario is in the environment, and so is what the scenario
wants the client to know beforehand.
"""

import json
import os
import sys
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx

from holdfast.capabilities.mcp import McpSource, Services
from holdfast.contracts.surface import HttpSurface
from holdfast.gate.executor import Answer, Context, Question
from holdfast.gate.redact import Redactor
from holdfast.journal import MemoryJournal
from holdfast.leases import Ask, Broker, Client, MemoryVault
from holdfast.leases.http_auth import Came, GrantKind, LeaseAuth

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
KNOWN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
DOCUMENT = "https://conformance-test.local/client-metadata.json"
ARGUMENTS: dict[str, dict[str, Any]] = {"add_numbers": {"a": 2, "b": 3}}


async def accept(question: Question) -> Answer:
    """Leave everything as the form has it."""
    return Answer("accept", {})


async def browser(url: str) -> Came:
    """Be the person: follow the link, and say what the browser is sent back with."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(url)
    back = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    return Came(back["code"], back.get("state", ""), back.get("iss"))


async def assertion(issuer: str, resource: str) -> str:
    """Cross-app access: the identity of the person, exchanged for what the server's guard believes."""
    form = {
        "audience": issuer,
        "resource": resource,
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "subject_token": KNOWN["idp_id_token"],
        "client_id": KNOWN["idp_client_id"],
    }
    async with httpx.AsyncClient() as client:
        answer = await client.post(KNOWN["idp_token_endpoint"], data=form)
    return answer.json()["access_token"]


def client_of() -> Client | None:
    """A client that was registered beforehand, where the scenario has one."""
    if "client_id" not in KNOWN:
        return None
    return Client(
        client_id=KNOWN["client_id"],
        client_secret=KNOWN.get("client_secret"),
        private_key=KNOWN.get("private_key_pem"),
        algorithm=KNOWN.get("signing_algorithm", "ES256"),
    )


def auth_of(url: str) -> LeaseAuth:
    """Signs in as the server asks, in memory."""
    broker = Broker(MemoryVault(), MemoryJournal(), redact=Redactor())
    alone = SCENARIO.startswith(("auth/client-credentials", "auth/cross-app-access"))
    grant: GrantKind = "client_credentials" if alone else "authorization_code"
    document = DOCUMENT if SCENARIO == "auth/basic-cimd" else None
    ask = Ask(url=url, client=client_of(), document=document)
    crossing = SCENARIO.startswith("auth/cross-app-access")
    return LeaseAuth(
        broker,
        "conformance",
        ask,
        grant=grant,
        authorize=None if alone else browser,
        assertion=assertion if crossing else None,
    )


async def main(url: str) -> None:
    """Connect, and call each tool that the scenario is about."""
    services = Services(auth=auth_of(url) if SCENARIO.startswith("auth/") else None)
    async with McpSource("conformance", HttpSurface(url=url), services).open() as server:
        if SCENARIO == "initialize":
            return
        for offer in server.offers.tools:
            context = Context("e1", 1, "s1", "r1", ask=accept)
            print(await server.call(offer.tool, ARGUMENTS.get(offer.tool, {}), context))


anyio.run(main, sys.argv[-1])
