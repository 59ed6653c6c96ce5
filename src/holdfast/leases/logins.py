"""Signing in: begun by whoever needs a credential, finished by whoever has the person, in any process.

A sign-in that was begun is kept in the vault until it is finished or its time is over: its PKCE verifier and `state`
are secrets, and the process that began it (headless, in the middle of a run) is seldom the one the browser comes back
to. There is one for each key; finishing it takes it away, so its code is used once.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import anyio

from holdfast.contracts.approval import Asks
from holdfast.errors import NotFound, OperatorError, PersonError
from holdfast.gate.executor import Question
from holdfast.leases._secrets import Shown
from holdfast.leases._web import Web, where
from holdfast.leases.credential import Client, Given, OAuthRenewal, host_of
from holdfast.leases.discovery import (
    Challenge,
    Found,
    client_for,
    discover,
    discover_issuer,
    refused,
    resource_of,
    scopes_to_ask,
    with_method,
)
from holdfast.leases.flow import Ask, Flow, check_issuer, with_link
from holdfast.leases.loopback import HOST, PATH, free_port
from holdfast.leases.oauth import TokenEndpoint, TokenRefused, Tokens
from holdfast.leases.vault import Value, Vault

if TYPE_CHECKING:
    from holdfast.contracts.lease import LeaseView
    from holdfast.leases.broker import Broker

FLOW = "login:"
CLIENT = "client:"
"""What the names of these in the vault begin with."""

Assert = Callable[[str, str], Awaitable[str]]
"""From the authorization server's issuer and the resource to a JWT that says for whom (RFC 7523, section 4)."""

TTL_MS = 86_400_000
"""How long a sign-in can be finished: as long as a question waits in the inbox."""


def asked_for(key: str) -> str:
    """How the question to a person begins."""
    return f"Sign in for `{key}`"


