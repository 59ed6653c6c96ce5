"""A real authorization server, made with authlib, and an API that it guards, on loopback in a thread of its own.

Tests look into it: which tokens it gave, how often it was asked, and what came to the API. They can make it slow,
make it fail, and take back what it gave.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
import uvicorn
from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    ClientMixin,
    JsonRequest,
    OAuth2Error,
    OAuth2Request,
    TokenMixin,
    grants,
)
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import (
    DeviceCodeGrant,
    DeviceCredentialDict,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

# The stubs of the library are somebody else's, and wrong in places.
_ServerBase: Any = AuthorizationServer
_RefreshBase: Any = grants.RefreshTokenGrant
_AssertionBase: Any = JWTBearerClientAssertion

METHODS = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
GRANTS = ["authorization_code", "refresh_token", "client_credentials", DEVICE]


@dataclass
class OAuthClient(ClientMixin):
    client_id: str
    secret: str | None = None
    method: str = "none"
    redirects: list[str] = field(default_factory=list)
    public_key: Any = None

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return self.redirects[0]

    def get_allowed_scope(self, scope: Any) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.redirects or not self.redirects

    def check_client_secret(self, client_secret: str) -> bool:
        return self.secret == client_secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == self.method

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return True


@dataclass
class Token(TokenMixin):
    client_id: str
    access: str
    refresh: str | None
    scope: str
    until: float
    refreshed: bool = False
    revoked: bool = False

    def check_client(self, client: Any) -> bool:
        return client.client_id == self.client_id

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Code:
    code: str
    client_id: str
    redirect_uri: str
    scope: str
    code_challenge: str | None
    code_challenge_method: str | None
    nonce: str | None = None

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


class _Request(OAuth2Request):
    def __init__(self, method: str, uri: str, headers: Any, args: dict, form: dict) -> None:
        super().__init__(method, uri.replace("http://", "https://", 1), headers=headers)
        self._args, self._form = args, form
        self.payload = BasicOAuth2Payload({**args, **form})

    @property
    def args(self) -> dict:
        return self._args

    @property
    def form(self) -> dict:
        return self._form


class _Server(_ServerBase):
    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard
        self.register_token_generator(
            "default",
            BearerTokenGenerator(
                lambda **_: f"access-{secrets.token_hex(12)}",
                lambda **_: f"refresh-{secrets.token_hex(12)}",
                lambda *_: guard.lifetime,
            ),
        )
        for grant, more in _grants(guard):
            self.register_grant(grant, more)
        self.register_client_auth_method("private_key_jwt", _assertion(guard))
        self.register_endpoint(_registration(guard)(self))

    def query_client(self, client_id: str) -> OAuthClient | None:
        return self.guard.clients.get(client_id)

    def save_token(self, token: dict, request: Any) -> None:
        kept = Token(
            request.client.client_id,
            token["access_token"],
            token.get("refresh_token"),
            token.get("scope", ""),
            time.time() + token["expires_in"],
        )
        self.guard.tokens.append(kept)

    def create_oauth2_request(self, request: Any) -> OAuth2Request:
        return request

    def create_json_request(self, request: Any) -> Any:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        if isinstance(body, dict):
            return JSONResponse(body, status, headers=dict(headers))
        return Response(body, status, headers=dict(headers))

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass


def _grants(guard: Guard) -> list[tuple[type, list]]:  # noqa: C901 - four small classes
    class CodeGrant(grants.AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = METHODS

        def save_authorization_code(self, code: str, request: Any) -> None:
            asked = request.payload
            guard.codes[code] = Code(
                code,
                request.client.client_id,
                asked.redirect_uri,
                asked.scope or "",
                asked.data.get("code_challenge"),
                asked.data.get("code_challenge_method"),
            )

        def query_authorization_code(self, code: str, client: Any) -> Code | None:
            found = guard.codes.get(code)
            return found if found and found.client_id == client.client_id else None

        def delete_authorization_code(self, authorization_code: Code) -> None:
            del guard.codes[authorization_code.code]

        def authenticate_user(self, authorization_code: Code) -> str:
            return "ann"

    class RefreshGrant(_RefreshBase):
        TOKEN_ENDPOINT_AUTH_METHODS = METHODS
        INCLUDE_NEW_REFRESH_TOKEN = True

        def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
            for one in guard.tokens:
                if one.refresh == refresh_token and not one.revoked and not one.refreshed:
                    return one
            return None

        def authenticate_user(self, refresh_token: Token) -> str:
            return "ann"

        def revoke_old_credential(self, refresh_token: Token) -> None:
            refresh_token.refreshed = True

    class ClientGrant(grants.ClientCredentialsGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    class Device(DeviceCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = METHODS

        def query_device_credential(self, device_code: str) -> Any:
            return guard.devices.get(device_code)

        def query_user_grant(self, user_code: str) -> Any:
            return guard.approved.get(user_code)

        def should_slow_down(self, credential: Any) -> bool:
            return False

    return [
        (CodeGrant, [CodeChallenge(required=True)]),
        (RefreshGrant, []),
        (ClientGrant, []),
        (Device, []),
    ]


def _assertion(guard: Guard) -> Any:
    class Assertion(_AssertionBase):
        CLIENT_AUTH_METHOD = "private_key_jwt"

        def get_audiences(self) -> list[str]:
            return [guard.url]

        def validate_jti(self, claims: Any, jti: str) -> bool:
            return True

        def resolve_client_public_key(self, client: Any) -> str:
            return client.public_key

    return Assertion()


def _registration(guard: Guard) -> type:
    class Registration(ClientRegistrationEndpoint):
        def authenticate_token(self, request: Any) -> str:
            return "anybody"

        def get_server_metadata(self) -> dict:
            return {"token_endpoint_auth_methods_supported": guard.methods}

        def save_client(self, client_info: Any, client_metadata: Any, request: Any) -> OAuthClient:
            method = client_metadata.get("token_endpoint_auth_method", "client_secret_basic")
            client = OAuthClient(
                client_info["client_id"],
                client_info["client_secret"],
                method,
                list(client_metadata["redirect_uris"]),
            )
            guard.clients[client.client_id] = client
            guard.registered.append(dict(client_metadata))
            return client

    return Registration


class Guard:
    """The authorization server and the API that it guards; what tests see of them."""

    def __init__(self) -> None:
        self.url = ""
        self.lifetime = 3600
        self.clients: dict[str, OAuthClient] = {}
        self.codes: dict[str, Code] = {}
        self.tokens: list[Token] = []
        self.devices: dict[str, Any] = {}
        self.approved: dict[str, Any] = {}
        self.registered: list[dict] = []
        self.methods = METHODS[:3]
        self.asked: list[dict[str, str]] = []
        """Every form that came to the token endpoint."""
        self.failing: list[int] = []
        """Statuses of the next answers of the token endpoint."""
        self.delay = 0.0
        """Seconds that the token endpoint takes."""
        self.held: threading.Event | None = None
        """The token endpoint answers once this is set."""
        self.calls: list[tuple[int, str]] = []
        """Status and token of every call of the API."""
        self.metadata: dict[str, Any] = {}
        """Instead of what the server says about itself."""
        self.resource: dict[str, Any] = {}
        self.scopes: tuple[str, ...] = ()
        """What a call of the API needs."""
        self.iss: str | None = None
        self._server: _Server | None = None

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def count(self, grant: str = "refresh_token") -> int:
        return sum(one.get("grant_type") == grant for one in self.asked)

    def revoke(self) -> None:
        """Nothing that was given is good any more."""
        for one in self.tokens:
            one.revoked = True

    # -- the endpoints --------------------------------------------------------------------------------

    def app(self) -> Starlette:
        self._server = _Server(self)
        well_known = "/.well-known"
        return Starlette(
            routes=[
                Route(f"{well_known}/oauth-protected-resource/api", self._about_resource),
                Route(f"{well_known}/oauth-authorization-server", self._about),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/device", self._device, methods=["POST"]),
                Route("/api", self._api, methods=["GET", "POST"]),
            ]
        )

    async def _about_resource(self, request: Request) -> Response:
        told = {"resource": f"{self.url}/api", "authorization_servers": [self.url]}
        return JSONResponse({**told, **self.resource})

    async def _about(self, request: Request) -> Response:
        told = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "device_authorization_endpoint": f"{self.url}/device",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": self.methods,
            "grant_types_supported": GRANTS,
        }
        return JSONResponse({**told, **self.metadata})

    async def _request(self, request: Request) -> _Request:
        form = dict(parse_qsl((await request.body()).decode()))
        args = dict(request.query_params)
        headers = {name.title(): value for name, value in request.headers.items()}
        return _Request(request.method, str(request.url), headers, args, form)

    async def _register(self, request: Request) -> Response:
        asked: Any = JsonRequest(request.method, str(request.url), dict(request.headers))
        asked.payload = _Json(await request.json())
        assert self._server is not None
        return self._server.create_endpoint_response("client_registration", asked)

    async def _authorize(self, request: Request) -> Response:
        """The person says yes at once."""
        assert self._server is not None
        asked = await self._request(request)
        try:
            grant = self._server.get_consent_grant(asked, "ann")
            answer = self._server.create_authorization_response(asked, "ann", grant)
        except OAuth2Error as why:
            return JSONResponse({"error": why.error}, 400)
        where = answer.headers["location"]
        more = f"&{urlencode({'iss': self.iss})}" if self.iss else ""
        return RedirectResponse(where + more, 302)

    async def _token(self, request: Request) -> Response:
        assert self._server is not None
        asked = await self._request(request)
        self.asked.append(asked.form)
        if self.delay:
            await anyio.sleep(self.delay)
        while self.held is not None and not self.held.is_set():  # noqa: ASYNC110 - of a thread
            await anyio.sleep(0.005)
        if self.failing:
            return JSONResponse({}, self.failing.pop(0))
        return self._server.create_token_response(asked)

    async def _device(self, request: Request) -> Response:
        asked = await self._request(request)
        told = {
            "device_code": f"device-{secrets.token_hex(8)}",
            "user_code": "ABCD-EFGH",
            "verification_uri": f"{self.url}/activate",
            "expires_in": 60,
            "interval": 1,
        }
        found = {**told, "client_id": asked.form["client_id"], "expires_at": time.time() + 60}
        self.devices[told["device_code"]] = DeviceCredentialDict(
            {**found, "scope": asked.form.get("scope", "")}
        )
        return JSONResponse(told)

    async def _api(self, request: Request) -> Response:
        value = request.headers.get("authorization", "").removeprefix("Bearer ")
        found = next((one for one in self.tokens if one.access == value), None)
        about = f'resource_metadata="{self.url}/.well-known/oauth-protected-resource/api"'
        if found is None or found.revoked or found.until <= time.time():
            self.calls.append((401, value))
            scope = f', scope="{" ".join(self.scopes)}"' if self.scopes else ""
            return Response(status_code=401, headers={"WWW-Authenticate": f"Bearer {about}{scope}"})
        if not set(self.scopes) <= set(found.scope.split()):
            self.calls.append((403, value))
            more = f'error="insufficient_scope", scope="{" ".join(self.scopes)}"'
            return Response(
                status_code=403, headers={"WWW-Authenticate": f"Bearer {about}, {more}"}
            )
        self.calls.append((200, value))
        return JSONResponse({"ok": True, "scope": found.scope})


class _Json:
    def __init__(self, data: dict) -> None:
        self.data = data


@contextmanager
def running(guard: Guard) -> Iterator[Guard]:
    """Serve it while this is open."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    guard.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(guard.app(), log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield guard
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
