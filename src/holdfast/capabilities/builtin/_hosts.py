"""Which URLs and which addresses code may reach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote, urlsplit

from holdfast.errors import CallerError, ModelError

MAX_URL_CHARS = 8192
PORTS = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address

# The IANA special-purpose registries, and the address of Azure's host agent, which is public only in name.
# Our own list, since what Python calls global has changed between its releases.
_NOT_PUBLIC_4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12"
        " 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24"
        " 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
    ).split()
)
# Everything public is in here; IPv4-mapped, NAT64, unique local, link-local and multicast are not.
_PUBLIC_6 = IPv6Network("2000::/3")
# Teredo and other protocol assignments, documentation, 6to4: an IPv4 address may be inside.
_NOT_PUBLIC_6 = tuple(
    IPv6Network(block) for block in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)

_ENTRY = re.compile(r"(?:(https?)://)?(\*\.)?(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
# What a URL's path and query may have as it is; the rest is percent-encoded.
_AS_IS = "/%:@!$&'()*+,;=~-._?"


def is_public(address: Address) -> bool:
    """Whether an address belongs to the Internet, and to nobody's inside."""
    if isinstance(address, IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC_4)
    if address.scope_id is not None or address not in _PUBLIC_6:
        return False
    return not any(address in block for block in _NOT_PUBLIC_6)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that was checked, in the parts that are used."""

    scheme: str
    host: str
    port: int
    path: str
    """Path and query, as they are sent."""

    @property
    def authority(self) -> str:
        """Host and port, as the `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of the list."""

    host: str
    """A name in lower case, or an address in its canonical spelling."""
    below: bool
    """Whether it stands for the names below `host`, and not for `host`."""
    ports: dict[str, int]
    """The port for each scheme allowed."""

    def allows(self, target: Target) -> bool:
        if self.ports.get(target.scheme) != target.port:
            return False
        return target.host.endswith(f".{self.host}") if self.below else target.host == self.host

    def __str__(self) -> str:
        host = f"*.{self.host}" if self.below else self.host
        return " or ".join(str(Target(*way, "")) for way in self._ways(host))

    def _ways(self, host: str) -> list[tuple[str, str, int]]:
        return [(scheme, host, port) for scheme, port in self.ports.items()]


class Hosts:
    """The hosts a session may reach."""

    def __init__(self, entries: Sequence[str]) -> None:
        """Understand the list; raises `INVALID_ARGUMENT` for an entry that means nothing."""
        self._entries = [_entry(text) for text in entries]

    def check(self, url: str) -> Target:
        """The parts of a URL that code may fetch; raises `PERMISSION_DENIED` for any other."""
        target = _target(url)
        if any(entry.allows(target) for entry in self._entries):
            return target
        raise ModelError(
            "PERMISSION_DENIED",
            f"`{target.scheme}://{target.authority}` is not on the list of hosts.",
            hint=f"Allowed: {', '.join(map(str, self._entries)) or 'nothing'}.",
        )

    def usable(self, host: str, addresses: Sequence[str]) -> list[str]:
        """Those addresses of a listed host that may be connected to; raises `PERMISSION_DENIED` if none may.

        A name leads to public addresses only, `localhost` to loopback only. Whoever lists an address means it.
        """
        if address_of(host) is not None:
            return [host]
        found: list[str] = []
        for text in addresses:
            address = address_of(text)
            if address and (address.is_loopback if host == "localhost" else is_public(address)):
                found.append(text)
        if not found:
            raise ModelError(
                "PERMISSION_DENIED",
                f"`{host}` does not lead to a public address.",
                hint="Private addresses are reached only if the list has the address itself.",
            )
        return found


def address_of(text: str) -> Address | None:
    """The address that a text is; None for a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _target(url: str) -> Target:
    if len(url) > MAX_URL_CHARS:
        raise ValueError(f"A URL has at most {MAX_URL_CHARS} characters.")
    if "\\" in url or not url.isprintable() or " " in url:
        raise ValueError("A URL has no spaces, backslashes or control characters: encode them.")
    try:
        parts = urlsplit(url)
        port = parts.port
        scheme, host = parts.scheme, parts.hostname or ""
    except ValueError:
        raise ValueError(f"Not a URL: {url[:200]}") from None
    if scheme not in PORTS or not host:
        raise ValueError(f"Not an absolute http or https URL: {url[:200]}")
    if "@" in parts.netloc:
        raise ModelError("PERMISSION_DENIED", "A URL must not have a user name or password in it.")
    if address := address_of(host):
        host = str(address)
    path = quote(parts.path or "/", safe=_AS_IS) + (
        f"?{quote(parts.query, safe=_AS_IS)}" if parts.query else ""
    )
    return Target(scheme, host, PORTS[scheme] if port is None else port, path)


def _entry(text: str) -> _Entry:
    found = _ENTRY.fullmatch(text.lower())
    if found is None:
        raise _meaningless(text)
    scheme, below, host, port = found.groups()
    address = address_of(host.strip("[]"))
    if address is not None:
        host = str(address)
    elif not _is_name(host):
        raise _meaningless(text)
    if below and (address is not None or "." not in host):
        raise _meaningless(text)
    if port is not None and not 0 < int(port) < 65536:
        raise _meaningless(text)
    local = host == "localhost" or (address is not None and address.is_loopback)
    # What leaves the machine is encrypted, unless the list says otherwise.
    schemes = [scheme] if scheme else ["https", "http"] if local else ["https"]
    return _Entry(host, bool(below), {one: int(port or PORTS[one]) for one in schemes})


def _is_name(host: str) -> bool:
    """Whether that is a name, and not some other way to write an address (`127.1`, `0x7f000001`)."""
    labels = host.split(".")
    return (
        len(host) <= 253
        and all(_LABEL.fullmatch(label) for label in labels)
        and not _NUMBER.fullmatch(labels[-1])
    )


def _meaningless(text: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"`{text[:80]}` is not a host that can be allowed.",
        hint="Write `api.example.com`, `*.example.com`, `host:8443`, `http://host` or an address.",
    )
