"""Where the server listens, and how safe that is: its options, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from holdfast.cli._setup import with_options

if TYPE_CHECKING:
    from holdfast.server.serving import Listen

R = TypeVar("R")


class ListenFlags(NamedTuple):
    """The options as they were given."""

    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 7433
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="A name of this server; repeatable."),
    ] = None
    public_url: Annotated[
        str | None,
        typer.Option("--public-url", metavar="URL", help="Where people find it, behind a proxy."),
    ] = None
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Its certificate, in PEM.")
    ] = None
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")
    ] = None
    insecure: Annotated[
        bool,
        typer.Option("--insecure-allow-remote", help="Let other machines in without TLS."),
    ] = False
    behind_proxy: Annotated[
        bool,
        typer.Option("--behind-proxy", help="A proxy on this machine says who asks."),
    ] = False

    def listen(self) -> Listen:
        """Where that is; not checked yet."""
        from holdfast.server.serving import Listen

        return Listen(
            self.host,
            self.port,
            self.tls_cert,
            self.tls_key,
            insecure=self.insecure,
            behind_proxy=self.behind_proxy,
            names=tuple(self.names or ()),
            public_url=self.public_url,
        )


def with_listen(command: Callable[..., R]) -> Callable[..., R]:
    """The command with an option for each field of `ListenFlags`; it gets them as `where`."""
    return with_options(command, "where", ListenFlags)