class Logins:
    """Sign-ins. `hf.leases.logins` of an open runtime."""

    def __init__(
        self, broker: Broker, vault: Vault, web: Web, *, now: Callable[[], int], shown: Shown
    ) -> None:
        self._broker = broker
        self._vault = vault
        self._web = web
        self._now = now
        self._shown = shown

    # -- beginning ------------------------------------------------------------------------------------

    async def begin(self, key: str, ask: Ask, *, challenge: Challenge | None = None) -> Flow:
        """Find out who guards the server, and make a link for a person. It takes the place of an earlier one."""
        found = await self._discover(ask, challenge)
        scopes = scopes_to_ask(found, challenge, ask.scopes)
        resource = found.resource or (resource_of(ask.url) if ask.url else None)
        hosts = ask.hosts or ((host_of(ask.url),) if ask.url else ())
        given = ask.client or await self._client_of(key)
        redirect_uri = ask.redirect_uri or (given.redirect_uri if given else None)
        redirect_uri = redirect_uri or f"http://{HOST}:{await free_port()}{PATH}"
        client = await self._client(found, ask, given, redirect_uri, scopes)
        self._shown.add(key, client.secrets)
        await self._vault.put(f"{CLIENT}{key}", client.model_dump(mode="json"))
        common = Flow(
            key=key,
            url="",
            state=secrets.token_urlsafe(32),
            server=found.server,
            client=client,
            resource=resource,
            scopes=scopes,
            target=ask.url,
            hosts=hosts,
            expires_at=self._now() + TTL_MS,
        )
        flow = await self._device(common) if ask.device else with_link(common, redirect_uri)
        self._shown.add(key, flow.secrets)
        await self._vault.put(f"{FLOW}{key}", flow.model_dump(mode="json"))
        return flow

    async def pending(self, key: str) -> Flow | None:
        """The sign-in that can be finished."""
        stored = await self._vault.get(f"{FLOW}{key}")
        flow = None if stored is None else Flow.model_validate(stored)
        if flow is None or flow.expires_at <= self._now():
            return None
        self._shown.add(key, flow.secrets)
        return flow

    async def question(self, key: str) -> Question:
        """What to ask a person: the same, with the same link, for everybody who needs it."""
        async with self._vault.lock(f"{FLOW}{key}"):
            flow = await self.pending(key)
            if flow is None:
                flow = await self._begin_again(key)
        hint = f"run `holdfast auth login {key}`"
        message = f"{asked_for(key)}: {hint}."
        if flow is not None:
            typed = f", code {flow.user_code}" if flow.user_code else ""
            message = f"{asked_for(key)} at {where(flow.url)}{typed}: {hint}."
        return Question(
            asks=Asks.SIGN_IN,
            message=message,
            url=flow.url if flow else None,
            key=f"sign_in:{key}",
            state={"lease": key},
        )

    async def _begin_again(self, key: str) -> Flow | None:
        again = await self._broker.target(key)
        if again is None:
            return None
        try:
            return await self.begin(key, again)
        except OperatorError:
            return None  # a question without a link is better than none: `holdfast auth login` asks again

    async def _discover(self, ask: Ask, challenge: Challenge | None) -> Found:
        if ask.url is not None:
            return await discover(self._web, ask.url, challenge, issuer=ask.issuer)
        if ask.issuer is not None:
            return await discover_issuer(self._web, ask.issuer)
        raise refused("There is no address to sign in at.", "Give `--url` or `--issuer`.")

    async def _client(
        self,
        found: Found,
        ask: Ask,
        given: Client | None,
        redirect_uri: str,
        scopes: Sequence[str] | None,
    ) -> Client:
        moved = given is not None and given.registered and given.redirect_uri != redirect_uri
        return await client_for(
            self._web,
            found,
            given=None if moved else given,
            document=ask.document,
            redirect_uri=redirect_uri,
            scopes=scopes,
        )

    async def _client_of(self, key: str) -> Client | None:
        stored = await self._vault.get(f"{CLIENT}{key}")
        return None if stored is None else Client.model_validate(stored)

    async def _device(self, flow: Flow) -> Flow:
        endpoint = TokenEndpoint(self._web, flow.server, flow.client, now=self._now)
        device = await endpoint.begin_device(flow.scopes, flow.resource)
        return flow.model_copy(
            update={
                "kind": "device",
                "url": device.url,
                "user_code": device.user_code,
                "device_code": device.device_code,
                "interval_ms": device.interval_ms,
                "expires_at": device.expires_at,
            }
        )

    # -- finishing ------------------------------------------------------------------------------------

    async def finish(self, address: str, *, actor: str = "operator") -> LeaseView:
        """A browser came back to this address: its code becomes the credential."""
        said = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        state = said.get("state", "")
        for name in await self._vault.names(FLOW):
            flow = await self.pending(name.removeprefix(FLOW))
            if flow is not None and secrets.compare_digest(flow.state.encode(), state.encode()):
                break
        else:
            raise NotFound(
                "NOT_FOUND",
                "No sign-in waits for that.",
                hint="It was finished, took too long, or began elsewhere: `holdfast auth login KEY`.",
            )
        return await self.finish_with(
            flow, said.get("code"), iss=said.get("iss"), error=said.get("error"), actor=actor
        )

    async def finish_with(
        self,
        flow: Flow,
        code: str | None,
        *,
        iss: str | None = None,
        error: str | None = None,
        actor: str = "operator",
    ) -> LeaseView:
        """The same, for whoever took the browser's answer apart; its `state` was compared."""
        check_issuer(flow, iss)
        await self._take(flow)
        if not code:
            raise PersonError(
                "SIGN_IN_REQUIRED",
                f"The sign-in for `{flow.key}` was refused: {(error or 'no code came')[:80]}.",
                hint=f"Run `holdfast auth login {flow.key}` to try again.",
            )
        tokens = await TokenEndpoint(self._web, flow.server, flow.client, now=self._now).code(
            code, verifier=flow.verifier, redirect_uri=flow.redirect_uri, resource=flow.resource
        )
        return await self._acquired(flow, tokens, actor)

    async def poll(self, flow: Flow, *, actor: str = "operator") -> LeaseView | None:
        """Ask whether somebody signed in on the other device; `None`: not yet."""
        endpoint = TokenEndpoint(self._web, flow.server, flow.client, now=self._now)
        try:
            tokens = await endpoint.device(flow.device_code or "")
        except TokenRefused as why:
            if why.reason == "authorization_pending" or not why.permanent:
                return None
            await self.drop(flow.key)
            raise
        await self._take(flow)
        return await self._acquired(flow, tokens, actor)

    async def wait_for_device(self, flow: Flow, *, actor: str = "operator") -> LeaseView:
        """Ask until somebody did."""
        while True:
            if (found := await self.poll(flow, actor=actor)) is not None:
                return found
            if flow.expires_at <= self._now():
                await self.drop(flow.key)
                raise PersonError(
                    "SIGN_IN_REQUIRED",
                    f"Nobody signed in for `{flow.key}` in time.",
                    hint=f"Run `holdfast auth login {flow.key} --device` to try again.",
                )
            await anyio.sleep(flow.interval_ms / 1000)

    async def client_credentials(
        self,
        key: str,
        ask: Ask,
        *,
        challenge: Challenge | None = None,
        assertion: Assert | None = None,
        actor: str = "operator",
    ) -> LeaseView:
        """Sign in as the client itself, without a person; with `assertion`, on behalf of whom it names."""
        if ask.client is None:
            raise refused("There is no client to sign in as.", "Give its id and its secret or key.")
        found = await self._discover(ask, challenge)
        client = with_method(ask.client, found.server)
        scopes = scopes_to_ask(found, challenge, ask.scopes)
        resource = found.resource or (resource_of(ask.url) if ask.url else None)
        proved = None if assertion is None else await assertion(found.issuer, resource or "")
        renewal = OAuthRenewal(
            grant="jwt_bearer" if proved else "client_credentials",
            server=found.server,
            client=client,
            assertion=proved,
            resource=resource,
            scopes=tuple(one for one in scopes or () if one != "offline_access"),
        )
        self._shown.add(key, (*client.secrets, *([proved] if proved else ())))
        tokens = await TokenEndpoint(self._web, found.server, client, now=self._now).renew(renewal)
        given = Given(
            value=tokens.access,
            kind="client_credentials",
            expires_at=tokens.expires_at,
            hosts=ask.hosts or ((host_of(ask.url),) if ask.url else ()),
            scopes=renewal.scopes if tokens.scopes is None else tokens.scopes,
            renewal=renewal,
            url=ask.url,
        )
        return await self._broker.acquire(key, given, actor=actor)

    async def drop(self, key: str) -> None:
        """Forget the sign-in, if there is one."""
        await self._vault.remove(f"{FLOW}{key}")

    async def _take(self, flow: Flow) -> None:
        """Take it away; of two that finish it at once, one does."""
        taken: list[bool] = []

        def change(stored: Value | None) -> Value | None:
            taken.append(stored is not None and stored.get("state") == flow.state)
            return None if taken[-1] else stored

        await self._vault.change(f"{FLOW}{flow.key}", change)
        if not taken[-1]:
            raise NotFound(
                "NOT_FOUND",
                f"The sign-in for `{flow.key}` was finished, or begun anew, by somebody else.",
                hint="`holdfast auth status` shows whether it worked.",
            )

    async def _acquired(self, flow: Flow, tokens: Tokens, actor: str) -> LeaseView:
        asked = flow.scopes or ()
        renewal = None
        if tokens.refresh is not None:
            renewal = OAuthRenewal(
                grant="refresh_token",
                server=flow.server,
                client=flow.client,
                refresh_token=tokens.refresh,
                resource=flow.resource,
                scopes=asked,
            )
        given = Given(
            value=tokens.access,
            kind="oauth",
            expires_at=tokens.expires_at,
            hosts=flow.hosts,
            scopes=asked if tokens.scopes is None else tokens.scopes,
            renewal=renewal,
            url=flow.target,
        )
        return await self._broker.acquire(flow.key, given, actor=actor)
