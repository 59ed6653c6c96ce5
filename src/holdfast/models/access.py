"""Where a model is and with which key: read from its id, from what the caller gives, and from the environment.

A key in the environment is the provider's. It goes to the provider, or to the address that the environment names for
it, and to no other: a base URL that is written into a model's id can't draw it out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.errors import ModelFailure
from holdfast.models._providers import NO_KEY, PROVIDERS, Provider
from holdfast.models.price import Listing

_AT = re.compile(r"@(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # of any kind: what is no address is told so
_FORMS = "`provider:name`, or `provider:name@https://host/v1` for another address"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one model."""

    id: str
    """As it was asked for."""
    provider: Provider
    """Who has it."""
    name: str
    """What the provider calls it."""
    base_url: str | None = None
    """Another address than the provider's own."""
    api_key: str | None = None
    """The key itself."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    pictures: bool | None = None
    """Whether it sees pictures; `None`: as the provider's own models do, and no others."""

    @property
    def sees(self) -> bool:
        """Whether to send it pictures: a server that takes none would refuse the whole question."""
        if self.pictures is not None:
            return self.pictures
        return self.provider.pictures and self.url is None

    @property
    def url(self) -> str | None:
        """The address that is asked; `None`: the provider's own."""
        if self.base_url is not None:
            return self.base_url
        return os.environ.get(self.provider.url_variable) or self.provider.default_url

    def key(self) -> str:
        """The key to send; raises `MODEL_AUTH` where one is needed and there is none."""
        found = next(iter(self.secrets().values()), None)
        if found is not None:
            return found
        if self.api_key_env is None and (self.url is not None or not self.provider.needs_key):
            return NO_KEY
        variables = [self.api_key_env] if self.api_key_env else self.provider.key_variables
        named = " or ".join(f"`{one}`" for one in variables)
        raise ModelFailure(
            "MODEL_AUTH",
            f"`{self.id}` needs an API key, and there is none.",
            hint=f"Set {named} in the environment.",
        )

    def secrets(self) -> Mapping[str, str]:
        """What must never be shown or recorded: the key, by the name of where it comes from."""
        if self.api_key is not None:
            return {"api_key": self.api_key}
        if self.api_key_env is not None:
            variables: tuple[str, ...] = (self.api_key_env,)
        else:
            # Another address is not the provider: it does not get the provider's key.
            variables = self.provider.key_variables if self.base_url is None else ()
        for name in variables:
            value = os.environ.get(name)
            if value:
                return {name: value}
        return {}

    @property
    def listing(self) -> Listing:
        """Where its price is found."""
        own = self.url is None
        return Listing((self.name,), self.provider.listed_as if own else None, self.url)


def access(
    id: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    api_key_env: str | None = None,
    pictures: bool | None = None,
) -> Access:
    """How to reach the model with this id; raises `MODEL_UNKNOWN` for an id that names none."""
    where, _, rest = id.partition(":")
    provider = PROVIDERS.get(where)
    if provider is None or not rest:
        raise _unknown(id, where if rest else None)
    name, *addresses = _AT.split(rest, maxsplit=1)
    if addresses:
        address, _, variable = addresses[0].partition("#")
        base_url, api_key_env = base_url or address, api_key_env or variable or None
    if not name:
        raise _unknown(id, where)
    if base_url is not None:
        _check(id, base_url)
    return Access(id, provider, name, base_url, api_key, api_key_env, pictures)


def _check(id: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelFailure(
            "MODEL_UNKNOWN", f"`{url[:200]}` is no base URL of a model.", hint=f"Write {_FORMS}."
        )
    if parts.username or parts.password:
        raise ModelFailure(
            "MODEL_UNKNOWN",
            f"The base URL of `{id.partition('@')[0]}` has a password in it.",
            hint="An id is recorded: name the variable that holds the key, as in `…/v1#MY_KEY`.",
        )


def _unknown(id: str, provider: str | None) -> ModelFailure:
    known = ", ".join(f"`{name}:`" for name in (*PROVIDERS, "scripted"))
    said = f"`{id[:200]}` names no model"
    if provider is not None and provider not in PROVIDERS:
        said = f"There is no provider `{provider[:100]}`"
    return ModelFailure("MODEL_UNKNOWN", f"{said}.", hint=f"Write {_FORMS}; providers: {known}.")
