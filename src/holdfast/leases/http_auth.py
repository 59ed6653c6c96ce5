"""Requests that bring their credential, and what is done when the other side refuses it.

For servers of MCP, whose library sends requests with `httpx2`. It is asked for a credential before each request; a
401 means: renew it, else find out who guards the server and sign in; a 403 that asks for more scopes means: sign in
for those, too. Where a person is needed and none is at hand, the question is raised (`NeedsAnswer`), with a link.

The library's own class is not used, on purpose: it lets one request pass at a time, keeps a lifetime where a point in
time is needed, and knows nothing of other processes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Literal, NamedTuple

import anyio
import httpx2

from holdfast.errors import OperatorError
from holdfast.gate.executor import NeedsAnswer, Question
from holdfast.leases._web import check_address
from holdfast.leases.broker import Broker
from holdfast.leases.credential import Credential, host_of
from holdfast.leases.discovery import Challenge, union
from holdfast.leases.flow import Ask
from holdfast.leases.logins import Assert

STEPS = 3
"""So often one request is sent again with another credential."""

GrantKind = Literal["authorization_code", "client_credentials"]


class Came(NamedTuple):
    """What a browser came back with."""

    code: str
    state: str | None
    iss: str | None = None


Authorize = Callable[[str], Awaitable["Came | tuple[str, str | None]"]]
"""Takes a person, or what stands for one, to a link, and gives what came back."""


class LeaseAuth(httpx2.Auth):
    """The credential of one server's lease, on every request to that server and on no other."""

    requires_response_body = False

    def __init__(
        self,
        broker: Broker,
        key: str,
        ask: Ask,
        *,
        grant: GrantKind = "authorization_code",
        authorize: Authorize | None = None,
        assertion: Assert | None = None,
    ) -> None:
        """`ask.url` is the server. Without `authorize` nobody is at hand: a needed sign-in is raised.

        With `client_credentials` no person is needed; `assertion` then says on whose behalf, if it is given.
        """
        self._broker = broker
        self._key = key
        self._ask = ask
        self._grant: GrantKind = grant
        self._authorize = authorize
        self._assertion = assertion
        self._host = host_of(check_address(ask.url or ""))
        self._lock = anyio.Lock()
        self.question: Question | None = None
        """What a person was last asked; `None` once a request passed. A library that swallows what is raised
        inside a request leaves its caller without it: look here when a call fails."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request, and again with another credential where that helps."""
        if host_of(str(request.url)) != self._host:
            yield request
            return
        sent = await self._before(request)
        response = yield request
        for _ in range(STEPS):
            challenge = Challenge.of(response.headers)
            step_up = response.status_code == 403 and challenge.error == "insufficient_scope"
            if response.status_code != 401 and not step_up:
                self.question = None
                return
            new = await self._after(challenge, sent, step_up=step_up)
            if new is None:
                return
            request.headers.update(new.headers)
            sent = new
            response = yield request

    async def _before(self, request: httpx2.Request) -> Credential | None:
        """Add the credential, if there is one that may be good."""
        try:
            found = await self._broker.use(self._key, host=self._host)
        except NeedsAnswer:
            # The server is asked anyway: it may not need one, and else it says what to sign in for.
            return None
        request.headers.update(found.headers)
        return found

    async def _after(
        self, challenge: Challenge, sent: Credential | None, *, step_up: bool
    ) -> Credential | None:
        """Another credential than the one that was refused; `None` when there is none to be had."""
        # Many requests may be refused at once: the first gets a new one, the others find it there.
        async with self._lock:
            now = await self._broker.current(self._key)
            if now is not None and (sent is None or now.generation != sent.generation):
                try:
                    return await self._broker.use(self._key, host=self._host)
                except NeedsAnswer:
                    pass
            if not step_up and sent is not None:
                if await self._broker.renew(self._key, sent.generation):
                    return await self._broker.use(self._key, host=self._host)
                await self._broker.require_reauth(self._key, sent.generation)
            return await self._signed_in(challenge, sent, step_up=step_up)

    async def _signed_in(
        self, challenge: Challenge, sent: Credential | None, *, step_up: bool
    ) -> Credential | None:
        ask = self._ask
        if step_up and sent is not None:
            wanted = union(union(ask.scopes, sent.scopes), challenge.scopes or ())
            if set(wanted) <= set(sent.scopes):
                return None  # it has all that was asked for, and that is not enough
            ask = ask.model_copy(update={"scopes": wanted})
        logins = self._broker.logins
        if self._grant == "client_credentials":
            await logins.client_credentials(
                self._key, ask, challenge=challenge, assertion=self._assertion
            )
            return await self._broker.use(self._key, host=self._host)
        if self._authorize is None:
            flow = await logins.pending(self._key)
            if flow is None or not set(challenge.scopes or ()) <= set(flow.scopes or ()):
                await logins.begin(self._key, ask, challenge=challenge)
            asked = await self._broker.sign_in(self._key)
            self.question = asked.question
            raise asked
        flow = await logins.begin(self._key, ask, challenge=challenge)
        answer = await self._authorize(flow.url)
        came = answer if isinstance(answer, Came) else Came(answer[0] or "", answer[1])
        if came.state != flow.state:
            raise OperatorError(
                "AUTH_FAILED",
                f"The sign-in for `{self._key}` was answered with the `state` of another.",
                hint="Begin again; if it happens again, somebody is trying to get at it.",
            )
        await logins.finish_with(flow, came.code, iss=came.iss)
        return await self._broker.use(self._key, host=self._host)


class Authorizer:
    """Credentials as headers, for requests of any library."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def header(self, key: str, host: str) -> dict[str, str]:
        """What to add to one request to `host`; raises `NeedsAnswer` when a person must sign in."""
        return (await self._broker.use(key, host=host)).headers

    async def rejected(self, key: str, host: str, sent: Mapping[str, str]) -> dict[str, str] | None:
        """The other side answered 401 to the header `sent`: what to send instead; `None`: a person must sign in."""
        now = await self._broker.current(key)
        if now is None:
            return None
        if now.headers != dict(sent) or await self._broker.renew(key, now.generation):
            return await self.header(key, host)
        await self._broker.require_reauth(key, now.generation)
        return None
