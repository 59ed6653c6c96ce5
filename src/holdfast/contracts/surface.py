"""Tool surfaces: a server, a module or a document of tools that sessions see, and what happens to one."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, Field

from holdfast.contracts._base import Asked, Count, Told, listed, optional, unless
from holdfast.contracts.capability import SideEffect
from holdfast.contracts.content import Digest
from holdfast.errors import CallerError

SURFACES = "holdfast:surfaces"
"""The stream of what is wanted of surfaces, and of what became of it."""

SurfaceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""Starts the name of each of its tools, so it is one word of an identifier."""

_SECRET_HEADERS = ("authorization", "cookie", "token", "secret", "api-key", "apikey", "password")


def _no_secret_is_recorded(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        spelled = name.lower().replace("_", "-")  # as headers, and as variables
        if any(word in spelled for word in _SECRET_HEADERS) and "$" not in value:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"`{name}` holds a secret, and would be recorded.",
                hint="Put the value into the environment, and `$NAME` in its place.",
            )
    return headers


Named = Annotated[dict[str, str], AfterValidator(_no_secret_is_recorded)]
"""Values by name; `$NAME` in one is taken from the environment when it is used, and never recorded."""


class Surface(Asked):
    """What every kind of surface can be told."""

    prefix: str | None = optional()
    """Starts the name of each of its tools; default: the surface's name and `_`."""
    include: tuple[str, ...] = listed()
    """Its tools that sessions see, by the names that it gives them, with `*`; none: all."""
    exclude: tuple[str, ...] = listed()
    """Its tools that sessions do not see."""
    side_effects: dict[str, SideEffect] = unless({})
    """What its tools may touch, by the names that it gives them, with `*`, whatever it says itself."""
    timeout_ms: int = Field(default=60_000, ge=1)
    """How long one call may take."""
    connect_timeout_ms: int = Field(default=10_000, ge=1)
    """How long it may take to come up."""


class McpSurface(Surface):
    """What every MCP server can be told."""

    sampling: bool = unless(False)
    """Whether it may have a model asked, through the gate and on the budget of the run that called it."""
    roots: bool = unless(True)
    """Whether it is told which folders of the host the session has mounted."""
    trust_annotations: bool = unless(True)
    """Whether what it says about its own tools decides what they may touch; if not, each is an external system."""


class StdioSurface(McpSurface):
    """An MCP server that is started here."""

    kind: Literal["stdio"] = "stdio"
    """Which."""
    command: str = Field(min_length=1)
    """The program."""
    args: tuple[str, ...] = listed()
    """Its arguments."""
    env: Named = unless({})
    """Its environment, besides the little that every program needs. Nothing else of ours is handed on."""
    cwd: str | None = optional()
    """Where it starts."""
    jail: bool = unless(False)
    """Whether it runs in the jail: it sees no files but the program's and `mounts`, and no network."""
    mounts: tuple[str, ...] = listed()
    """Folders of the host that it sees in its jail; `:rw` after one lets it write there."""


class HttpSurface(McpSurface):
    """An MCP server at an address (streamable HTTP)."""

    kind: Literal["http"] = "http"
    """Which."""
    url: str = Field(pattern=r"^https?://")
    """Where."""
    headers: Named = unless({})
    """Sent with every request."""
    auth: str | None = optional()
    """The lease whose credential it gets; `oauth`: one of its own, by signing in as the server asks."""


class ModuleSurface(Surface):
    """Capabilities of a Python module, or of an installed package's entry points."""

    kind: Literal["module"] = "module"
    """Which."""
    reference: str = Field(min_length=1)
    """`module:attribute`, `module`, or `entry_points:NAME` of the group `holdfast.capabilities`."""


class OpenApiSurface(Surface):
    """Each operation of an OpenAPI document is a tool."""

    kind: Literal["openapi"] = "openapi"
    """Which."""
    document: str = Field(min_length=1)
    """The document: a file or an address; JSON or YAML."""
    base_url: str | None = optional()
    """Where the operations are; default: the document's first server."""
    headers: Named = unless({})
    """Sent with every request."""
    auth: str | None = optional()
    """The lease whose credential its requests get."""


SurfaceSpec: TypeAlias = Annotated[
    StdioSurface | HttpSurface | ModuleSurface | OpenApiSurface, Field(discriminator="kind")
]
"""A surface, by its kind."""


class SurfaceStaged(Told):
    """Somebody wants a surface added, removed or connected anew; done at the next boundary of whoever runs sessions."""

    name: SurfaceName
    """Which."""
    op: Literal["add", "remove", "reload"]
    """What."""
    spec: SurfaceSpec | None = optional()
    """What is to be added."""


class SurfaceChanged(Told):
    """What became of it in one process."""

    name: SurfaceName
    """Which."""
    op: Literal["add", "remove", "reload"]
    """What was wanted, or what holdfast did itself: a lost connection is connected anew."""
    phase: Literal["pending", "applied", "draining", "failed", "forced", "lost"]
    """How far it got."""
    generation: Count = 0
    """Counts its connections."""
    tools: Digest | None = optional()
    """The set of its tools, once it is applied."""
    names: tuple[str, ...] = listed()
    """The tools, as code calls them."""
    refused: dict[str, str] = unless({})
    """Tools that can't be offered, by the names that it gives them, and why."""
    cause: str | None = optional()
    """Why not, as a token: `pending_failed`, `surface_draining`, `surface_unavailable`."""
    detail: str | None = optional()
    """Why not, in words."""
    owner: str | None = optional()
    """Which process."""


class SurfaceView(Told):
    """A surface as people see it."""

    name: str
    """Which."""
    kind: str
    """`stdio`, `http`, `module`, `openapi`."""
    status: Literal["connecting", "connected", "failed", "disconnected"]
    """Where it stands in this process."""
    generation: Count = 0
    """Counts its connections."""
    tools: tuple[str, ...] = ()
    """What it offers, as code calls it."""
    refused: dict[str, str] = Field(default_factory=dict)
    """Tools that can't be offered, and why."""
    staged: str | None = None
    """What is wanted of it at the next boundary."""
    inflight: Count = 0
    """Calls that are under way."""
    detail: str | None = None
    """Why it failed."""
    server: str | None = None
    """What it calls itself, and its version."""
    protocol: str | None = None
    """The version of the protocol that it speaks."""


SURFACE_PAYLOADS: dict[str, type[BaseModel]] = {
    "surface_staged": SurfaceStaged,
    "surface_changed": SurfaceChanged,
}
"""Kind → payload model."""
